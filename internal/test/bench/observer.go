// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// An observer hands the events of one resource in one cluster to those who expect some.
type observer struct {
	mu      sync.Mutex
	tallies map[*tally]struct{}
}

func newObserver() *observer { return &observer{tallies: map[*tally]struct{}{}} }

// see is called for each event.
func (o *observer) see(e event) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for t := range o.tallies {
		if t.mark(e, now) {
			delete(o.tallies, t)
		}
	}
}

// expect begins to count the objects called name, name-0, name-1 and so on for which
// an event meets the condition, until there are want of them.
func (o *observer) expect(name string, want int, meets func(event) bool) *tally {
	t := &tally{name: name, want: want, meets: meets, seen: map[string]arrival{}, done: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	if want == 0 {
		close(t.done)
		return t
	}
	o.tallies[t] = struct{}{}
	return t
}

// A tally counts objects as they arrive. It is complete, and may be read, when await
// has returned nil.
type tally struct {
	name  string
	want  int
	meets func(event) bool
	done  chan struct{} // closed when all have arrived

	mu   sync.Mutex
	seen map[string]arrival
	last time.Time
}

type arrival struct {
	at        time.Time
	namespace string
}

// mark counts the object of an event and reports whether it was the last one.
func (t *tally) mark(e event, now time.Time) bool {
	meta := e.Object.Metadata
	if suffix, ok := strings.CutPrefix(meta.Name, t.name); !ok || suffix != "" && suffix[0] != '-' || !t.meets(e) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, again := t.seen[meta.Name]; again {
		return false
	}
	t.seen[meta.Name], t.last = arrival{now, meta.Namespace}, now
	if len(t.seen) < t.want {
		return false
	}
	close(t.done)
	return true
}

// patience is how long nothing at all may arrive.
const patience = time.Minute

// await returns when all have arrived.
func (t *tally) await(ctx context.Context) error {
	for before := -1; ; {
		select {
		case <-t.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(patience):
		}
		now := t.count()
		if now == before {
			return fmt.Errorf("%d of %d objects %s have arrived, and none within %s", now, t.want, t.name, patience)
		}
		before = now
	}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.seen)
}
