// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// The login of a program on another machine.
const (
	DeviceGrantType = "urn:ietf:params:oauth:grant-type:device_code"

	// DeviceRefresh is when the page looks again whether a terminal waits, and
	// deviceSilence when it says that none does.
	DeviceRefresh, deviceSilence = "3; url=" + devicePage, 15 * time.Second
)

// devicePages take people through the login of a program on another machine.
type devicePages struct {
	opts      *Options
	pages     *renderer
	cookies   *cookies
	sessions  *sessions
	limits    *limits
	terminals *terminals
	logins    *logins
}

// DeviceRoutes are the routes of logins on another device (RFC 8628): the program posts
// to /device and polls /token, the person visits /device.
func (h *Server) DeviceRoutes() []route {
	if h.Opts.Devices == nil {
		return nil
	}
	return []route{
		{"POST " + devicePage, false, h.devices.begin},
		{"GET " + devicePage, false, h.devices.show},
		{"POST " + devicePage + "/claim", true, h.devices.confirm},
	}
}

// begin answers the device authorization request of a program. Nothing is
// written.
func (h *devicePages) begin(w http.ResponseWriter, r *http.Request) {
	answer, err := h.newDevice(r)
	if err != nil {
		h.pages.refuseJSON(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func (h *devicePages) newDevice(r *http.Request) (any, error) {
	if err := r.ParseForm(); err != nil {
		return nil, &OAuthError{Code: "invalid_request", Description: "the form cannot be read"}
	}
	l, wrong := parseDevice(r.PostForm)
	if wrong != "" {
		return nil, &OAuthError{Code: "invalid_request", Description: wrong}
	}
	request, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	devices, err := h.terminals.devices()
	if err != nil {
		return nil, err
	}
	return devices.Begin(l.Challenge, request)
}

// parseDevice reads the request of a program on a machine without a browser.
func parseDevice(form url.Values) (login, string) {
	l := login{State: form.Get("state"), Challenge: form.Get("code_challenge"), Cluster: form.Get("c"), Services: form["service"], Offer: form.Get("scope") == v1alpha1.ScopeOffer}
	return l, l.wrong(form)
}

// A deviceView is what the page shows of a login on another device.
type deviceView struct {
	Code   string // the user code; empty asks for one
	Wrong  bool   // what was typed is none
	SignIn string // where to sign in; empty once that is done
	Person string
	Wait   bool // until the program asks
	Silent bool // and it should have by now
}

// show shows the step that a person is at: type a code, sign in, confirm the code,
// wait for the terminal.
func (h *devicePages) show(w http.ResponseWriter, r *http.Request) {
	if s, err := h.sessions.of(r); err == nil && s.Login.UserCode != "" && !r.URL.Query().Has("user_code") {
		h.showSession(w, r, s)
		return
	}
	typed := r.URL.Query().Get("user_code")
	view := deviceView{Code: auth.NormalizeUserCode(typed)}
	view.Wrong = typed != "" && view.Code == ""
	if view.Code != "" {
		view.SignIn = signInFor(view.Code)
	}
	h.pages.page(w, r, http.StatusOK, "device.html", view)
}

// signInFor is where a person signs in for the terminal that shows a user code.
func signInFor(code string) string { return "/authorize?" + url.Values{"user_code": {code}}.Encode() }

func (h *devicePages) showSession(w http.ResponseWriter, r *http.Request, s *session) {
	if s.Claimed.IsZero() {
		h.pages.page(w, r, http.StatusOK, "device.html", deviceView{Code: s.Login.UserCode, Person: s.person()})
		return
	}
	if !h.limits.view(w, r, &s.Identity) {
		h.claim(w, r, s)
	}
}

// confirm takes the person's word that the code is that of their own terminal.
func (h *devicePages) confirm(w http.ResponseWriter, r *http.Request) {
	s, ok := h.sessions.open(w, r)
	if !ok || h.limits.subject(w, r, &s.Identity) {
		return
	}
	if err := r.ParseForm(); err != nil || s.Login.UserCode == "" || !same(r.PostForm.Get("code"), s.Login.UserCode) {
		h.pages.otherLogin(w, r)
		return
	}
	s.Claimed = time.Now()
	h.claim(w, r, s)
}

// claim goes on to the services once the program has said what it asks for.
func (h *devicePages) claim(w http.ResponseWriter, r *http.Request, s *session) {
	device, err := h.terminals.claimed(r.Context(), s)
	switch {
	case errors.Is(err, auth.ErrDevicePending):
		h.wait(w, r, s)
	case errors.Is(err, auth.ErrUserCode), errors.Is(err, auth.ErrDeviceTaken):
		audit.Record(r.Context(), "device refused", append(s.who(), "reason", err.Error())...)
		h.cookies.clear(w, SessionCookie)
		h.pages.fail(w, r, problem{
			Status: http.StatusNotFound, Title: "No terminal waits for this code",
			What: "The code " + s.Login.UserCode + " is not one that a terminal shows now, or another person has used it.",
			Next: "Run kubectl bind " + h.opts.External.String() + " --device and enter the code that it prints at " + h.opts.url(devicePage) + ".",
		})
	case err != nil:
		h.pages.internal(w, r, err)
	default:
		s.Device = device
		h.logins.welcome(w, r, s)
	}
}

// wait shows that the program has not asked yet, and looks again.
func (h *devicePages) wait(w http.ResponseWriter, r *http.Request, s *session) {
	if err := h.sessions.keep(r.Context(), w, s); err != nil {
		h.pages.internal(w, r, err)
		return
	}
	w.Header().Set("Refresh", DeviceRefresh)
	h.pages.page(w, r, http.StatusOK, "device.html", deviceView{
		Code: s.Login.UserCode, Person: s.person(), Wait: true, Silent: time.Since(s.Claimed) > deviceSilence,
	})
}

// unclaimed reports whether it is not known yet what a session is for.
func (s *session) unclaimed() bool { return s.Login.UserCode != "" && s.Device == nil }
