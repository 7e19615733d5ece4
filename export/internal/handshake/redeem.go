// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A redeemer trades one-time codes for credentials.
type redeemer struct {
	opts      *Options
	visitors  *visitors
	pages     *renderer
	sessions  *sessions
	limits    *limits
	binder    *binder
	terminals *terminals
}

// token redeems a one-time code: once, within a minute, by the program that began
// the login.
func (h *redeemer) token(w http.ResponseWriter, r *http.Request) {
	response, err := h.redeem(r)
	if err != nil {
		h.pages.refuseJSON(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, response)
}

func (h *redeemer) redeem(r *http.Request) (any, error) {
	if err := r.ParseForm(); err != nil {
		return nil, &OAuthError{Code: "invalid_request", Description: "the form cannot be read"}
	}
	response, g, err := h.redeemForm(r.Context(), r.PostForm)
	if refused := AsOAuth(err); refused != nil && refused.Code == codeInvalid {
		h.refuseCode(r, g, refused.Description)
	}
	if err != nil {
		return nil, err
	}
	audit.Record(r.Context(), "code redeemed", "identity", g.Identity, "tenant", g.Tenant, "services", g.Services)
	return response, nil
}

func (h *redeemer) refuseCode(r *http.Request, g *grant, why string) {
	if g.Tenant == "" && g.Person == nil { // it was not sealed here, or too long ago
		h.visitors.refused(r, "code refused", "identity", g.Identity, "tenant", g.Tenant, "reason", why)
		return
	}
	h.visitors.misused(r, "code refused", "identity", g.Identity, "tenant", g.Tenant, "reason", why)
}

// redeemForm also returns what the code stands for, as far as that is known.
func (h *redeemer) redeemForm(ctx context.Context, form url.Values) (any, *grant, error) {
	g := &grant{}
	code, err := h.codeOf(ctx, form)
	if err == nil {
		err = h.openCode(code, form, g)
	}
	if err == nil {
		err = h.limits.redemption(g)
	}
	if err != nil {
		return nil, g, err
	}
	if g.Person != nil {
		response, err := h.tell(ctx, g)
		return response, g, err
	}
	response, err := h.trade(ctx, g)
	return response, g, err
}

// tell uses up a code that stands for an offer. There is no tenant yet to record that, so that the
// store that all replicas share does.
func (h *redeemer) tell(ctx context.Context, g *grant) (*v1alpha1.OfferResponse, error) {
	s := &session{ID: g.Session, Login: g.Login, Identity: *g.Person}
	if err := h.sessions.recallGroups(ctx, s); err != nil {
		return nil, err
	}
	response, err := h.binder.told(ctx, s)
	if err != nil {
		return nil, err
	}
	err = h.opts.Devices.Create(ctx, s.key(offerTold), []byte("-"), g.Expiry.Add(codeLife))
	if errors.Is(err, auth.ErrDeviceTaken) {
		return nil, invalidGrant(tenant.ErrRedeemed.Error())
	}
	return response, err
}

// trade uses up a code for a response. It looks first whether the code is still good: a code
// that was used before must not end the credential that its first use has handed out.
func (h *redeemer) trade(ctx context.Context, g *grant) (*v1alpha1.BindingResponse, error) {
	if err := used(h.opts.Tenants.Records.Redeemable(ctx, g.Tenant, g.ID)); err != nil {
		return nil, err
	}
	response, err := h.binder.response(ctx, g)
	if err != nil {
		return nil, err
	}
	if response.Kubeconfig, err = h.opts.Tenants.Credentials.HandOut(ctx, g.Tenant); err != nil {
		return nil, err
	}
	return response, used(h.opts.Tenants.Records.Redeem(ctx, g.Tenant, g.ID, g.Expiry.Add(codeLife)))
}

// codeOf returns the one-time code of a token request, or that for which a person
// has traded its device code.
func (h *redeemer) codeOf(ctx context.Context, form url.Values) (string, error) {
	for _, values := range form {
		if len(values) != 1 {
			return "", &OAuthError{Code: "invalid_request", Description: "a parameter is given twice"}
		}
	}
	device := h.opts.Devices != nil && form.Get("grant_type") == DeviceGrantType
	switch {
	case !device && form.Get("grant_type") != "authorization_code":
		return "", &OAuthError{Code: "unsupported_grant_type", Description: "this backend does not know it"}
	case form.Get("client_id") != ClientID:
		return "", &OAuthError{Code: "invalid_client", Description: "unknown client"}
	case device:
		return h.terminals.poll(ctx, form)
	}
	return form.Get("code"), nil
}

// openCode checks all that can be checked of a code without looking anything up.
func (h *redeemer) openCode(code string, form url.Values, g *grant) error {
	data, err := h.opts.Sealer().Open(CodePurpose, code)
	if errors.Is(err, auth.ErrExpired) {
		return invalidGrant("the code has expired")
	}
	if err != nil || json.Unmarshal(data, g) != nil {
		return invalidGrant("this is not a code of this backend")
	}
	challenge := oauth2.S256ChallengeFromVerifier(form.Get("code_verifier"))
	if !same(challenge, g.Login.Challenge) || !same(form.Get("redirect_uri"), g.Login.Redirect) {
		return invalidGrant("the code belongs to another login")
	}
	return nil
}

// used tells the program that a code was used, or that its tenant is gone.
func used(err error) error {
	if errors.Is(err, tenant.ErrRedeemed) {
		return invalidGrant(err.Error())
	}
	return err
}
