// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/klutch-go/sdk/auth"
)

// Cookies, and how large they may be.
const (
	TxnCookie     = "__Host-klutch-txn"     // a login at the issuer, in flight
	SessionCookie = "__Host-klutch-session" // a person who has signed in
	doneCookie    = "__Host-klutch-done"    // the answer for the CLI
	MaxCookie     = 3900                    // bytes; browsers take 4096 with name and attributes
)

// cookies seal what travels with a browser.
type cookies struct {
	opts     *Options
	visitors *visitors
}

// errTooLarge says that something is more than browsers take.
var errTooLarge = errors.New("does not fit a cookie")

// set seals value into a cookie.
func (h *cookies) set(w http.ResponseWriter, name string, value any, life time.Duration) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	sealed, err := h.opts.Sealer().SealUntil(name, data, time.Now().Add(life))
	if err != nil {
		return err
	}
	if len(sealed) > MaxCookie {
		return fmt.Errorf("%s %w", name, errTooLarge)
	}
	http.SetCookie(w, cookie(name, sealed, life))
	return nil
}

func clearCookie(w http.ResponseWriter, name string) {
	http.SetCookie(w, cookie(name, "", -time.Second))
}

// cookie is secure also on plain http: browsers treat a loopback address as safe.
func cookie(name, value string, life time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(life.Seconds()),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// errNoCookie says that a browser brought no such cookie, or none that counts.
var errNoCookie = errors.New("no valid cookie")

func (h *cookies) open(r *http.Request, name string, into any) error {
	c, err := r.Cookie(name)
	if err != nil {
		return errNoCookie
	}
	data, err := h.opts.Sealer().Open(name, c.Value)
	if errors.Is(err, auth.ErrSealed) {
		h.visitors.refused(r, "cookie refused", "cookie", name)
	}
	if err != nil || json.Unmarshal(data, into) != nil {
		return errNoCookie
	}
	return nil
}
