// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/fence"
	"github.com/klutch-go/sdk/sync/internal/view"
)

// newFence is around the clusters as identify has found them.
func (e *engine) newFence() *fence.Fence {
	latest := func() string {
		_, version, _ := e.source.Get(cache.ObjectName{})
		return version
	}
	return fence.New(
		fence.Cluster{Name: "source", UID: e.sourceUID, Read: e.from.readUID},
		fence.Cluster{Name: "target", UID: e.targetUID, Read: e.to.readUID},
		fence.Vanishing(e.from.meta, e.resource), latest)
}

func (c *Cluster) readUID(ctx context.Context) (types.UID, error) {
	ns, err := c.namespace(ctx)
	if err != nil {
		return "", fmt.Errorf("identify cluster: %w", err)
	}
	return ns.GetUID(), nil
}

// confirm makes sure that the clusters are those that the engine knows, and notes
// if the source's resource is on its way out.
func (e *engine) confirm(ctx context.Context, since uint64, version string) error {
	vanishing, err := e.fence.Confirm(ctx, since, version)
	if vanishing {
		e.breaker.Trip("the resource itself is being deleted, and all of its objects with it", false)
	}
	if other := (*fence.ReplacedError)(nil); errors.As(err, &other) {
		e.breaker.Trip(fmt.Sprintf("the %s cluster is another one than before", other.Cluster), true)
		e.restart(fmt.Errorf("%w: %w", errRestart, other))
		return errAgain
	}
	return err
}

// errRestart ends an engine whose knowledge is void, for another one to begin.
var errRestart = errors.New("a cluster is not what it was")

// restart makes Run begin again.
func (e *engine) restart(why error) {
	if e.cancel != nil {
		e.cancel(why)
	}
}

// doubt makes deletions be seen live from now on, and holds those of targets that
// have lost their source: after a restore from a backup it is the source's absence
// that is wrong.
func (e *engine) doubt() { e.suspect.Store(true) }

const doubtCause = "a cluster may have been restored from a backup"

// recognized reports whether the clusters have been confirmed since p was last
// listed: behind an endpoint that was away another one may answer.
func (e *engine) recognized(ctx context.Context, p *view.Part) bool {
	if p == nil || !p.Known() {
		return true // nothing is read
	}
	lists := int64(p.Lists())
	if p.Confirmed.Load() == lists {
		return true
	}
	if err := e.confirm(ctx, e.fence.Now(), ""); err != nil && !fates.Is(err, fates.Forbidden, fates.Terminating) {
		return false
	}
	p.Confirmed.Store(lists)
	return true
}

// A store is what a fence tells apart: each watch of a view.
type store struct {
	view      *view.View
	namespace string
}

// read is get of v, unless v has gone back in time: then what is remembered is of
// another history. Run begins again, and from then on deletions have to be seen
// live.
func (e *engine) read(ctx context.Context, v *view.View, name cache.ObjectName) (obj metav1.Object, version string, ok bool) {
	if !e.recognized(ctx, v.Part(name.Namespace)) {
		return nil, "", false
	}
	behind := e.fence.Read(store{v, name.Namespace}, func() string {
		if obj, version, ok = v.Get(name); !ok {
			return ""
		}
		return version
	})
	if behind {
		logr.FromContextOrDiscard(ctx).Info("cluster has gone back in time, as after a restore from a backup", "view", v.Name)
		e.doubt()
		e.restart(fmt.Errorf("%w: %s went back in time", errRestart, v.Name))
		return nil, "", false
	}
	return obj, version, ok
}
