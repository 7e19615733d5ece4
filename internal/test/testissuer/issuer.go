// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

// An Issuer is an [http.Handler]. It may be used by many goroutines at once.
type Issuer struct {
	opts Options
	mux  *http.ServeMux
	ca   []byte

	tokens  *minter
	devices *devices

	mu     sync.Mutex
	grants map[string]grant // by code
	urls   []string         // that were asked for, and those that people came from
}

// grant is what a code stands for.
type grant struct {
	user     string
	request  url.Values // the authorization request
	expiry   time.Time
	redeemed bool
}

// New returns an Issuer to be served at opts.URL. It panics on options that make
// no sense.
func New(opts Options) *Issuer {
	base, err := url.Parse(opts.URL)
	if err != nil || base.Host == "" {
		panic("testissuer: URL is not absolute: " + opts.URL)
	}
	opts.Algorithm = cmp.Or(opts.Algorithm, string(jose.ES256))
	if opts.AuthMethods == nil {
		opts.AuthMethods = []string{"client_secret_basic", "client_secret_post"}
	}
	opts.TokenTTL = cmp.Or(opts.TokenTTL, time.Hour)
	opts.PollEvery = cmp.Or(opts.PollEvery, 5*time.Second)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	i := &Issuer{opts: opts, mux: http.NewServeMux(), grants: map[string]grant{}}
	i.tokens = &minter{opts: &i.opts, key: newKey(opts.Algorithm)}
	i.devices = &devices{opts: &i.opts, waiting: map[string]*device{}}
	paths := opts.Profile.paths()
	i.mux.HandleFunc("GET "+base.Path+"/.well-known/openid-configuration", i.discovery)
	i.mux.HandleFunc("GET "+base.Path+paths.keys, i.keys)
	i.mux.HandleFunc("GET "+base.Path+paths.authorize, i.authorize)
	i.mux.HandleFunc("POST "+base.Path+paths.authorize, i.authorize)
	i.mux.HandleFunc("POST "+base.Path+paths.token, i.token)
	if paths.device != "" {
		i.mux.HandleFunc("POST "+base.Path+paths.device, i.devices.begin)
		i.mux.HandleFunc(base.Path+"/device", i.devices.page)
	}
	return i
}

// Start serves an issuer on a loopback address until the test ends. A path in
// opts.URL is kept.
func Start(tb testing.TB, opts Options) *Issuer {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	scheme, ca := "http", []byte(nil)
	var config *tls.Config
	if opts.TLS {
		scheme = "https"
		config, ca = selfSigned()
	}
	opts.URL = scheme + "://" + listener.Addr().String() + opts.URL
	i := New(opts)
	i.ca = ca
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := i.Serve(tb.Context(), listener, config); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(serving.Wait)
	return i
}

// URL is what the issuer calls itself.
func (i *Issuer) URL() string { return i.opts.URL }

// CA is the PEM certificate that a client of an issuer started with TLS trusts.
func (i *Issuer) CA() []byte { return i.ca }

// Serve answers on listener until ctx ends, with TLS if config is not nil.
func (i *Issuer) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	server := &http.Server{
		Handler:           i,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.note(r)
	f := i.tokens.currentFaults()
	if !strings.HasSuffix(r.URL.Path, f.Path) {
		f = Faults{}
	}
	if f.Padding > 0 {
		w = &padded{ResponseWriter: w, padding: f.Padding}
	}
	if !f.disturb(w, r) {
		i.mux.ServeHTTP(w, r)
	}
}

func (i *Issuer) note(r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.urls = append(i.urls, r.URL.String(), r.Referer())
}

// Misbehave has the issuer misbehave as f says from now on. The zero value ends
// it.
func (i *Issuer) Misbehave(f Faults) { i.tokens.misbehave(f) }

// IDToken returns a token of user for audience, as a machine would bring it.
func (i *Issuer) IDToken(user, audience string) (string, error) {
	return i.tokens.idToken(user, audience)
}

// AccessToken returns one of RFC 9068 with what the issuer knows of user, as the client
// of that name gets it for audience.
func (i *Issuer) AccessToken(user, audience string) (string, error) {
	return i.tokens.accessToken(user, audience)
}

