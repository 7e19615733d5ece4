// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"errors"
	"net/http"

	"github.com/klutch-go/sdk/auth"
)

var errNoIssuer = errors.New("no such issuer")

// provider returns the one with which a name's people sign in; "" is that of Options.
func (h *logins) provider(name string) (*auth.Provider, error) {
	if name == "" {
		return h.opts.Provider, nil
	}
	for _, i := range h.opts.Issuers {
		if i.Name == name {
			return i.Provider, nil
		}
	}
	return nil, errNoIssuer
}

// A way is a link to sign in with an issuer.
type way struct{ Title, Issuer, Link string }

// chooseIssuer lets a person say where they have their account. It reports false
// where that is said, or there is no choice.
func (h *logins) chooseIssuer(w http.ResponseWriter, r *http.Request) bool {
	query := r.URL.Query()
	if len(h.opts.Issuers) == 0 || query.Has("issuer") {
		return false
	}
	link := func(name string) string {
		query.Set("issuer", name)
		return "/authorize?" + query.Encode()
	}
	first := h.opts.Provider.Issuer()
	ways := []way{{first, first, link("")}}
	for _, i := range h.opts.Issuers {
		ways = append(ways, way{i.Title, i.Provider.Issuer(), link(i.Name)})
	}
	h.pages.page(w, r, http.StatusOK, "issuers.html", ways)
	return true
}

// begin sends the browser on to an issuer.
func (h *logins) begin(w http.ResponseWriter, r *http.Request, l login, name string) {
	provider, err := h.provider(name)
	if err != nil {
		h.pages.badLink(w, r, "It names an issuer that is not known here.")
		return
	}
	attempt, target, err := provider.Begin(r.Context())
	if err != nil {
		h.refuse(w, r, l, err)
		return
	}
	if err := h.cookies.set(w, TxnCookie, transaction{l, attempt, name}, txnLife); err != nil {
		h.pages.internal(w, r, err)
		return
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// complete says who has logged in. The answer has to come to the path of the issuer
// that was asked.
func (h *logins) complete(r *http.Request, t *transaction) (*auth.Identity, error) {
	if err := h.cookies.open(r, TxnCookie, t); err != nil {
		return nil, err
	}
	if r.PathValue("issuer") != t.Issuer {
		return nil, auth.ErrState
	}
	provider, err := h.provider(t.Issuer)
	if err != nil {
		return nil, auth.ErrState
	}
	return provider.Finish(r.Context(), t.Attempt, r.URL.Query())
}
