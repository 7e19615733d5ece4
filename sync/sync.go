// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/inflight"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/sync/internal/breaker"
	"github.com/klutch-go/sdk/sync/internal/fence"
	"github.com/klutch-go/sdk/sync/internal/loss"
	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/view"
)

// A Sync keeps the objects of one resource in step. Create it with New.
type Sync struct {
	from, to *Cluster
	resource schema.GroupVersionResource
	opts     Options

	breaker *breaker.Breaker // of targets
	copies  *breaker.Breaker // of copies of related objects
	journal *breaker.Journal // of both
	suspect atomic.Bool      // a cluster may have been restored from a backup, until Release

	mu      sync.Mutex
	engine  *engine // while Run runs
	changed func()
	pool    *queue.Pool // of the Set that it is in; nil if none
}

// New returns a Sync of resource from source to target, which may be the same
// Cluster if the mapper gives other names. Arguments that cannot work are
// reported as *OptionError. New does no I/O.
func New(source, target *Cluster, resource schema.GroupVersionResource, opts Options) (*Sync, error) {
	switch {
	case source == nil || source.stores == nil:
		return nil, &OptionError{"source", "is nil, or was not made by NewCluster"}
	case target == nil || target.stores == nil:
		return nil, &OptionError{"target", "is nil, or was not made by NewCluster"}
	case resource.Resource == "":
		return nil, &OptionError{"resource", "has no name"}
	case resource.Version == "":
		return nil, &OptionError{"resource", "has no version"}
	case len(opts.Related) > 0 && (source.meta == nil || target.meta == nil):
		return nil, &OptionError{"Related", "needs clusters with a metadata client"}
	}
	opts = opts.withDefaults(resource)
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if source.stores == target.stores && renamesNothing(opts.Mapper) {
		return nil, &OptionError{"Mapper", "has to give other names where source and target are one cluster"}
	}
	s := &Sync{from: source, to: target, resource: resource, opts: opts, breaker: breaker.New(opts.DeletionLimit), copies: breaker.New(opts.DeletionLimit)}
	s.journal = breaker.NewJournal(opts.DeletionLog.Text, opts.DeletionLog.Save, s.breaker, s.copies)
	s.suspect.Store(s.breaker.Doubted())
	return s, nil
}

// Run keeps the objects in step until ctx is done, and then returns nil. What
// cannot be read or written, because rights, a CRD or a whole cluster are
// missing, is retried until it can: see Status.
func (s *Sync) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("binding", s.opts.Binding)
	ctx = inflight.By(logr.NewContext(ctx, log), s.between())
	for {
		err := s.once(ctx)
		if !errors.Is(err, fence.ErrRestart) {
			return err
		}
		log.Info("sync begins again", "reason", err.Error())
	}
}

// once runs until ctx is done, or a cluster turns out not to be what it was.
func (s *Sync) once(ctx context.Context) error {
	e, err := s.begin()
	if err != nil {
		return err
	}
	defer s.end()
	if err = e.run(ctx); errors.Is(err, fence.ErrRestart) {
		e.reports.takeBack(ctx, &e.objects.records)
	}
	return err
}

// Release lets the deletions pass that are held: see Options.DeletionLimit. It does
// not wait for them. Later deletions are counted anew. What was held before this Sync was made
// stands in the messages on the sources, so that it passes only once Status.Synced.
func (s *Sync) Release() {
	if s.breaker == nil {
		return
	}
	s.suspect.Store(false)
	keys := s.breaker.Release()
	s.copies.Release()
	e := s.running()
	if e == nil {
		return
	}
	for _, key := range heldBefore(e.source, e.names) {
		s.breaker.Allow(key)
		keys = append(keys, key)
	}
	for _, key := range keys {
		e.queue.Add(key, queue.User)
	}
	e.remappedRelated()
	s.notify()
}

// heldBefore are the sources whose message says that their deletion is held, or the return of
// their target: after a restart the breaker learns of each only when its turn comes.
func heldBefore(sources *view.View, n *names.Names) (held []cache.ObjectName) {
	for _, key := range sources.Keys() {
		o, _, known := sources.Get(key)
		if !known || o == nil {
			continue
		}
		said, deleting := o.GetAnnotations()[n.Message], o.GetDeletionTimestamp() != nil
		_, ofReturn := readLoss(said)
		if deleting && strings.HasPrefix(said, string(ReasonHeld)+": ") || !deleting && strings.HasPrefix(ofReturn, loss.Held) {
			held = append(held, key)
		}
	}
	return held
}

// Retry asks the source's cluster at once for all that it did not permit, and both for what could
// not be read, as when rights have come back, of which no watch tells. What else was refused keeps
// its pause.
func (s *Sync) Retry() {
	e := s.running()
	if e == nil {
		return
	}
	for _, v := range e.views() {
		v.Wake()
	}
	e.refused.Permitted()
}

func (s *Sync) begin() (*engine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		return nil, &OptionError{"sync", "is nil, or was not made by New"}
	}
	if s.engine != nil {
		return nil, errors.New("sync: Run of a Sync that is running")
	}
	s.engine = newEngine(s)
	return s.engine, nil
}

func (s *Sync) end() {
	s.mu.Lock()
	s.engine = nil
	s.mu.Unlock()
	s.notify()
}

// running is the engine of the Run that runs; nil if none does.
func (s *Sync) running() *engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine
}

// Status is the state of s now.
func (s *Sync) Status() Status {
	e := s.running()
	if e == nil {
		return Status{}
	}
	return e.status()
}

// between are the clusters of s, as the Syncs that share them know them.
func (s *Sync) between() (ends [2]*watchstore.Stores) {
	if s.from != nil { // else no New has made it
		ends = [2]*watchstore.Stores{s.from.stores, s.to.stores}
	}
	return ends
}

// join makes s work with the workers of a Set.
func (s *Sync) join(p *queue.Pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool = p
}

// subscribe calls changed whenever Status may have changed.
func (s *Sync) subscribe(changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = changed
}

func (s *Sync) notify() {
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	if changed != nil {
		changed()
	}
}
