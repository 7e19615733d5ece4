// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/klutch-go/sdk/export/internal/tenant"

	"github.com/go-logr/logr"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/audit"
)

const (
	deviceGrantType = "urn:ietf:params:oauth:grant-type:device_code"

	devicePage = "/device"
	// devicePolls is how often a minute one program may ask whether its person has
	// decided, twice as often as it is told to.
	devicePolls = 24
	// deviceRefresh is when the page looks again whether a terminal waits, and
	// deviceSilence when it says that none does.
	deviceRefresh, deviceSilence = "3; url=" + devicePage, 15 * time.Second
)

// deviceRoutes are those of logins on another device (RFC 8628): the program posts
// to /device and polls /token, the person visits /device.
func (h *handler) deviceRoutes() []route {
	if h.opts.Handshake.Devices == nil {
		return nil
	}
	return []route{
		{"POST " + devicePage, false, h.beginDevice},
		{"GET " + devicePage, false, h.device},
		{"POST " + devicePage + "/claim", true, h.claimDevice},
	}
}

func (h *handler) devices() (*auth.Devices, error) {
	return auth.NewDevices(h.sealer(), h.opts.Handshake.Devices, auth.DevicesOptions{VerificationURL: h.url(devicePage)})
}

// beginDevice answers the device authorization request of a program. Nothing is
// written.
func (h *handler) beginDevice(w http.ResponseWriter, r *http.Request) {
	answer, err := h.newDevice(r)
	if err != nil {
		h.refuseJSON(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func (h *handler) newDevice(r *http.Request) (any, error) {
	if err := r.ParseForm(); err != nil {
		return nil, &oauthError{Code: "invalid_request", Description: "the form cannot be read"}
	}
	l, wrong := parseDevice(r.PostForm)
	if wrong != "" {
		return nil, &oauthError{Code: "invalid_request", Description: wrong}
	}
	request, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	devices, err := h.devices()
	if err != nil {
		return nil, err
	}
	return devices.Begin(l.Challenge, request)
}

// parseDevice reads the request of a program on a machine without a browser.
func parseDevice(form url.Values) (login, string) {
	l := login{State: form.Get("state"), Challenge: form.Get("code_challenge"), Cluster: form.Get("c"), Services: form["service"]}
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

// device shows the step that a person is at: type a code, sign in, confirm the code,
// wait for the terminal.
func (h *handler) device(w http.ResponseWriter, r *http.Request) {
	if s, err := h.session(r); err == nil && s.Login.UserCode != "" && !r.URL.Query().Has("user_code") {
		h.showDevice(w, r, s)
		return
	}
	typed := r.URL.Query().Get("user_code")
	view := deviceView{Code: auth.NormalizeUserCode(typed)}
	view.Wrong = typed != "" && view.Code == ""
	if view.Code != "" {
		view.SignIn = "/authorize?" + url.Values{"user_code": {view.Code}}.Encode()
	}
	h.page(w, r, http.StatusOK, "device.html", view)
}

func (h *handler) showDevice(w http.ResponseWriter, r *http.Request, s *session) {
	if s.Claimed.IsZero() {
		h.page(w, r, http.StatusOK, "device.html", deviceView{Code: s.Login.UserCode, Person: s.person()})
		return
	}
	if !h.limitViews(w, r, &s.Identity) {
		h.claim(w, r, s)
	}
}

// claimDevice takes the person's word that the code is that of their own terminal.
func (h *handler) claimDevice(w http.ResponseWriter, r *http.Request) {
	s, ok := h.openSession(w, r)
	if !ok || h.limitSubject(w, r, &s.Identity) {
		return
	}
	if err := r.ParseForm(); err != nil || s.Login.UserCode == "" || !same(r.PostForm.Get("code"), s.Login.UserCode) {
		h.otherLogin(w, r)
		return
	}
	s.Claimed = time.Now()
	h.claim(w, r, s)
}

// claim goes on to the services once the program has said what it asks for.
func (h *handler) claim(w http.ResponseWriter, r *http.Request, s *session) {
	device, err := h.claimed(r.Context(), s)
	switch {
	case errors.Is(err, auth.ErrDevicePending):
		h.wait(w, r, s)
	case errors.Is(err, auth.ErrUserCode), errors.Is(err, auth.ErrDeviceTaken):
		audit.Record(r.Context(), "device refused", append(s.who(), "reason", err.Error())...)
		clearCookie(w, sessionCookie)
		h.fail(w, r, problem{
			Status: http.StatusNotFound, Title: "No terminal waits for this code",
			What: "The code " + s.Login.UserCode + " is not one that a terminal shows now, or another person has used it.",
			Next: "Run kubectl bind again and enter the code that it prints at " + h.url(devicePage) + ".",
		})
	case err != nil:
		h.internal(w, r, err)
	default:
		s.Device = device
		h.welcome(w, r, s)
	}
}

// wait shows that the program has not asked yet, and looks again.
func (h *handler) wait(w http.ResponseWriter, r *http.Request, s *session) {
	if err := h.keepSession(r.Context(), w, s); err != nil {
		h.internal(w, r, err)
		return
	}
	w.Header().Set("Refresh", deviceRefresh)
	h.page(w, r, http.StatusOK, "device.html", deviceView{
		Code: s.Login.UserCode, Person: s.person(), Wait: true, Silent: time.Since(s.Claimed) > deviceSilence,
	})
}

// claimed is the device of a session, with what it asks for put into the session.
func (h *handler) claimed(ctx context.Context, s *session) (*auth.Device, error) {
	devices, err := h.devices()
	if err != nil {
		return nil, err
	}
	device, err := devices.Claim(ctx, s.Login.UserCode, s.account())
	if err != nil {
		return nil, err
	}
	l := login{}
	if err := json.Unmarshal(device.Request, &l); err != nil {
		return nil, auth.ErrUserCode
	}
	l.UserCode, device.Request = device.UserCode, nil // what was asked need not be kept twice
	s.Login = l
	return device, nil
}

// answerDevice keeps what a login has ended with until the program asks for it.
func (h *handler) answerDevice(ctx context.Context, device *auth.Device, answer url.Values) error {
	devices, err := h.devices()
	if err != nil {
		return err
	}
	if answer.Has("error") {
		return devices.Refuse(ctx, device, auth.Error{Code: answer.Get("error"), Description: answer.Get("error_description")})
	}
	return devices.Answer(ctx, device, []byte(answer.Get("code")))
}

// pollDevice returns the one-time code that a person has granted to the program.
func (h *handler) pollDevice(ctx context.Context, form url.Values) (string, error) {
	if h.polls.Take(tenant.Digest(form.Get("device_code"))) > 0 {
		return "", &oauthError{Code: "slow_down", Description: "asked more often than agreed"}
	}
	devices, err := h.devices()
	if err != nil {
		return "", err
	}
	_, answer, err := devices.Poll(ctx, form.Get("device_code"), form.Get("code_verifier"))
	return string(answer), err
}

// unclaimed reports whether it is not known yet what a session is for.
func (s *session) unclaimed() bool { return s.Login.UserCode != "" && s.Device == nil }

// logoutDevice lets the program know that its person has gone.
func (h *handler) logoutDevice(ctx context.Context, s *session) {
	if err := h.answerDevice(ctx, s.Device, signedOut()); err != nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("a device is left waiting", "reason", err.Error())
	}
}
