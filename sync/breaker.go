// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/watchstore"
)

// A breaker holds deletions when there are suspiciously many of them, or when a
// whole resource or cluster goes away: each may be right, but all of them at once
// are more likely a mishap. It stays open until somebody releases what it holds.
type breaker struct {
	limit int // of deletions in breakerWindow; 0 for the default, negative for none

	mu       sync.Mutex
	cause    string // why it is open; empty if it is closed
	moved    bool   // because a cluster is another one: what is not found may be elsewhere
	times    []time.Time
	admitted map[cache.ObjectName]bool
	held     map[cache.ObjectName]string // why, by source
}

func newBreaker(limit int) *breaker {
	return &breaker{limit: limit, admitted: map[cache.ObjectName]bool{}, held: map[cache.ObjectName]string{}}
}

const (
	breakerWindow = 5 * time.Minute
	breakerLeast  = 10 // deletions that are nothing special however few the objects
	breakerShare  = 20 // one in so many objects
)

// deletionLimit is how many of so many objects may be deleted in breakerWindow;
// negative for any number.
func deletionLimit(limit, objects int) int {
	if limit != 0 {
		return limit
	}
	return max(breakerLeast, objects/breakerShare)
}

// admit asks whether the target of source may be deleted, and counts it if so. It
// answers why not. Count is the number of objects that there are.
func (b *breaker) admit(source cache.ObjectName, now time.Time, count func() int) (why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.admitted[source] {
		return ""
	}
	if why := b.held[source]; why != "" {
		return why
	}
	b.times = slices.DeleteFunc(b.times, func(t time.Time) bool { return now.Sub(t) >= breakerWindow })
	if b.cause == "" && b.limit >= 0 && len(b.times) >= breakerLeast || b.limit > 0 {
		if limit := deletionLimit(b.limit, count()); len(b.times) >= limit {
			b.cause = cmp.Or(b.cause, fmt.Sprintf("more than %d objects were deleted within %d minutes", limit, breakerWindow/time.Minute))
		}
	}
	if b.cause != "" {
		b.held[source] = b.cause
		return b.cause
	}
	b.times = append(b.times, now)
	b.admitted[source] = true
	return ""
}

// bar asks whether source may be let go although its target has not been deleted
// by us. It answers why not.
func (b *breaker) bar(source cache.ObjectName) (why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.admitted[source] {
		return ""
	}
	if b.moved && b.held[source] == "" {
		b.held[source] = b.cause
	}
	return b.held[source]
}

// trip opens the breaker. What was admitted was meant for the clusters of before.
func (b *breaker) trip(cause string, moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause, b.moved = cmp.Or(b.cause, cause), b.moved || moved
	if moved {
		clear(b.admitted)
	}
}

// resume holds source as it was held before a restart.
func (b *breaker) resume(source cache.ObjectName, cause string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.admitted[source] && b.held[source] == "" {
		b.held[source] = cause
	}
}

// release closes the breaker, lets pass what it holds, and returns that.
func (b *breaker) release() []cache.ObjectName {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []cache.ObjectName
	for source := range b.held {
		b.admitted[source] = true
		out = append(out, source)
	}
	slices.SortFunc(out, watchstore.ByName)
	clear(b.held)
	b.cause, b.moved, b.times = "", false, nil
	return out
}

// pass lets one source pass, uncounted.
func (b *breaker) pass(source cache.ObjectName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, source)
	b.admitted[source] = true
}

// forget forgets a source that has gone.
func (b *breaker) forget(source cache.ObjectName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.admitted, source)
	delete(b.held, source)
}

// holds is the number of deletions that are held.
func (b *breaker) holds() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held)
}
