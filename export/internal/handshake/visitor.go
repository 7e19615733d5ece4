// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/limit"
)

const (
	// RequestHeader has the ID of a request.
	RequestHeader = "X-Request-Id"
	// RefusalsPerClient is how many records of one kind a minute one client can have the
	// backend leave: a flood of requests is no flood of records.
	RefusalsPerClient = 6
	// RefusalsInAll is how many all clients together can.
	RefusalsInAll = 300

	maxStrangers = 100 // bytes of what a stranger typed in a record
)

// RequestPattern is what the ID of a request looks like that a trusted proxy gives.
var RequestPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// visitors know who sends a request, and leave records of what strangers are refused.
type visitors struct {
	opts     *Options
	refusals *refusals
}

// identify gives each request an ID, which its answer and its records have.
func (h *visitors) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := h.requestID(r)
		w.Header().Set(RequestHeader, id)
		log := logr.FromContextOrDiscard(r.Context()).WithValues("request", id, "client", h.client(r).String())
		next.ServeHTTP(w, r.WithContext(logr.NewContext(r.Context(), log)))
	})
}

// requestID is what a trusted proxy calls a request, or a new one.
func (h *visitors) requestID(r *http.Request) string {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	said := r.Header.Values(RequestHeader)
	if h.trusted(from.Addr().Unmap()) && len(said) == 1 && RequestPattern.MatchString(said[0]) {
		return said[0]
	}
	return rand.Text()
}

// refusals leave records of what strangers were refused, of which they decide how often.
type refusals struct {
	clients, all *limit.Limiter
	unrecorded   atomic.Int64
	unlogged     atomic.Int64 // failures of ours
}

func newRefusals() *refusals {
	return &refusals{clients: limit.PerMinute(RefusalsPerClient), all: limit.PerMinute(RefusalsInAll)}
}

// refused is audit for what a stranger was refused.
func (h *visitors) refused(r *http.Request, event string, keysAndValues ...any) {
	n := h.refusals
	h.recordRefusal(r, n.clients.Take(event+"\x00"+limit.Address(h.client(r))) > 0 || n.all.Take(event) > 0, event, keysAndValues)
}

// misused is refused for something that we had made, such as a code or a session, of whom
// the first two values say: a stranger has none, so that no flood of what strangers make up
// leaves it out.
func (h *visitors) misused(r *http.Request, event string, keysAndValues ...any) {
	whose := fmt.Sprint(keysAndValues[1], "\x00", keysAndValues[3])
	h.recordRefusal(r, h.refusals.clients.Take(event+"\x00of\x00"+whose) > 0, event, keysAndValues)
}

// failed logs that the control plane could not do what a request needs. How often it has to is up to those who send
// requests, so that the lines have a pace, and one that a client hung up on has none.
func (h *visitors) failed(r *http.Request, err error) {
	n := h.refusals
	switch {
	case errors.Is(r.Context().Err(), context.Canceled):
	case n.clients.Take("failed") > 0:
		n.unlogged.Add(1)
	default:
		logr.FromContextOrDiscard(r.Context()).Error(err, "handshake", "path", r.URL.Path, "unlogged", n.unlogged.Swap(0))
	}
}

// recordRefusal leaves a record, or counts it: the first one after some that were left out
// says how many.
func (h *visitors) recordRefusal(r *http.Request, leaveOut bool, event string, keysAndValues []any) {
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

// client is the address that a request comes from. What a proxy says of its client
// counts only if the proxy is trusted: any client can write the header.
func (h *visitors) client(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	addr := from.Addr().Unmap()
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(forwarded) {
		before, err := netip.ParseAddr(hostOf(strings.TrimSpace(hop)))
		if err != nil || !h.trusted(addr) {
			break
		}
		addr = before.Unmap()
	}
	return addr
}

// hostOf is an address without a port, which some proxies add.
func hostOf(hop string) string {
	if host, _, err := net.SplitHostPort(hop); err == nil {
		return host
	}
	return strings.Trim(hop, "[]")
}

func (h *visitors) trusted(addr netip.Addr) bool {
	return slices.ContainsFunc(h.opts.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// observe tells the hooks about each request.
func (h *visitors) observe(next http.Handler) http.Handler {
	hook := h.opts.Hooks.Request
	if hook == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, seen := time.Now(), &statusWriter{ResponseWriter: w, code: http.StatusOK}
		defer func() { hook(routeOf(r), seen.code, time.Since(begin)) }()
		next.ServeHTTP(seen, r)
	})
}

// routeOf is the path of the route that has served r, never what a client typed.
func routeOf(r *http.Request) string {
	_, path, ok := strings.Cut(r.Pattern, " ")
	if !ok {
		return "other"
	}
	return strings.TrimSuffix(path, "{$}")
}

// A statusWriter notes the status.
type statusWriter struct {
	http.ResponseWriter

	code int
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
