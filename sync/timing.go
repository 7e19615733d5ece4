// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// Timing is when something is tried again. The zero value spreads in time what fails
// everywhere at once. Histories that are to be repeated give another one.
type timing struct {
	spread watchstore.Jitter                       // after a failure
	order  func(pause time.Duration) time.Duration // of what else would happen at one moment
}

// jitter is between half and one and a half of pause.
func (t timing) jitter(pause time.Duration, what any, attempt int) time.Duration {
	if t.spread == nil {
		return watchstore.Random(pause)
	}
	return t.spread(pause, what, attempt)
}

// delay is what a queue waits.
func (t timing) delay() queue.Delay {
	return func(pause time.Duration, key cache.ObjectName, failures int) time.Duration {
		if failures > 0 {
			pause = t.jitter(pause, key, failures)
		}
		if t.order != nil {
			pause = t.order(pause)
		}
		return pause
	}
}
