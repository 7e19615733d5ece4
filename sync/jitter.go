// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"hash/fnv"
	"math/rand" // the first version: tests can seed it
	"time"
)

// A jitter spreads in time what fails everywhere at once. By how much is random for
// each process, and then follows from what is tried again: whoever is first among
// those that fail at one moment does not change it.
type jitter uint64

func newJitter() jitter { return jitter(rand.Uint64()) } //nolint:gosec // jitter is no secret

// spread is between half and one and a half of pause.
func (j jitter) spread(pause time.Duration, what any, attempt int) time.Duration {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, uint64(j), what, attempt)
	return pause/2 + time.Duration(h.Sum64()%uint64(pause)) //nolint:gosec // pauses are not negative
}
