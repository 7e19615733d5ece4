// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"maps"
	"net/http"
	"time"

	"github.com/klutch-go/sdk/internal/text"
)

// An ExcessError says what was too much of an answer. Until the quarantine of what it is
// about ends, each request for it gets the same error at once.
type ExcessError struct{ What string }

// A quarantined answer was too large: what led to it is not asked for again for a while.
// The zero value holds nothing back.
type quarantined struct {
	err   *ExcessError
	until time.Time
}

func newQuarantined(err *ExcessError) quarantined {
	return quarantined{err, time.Now().Add(Quarantine)}
}

// holds returns what was too large, until the quarantine ends.
func (q quarantined) holds() (err *ExcessError, is bool) {
	return q.err, q.err != nil && time.Now().Before(q.until)
}

// maxQuarantined bounds the paths in quarantine; beyond it all are.
const maxQuarantined = 256

// check refuses what must not be asked, or not now.
func (b *boundary) check(r *http.Request) error {
	if r.URL.Host != b.host || r.URL.Scheme != b.scheme {
		return errElsewhere
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, path := range [...]string{r.URL.Path, ""} {
		if err, is := b.quarantine[path].holds(); is {
			return err
		}
	}
	return nil
}

// exceeded keeps requests for the same back for a while.
func (b *boundary) exceeded(r *http.Request, what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	path := r.URL.Path
	maps.DeleteFunc(b.quarantine, func(_ string, q quarantined) bool { _, is := q.holds(); return !is })
	if len(b.quarantine) >= maxQuarantined {
		path = ""
	}
	err := &ExcessError{"its answer to " + r.Method + " " + text.Clip(r.URL.Path, 200) + " " + what}
	b.quarantine[path] = newQuarantined(err)
	return err
}

// Error implements error.
func (e *ExcessError) Error() string { return e.What }
