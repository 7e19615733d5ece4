// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"slices"
	"sync"
	"time"
)

// Bounds of an allowance.
const (
	maxAtOnce  = 128 << 20 // of all answers of a connection, be it those of a moment or those that have not ended,
	maxASecond = 64 << 20  // and for each second after that: thousands of objects
	small      = 1 << 20   // of an answer that waits for no other one
)

// An allowance is what all answers of a connection together may weigh: so much at once,
// and more with time.
type allowance struct {
	mu   sync.Mutex
	left int
	at   time.Time

	held    int           // by answers that have not ended
	holders []*body       // these but small ones, such as a watch at rest, the oldest first
	freed   chan struct{} // is closed when less is held; nil if nothing waits for that
}

// hold waits until b can hold what it weighs; false if done is closed before. The oldest answer
// never waits, so that one of those that wait for each other ends, and no small one does: what is
// to tell that an API server answers too much comes by.
func (a *allowance) hold(b *body, done <-chan struct{}) bool {
	for {
		freed := a.grow(b)
		if freed == nil {
			return true
		}
		select {
		case <-freed:
		case <-done:
			return false
		}
	}
}

// grow has b hold what it weighs, or returns what to wait for.
func (a *allowance) grow(b *body) (freed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case b.closed:
	case b.weight <= max(b.held, small), a.held+b.weight-b.held <= maxAtOnce-maxAnswer, len(a.holders) == 0, a.holders[0] == b:
		a.set(b, b.weight)
	default:
		if a.freed == nil {
			a.freed = make(chan struct{})
		}
		return a.freed
	}
	return nil
}

// end gives back what b holds.
func (a *allowance) end(b *body) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b.closed = true
	a.set(b, 0)
}

// set needs mu.
func (a *allowance) set(b *body, weight int) {
	switch {
	case b.held <= small && weight > small:
		a.holders = append(a.holders, b)
	case b.held > small && weight <= small:
		a.holders = slices.DeleteFunc(a.holders, func(h *body) bool { return h == b })
	}
	less := weight < b.held
	a.held, b.held = a.held+weight-b.held, weight
	if less && a.freed != nil {
		close(a.freed)
		a.freed = nil
	}
}

// draw waits until it can take n; false if done is closed before.
func (a *allowance) draw(n int, done <-chan struct{}) bool {
	wait := a.take(n)
	if wait <= 0 {
		return true
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

// take takes n and returns for how long that was too much.
func (a *allowance) take(n int) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left < maxAtOnce/2 || a.at.IsZero() {
		now := time.Now()
		if !a.at.IsZero() {
			a.left = min(maxAtOnce, a.left+int(min(now.Sub(a.at), time.Minute).Seconds()*maxASecond))
		}
		a.at = now
	}
	a.left -= n
	if a.left >= 0 {
		return 0
	}
	return time.Duration(float64(-a.left) / maxASecond * float64(time.Second))
}
