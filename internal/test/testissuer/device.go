// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"sync"
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

// devices are the logins of an issuer in the device flow.
type devices struct {
	opts *Options

	mu      sync.Mutex
	waiting map[string]*device // by device code
}

func (d *devices) begin(w http.ResponseWriter, r *http.Request) {
	client, ok := d.opts.authenticate(r)
	switch {
	case !ok:
		writeError(w, http.StatusUnauthorized, "invalid_client", "")
		return
	case !d.opts.knowsScopes(r.PostForm.Get("scope")):
		writeError(w, http.StatusBadRequest, "invalid_scope", "Invalid scopes: "+r.PostForm.Get("scope"))
		return
	}
	request := r.PostForm
	request.Set("client_id", client)
	text := rand.Text()
	made := &device{userCode: text[:4] + "-" + text[4:8], request: request, expiry: d.opts.Now().Add(deviceLife)}
	code := rand.Text()
	d.mu.Lock()
	d.waiting[code] = made
	d.mu.Unlock()
	page := d.opts.URL + "/device"
	writeJSON(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": made.userCode, "verification_uri": page,
		"verification_uri_complete": page + "?user_code=" + made.userCode,
		"expires_in":                int(deviceLife.Seconds()), "interval": int(d.opts.PollEvery.Seconds()),
	})
}

// page is where a person types the user code, and says yes or no.
func (d *devices) page(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request", "unreadable form")
		return
	}
	user, known := d.opts.signIn(r)
	if d.opts.AutoApprove != "" {
		user, known = d.opts.AutoApprove, true
	}
	denied := r.PostForm.Has("cancel")
	switch {
	case r.Method != http.MethodPost:
		writeForm(w, http.StatusOK, r, "")
	case !known && !denied:
		writeForm(w, http.StatusUnauthorized, r, "Wrong user name or password.")
	case !d.decide(r.PostForm.Get("user_code"), user, denied):
		http.Error(w, "No device waits with this code.", http.StatusNotFound)
	default:
		_, _ = w.Write([]byte("Go back to your device.\n"))
	}
}

// decide reports whether a device waits with the code.
func (d *devices) decide(userCode, user string, denied bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.waiting {
		if strings.EqualFold(w.userCode, strings.TrimSpace(userCode)) && w.user == "" && !w.denied && d.opts.Now().Before(w.expiry) {
			w.user, w.denied = user, denied
			return true
		}
	}
	return false
}

// poll is RFC 8628 section 3.5. A device code is good once.
func (d *devices) poll(code, client string) (polled device, refused string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known, now := d.waiting[code], d.opts.Now()
	if known == nil || known.request.Get("client_id") != client {
		return device{}, "invalid_grant"
	}
	early := now.Sub(known.polled) < d.opts.PollEvery
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
	delete(d.waiting, code)
	return *known, ""
}
