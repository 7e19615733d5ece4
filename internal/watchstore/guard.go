// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A guarded watch ends itself when it is silent for too long.
type guarded struct {
	watch.Interface
	store *Store
	due   time.Time // when its API server ends it
	out   chan watch.Event
	quit  chan struct{}
	once  sync.Once
}

// dueAt is when a watch that begins now is ended by its API server.
func dueAt(o metav1.ListOptions) time.Time {
	if o.TimeoutSeconds == nil {
		return time.Now()
	}
	return time.Now().Add(time.Duration(*o.TimeoutSeconds) * time.Second)
}

// guard guards w, which should last until due, for as long as the store runs.
func (s *Store) guard(ctx context.Context, w watch.Interface, due time.Time) (watch.Interface, error) {
	if !s.begin() {
		w.Stop()
		return nil, errEnded
	}
	g := &guarded{Interface: w, store: s, due: due, out: make(chan watch.Event, 16), quit: make(chan struct{})}
	s.mu.Lock()
	s.current = g
	s.mu.Unlock()
	s.each(Follower.Renewed)
	go func() {
		defer s.calls.Done()
		g.forward(ctx)
	}()
	return g, nil
}

func (g *guarded) forward(ctx context.Context) {
	defer close(g.out)
	defer g.Interface.Stop()
	timer := time.NewTimer(Silence)
	defer timer.Stop()
	for {
		select {
		case e, ok := <-g.Interface.ResultChan():
			if !ok && time.Now().Before(g.due) {
				g.store.cut()
			}
			if !ok || !g.pass(ctx, g.store.share.Pass(e)) {
				return
			}
			timer.Reset(Silence)
		case <-timer.C:
			g.store.silent()
			return
		case <-g.quit:
			return
		case <-ctx.Done():
			return
		}
	}
}

// pass hands e on, and reports whether events are still wanted.
func (g *guarded) pass(ctx context.Context, e watch.Event) bool {
	select {
	case g.out <- e:
		return true
	case <-g.quit:
		return false
	case <-ctx.Done():
		return false
	}
}

// Stop implements watch.Interface.
func (g *guarded) Stop() { g.once.Do(func() { close(g.quit) }) }

// ResultChan implements watch.Interface.
func (g *guarded) ResultChan() <-chan watch.Event { return g.out }
