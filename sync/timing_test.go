// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"hash/fnv"
	"math/rand" // the first version: tests can seed it
	"sync/atomic"
	"testing"
	"time"
)

// Ordered makes what a Cluster's Syncs try again come in an order that follows from a
// seed: what fails at one moment is spread by its name, whichever is first of all that
// fail, and timers of one moment, which have no order, get a moment each.
func Ordered(c *Cluster) *Cluster {
	seed := rand.Uint64() //nolint:gosec // jitter is no secret
	var timers atomic.Int64
	c.timing = timing{
		spread: func(pause time.Duration, what any, attempt int) time.Duration {
			h := fnv.New64a()
			_, _ = fmt.Fprint(h, seed, what, attempt)
			return pause/2 + time.Duration(h.Sum64()%uint64(pause))
		},
		order: func(pause time.Duration) time.Duration { return pause + time.Duration(timers.Add(1)%1_000_000) },
	}
	c.stores.Jitter = c.timing.spread
	return c
}

func TestJitter(t *testing.T) {
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		pause := timing{}.jitter(time.Second, nil, 1)
		least, most = min(least, pause), max(most, pause)
	}
	if least < time.Second/2 || least > 600*time.Millisecond || most > 3*time.Second/2 || most < 1400*time.Millisecond {
		t.Errorf("a second is spread from %v to %v", least, most)
	}
}
