// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const deviceLife = 10 * time.Minute

// A device is a login in the device flow (RFC 8628).
type device struct {
	userCode string
	request  url.Values
	expiry   time.Time
	polled   time.Time
	user     string // who has approved it
	denied   bool
}

func (i *Issuer) beginDevice(w http.ResponseWriter, r *http.Request) {
	client, ok := i.authenticate(r)
	switch {
	case !ok:
		writeError(w, http.StatusUnauthorized, "invalid_client", "")
		return
	case !i.knowsScopes(r.PostForm.Get("scope")):
		writeError(w, http.StatusBadRequest, "invalid_scope", "Invalid scopes: "+r.PostForm.Get("scope"))
		return
	}
	request := r.PostForm
	request.Set("client_id", client)
	text := rand.Text()
	d := &device{userCode: text[:4] + "-" + text[4:8], request: request, expiry: i.opts.Now().Add(deviceLife)}
	code := rand.Text()
	i.mu.Lock()
	i.devices[code] = d
	i.mu.Unlock()
	page := i.opts.URL + "/device"
	writeJSON(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": d.userCode, "verification_uri": page,
		"verification_uri_complete": page + "?user_code=" + d.userCode,
		"expires_in":                int(deviceLife.Seconds()), "interval": int(i.opts.PollEvery.Seconds()),
	})
}

// devicePage is where a person types the user code, and says yes or no.
func (i *Issuer) devicePage(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request", "unreadable form")
		return
	}
	user, known := i.signIn(r)
	if i.opts.AutoApprove != "" {
		user, known = i.opts.AutoApprove, true
	}
	denied := r.PostForm.Has("cancel")
	switch {
	case r.Method != http.MethodPost:
		writeForm(w, http.StatusOK, r, "")
	case !known && !denied:
		writeForm(w, http.StatusUnauthorized, r, "Wrong user name or password.")
	case !i.decideDevice(r.PostForm.Get("user_code"), user, denied):
		http.Error(w, "No device waits with this code.", http.StatusNotFound)
	default:
		_, _ = w.Write([]byte("Go back to your device.\n"))
	}
}

// decideDevice reports whether a device waits with the code.
func (i *Issuer) decideDevice(userCode, user string, denied bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, d := range i.devices {
		if strings.EqualFold(d.userCode, strings.TrimSpace(userCode)) && d.user == "" && !d.denied && i.opts.Now().Before(d.expiry) {
			d.user, d.denied = user, denied
			return true
		}
	}
	return false
}

func (i *Issuer) answerDevice(w http.ResponseWriter, r *http.Request, client string) {
	d, refused := i.pollDevice(r.PostFormValue("device_code"), client)
	challenge := d.request.Get("code_challenge")
	switch {
	case refused != "":
		writeError(w, http.StatusBadRequest, refused, "")
	case challenge != "" && s256(r.PostFormValue("code_verifier")) != challenge:
		writeError(w, http.StatusBadRequest, "invalid_grant", "code_verifier does not match")
	default:
		i.answer(w, grant{user: d.user, request: d.request})
	}
}

// pollDevice is RFC 8628 section 3.5. A device code is good once.
func (i *Issuer) pollDevice(code, client string) (d device, refused string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	known, now := i.devices[code], i.opts.Now()
	if known == nil || known.request.Get("client_id") != client {
		return device{}, "invalid_grant"
	}
	early := now.Sub(known.polled) < i.opts.PollEvery
	known.polled = now
	switch {
	case now.After(known.expiry):
		return device{}, "expired_token"
	case known.denied:
		return device{}, "access_denied"
	case early:
		return device{}, "slow_down"
	case known.user == "":
		return device{}, "authorization_pending"
	}
	delete(i.devices, code)
	return *known, ""
}
