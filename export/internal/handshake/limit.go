// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/limit"
)

// DevicePolls is how often a minute one program may ask whether its person has decided, twice
// as often as it is told to.
const DevicePolls = 24

// networkFactor is how many addresses at their limit one network may have.
const networkFactor = 8

// limits say how often one may ask.
type limits struct {
	opts     *Options
	visitors *visitors
	pages    *renderer

	addresses *limit.Limiter // of requests
	networks  *limit.Limiter // of requests
	subjects  *limit.Limiter // of identities that sign in or bind
	views     *limit.Limiter // of identities that look at the offer, or have their programs look
	polls     *limit.Limiter // of programs that wait for a person
}

func newLimits(opts *Options, v *visitors, p *renderer) *limits {
	return &limits{
		opts: opts, visitors: v, pages: p,
		addresses: limit.PerMinute(opts.PerAddress), networks: limit.PerMinute(networkFactor * opts.PerAddress),
		subjects: limit.PerMinute(opts.PerSubject), views: limit.PerMinute(opts.PerSubject),
		polls: limit.PerMinute(DevicePolls),
	}
}

// byAddress limits the requests of each address and network. Probes of /healthz are free.
func (h *limits) byAddress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			if wait := h.takeAddress(h.visitors.client(r)); wait > 0 {
				h.pages.tooMany(w, r, wait)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// takeAddress takes one request of an address, and of the network around it.
func (h *limits) takeAddress(addr netip.Addr) time.Duration {
	wait := h.addresses.Take(limit.Address(addr))
	if network := limit.Network(addr); wait == 0 && network != "" {
		wait = h.networks.Take(network)
	}
	return wait
}

// signIn lets an identity sign in only so often, and the less the more of it would be kept beside
// its cookie for as long as a session may live. It answers 429, and reports whether it did.
func (h *limits) signIn(w http.ResponseWriter, r *http.Request, id *auth.Identity) bool {
	groups, err := json.Marshal(id.Groups)
	if err != nil {
		h.pages.internal(w, r, err)
		return true
	}
	return h.charge(w, r, id, 1+len(groups)/MaxCookie)
}

// subject lets an identity bind only so often: it answers 429, and reports whether it did.
func (h *limits) subject(w http.ResponseWriter, r *http.Request, id *auth.Identity) bool {
	return h.charge(w, r, id, 1)
}

func (h *limits) charge(w http.ResponseWriter, r *http.Request, id *auth.Identity, n int) bool {
	wait := h.subjects.TakeN(who(id), n)
	if wait > 0 {
		h.opts.Hooks.login(LoginLimited)
		h.pages.tooMany(w, r, wait)
	}
	return wait > 0
}

// view lets an identity look at the offer only so often: each look asks the
// API server about each service. It answers 429, and reports whether it did.
func (h *limits) view(w http.ResponseWriter, r *http.Request, id *auth.Identity) bool {
	wait := h.views.Take(who(id))
	if wait > 0 {
		h.pages.tooMany(w, r, wait)
	}
	return wait > 0
}

// redemption lets the programs of an identity bring codes only so often, used ones too: what each is traded for
// is looked up in the catalogue, and to tell the offer asks the API server about each service.
func (h *limits) redemption(g *grant) error {
	if wait := h.views.Take(g.Identity); wait > 0 {
		return &OAuthError{Status: http.StatusTooManyRequests, Code: "slow_down", Description: "too many requests", Next: waitWords(wait)}
	}
	return nil
}

func who(id *auth.Identity) string { return id.Issuer + "\x00" + id.Subject }
