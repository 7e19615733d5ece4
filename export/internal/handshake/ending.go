// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/redirect"
)

// endings end logins: with an answer for the program that waits, and a page for the person.
type endings struct {
	opts      *Options
	visitors  *visitors
	pages     *renderer
	cookies   *cookies
	sessions  *sessions
	terminals *terminals
}

func (h *endings) tenantProblem(w http.ResponseWriter, r *http.Request, s *session, err error) {
	missing, ok := errors.AsType[*offerError](err)
	switch {
	case ok:
		h.pages.fail(w, r, missing.offer.problem())
	case errors.Is(err, tenant.ErrForeign):
		h.pages.fail(w, r, problem{
			Status: http.StatusConflict, Title: "The name of your tenant is taken", What: err.Error() + ".",
			Next: "Ask the platform team to look at it.",
		})
	case errors.Is(err, tenant.ErrCapped):
		h.pages.fail(w, r, problem{
			Status: http.StatusForbidden, Title: "Tenant limit reached", What: err.Error() + ".",
			Next: "Ask the platform team to remove one that is gone, or to allow more.",
		})
	case errors.Is(err, tenant.ErrTerminating):
		h.removing(w, r, s, problem{
			Status: http.StatusServiceUnavailable, Title: "Your tenant is being removed", What: err.Error() + ".",
			Next: "Run kubectl bind again when it is gone.",
		})
	default:
		h.pages.internal(w, r, err)
	}
}

// removing ends a login whose tenant goes: who waits for it is told too.
func (h *endings) removing(w http.ResponseWriter, r *http.Request, s *session, p problem) {
	if s.Login.Legacy { // that CLI understands no refusal
		h.pages.fail(w, r, p)
		return
	}
	h.finish(w, r, s, refusalValues(&auth.Error{Code: CodeUnavailable, Description: p.What + " " + p.Next}), p)
}

// sendCode mints the one-time code for what was bound.
func (h *endings) sendCode(w http.ResponseWriter, r *http.Request, s *session, g grant) {
	g.ID, g.Login, g.Identity, g.Expiry = rand.Text(), s.Login, s.account(), time.Now().Add(codeLife)
	if s.Device != nil {
		g.Expiry = s.Device.Expiry // the program asks at its own pace
	}
	g.Login.Services = nil
	data, err := json.Marshal(g)
	if err != nil {
		h.pages.internal(w, r, err)
		return
	}
	code, err := h.opts.Sealer().SealUntil(CodePurpose, data, g.Expiry)
	if err != nil {
		h.pages.internal(w, r, err)
		return
	}
	h.finish(w, r, s, url.Values{"code": {code}}, problem{})
}

// tellOffer mints the one-time code for the offer: no tenant, and no credential.
func (h *endings) tellOffer(w http.ResponseWriter, r *http.Request, s *session) {
	if err := h.sessions.keepGroups(r.Context(), s); err != nil {
		h.pages.internal(w, r, err)
		return
	}
	person := s.Identity
	person.Groups = nil
	audit.Record(r.Context(), "offer told", s.who()...)
	h.sendCode(w, r, s, grant{Person: &person, Session: s.ID})
}

// An outcome is what a login ended with, for the CLI and for the person.
type outcome struct {
	Back    string  `json:"back,omitempty"` // empty where the CLI comes and asks
	Problem problem `json:"problem"`
}

// finish ends a session with an answer for the CLI. The browser goes there from a
// page of ours: a form must not lead to another origin.
func (h *endings) finish(w http.ResponseWriter, r *http.Request, s *session, answer url.Values, p problem) {
	if !h.lastStep(w, r, s) {
		return
	}
	back, err := h.deliver(r.Context(), s, answer)
	if errors.Is(err, auth.ErrDeviceTaken) || errors.Is(err, auth.ErrUserCode) {
		h.pages.otherLogin(w, r)
		return
	}
	if err == nil {
		err = h.cookies.set(w, doneCookie, outcome{back, p}, codeLife)
	}
	if err != nil {
		h.pages.internal(w, r, err)
		return
	}
	h.cookies.clear(w, SessionCookie)
	http.Redirect(w, r, "/done", http.StatusSeeOther)
}

// lastStep reports whether this is the one answer of a session; else it has shown why not.
func (h *endings) lastStep(w http.ResponseWriter, r *http.Request, s *session) bool {
	err := h.sessions.use(r.Context(), s)
	switch {
	case errors.Is(err, errEnded):
		h.visitors.misused(r, "session refused", append(s.who(), "reason", err.Error())...)
		h.pages.notSignedIn(w, r)
	case err != nil:
		h.pages.internal(w, r, err)
	}
	return err == nil
}

// deliver gives the answer to the program that waits, or returns where to take it.
func (h *endings) deliver(ctx context.Context, s *session, answer url.Values) (back string, err error) {
	if s.Device != nil {
		return "", h.terminals.answer(ctx, s.Device, answer)
	}
	if _, err := redirect.Loopback(s.Login.Redirect, false); err != nil {
		return "", err
	}
	return s.Login.back(h.opts.External.String(), answer), nil
}

// done sends the browser on to the CLI.
func (h *endings) done(w http.ResponseWriter, r *http.Request) {
	var o outcome
	if h.cookies.open(r, doneCookie, &o) != nil {
		if _, ok := h.sessions.open(w, r); ok {
			http.Redirect(w, r, "/services", http.StatusSeeOther)
		}
		return
	}
	if o.Problem.Status != 0 {
		o.Problem.Refresh = o.Back
		h.pages.fail(w, r, o.Problem)
		return
	}
	if o.Back != "" {
		w.Header().Set("Refresh", "0; url="+o.Back)
	}
	h.pages.page(w, r, http.StatusOK, "done.html", o.Back)
}
