// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/klutch-go/sdk/internal/queue"
)

// SetOptions tune a Set. The zero value is ready to use.
type SetOptions struct {
	// Workers is the number of objects worked on at once by all Syncs between the same
	// two Clusters. They take turns: Options.Workers is the most that one has. 0 means 64.
	Workers int

	// Changed, if not nil, is called with the name of a Sync whose State may
	// have changed. It must not block.
	Changed func(name string)
}

// A Set runs Syncs by name. Syncs are added and removed while it runs. A Sync that ends
// does not disturb the others, nor does a Cluster that does not answer disturb Syncs of
// other Clusters. Create it with NewSet.
type Set struct {
	changed func(name string)
	workers int

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // that of Run, for members that come later
	members map[string]*member
}

// A member is a Sync of a Set.
type member struct {
	name string
	sync *Sync
	pool *queue.Pool
	stop context.CancelFunc // nil until the Set runs
	done chan struct{}      // closed when it has ended

	mu     sync.Mutex
	failed error
}

// NewSet returns an empty Set.
func NewSet(opts SetOptions) *Set {
	if opts.Changed == nil {
		opts.Changed = func(string) {}
	}
	if opts.Workers <= 0 {
		opts.Workers = 64
	}
	return &Set{changed: opts.Changed, workers: opts.Workers, members: map[string]*member{}}
}

// Run runs the Syncs of the set until ctx is done and all have ended. It can be
// called once.
func (s *Set) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.ctx != nil {
		s.mu.Unlock()
		return errors.New("sync: second Run of a Set")
	}
	s.ctx = ctx
	for _, m := range s.members {
		s.begin(m, nil) //nolint:contextcheck // it takes the one just stored
	}
	s.mu.Unlock()
	<-ctx.Done()
	for _, m := range s.all() {
		m.end()
	}
	return nil
}

func (s *Set) all() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.members))
}

func (s *Set) member(name string) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[name]
}

// Put adds a Sync under name. A Sync that has the name is ended first, and the
// new one begins when it has ended. Put does not wait for that.
func (s *Set) Put(name string, sy *Sync) {
	if sy == nil {
		sy = &Sync{} // whose State says so
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.members[name]
	m := &member{name: name, sync: sy, pool: s.poolOf(sy), done: make(chan struct{})}
	s.members[name] = m
	sy.join(m.pool)
	sy.subscribe(func() { s.changed(name) })
	if s.ctx != nil {
		s.begin(m, before)
	}
}

// poolOf returns the workers of all Syncs between the clusters of sy: those that wait for
// a cluster without an answer are its own. It needs mu.
func (s *Set) poolOf(sy *Sync) *queue.Pool {
	for _, m := range s.members {
		if m.sync.between() == sy.between() {
			return m.pool
		}
	}
	return queue.NewPool(s.workers, timing{}.delay())
}

// Remove ends the Sync called name and returns when it has ended.
func (s *Set) Remove(name string) {
	s.mu.Lock()
	m := s.members[name]
	delete(s.members, name)
	s.mu.Unlock()
	if m != nil {
		m.end()
	}
}

// Release is that of the Sync called name, if the set has it.
func (s *Set) Release(name string) {
	if m := s.member(name); m != nil {
		m.sync.Release()
	}
}

// Retry is that of the Sync called name, if the set has it.
func (s *Set) Retry(name string) {
	if m := s.member(name); m != nil {
		m.sync.Retry()
	}
}

// State is the state of the Sync called name; false if the set has none.
func (s *Set) State(name string) (Status, bool) {
	m := s.member(name)
	if m == nil {
		return Status{}, false
	}
	st := m.sync.Status()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		st.Err = m.failed
	}
	return st, true
}

// begin runs m, after before has ended, in a goroutine that end waits for.
func (s *Set) begin(m, before *member) {
	var ctx context.Context
	ctx, m.stop = context.WithCancel(s.ctx)
	go func() {
		defer close(m.done)
		if before != nil {
			before.end()
		}
		m.keep(ctx, s.changed)
	}()
}

func (m *member) end() {
	if m.stop != nil {
		m.stop()
		<-m.done
	}
}

// keep runs the Sync again, ever more slowly, if it ends by itself.
func (m *member) keep(ctx context.Context, changed func(string)) {
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, time.Minute) {
		err := run(ctx, m.sync)
		if ctx.Err() != nil {
			return
		}
		m.fail(err)
		logr.FromContextOrDiscard(ctx).Error(err, "sync has ended, it begins again", "name", m.name, "pause", pause.String())
		changed(m.name)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			m.fail(nil)
		}
	}
}

func (m *member) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = err
}

// run turns a panic into an error, so that one Sync does not end the others.
func run(ctx context.Context, s *Sync) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return s.Run(ctx)
}
