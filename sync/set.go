// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// SetOptions tune a Set. The zero value is ready to use.
type SetOptions struct {
	// Changed, if not nil, is called with the name of a Sync whose State may
	// have changed. It must not block.
	Changed func(name string)
}

// A Set runs Syncs by name. They come and go while it runs, and one that ends
// does not disturb the others. Create it with NewSet.
type Set struct {
	opts SetOptions

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // that of Run, for members that come later
	members map[string]*member
}

// A member is a Sync of a Set. It ends when stop is closed.
type member struct {
	sync   *Sync
	after  *member // has the same name, and has to end first
	stop   chan struct{}
	done   chan struct{}
	begun  bool
	failed error
}

// NewSet returns an empty Set.
func NewSet(opts SetOptions) *Set {
	if opts.Changed == nil {
		opts.Changed = func(string) {}
	}
	return &Set{opts: opts, members: map[string]*member{}}
}

// Run runs the Syncs of the set until ctx is done and all have ended. It can be
// called once.
func (s *Set) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	for name, m := range s.members {
		s.begin(name, m)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	members := s.members
	s.members = map[string]*member{}
	s.mu.Unlock()
	for _, m := range members {
		<-m.done
	}
	return nil
}

// Put adds a Sync under name. If there is one of that name it is ended, and the
// new one begins when the old one has. Put does not wait for that.
func (s *Set) Put(name string, sy *Sync) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &member{sync: sy, after: s.members[name], stop: make(chan struct{}), done: make(chan struct{})}
	if m.after != nil {
		close(m.after.stop)
	}
	s.members[name] = m
	sy.subscribe(func() { s.opts.Changed(name) })
	if s.ctx != nil {
		s.begin(name, m)
	}
}

// Remove ends the Sync called name and returns when it has ended.
func (s *Set) Remove(name string) {
	s.mu.Lock()
	m := s.members[name]
	delete(s.members, name)
	if m != nil {
		close(m.stop)
	}
	s.mu.Unlock()
	if m != nil && m.begun {
		<-m.done
	}
}

// State is the state of the Sync called name; false if the set has none.
func (s *Set) State(name string) (Status, bool) {
	s.mu.Lock()
	m := s.members[name]
	var failed error
	if m != nil {
		failed = m.failed
	}
	s.mu.Unlock()
	if m == nil {
		return Status{}, false
	}
	st := m.sync.Status()
	if failed != nil {
		st.Err = failed
	}
	return st, true
}

// begin runs m in a goroutine, for which Run and Remove wait.
func (s *Set) begin(name string, m *member) {
	m.begun = true
	ctx, cancel := context.WithCancel(s.ctx)
	go func() {
		defer close(m.done)
		defer cancel()
		if m.after != nil && m.after.begun {
			<-m.after.done
		}
		go func() {
			select {
			case <-m.stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		s.keep(ctx, name, m)
	}()
}

// keep runs m again, ever more slowly, if it ends by itself.
func (s *Set) keep(ctx context.Context, name string, m *member) {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := run(ctx, m.sync)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		m.failed = err
		s.mu.Unlock()
		logr.FromContextOrDiscard(ctx).Error(err, "sync has ended, it begins again", "name", name, "pause", pause.String())
		s.opts.Changed(name)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
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
