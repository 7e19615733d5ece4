// SPDX-License-Identifier: Apache-2.0

// Login is a web server that says who you are. It keeps nothing: the login in
// flight is sealed into a cookie, so that any number of replicas can serve it. The
// issuer needs a public client named login with the redirect URL
// http://127.0.0.1:8080/callback.
//
//	go run ./examples/login http://127.0.0.1:5556/dex
package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/klutch-go/sdk/auth"
)

const (
	address = "127.0.0.1:8080"
	cookie  = "__Host-login"
)

func main() {
	fmt.Fprintln(os.Stderr, run(os.Args[1:]))
	os.Exit(1)
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: login ISSUER-URL")
	}
	site, err := newSite(auth.Config{Issuer: args[0], ClientID: "login", RedirectURL: "http://" + address + "/callback"})
	if err != nil {
		return err
	}
	return (&http.Server{Addr: address, Handler: site, ReadHeaderTimeout: 5 * time.Second}).ListenAndServe()
}

func newSite(cfg auth.Config) (http.Handler, error) {
	provider, err := auth.New(cfg)
	if err != nil {
		return nil, err
	}
	sealer, err := auth.NewSealer([]byte(rand.Text() + rand.Text())) // replicas would share a key
	site := http.NewServeMux()
	site.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		attempt, url, err := provider.Begin(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		plain, _ := json.Marshal(attempt)
		sealed, _ := sealer.SealUntil("login", plain, time.Now().Add(10*time.Minute))
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: sealed, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode})
		http.Redirect(w, r, url, http.StatusSeeOther)
	})
	site.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: cookie, Path: "/", MaxAge: -1, Secure: true}) // good for one callback
		var attempt auth.Attempt                                                           // empty is refused
		if c, err := r.Cookie(cookie); err == nil {
			plain, _ := sealer.Open("login", c.Value)
			_ = json.Unmarshal(plain, &attempt)
		}
		id, err := provider.Finish(r.Context(), attempt, r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprintf(w, "You are %s, in %q.\n", id.Subject, id.Groups)
	})
	return site, err
}
