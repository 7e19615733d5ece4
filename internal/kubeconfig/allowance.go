// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"sync"
	"time"
)

// Bounds of an allowance.
const (
	maxAtOnce  = 128 << 20 // of all answers of a connection,
	maxASecond = 64 << 20  // and for each second after that: thousands of objects
)

// An allowance is what all answers of a connection together may weigh: so much at once,
// and more with time.
type allowance struct {
	mu   sync.Mutex
	left int
	at   time.Time
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
