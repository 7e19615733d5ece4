// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Options describe an issuer. Only URL is needed, and Start fills it in.
type Options struct {
	URL         string            // what the issuer calls itself; may have a path
	Users       map[string]User   // by the name that they log in with
	Clients     map[string]Client // by client ID; nil lets any client in
	AutoApprove string            // the user who is logged in without a form
	Profile     Profile           // zero value: a plain issuer
	Scopes      []string          // that it knows, others are refused; nil means the usual ones
	AuthMethods []string          // of clients with a secret: client_secret_basic, client_secret_post; nil means both
	Algorithm   string            // of its signatures: ES256 (default), RS256 or EdDSA
	TokenTTL    time.Duration     // 0 means one hour
	PollEvery   time.Duration     // in the device flow, faster is slow_down; 0 means 5 seconds
	Now         func() time.Time  // nil means time.Now
	TLS         bool              // Start serves https; see CA
}

// A User can log in. Empty fields leave their claims out.
type User struct {
	Password    string
	Subject     string // "" means the name that the user logs in with
	Name, Email string
	Unverified  bool // of the Email
	Groups      []string
}

// A Client is registered with the issuer.
type Client struct {
	Secret       string   // "" makes a public client
	RedirectURLs []string // nil allows any
	Scopes       []string // that it may get by client credentials
	Audiences    []string // of the tokens that it gets so
}

// signIn returns the user whose password is in a form.
func (o *Options) signIn(r *http.Request) (name string, ok bool) {
	name = r.PostForm.Get("username")
	known, ok := o.Users[name]
	return name, ok && known.Password == r.PostForm.Get("password")
}

// knows reports whether a request comes from a client that may be answered.
func (o *Options) knows(form url.Values) bool {
	target, err := url.Parse(form.Get("redirect_uri"))
	if err != nil || target.Host == "" {
		return false
	}
	client, ok := o.Clients[form.Get("client_id")]
	if o.Clients == nil {
		return form.Has("client_id")
	}
	return ok && (client.RedirectURLs == nil || slices.Contains(client.RedirectURLs, form.Get("redirect_uri")))
}

// authenticate returns the client ID of a token request.
func (o *Options) authenticate(r *http.Request) (string, bool) {
	id, secret := r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	method := "client_secret_post"
	if user, password, basic := r.BasicAuth(); basic {
		method = "client_secret_basic"
		id, _ = url.QueryUnescape(user)
		secret, _ = url.QueryUnescape(password)
	}
	client, ok := o.Clients[id]
	if secret != "" && !slices.Contains(o.AuthMethods, method) {
		return id, false
	}
	return id, o.Clients == nil || ok && client.Secret == secret
}

func (o *Options) scopes() []string {
	if o.Scopes != nil {
		return o.Scopes
	}
	return o.Profile.scopes()
}

// knowsScopes: a plain issuer ignores scopes that it does not know, unless it is
// told which it knows.
func (o *Options) knowsScopes(scope string) bool {
	if o.Profile == "" && o.Scopes == nil {
		return true
	}
	return !slices.ContainsFunc(strings.Fields(scope), func(s string) bool { return !slices.Contains(o.scopes(), s) })
}
