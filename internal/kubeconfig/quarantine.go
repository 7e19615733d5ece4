// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import "time"

// Quarantine is for how long nothing is asked for again whose answer was too large.
const Quarantine = time.Minute

// An ExcessError says what was too much of an answer. Until the quarantine of what it is
// about ends, each request for it gets the same error at once.
type ExcessError struct{ What string }

// A quarantined answer was too large: what led to it is not asked for again for a while.
// The zero value is of none.
type quarantined struct {
	err   *ExcessError
	until time.Time
}

func newQuarantined(err *ExcessError) quarantined {
	return quarantined{err, time.Now().Add(Quarantine)}
}

// inForce returns what was too large, until the quarantine ends.
func (q quarantined) inForce() (err *ExcessError, is bool) {
	return q.err, q.err != nil && time.Now().Before(q.until)
}

// Error implements error.
func (e *ExcessError) Error() string { return e.What }
