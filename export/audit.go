// SPDX-License-Identifier: Apache-2.0

package export

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"sync/atomic"

	"github.com/go-logr/logr"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/limit"
)

const (
	requestHeader = "X-Request-Id"
	// refusalsPerClient and refusalsInAll are how many records of one kind a minute one
	// client, and all together, can have us leave: a flood of requests is none of records.
	refusalsPerClient, refusalsInAll = 6, 300
	maxStrangers                     = 100 // bytes of their text in a record
)

var requestPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// identify gives each request an ID, which its answer and its records have.
func (h *handler) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := h.requestID(r)
		w.Header().Set(requestHeader, id)
		log := logr.FromContextOrDiscard(r.Context()).WithValues("request", id, "client", h.client(r).String())
		next.ServeHTTP(w, r.WithContext(logr.NewContext(r.Context(), log)))
	})
}

// requestID is what a trusted proxy calls a request, or a new one.
func (h *handler) requestID(r *http.Request) string {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	said := r.Header.Values(requestHeader)
	if h.trusted(from.Addr().Unmap()) && len(said) == 1 && requestPattern.MatchString(said[0]) {
		return said[0]
	}
	return rand.Text()
}

// refusals leave records of what strangers were refused, of which they decide how often.
type refusals struct {
	clients, all *limit.Limiter
	unrecorded   atomic.Int64
}

func newRefusals() *refusals {
	return &refusals{clients: limit.PerMinute(refusalsPerClient), all: limit.PerMinute(refusalsInAll)}
}

// refused is audit for what a stranger was refused.
func (h *handler) refused(r *http.Request, event string, keysAndValues ...any) {
	n := h.refusals
	h.recordRefusal(r, n.clients.Take(event+"\x00"+limit.Address(h.client(r))) > 0 || n.all.Take(event) > 0, event, keysAndValues)
}

// misused is refused for something that we had made, such as a code or a session, of whom
// the first two values say: a stranger has none, so that no flood of what strangers make up
// leaves it out.
func (h *handler) misused(r *http.Request, event string, keysAndValues ...any) {
	whose := fmt.Sprint(keysAndValues[1], "\x00", keysAndValues[3])
	h.recordRefusal(r, h.refusals.clients.Take(event+"\x00of\x00"+whose) > 0, event, keysAndValues)
}

// recordRefusal leaves a record, or counts it: the first one after some that were left out
// says how many.
func (h *handler) recordRefusal(r *http.Request, leaveOut bool, event string, keysAndValues []any) {
	n := h.refusals
	if leaveOut {
		n.unrecorded.Add(1)
		return
	}
	if left := n.unrecorded.Swap(0); left > 0 {
		keysAndValues = append(keysAndValues, "unrecorded", left)
	}
	audit.Record(r.Context(), event, keysAndValues...)
}

// pathOf and originOf are what a stranger has typed, cut short.
func pathOf(r *http.Request) string { return r.URL.Path[:min(len(r.URL.Path), maxStrangers)] }

func originOf(r *http.Request) string {
	origin := r.Header.Get("Origin")
	return origin[:min(len(origin), maxStrangers)]
}
