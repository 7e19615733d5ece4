// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/redirect"
)

// Cookies, and how large they may be.
const (
	TxnCookie     = hostPrefix + "klutch-txn"     // a login at the issuer, in flight
	SessionCookie = hostPrefix + "klutch-session" // a person who has signed in
	doneCookie    = hostPrefix + "klutch-done"    // the answer for the CLI
	MaxCookie     = 3900                          // bytes; browsers take 4096 with name and attributes
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
	http.SetCookie(w, h.cookie(name, sealed, life))
	return nil
}

func (h *cookies) clear(w http.ResponseWriter, name string) {
	http.SetCookie(w, h.cookie(name, "", -time.Second))
}

func (h *cookies) cookie(name, value string, life time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: h.name(name), Value: value, Path: "/", MaxAge: int(life.Seconds()),
		Secure: !h.plain(), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// hostPrefix has browsers take a cookie over TLS only, and give it to no other host.
const hostPrefix = "__Host-"

// name is what a browser knows a cookie by.
func (h *cookies) name(name string) string {
	if h.plain() {
		return strings.TrimPrefix(name, hostPrefix)
	}
	return name
}

// plain tells whether browsers come without TLS, which is to loopback addresses alone: not
// each of them takes a secure cookie there.
func (h *cookies) plain() bool {
	return h.opts.External.Scheme == "http" && redirect.IsLoopback(h.opts.External.Hostname())
}

// errNoCookie says that a browser brought no such cookie, or none that counts.
var errNoCookie = errors.New("no valid cookie")

func (h *cookies) open(r *http.Request, name string, into any) error {
	c, err := r.Cookie(h.name(name))
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
