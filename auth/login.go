// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/internal/serve"
)

const callbackPath = "/callback"

// LoginOptions describe the login of a command line program at a Klutch backend,
// which is an OAuth server for its own programs.
type LoginOptions struct {
	// AuthorizeURL is where the browser is sent: https, or http to a loopback
	// address.
	AuthorizeURL string
	// Issuer is the iss parameter (RFC 9207) that the answer must have; "" takes
	// an answer without one.
	Issuer string
	// ClientID is the name of this program at the backend.
	ClientID string
	// Scopes are what is asked for (RFC 6749 §3.3); empty leaves that to the backend.
	Scopes []string
	// Params are further query parameters of AuthorizeURL.
	Params url.Values
	// Prompt shows the person where to go, and the code that the page will show
	// too. It is called before Open. Nil shows nothing.
	Prompt func(url, displayCode string)
	// Open opens a browser. It may return at once or when the browser is done.
	// That it fails does not end the login, since a person may follow the
	// prompt. Nil opens nothing.
	Open func(url string) error
}

// Login runs one login: it listens on a loopback address, sends the person's
// browser to the backend, and waits for the answer or the end of ctx. It leaves
// nothing behind. A refusal is an [*Error].
func Login(ctx context.Context, opts LoginOptions) (Grant, error) {
	endpoint, err := authorizeEndpoint(opts)
	if err != nil {
		return Grant{}, err
	}
	loopback, err := Listen(ctx)
	if err != nil {
		return Grant{}, err
	}
	defer loopback.Close()

	g := newGrant(opts.ClientID)
	g.RedirectURL = loopback.RedirectURL()
	client := oauth2.Config{ClientID: opts.ClientID, Scopes: opts.Scopes, RedirectURL: g.RedirectURL, Endpoint: oauth2.Endpoint{AuthURL: endpoint}}
	target := client.AuthCodeURL(g.State, oauth2.S256ChallengeOption(g.Verifier))
	if opts.Prompt != nil {
		opts.Prompt(target, DisplayCode(oauth2.S256ChallengeFromVerifier(g.Verifier)))
	}
	g.Code, err = answer(ctx, loopback, g.State, opts, target)
	return g, err
}

// answer waits while the browser runs, since Open may block until it is done.
func answer(ctx context.Context, loopback *Loopback, state string, opts LoginOptions, target string) (code string, err error) {
	var waiting sync.WaitGroup
	waiting.Go(func() { code, err = loopback.Wait(ctx, state, opts.Issuer) })
	if opts.Open != nil {
		if err := opts.Open(target); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("no browser opened", "reason", err.Error())
		}
	}
	waiting.Wait()
	return code, err
}

// authorizeEndpoint adds the parameters to the URL, which a stranger's document
// may have named: it must not already answer what we are going to ask.
func authorizeEndpoint(opts LoginOptions) (string, error) {
	u, err := parseSecure(opts.AuthorizeURL)
	if err != nil {
		return "", fmt.Errorf("authorize URL: %w", err)
	}
	query := u.Query()
	for name, values := range opts.Params {
		query[name] = append(query[name], values...)
	}
	for _, name := range []string{"response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method"} {
		if query.Has(name) {
			return "", fmt.Errorf("authorize URL: parameter %s is not free to choose", name)
		}
	}
	u.RawQuery, u.Fragment = query.Encode(), ""
	return u.String(), nil
}

// DisplayCode is what terminal and page both show, so that a person can see that
// they belong together: "FPFF-JMPB", derived from the S256 challenge of a login.
func DisplayCode(challenge string) string {
	sum := sha256.Sum256([]byte("klutch display code\x00" + challenge))
	code := make([]byte, 0, 9)
	for i, b := range sum[:8] {
		if i == 4 {
			code = append(code, '-')
		}
		code = append(code, letters[int(b)%len(letters)])
	}
	return string(code)
}

// A Loopback receives the one callback of a login on 127.0.0.1. No other page can
// complete or end the login with it, since none knows the state. The programs of other
// users may know it, from the command line of the browser: Linux tells whose they are.
type Loopback struct{ listener net.Listener }

