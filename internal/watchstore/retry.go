// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/klutch-go/sdk/internal/fates"
)

// Pauses between retries: they come soon, since users wait for the end of an outage.
const (
	First = 100 * time.Millisecond
	Last  = 2500 * time.Millisecond
)

// A Jitter spreads in time what fails everywhere at once: it is given a pause, what is tried
// again, and how often it was tried.
type Jitter func(pause time.Duration, what any, attempt int) time.Duration

func (j Jitter) of(pause time.Duration, what any, attempt int) time.Duration {
	if j == nil {
		return Random(pause)
	}
	return j(pause, what, attempt)
}

// Random is between half and one and a half of pause.
func Random(pause time.Duration) time.Duration {
	return pause/2 + rand.N(pause) //nolint:gosec // jitter is no secret
}

// Retry lists or watches for a reflector until there is an answer that it has to see, or ctx
// is done: a reflector itself would wait ever longer, up to a minute, and so notice the end
// of an outage as late. Failed is called with each error in between. Wait may be nil.
func Retry[T any](ctx context.Context, wait func(pause time.Duration, attempt int) time.Duration, failed func(error), try func() (T, error)) (T, error) {
	for pause, attempt := First, 1; ; pause, attempt = min(2*pause, Last), attempt+1 {
		out, err := try()
		if err == nil || ctx.Err() != nil || isAnswer(err) {
			return out, err
		}
		failed(err)
		next := Random(pause)
		if wait != nil {
			next = wait(pause, attempt)
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(next):
		}
	}
}

// isAnswer reports whether err tells a reflector to ask for something else.
func isAnswer(err error) bool {
	return fates.Is(err, fates.Expired, fates.Ahead, fates.Invalid, fates.Replaced, fates.Malformed, fates.NotAllowed, fates.NotAcceptable)
}
