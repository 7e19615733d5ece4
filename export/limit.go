// SPDX-License-Identifier: Apache-2.0

package export

import (
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/limit"
)

// limitAddress lets nobody ask too often, whoever they are. What probes ask is free.
func (h *handler) limitAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			if wait := h.takeAddress(h.client(r)); wait > 0 {
				h.tooMany(w, r, wait)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// takeAddress takes one request of an address, and of the network around it.
func (h *handler) takeAddress(addr netip.Addr) time.Duration {
	wait := h.addresses.Take(limit.Address(addr))
	if network := limit.Network(addr); wait == 0 && network != "" {
		wait = h.networks.Take(network)
	}
	return wait
}

// limitSubject lets an identity sign in or bind only so often: it answers 429, and
// reports whether it did.
func (h *handler) limitSubject(w http.ResponseWriter, r *http.Request, id *auth.Identity) bool {
	wait := h.subjects.Take(who(id))
	if wait > 0 {
		h.opts.Handshake.Hooks.login(LoginLimited)
		h.tooMany(w, r, wait)
	}
	return wait > 0
}

// limitViews lets an identity look at what is on offer only so often: each look asks the
// API server about each service. It answers 429, and reports whether it did.
func (h *handler) limitViews(w http.ResponseWriter, r *http.Request, id *auth.Identity) bool {
	wait := h.views.Take(who(id))
	if wait > 0 {
		h.tooMany(w, r, wait)
	}
	return wait > 0
}

func who(id *auth.Identity) string { return id.Issuer + "\x00" + id.Subject }

// tooMany answers 429.
func (h *handler) tooMany(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	h.refused(r, "request limited", "path", pathOf(r))
	w.Header().Set("Retry-After", strconv.Itoa(seconds(wait)))
	if isAPI(r) {
		writeJSON(w, http.StatusTooManyRequests, oauthError{Code: "slow_down", Description: "too many requests", Next: waitWords(wait)})
		return
	}
	h.fail(w, r, problem{Status: http.StatusTooManyRequests, Title: "Too many requests", Next: "Please " + waitWords(wait) + "."})
}

func waitWords(wait time.Duration) string {
	return "try again in " + strconv.Itoa(seconds(wait)) + " s"
}

func seconds(wait time.Duration) int { return int(math.Ceil(wait.Seconds())) }

// client is the address of whoever sent a request. What a proxy says of its client
// counts only if the proxy is trusted: anybody can write the header.
func (h *handler) client(r *http.Request) netip.Addr {
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

func (h *handler) trusted(addr netip.Addr) bool {
	return slices.ContainsFunc(h.opts.Handshake.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}
