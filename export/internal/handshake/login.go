// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/redirect"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// txnLife is how long a login may take at the issuer.
const txnLife = 10 * time.Minute

// A transaction is a login in flight at the issuer.
type transaction struct {
	Login   login        `json:"login"`
	Attempt auth.Attempt `json:"attempt"`
	Issuer  string       `json:"issuer,omitempty"` // the name of one that is not the first
}

// logins send browsers to an issuer, and take them back.
type logins struct {
	opts      *Options
	visitors  *visitors
	pages     *renderer
	cookies   *cookies
	sessions  *sessions
	limits    *limits
	binder    *binder
	endings   *endings
	terminals *terminals
}

func (h *logins) parse(query url.Values) (login, string) {
	switch {
	case h.opts.Devices != nil && query.Has("user_code"):
		return parseUserCode(query)
	case !isLegacy(query):
		l, wrong := parseLogin(query)
		if l.Offer && h.opts.Devices == nil {
			wrong = "This backend does not tell what it offers without a bind."
		}
		return l, wrong
	case h.opts.LegacyCLI:
		return parseLegacy(query)
	default:
		return login{}, "It is from a kubectl-bind that expects its credential in a URL, which this backend does not do." +
			" Install the kubectl-bind of this platform, or ask the platform team to start the backend with --allow-legacy-cli."
	}
}

// parseLogin reads the authorization request of a CLI, RFC 6749 section 4.1.1 with
// RFC 7636. What it says is for the person at the browser.
func parseLogin(query url.Values) (login, string) {
	l := login{
		Redirect: query.Get("redirect_uri"), State: query.Get("state"), Challenge: query.Get("code_challenge"),
		Cluster: query.Get("c"), Services: query["service"], Offer: query.Get("scope") == v1alpha1.ScopeOffer,
	}
	_, err := redirect.Loopback(l.Redirect, false)
	switch {
	case query.Get("response_type") != "code":
		return l, "It is not from kubectl-bind."
	case err != nil:
		return l, "The answer would not go to a program on your own machine."
	}
	return l, l.wrong(query)
}

// parseUserCode begins the login of a person who has typed a user code.
func parseUserCode(query url.Values) (login, string) {
	l := login{UserCode: auth.NormalizeUserCode(query.Get("user_code"))}
	if l.UserCode == "" || repeated(query) {
		return l, "It has no code that a terminal shows."
	}
	return l, ""
}

// authorize begins a login: it sends the browser on to the issuer.
func (h *logins) authorize(w http.ResponseWriter, r *http.Request) {
	l, wrong := h.parse(r.URL.Query())
	if wrong != "" {
		h.pages.badLink(w, r, wrong)
		return
	}
	if !h.chooseIssuer(w, r) {
		h.begin(w, r, l, r.URL.Query().Get("issuer"))
	}
}

// refuse ends a login that failed: it shows why, and sends the browser on so that
// the CLI learns it too. One on another device can be tried again.
func (h *logins) refuse(w http.ResponseWriter, r *http.Request, l login, err error) {
	p := problem{Status: http.StatusForbidden, Title: "The login failed", Next: "Go back to your terminal and try again."}
	answer := &auth.Error{Code: "access_denied"}
	result := LoginRefused
	var said *auth.Error
	switch {
	case errors.Is(err, auth.ErrUnavailable):
		result = LoginUnavailable
		p.Status, p.Title = http.StatusServiceUnavailable, "The login service is not available"
		p.What = "The issuer with which people sign in here does not answer."
		answer.Code = "temporarily_unavailable"
	case errors.As(err, &said):
		p.What = "The issuer with which people sign in here refused: " + said.Error()
	default:
		p.What = "The issuer with which people sign in here sent an answer that cannot be trusted."
	}
	h.opts.Hooks.login(result)
	h.visitors.refused(r, "login refused", "cluster", l.Cluster, "result", string(result), "reason", err.Error())
	answer.Description = p.What
	switch {
	case l.UserCode != "": // known to more people than the one who waits: none of them ends its login without signing in
		p.Next = "The terminal that shows the code " + l.UserCode + " still waits. Sign in for it, or stop it there."
		p.Again = signInFor(l.UserCode)
	case l.Redirect != "" && !l.Legacy: // that CLI understands no refusal
		p.Refresh = l.back(h.opts.External.String(), refusalValues(answer))
	}
	h.pages.fail(w, r, p)
}

