// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/breaker"
	"github.com/klutch-go/sdk/sync/internal/view"
)

// A Guard has one Run of a Sync read its views through a Fence, and does what has to be
// done when a cluster is not what it was: deletions are held, and Run begins again.
type Guard struct {
	Breaker *breaker.Breaker
	Suspect *atomic.Bool    // a cluster may have been restored from a backup
	Restart func(why error) // wraps ErrRestart
	Notify  func()          // called when Err begins or ends

	mu     sync.Mutex
	err    error     // why it is not known who the clusters are; nil if it is
	failed int       // how often in a row it could not be found out
	next   time.Time // before which that is not tried again

	// Of the clusters, once they are identified; empty if they may not be.
	SourceUID, TargetUID types.UID
	*Fence
}

// ErrRestart ends a Run whose knowledge is void, for another one to begin.
var ErrRestart = errors.New("a cluster is not what it was")

// DoubtCause is why deletions are held that Doubt makes wait.
const DoubtCause = "a cluster may have been restored from a backup"

// Confirm makes sure that the clusters are the known ones, and notes if the source's
// resource is on its way out: see Fence.Confirm.
func (g *Guard) Confirm(ctx context.Context, since uint64, version string) error {
	vanishing, err := g.Fence.Confirm(ctx, since, version)
	if vanishing {
		g.Breaker.Trip("the resource itself is being deleted, and all of its objects with it", false)
	}
	if other := (*ReplacedError)(nil); errors.As(err, &other) {
		g.Breaker.Trip(fmt.Sprintf("the %s cluster is another one than before", other.Cluster), true)
		g.Restart(fmt.Errorf("%w: %w", ErrRestart, other))
		return fates.ErrAgain
	}
	return err
}

// Doubt makes deletions be seen live from now on, and holds those of targets that
// have lost their source: after a restore from a backup it is the source's absence
// that is wrong.
func (g *Guard) Doubt() { g.Suspect.Store(true) }

// Err is why it is not known who the clusters are, so that nothing of them can be used; nil if it
// is known.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// longest is the longest pause between attempts, however many objects wait for one.
const longest = 20 * time.Second

// Note follows an attempt to find out who the clusters are.
func (g *Guard) Note(err error) {
	g.mu.Lock()
	before := g.err
	if g.err = err; err == nil {
		g.failed, g.next = 0, time.Time{}
	} else {
		g.failed++
		g.next = time.Now().Add(min(fates.Of(err).Pause(g.failed), longest))
	}
	g.mu.Unlock()
	if (before == nil) != (err == nil) {
		g.Notify()
	}
}

// Recovered ends the pause before the next attempt: a cluster that was away answers again.
func (g *Guard) Recovered() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next = time.Time{}
}

// pausing reports whether it is too early for another attempt.
func (g *Guard) pausing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.next)
}

// recognized reports whether the clusters have been confirmed since p was last
// listed: behind an endpoint that was away another one may answer.
func (g *Guard) recognized(ctx context.Context, p *view.Part) bool {
	if p == nil || !p.Known() {
		return true // nothing is read
	}
	lists := int64(p.Lists())
	if p.Confirmed.Load() == lists {
		return true
	}
	if g.pausing() {
		return false
	}
	if err := g.Confirm(ctx, g.Now(), ""); err != nil && !fates.Is(err, fates.Forbidden, fates.Terminating) {
		if ctx.Err() == nil && !errors.Is(err, fates.ErrAgain) {
			g.Note(err)
		}
		return false
	}
	g.Note(nil)
	p.Confirmed.Store(lists)
	return true
}

// A Store is what a Fence tells apart: each watch of a view.
type Store struct {
	View      *view.View
	Namespace string
}

// Get is v.Get, unless v has gone back in time: then what is remembered is of
// another history. Run begins again, and from then on deletions have to be seen
// live.
func (g *Guard) Get(ctx context.Context, v *view.View, name cache.ObjectName) (obj metav1.Object, version string, ok bool) {
	if !g.recognized(ctx, v.Part(name.Namespace)) {
		return nil, "", false
	}
	behind := g.Read(Store{v, name.Namespace}, func() string {
		if obj, version, ok = v.Get(name); !ok {
			return ""
		}
		return version
	})
	if behind {
		logr.FromContextOrDiscard(ctx).Info("cluster has gone back in time, as after a restore from a backup", "view", v.Name)
		g.Doubt()
		g.Restart(fmt.Errorf("%w: %s went back in time", ErrRestart, v.Name))
		return nil, "", false
	}
	return obj, version, ok
}
