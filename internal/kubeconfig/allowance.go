// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"slices"
	"sync"
	"time"
)

// Bounds of an allowance. Sizes are those that JSON takes once it is decoded, see weigh.
const (
	maxAnswer  = 64 << 20  // of an answer, and of one event of a watch: an object of etcd has 1.5 MB of JSON at most, a page 500 of them
	maxAtOnce  = 128 << 20 // of all answers of a connection in a moment, and of all that have not ended,
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
	holders []*holding    // these but small ones, such as a watch at rest, the oldest first
	freed   chan struct{} // is closed when less is held; nil if nothing waits for that
}

// A holding is the weight of an answer that has not ended, and how much of it an allowance has granted
// so far. The lock of the allowance guards all fields but weight.
type holding struct {
	weight int
	held   int
	ended  bool
}

// hold waits until the allowance has granted h its weight; false if done is closed before. The oldest answer
// never waits, so that answers that wait for each other come to an end. A small answer never waits either: API servers
// refuse requests beyond their limits by small answers.
func (a *allowance) hold(h *holding, done <-chan struct{}) bool {
	for {
		freed := a.grow(h)
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

// grow has h hold what it weighs, or returns what to wait for.
func (a *allowance) grow(h *holding) (freed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case h.ended:
	case h.weight <= max(h.held, small), a.held+h.weight-h.held <= maxAtOnce-maxAnswer, len(a.holders) == 0, a.holders[0] == h:
		a.set(h, h.weight)
	default:
		if a.freed == nil {
			a.freed = make(chan struct{})
		}
		return a.freed
	}
	return nil
}

// end gives back what h holds.
func (a *allowance) end(h *holding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.ended = true
	a.set(h, 0)
}

// set needs mu.
func (a *allowance) set(h *holding, weight int) {
	switch {
	case h.held <= small && weight > small:
		a.holders = append(a.holders, h)
	case h.held > small && weight <= small:
		a.holders = slices.DeleteFunc(a.holders, func(o *holding) bool { return o == h })
	}
	less := weight < h.held
	a.held, h.held = a.held+weight-h.held, weight
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
