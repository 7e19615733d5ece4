// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// CodePurpose is what one-time codes are sealed for.
const CodePurpose = "code"

// A grant is what a one-time code stands for. It is sealed into the code.
type grant struct {
	ID       string   `json:"id"`
	Tenant   string   `json:"tenant"`
	Services []string `json:"services"`
	Login    login    `json:"login"`
	Identity string   `json:"identity"` // "<issuer>/<subject>", for people
	// Expiry is that of the code.
	Expiry time.Time `json:"expiry"`
}

// CodeUnavailable says to a program that it may try again, RFC 6749 section 4.1.2.1.
const CodeUnavailable = "temporarily_unavailable"

// An OAuthError is a refusal for a program, RFC 6749 section 5.2.
type OAuthError struct {
	Status       int    `json:"-"` // 0 means 400
	Authenticate string `json:"-"` // for WWW-Authenticate, may be empty
	Code         string `json:"error"`
	Description  string `json:"error_description,omitempty"`
	Next         string `json:"next,omitempty"` // what to do now
}

func (e *OAuthError) Error() string { return e.Code + ": " + e.Description }

const codeInvalid = "invalid_grant"

func invalidGrant(why string) error { return &OAuthError{Code: codeInvalid, Description: why} }

// AsOAuth returns what a program should know of err, or nil.
func AsOAuth(err error) *OAuthError {
	refused, ok := errors.AsType[*OAuthError](err)
	if ok {
		return refused
	}
	if said, ok := errors.AsType[*auth.Error](err); ok { // of a device login
		return &OAuthError{Code: said.Code, Description: said.Description}
	}
	if missing, ok := errors.AsType[*offerError](err); ok {
		p, answer := missing.offer.problem(), missing.offer.answer()
		return &OAuthError{Status: p.Status, Code: answer.Code, Description: answer.Description, Next: p.Next}
	}
	switch {
	case errors.Is(err, tenant.ErrForeign):
		return &OAuthError{Status: http.StatusConflict, Code: "access_denied", Description: err.Error(), Next: "ask the platform team to look at it"}
	case errors.Is(err, tenant.ErrCapped):
		return &OAuthError{Status: http.StatusForbidden, Code: "access_denied", Description: err.Error(), Next: "ask the platform team to remove one that is gone, or to allow more"}
	case errors.Is(err, tenant.ErrTerminating):
		return &OAuthError{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Description: err.Error(), Next: "try again when it is gone"}
	}
	return nil
}

// A redeemer trades one-time codes for credentials.
type redeemer struct {
	opts      *Options
	visitors  *visitors
	pages     *renderer
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

func (h *redeemer) redeem(r *http.Request) (*v1alpha1.BindingResponse, error) {
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
	if g.Tenant == "" { // it was not sealed here, or too long ago
		h.visitors.refused(r, "code refused", "identity", g.Identity, "tenant", g.Tenant, "reason", why)
		return
	}
	h.visitors.misused(r, "code refused", "identity", g.Identity, "tenant", g.Tenant, "reason", why)
}

// redeemForm also returns what the code stands for, as far as that is known.
func (h *redeemer) redeemForm(ctx context.Context, form url.Values) (*v1alpha1.BindingResponse, *grant, error) {
	g := &grant{}
	code, err := h.codeOf(ctx, form)
	if err == nil {
		err = h.openCode(code, form, g)
	}
	if err != nil {
		return nil, g, err
	}
	response, err := h.trade(ctx, g)
	return response, g, err
}

// trade uses a code up for a response. It looks first whether the code is still good: one
// that is not must not end the credential that it was traded for.
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

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// used tells the program that a code was used, or that its tenant is gone.
func used(err error) error {
	if errors.Is(err, tenant.ErrRedeemed) {
		return invalidGrant(err.Error())
	}
	return err
}