// Listen opens a port on 127.0.0.1. The caller closes it.
func Listen(ctx context.Context) (*Loopback, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w", err)
	}
	return &Loopback{listener}, nil
}

// RedirectURL is where the backend is to send the browser.
func (l *Loopback) RedirectURL() string { return "http://" + l.listener.Addr().String() + callbackPath }

// Close frees the port. It may be called again, and after Wait.
func (l *Loopback) Close() { _ = l.listener.Close() }

// Wait serves the port until a callback with the right state arrives or ctx ends,
// and frees it. It may be called once. With an issuer the callback must name it
// as iss. Everything else that arrives is answered and forgotten. Its errors are
// ErrIssuer, an [*Error], and that of ctx.
func (l *Loopback) Wait(ctx context.Context, state, issuer string) (code string, err error) {
	if state == "" {
		return "", ErrState
	}
	outcomes := make(chan outcome, 1)
	server := &http.Server{
		Handler:        &receiver{host: l.listener.Addr().String(), state: state, issuer: issuer, outcomes: outcomes},
		ReadTimeout:    5 * time.Second,
		WriteTimeout:   5 * time.Second,
		MaxHeaderBytes: 16 << 10,
	}
	server.SetKeepAlivesEnabled(false)
	failed := make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- server.Serve(l.listener) })
	defer serving.Wait()
	defer serve.Stop(ctx, server)
	select {
	case o := <-outcomes:
		return o.code, o.err
	case err := <-failed:
		return "", fmt.Errorf("wait for the browser: %w", err)
	case <-ctx.Done():
		return "", fmt.Errorf("wait for the browser: %w", context.Cause(ctx))
	}
}

type outcome struct {
	code string
	err  error
}

// A receiver answers the requests of browsers, and of whatever else is around.
type receiver struct {
	host, state, issuer string
	outcomes            chan<- outcome // takes one
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if status := r.refuse(req); status != http.StatusOK {
		writePage(w, status, "This is not the login that is waited for", "Run the command again, and follow the link that it prints.")
		return
	}
	if serve.OtherUser(req) {
		writePage(w, http.StatusForbidden, "This is the login of another user of this machine", "Run the command as the user whose browser this is, or with --device.")
		return
	}
	code, err := callbackCode(req.URL.Query(), r.issuer, true)
	select {
	case r.outcomes <- outcome{code, err}:
	default: // the first one counts
	}
	if err != nil {
		writePage(w, http.StatusOK, "The login did not succeed", "Your terminal says why. You may close this tab.")
		return
	}
	writePage(w, http.StatusOK, "The login is complete", "Your terminal goes on. You may close this tab.")
}

// refuse returns StatusOK for the callback of our own login alone. A wrong Host
// is a page of another site that had its name point to us.
func (r *receiver) refuse(req *http.Request) int {
	query, err := url.ParseQuery(req.URL.RawQuery)
	switch {
	case req.Host != r.host:
		return http.StatusForbidden
	case req.URL.Path != callbackPath:
		return http.StatusNotFound
	case req.Method != http.MethodGet:
		return http.StatusMethodNotAllowed
	case err != nil || checkState(query, r.state) != nil:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// writePage writes a page that does nothing and repeats nothing.
func writePage(w http.ResponseWriter, status int, title, next string) {
	header := w.Header()
	header.Set("Allow", http.MethodGet)
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src '"+pageStyleHash+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>`+title+`</title>
<style>`+pageStyle+`</style>
</head>
<body>
<main><h1>`+title+`</h1><p>`+next+`</p></main>
</body>
</html>
`)
}

// pageStyle looks as the pages of a backend do.
const pageStyle = `
:root { color-scheme: light dark; --text: #16181d; --ground: #f6f7f9; }
@media (prefers-color-scheme: dark) { :root { --text: #eceef2; --ground: #14161a; } }
body { margin: 0; background: var(--ground); color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
main { max-width: 46rem; margin: 3rem auto; padding: 0 1rem; }
h1 { margin: 0 0 1.25rem; font-size: 1.75rem; line-height: 1.2; }
`

var pageStyleHash = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}()
