// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
)

// A finding is what a live look at both clusters as such has shown.
type finding struct {
	source, target types.UID // of the clusters; empty if they may not be read
	vanishing      bool      // the source's resource is being deleted, and all its objects with it
	seen           string    // version of the sources that had been seen before
}

// A checkup looks at both clusters before anything is taken away for good. One
// look serves all who asked for it before it began.
type checkup struct {
	look func(context.Context) (finding, error)

	mu      sync.Mutex
	clock   uint64 // counts what may have to be before something else
	began   uint64 // the last look
	found   finding
	err     error
	running chan struct{} // closed when the look that runs has ended
}

// now is a point in time that a look can be later than.
func (c *checkup) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	return c.clock
}

// since returns the outcome of a look that began after when, or after the source
// was seen in a version; empty for none.
func (c *checkup) since(ctx context.Context, when uint64, version string) (finding, error) {
	for {
		c.mu.Lock()
		if c.began > when || c.err == nil && c.found.covers(version) {
			defer c.mu.Unlock()
			return c.found, c.err
		}
		running := c.running
		if running == nil {
			c.begin(ctx) // unlocks
			continue
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return finding{}, ctx.Err()
		case <-running:
			// Simulated histories take turns where this is logged.
			logr.FromContextOrDiscard(ctx).V(5).Info("a look at the clusters has ended")
		}
	}
}

func (f finding) covers(version string) bool {
	return version != "" && (f.seen == version || newer(f.seen, version))
}

func (c *checkup) begin(ctx context.Context) {
	running := make(chan struct{})
	c.running = running
	c.clock++
	began := c.clock
	c.mu.Unlock()
	found, err := c.look(ctx)
	c.mu.Lock()
	c.began, c.found, c.err, c.running = began, found, err, nil
	c.mu.Unlock()
	close(running)
}

// check looks at both clusters and at the source's resource, all at once.
func (e *engine) check(ctx context.Context) (finding, error) {
	var f finding
	_, f.seen, _ = e.source.get(cache.ObjectName{})
	var errs [3]error
	var wg sync.WaitGroup
	wg.Go(func() { f.source, errs[0] = e.from.known(ctx, e.sourceUID) })
	wg.Go(func() { f.target, errs[1] = e.to.known(ctx, e.targetUID) })
	wg.Go(func() { f.vanishing, errs[2] = e.from.vanishing(ctx, e.resource) })
	wg.Wait()
	return f, errors.Join(errs[:]...)
}

// known reads the cluster's UID, if it could be read before.
func (c *Cluster) known(ctx context.Context, before types.UID) (types.UID, error) {
	if before == "" {
		return "", nil
	}
	ns, err := c.namespace(ctx)
	if err != nil {
		return "", fmt.Errorf("identify cluster: %w", err)
	}
	return ns.GetUID(), nil
}

// vanishing reports whether the custom resource is being deleted. API servers
// mark it before its objects. What is no custom resource, or may not be read, is
// not known to be.
func (c *Cluster) vanishing(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	if resource.Group == "" || c.meta == nil {
		return false, nil
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	crd, err := c.metadata(ctx, crds, cache.NewObjectName("", resource.GroupResource().String()))
	switch {
	case isDenied(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read resource definition: %w", err)
	}
	return crd != nil && crd.GetDeletionTimestamp() != nil, nil
}

// confirm makes sure that the clusters are those that the engine knows, and notes
// if the source's resource is on its way out.
func (e *engine) confirm(ctx context.Context, since uint64, version string) error {
	found, err := e.checkup.since(ctx, since, version)
	if err != nil {
		return err
	}
	if found.vanishing {
		e.breaker.trip("the resource itself is being deleted, and all of its objects with it", false)
	}
	for _, c := range []struct {
		name     string
		was, uid types.UID
	}{
		{"source", e.sourceUID, found.source},
		{"target", e.targetUID, found.target},
	} {
		if c.uid != c.was {
			e.breaker.trip(fmt.Sprintf("the %s cluster is another one than before", c.name), true)
			e.restart(fmt.Errorf("%w: %s cluster was %s and is %s", errRestart, c.name, c.was, c.uid))
			return errAgain
		}
	}
	return nil
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

// A tide is the latest version of each watch that has been seen: the store of an
// API server that goes back has been restored from a backup.
type tide struct {
	mu   sync.Mutex
	high map[watched]string
}

type watched struct {
	view      *view
	namespace string
}

// recognized reports whether the clusters have been confirmed since p was last
// listed: behind an endpoint that was away another one may answer.
func (e *engine) recognized(ctx context.Context, p *part) bool {
	if p == nil || !p.Known() {
		return true // nothing is read
	}
	lists := p.Lists()
	e.tide.mu.Lock()
	seen := p.confirmed
	e.tide.mu.Unlock()
	if seen == lists {
		return true
	}
	if err := e.confirm(ctx, e.checkup.now(), ""); err != nil && !fates.Is(err, fates.Forbidden, fates.Terminating) {
		return false
	}
	e.tide.mu.Lock()
	p.confirmed = lists
	e.tide.mu.Unlock()
	return true
}

// read is get of v, unless v has gone back in time: then what is remembered is of
// another history. Run begins again, and from then on deletions have to be seen
// live.
func (e *engine) read(ctx context.Context, v *view, name cache.ObjectName) (obj metav1.Object, version string, ok bool) {
	if !e.recognized(ctx, v.part(name.Namespace)) {
		return nil, "", false
	}
	e.tide.mu.Lock()
	defer e.tide.mu.Unlock()
	obj, version, ok = v.get(name)
	if !ok || version == "" {
		return obj, version, ok
	}
	of := watched{v, name.Namespace}
	if high := e.tide.high[of]; high != "" && newer(high, version) {
		logr.FromContextOrDiscard(ctx).Info("cluster has gone back in time, as after a restore from a backup", "view", v.name)
		e.doubt()
		e.restart(fmt.Errorf("%w: %s went back in time", errRestart, v.name))
		return nil, "", false
	}
	e.tide.high[of] = version
	return obj, version, true
}