// MachineToken returns the access token that a client gets by client credentials
// with these scopes.
func (i *Issuer) MachineToken(client string, scopes ...string) (string, error) {
	return i.tokens.machineToken(client, scopes...)
}

// RotateKeys signs with a new key from now on and publishes that one alone.
func (i *Issuer) RotateKeys() { i.tokens.rotate() }

// URLs are all that the issuer was asked for, and the referrers of those requests.
func (i *Issuer) URLs() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.urls)
}

func (i *Issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	f := i.tokens.currentFaults()
	paths := i.opts.Profile.paths()
	doc := map[string]any{
		"issuer":                                         cmp.Or(f.DiscoveryIssuer, i.opts.URL),
		"authorization_endpoint":                         i.opts.URL + paths.authorize,
		"token_endpoint":                                 i.opts.URL + paths.token,
		"jwks_uri":                                       i.opts.URL + paths.keys,
		"response_types_supported":                       []string{"code"},
		"grant_types_supported":                          i.opts.Profile.grantTypes(),
		"subject_types_supported":                        []string{"public"},
		"scopes_supported":                               i.opts.scopes(),
		"code_challenge_methods_supported":               []string{"S256"},
		"token_endpoint_auth_methods_supported":          i.opts.AuthMethods,
		"id_token_signing_alg_values_supported":          slices.Compact([]string{i.opts.Algorithm, cmp.Or(f.Algorithm, i.opts.Algorithm)}),
		"authorization_response_iss_parameter_supported": i.opts.Profile.sendsIss(),
	}
	if paths.device != "" {
		doc["device_authorization_endpoint"] = i.opts.URL + paths.device
	}
	writeJSON(w, http.StatusOK, doc)
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	k := i.tokens.currentKey()
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{k.public()}}
	if i.tokens.currentFaults().Algorithm == string(jose.HS256) {
		set.Keys = append(set.Keys, k.symmetric())
	}
	writeJSON(w, http.StatusOK, set)
}

// authorize shows the login form, takes it, and sends the browser back.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request", "unreadable form")
		return
	}
	if !i.opts.knows(r.Form) {
		writeError(w, http.StatusBadRequest, "invalid_request", "unknown client_id or redirect_uri")
		return
	}
	f := i.tokens.currentFaults()
	switch {
	case r.Form.Get("response_type") != "code":
		i.back(w, r, url.Values{"error": {"unsupported_response_type"}})
	case r.Form.Get("code_challenge_method") != "S256" || r.Form.Get("code_challenge") == "":
		i.back(w, r, url.Values{"error": {"invalid_request"}, "error_description": {"PKCE with S256 is required"}})
	case !i.opts.knowsScopes(r.Form.Get("scope")):
		i.back(w, r, url.Values{"error": {"invalid_scope"}, "error_description": {"Invalid scopes: " + r.Form.Get("scope")}})
	case f.AuthorizeError != "":
		i.back(w, r, url.Values{"error": {f.AuthorizeError}, "error_description": {"on request"}})
	case r.PostForm.Has("cancel"):
		i.back(w, r, url.Values{"error": {"access_denied"}, "error_description": {"The user said no"}})
	default:
		i.login(w, r)
	}
}

func (i *Issuer) login(w http.ResponseWriter, r *http.Request) {
	user := i.opts.AutoApprove
	if user == "" && r.Method == http.MethodPost {
		var ok bool
		if user, ok = i.opts.signIn(r); !ok {
			writeForm(w, http.StatusUnauthorized, r, "Wrong user name or password.")
			return
		}
	}
	if user == "" {
		writeForm(w, http.StatusOK, r, "")
		return
	}
	i.back(w, r, url.Values{"code": {i.mint(user, r.Form)}})
}

// back sends the browser to the client with an answer.
func (i *Issuer) back(w http.ResponseWriter, r *http.Request, answer url.Values) {
	answer.Set("state", r.Form.Get("state"))
	if iss := i.tokens.currentFaults().iss(&i.opts); iss != "" {
		answer.Set("iss", iss)
	}
	target, err := url.Parse(r.Form.Get("redirect_uri"))
	if err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request", "redirect_uri")
		return
	}
	query := target.Query()
	for name := range answer {
		query.Set(name, answer.Get(name))
	}
	target.RawQuery = query.Encode()
	http.Redirect(w, r, target.String(), http.StatusSeeOther)
}