// callback completes a login that was begun in this browser.
func (h *logins) callback(w http.ResponseWriter, r *http.Request) {
	var t transaction
	id, err := h.complete(r, &t)
	if errors.Is(err, errNoCookie) || errors.Is(err, auth.ErrState) {
		// The site that sent the browser here must not be able to end the login in flight.
		h.visitors.refused(r, "callback refused", "reason", err.Error())
		h.pages.fail(w, r, problem{
			Status: http.StatusBadRequest, Title: "This is not the login that was begun here",
			What: "Your browser does not know this login: it is too old, was begun in another browser, or another one was begun since.",
			Next: h.pages.anew(),
		})
		return
	}
	h.cookies.clear(w, TxnCookie)
	if err != nil {
		h.refuse(w, r, t.Login, err)
		return
	}
	if h.limits.signIn(w, r, id) {
		return
	}
	h.opts.Hooks.login(LoginSucceeded)
	h.signIn(w, r, &session{ID: rand.Text(), Login: t.Login, Identity: *id, Since: time.Now()})
}

// signIn opens a session. What a device asks for is not known yet.
func (h *logins) signIn(w http.ResponseWriter, r *http.Request, s *session) {
	audit.Record(r.Context(), "signed in", s.who()...)
	if s.Login.UserCode == "" {
		h.welcome(w, r, s)
		return
	}
	if err := h.sessions.keep(r.Context(), w, s); err != nil {
		h.giveUp(w, r, s.Login, err)
		return
	}
	http.Redirect(w, r, devicePage, http.StatusSeeOther)
}

// giveUp ends a login that the control plane cannot go on with: the browser has no session yet in which a person could try
// again, so that the CLI hears of it, as far as it understands that.
func (h *logins) giveUp(w http.ResponseWriter, r *http.Request, l login, err error) {
	h.visitors.failed(r, err)
	p := unable
	switch {
	case l.UserCode != "":
		p.Again = signInFor(l.UserCode)
	case l.Redirect != "" && !l.Legacy: // that CLI understands no refusal
		p.Next = "Go back to your terminal and run the command again in a minute. If it stays like this, tell the platform team."
		p.Refresh = l.back(h.opts.External.String(), refusalValues(&auth.Error{Code: CodeUnavailable, Description: p.What}))
	}
	h.pages.fail(w, r, p)
}

// welcome shows the services, unless that would be of no use.
func (h *logins) welcome(w http.ResponseWriter, r *http.Request, s *session) {
	if asked := s.Login.Services; len(asked) > 0 {
		o, err := h.binder.check(r.Context(), s, asked)
		if err != nil {
			h.giveUp(w, r, s.Login, err)
			return
		}
		if o.missing() == len(asked) {
			audit.Record(r.Context(), "bind refused", append(s.who(), "services", asked, "reason", o.answer().Code)...)
			h.endings.finish(w, r, s, refusalValues(o.answer()), o.problem())
			return
		}
	}
	if err := h.sessions.keep(r.Context(), w, s); err != nil {
		h.giveUp(w, r, s.Login, err)
		return
	}
	target := "/services"
	if s.Login.Legacy {
		target = "/resources?" + url.Values{"s": {s.Login.State}}.Encode()
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// logout ends the session, and offers to tell the program that waits for its end.
func (h *logins) logout(w http.ResponseWriter, r *http.Request) {
	var s session
	var back string
	signedIn := h.cookies.open(r, SessionCookie, &s) == nil
	if signedIn {
		h.sessions.leave(r.Context(), &s)
	}
	switch {
	case !signedIn:
	case s.Device != nil:
		h.terminals.logout(r.Context(), &s)
	case s.Login.Redirect != "" && !s.Login.Legacy:
		back = s.Login.back(h.opts.External.String(), signedOut())
	}
	for _, name := range []string{SessionCookie, TxnCookie, doneCookie} {
		h.cookies.clear(w, name)
	}
	h.pages.page(w, r, http.StatusOK, "logout.html", back)
}
