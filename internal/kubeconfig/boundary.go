// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/klutch-go/sdk/internal/text"
)

// What an API server of the other side may have a client take. Sizes are those that JSON
// takes once it is decoded, see weigh: some five times that of an ordinary object.
const (
	maxRefusal  = 1 << 20          // of the text of a refusal
	maxMessage  = 2 << 10          // of what is kept of its message
	maxHeader   = 64 << 10         // of the headers of an answer
	answerTime  = time.Minute      // for an answer, if the client sets no shorter one; API servers give themselves as long
	headerTime  = 90 * time.Second // for the begin of a watch
	watchExtra  = time.Minute      // of a watch beyond the end that was asked for
	watchMost   = time.Hour        // of a watch without one
	longestWait = 5                // seconds that an API server can have a client without a timeout wait
)

// errElsewhere: no redirect leads to another host, with or without the token.
var errElsewhere = errors.New("it redirects to another host")

// A boundary is the transport of a connection. It bounds the answers of the other side: the size and the
// time of each, and the size of all together.
type boundary struct {
	scheme, host string
	allowance    allowance

	mu         sync.Mutex
	quarantine map[string]quarantined // by path
}

func newBoundary(server string) *boundary {
	b := &boundary{quarantine: map[string]quarantined{}}
	if u, err := url.Parse(server); err == nil {
		b.scheme, b.host = u.Scheme, u.Host
	}
	b.allowance.left = maxAtOnce
	return b
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
		if err, is := b.quarantine[path].inForce(); is {
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
	maps.DeleteFunc(b.quarantine, func(_ string, q quarantined) bool { _, is := q.inForce(); return !is })
	if len(b.quarantine) >= maxQuarantined {
		path = ""
	}
	err := &ExcessError{"its answer to " + r.Method + " " + text.Clip(r.URL.Path, 200) + " " + what}
	b.quarantine[path] = newQuarantined(err)
	return err
}