func (i *Issuer) mint(user string, request url.Values) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	code := rand.Text()
	i.grants[code] = grant{user: user, request: request, expiry: i.opts.Now().Add(time.Minute)}
	return code
}

// token answers token requests.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	f := i.tokens.currentFaults()
	client, ok := i.opts.authenticate(r)
	grantType := r.PostFormValue("grant_type")
	switch {
	case f.TokenError != "":
		writeError(w, http.StatusBadRequest, f.TokenError, "on request")
	case !ok:
		writeError(w, http.StatusUnauthorized, "invalid_client", "")
	case !slices.Contains(i.opts.Profile.grantTypes(), grantType):
		writeError(w, http.StatusBadRequest, "unsupported_grant_type", "")
	case grantType == clientGrant:
		i.answerMachine(w, r, client)
	case grantType == deviceGrant:
		i.answerDevice(w, r, client)
	default:
		i.answerCode(w, r, client)
	}
}

// answerCode redeems a code, once.
func (i *Issuer) answerCode(w http.ResponseWriter, r *http.Request, client string) {
	f := i.tokens.currentFaults()
	g, known := i.redeem(r.PostFormValue("code"), f.ReuseCodes)
	switch {
	case !known || g.request.Get("client_id") != client || g.request.Get("redirect_uri") != r.PostFormValue("redirect_uri"):
		writeError(w, http.StatusBadRequest, "invalid_grant", "code is unknown, expired, used or not yours")
	case !f.IgnorePKCE && s256(r.PostFormValue("code_verifier")) != g.request.Get("code_challenge"):
		writeError(w, http.StatusBadRequest, "invalid_grant", "code_verifier does not match")
	default:
		i.answer(w, g)
	}
}

func (i *Issuer) answer(w http.ResponseWriter, g grant) {
	access := rand.Text()
	claims := i.tokens.claims(g.user, g.request.Get("client_id"))
	if nonce := g.request.Get("nonce"); nonce != "" {
		claims["nonce"] = nonce
	}
	claims["at_hash"] = i.tokens.accessHash(access)
	scopes := strings.Fields(g.request.Get("scope"))
	i.opts.Profile.restrict(claims, scopes)
	raw, err := i.tokens.sign(claims)
	if err != nil {
		writeError(w, http.StatusInternalServerError, "server_error", err.Error())
		return
	}
	answer := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": int(i.opts.TokenTTL.Seconds())}
	if i.opts.Profile == "" || slices.Contains(scopes, "openid") {
		answer["id_token"] = raw
	}
	writeJSON(w, http.StatusOK, answer)
}

func (i *Issuer) redeem(code string, reuse bool) (grant, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	g, ok := i.grants[code]
	if !ok || g.redeemed && !reuse || i.opts.Now().After(g.expiry) {
		return grant{}, false
	}
	g.redeemed = true
	i.grants[code] = g
	return g, true
}

func (i *Issuer) answerDevice(w http.ResponseWriter, r *http.Request, client string) {
	d, refused := i.devices.poll(r.PostFormValue("device_code"), client)
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

// answerMachine is RFC 6749 section 4.4.
func (i *Issuer) answerMachine(w http.ResponseWriter, r *http.Request, id string) {
	client := i.opts.Clients[id]
	scopes := strings.Fields(r.PostFormValue("scope"))
	foreign := func(s string) bool { return !slices.Contains(client.Scopes, s) }
	switch {
	case client.Secret == "":
		writeError(w, http.StatusUnauthorized, "unauthorized_client", "Public client not allowed")
		return
	case slices.ContainsFunc(scopes, foreign):
		writeError(w, http.StatusBadRequest, "invalid_scope", "Invalid scopes: "+r.PostFormValue("scope"))
		return
	case len(scopes) == 0:
		scopes = client.Scopes
	}
	raw, err := i.tokens.sign(i.tokens.machineClaims(id, scopes))
	if err != nil {
		writeError(w, http.StatusInternalServerError, "server_error", err.Error())
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"access_token": raw, "token_type": "Bearer", "expires_in": int(i.opts.TokenTTL.Seconds()), "scope": strings.Join(scopes, " "),
	})
}
