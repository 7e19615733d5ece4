// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Config says which issuer is trusted and who we are to it.
type Config struct {
	// Issuer is the URL of an OpenID Connect issuer, exactly as it calls
	// itself: https, or http to a loopback address.
	Issuer string
	// ClientID and ClientSecret are ours at the issuer. A public client has no
	// secret. Where only machines are let in, no client is needed.
	ClientID, ClientSecret string
	// RedirectURL is the absolute URL to which the issuer sends the browser
	// back. Needed by [Provider.Begin] alone.
	RedirectURL string
	// Scopes that a login asks for; nil means openid, profile, email, groups.
	Scopes []string
	// Audiences are values of aud of tokens that machines got for us by
	// themselves; where such a token has no aud, as those of Amazon Cognito,
	// values of client_id. ClientID cannot be one: ID tokens of people are for it.
	Audiences []string
	// MachineClaim, if it has a Name, is what alone shows that a token is a
	// machine's, for issuers whose access tokens show it in no other way: a claim
	// that is Value, or a list with Value in it. Else one of these does: the header
	// typ at+jwt (RFC 9068); the scopes that are demanded; token_use access;
	// typ Bearer beside client_id, as of Keycloak's service accounts; a client_id
	// or cid that is the subject.
	MachineClaim Claim
	// GroupsClaim names the claim with the groups of a person; "" means groups.
	GroupsClaim string
	// HTTPClient reaches the issuer, within the limits of [Bounded].
	HTTPClient *http.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// A Claim is the name of a claim, and a value that it has.
type Claim struct{ Name, Value string }

// A Provider logs people and machines in with one issuer. It may be used by many
// goroutines at once.
type Provider struct {
	cfg    Config
	client *http.Client
	budget *budget // of what bearers of tokens make us ask

	mu     sync.Mutex
	known  *endpoints // nil until the issuer has answered once
	flight *flight    // nil while the issuer is not being asked
}

// A flight is one request to the issuer, shared by all callers that wait for its answer.
type flight struct {
	done  chan struct{} // closed when the rest is there
	found *endpoints
	err   error
}

// endpoints is what an issuer says about itself.
type endpoints struct {
	asked    time.Time
	oauth    oauth2.Config
	keys     oidc.KeySet // for tokens that the issuer gave us itself
	bearer   oidc.KeySet // for tokens from strangers, within the budget
	keysURL  string
	sendsIss bool // RFC 9207: every callback has an iss parameter
}

// An Attempt is one login in flight. It is as secret as the login: keep it where
// only the browser that began the login can bring it back and cannot read or
// change it, such as a cookie sealed by a [Sealer], and drop it after one
// [Provider.Finish].
type Attempt struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

// New returns a Provider for the issuer of cfg. It does no I/O: the issuer is
// asked for its endpoints at first use, and again until it answers.
func New(cfg Config) (*Provider, error) {
	issuer, err := parseSecure(cfg.Issuer)
	switch {
	case err != nil:
		return nil, fmt.Errorf("issuer URL: %w", err)
	case issuer.RawQuery != "" || issuer.Fragment != "":
		return nil, errors.New("issuer URL: must have no query and no fragment")
	case cfg.ClientID == "" && len(cfg.Audiences) == 0:
		return nil, errors.New("client ID is empty")
	case cfg.ClientID != "" && slices.Contains(cfg.Audiences, cfg.ClientID):
		return nil, fmt.Errorf("audience %s is the client with which people sign in: machines need one of their own", cfg.ClientID)
	}
	if cfg.RedirectURL != "" {
		if _, err := parseSecure(cfg.RedirectURL); err != nil {
			return nil, fmt.Errorf("redirect URL: %w", err)
		}
	}
	cfg.GroupsClaim = cmp.Or(cfg.GroupsClaim, "groups")
	if cfg.Scopes == nil {
		cfg.Scopes = []string{oidc.ScopeOpenID, "profile", "email", "groups"}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	client := Bounded(cfg.HTTPClient)
	client.Transport = issuerTransport{client.Transport}
	return &Provider{cfg: cfg, client: client, budget: &budget{now: cfg.Now}}, nil
}

// Issuer is the URL of the issuer, as in [Identity].
func (p *Provider) Issuer() string { return p.cfg.Issuer }

// Probe asks the issuer for its endpoints, whatever is known of them. The error is
// ErrUnavailable if it does not answer as an issuer of that URL should.
func (p *Provider) Probe(ctx context.Context) error {
	_, err := p.endpoints(ctx, 0, free)
	return err
}

// Overlaps reports whether tokens for the client with which people sign in at one of
// two Providers are for machines at the other: both have one issuer.
func (p *Provider) Overlaps(other *Provider) bool {
	return p.cfg.Issuer == other.cfg.Issuer &&
		(slices.Contains(p.cfg.Audiences, other.cfg.ClientID) || slices.Contains(other.cfg.Audiences, p.cfg.ClientID))
}

// Begin starts a login. The browser is to be sent to url, and the Attempt to be
// kept for Finish. An issuer that has not answered for ten seconds is asked first,
// so that no person is sent to one that is down: the error is ErrUnavailable then.
func (p *Provider) Begin(ctx context.Context) (a Attempt, loginURL string, err error) {
	e, err := p.endpoints(ctx, 10*time.Second, free)
	if err != nil {
		return Attempt{}, "", err
	}
	a = Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	return a, e.oauth.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Finish completes the login a with the query of the callback that the browser
// made, and returns the identity that logged in. Its errors are ErrState, ErrIssuer, ErrToken,
// ErrUnavailable, or an [*Error] when the issuer refused.
func (p *Provider) Finish(ctx context.Context, a Attempt, callback url.Values) (*Identity, error) {
	if err := checkState(callback, a.State); err != nil {
		return nil, err
	}
	e, err := p.endpoints(ctx, forever, free)
	if err != nil {
		return nil, err
	}
	code, err := callbackCode(callback, p.cfg.Issuer, e.sendsIss)
	if err != nil {
		return nil, err
	}
	token, err := e.oauth.Exchange(p.context(ctx), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return nil, exchangeError(err)
	}
	return p.verifyLogin(ctx, token, a.Nonce)
}

// checkState binds a callback to the login with that state. Repeated parameters
// are refused (RFC 6749 section 3.1), since two readers could differ on them.
func checkState(callback url.Values, state string) error {
	for _, values := range callback {
		if len(values) != 1 {
			return ErrState
		}
	}
	if state == "" || subtle.ConstantTimeCompare([]byte(callback.Get("state")), []byte(state)) != 1 {
		return ErrState
	}
	return nil
}

// callbackCode returns the code of a callback whose state is right. An empty
// issuer stands for any.
func callbackCode(callback url.Values, issuer string, issRequired bool) (string, error) {
	iss := callback.Get("iss")
	if issuer != "" && iss != issuer && (iss != "" || issRequired) {
		return "", ErrIssuer
	}
	if callback.Has("error") {
		return "", newError(callback.Get("error"), callback.Get("error_description"))
	}
	code := callback.Get("code")
	if code == "" {
		return "", newError("invalid_response", "neither a code nor an error")
	}
	return code, nil
}

func exchangeError(err error) error {
	var refused *oauth2.RetrieveError
	switch {
	case !errors.As(err, &refused):
		return fmt.Errorf("%w: token endpoint: %w", ErrUnavailable, brief{err})
	case refused.ErrorCode == "":
		return fmt.Errorf("%w: token endpoint: HTTP status %d", ErrUnavailable, refused.Response.StatusCode)
	default:
		return newError(refused.ErrorCode, refused.ErrorDescription)
	}
}

func (p *Provider) context(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, p.client)
}

// forever is an age that no answer has.
const forever time.Duration = math.MaxInt64

// free is the price of a request that no budget pays for.
func free() error { return nil }

// endpoints returns what the issuer said about itself at most maxAge ago. If need be
// the first caller pays, and all that come until the issuer has answered share that.
func (p *Provider) endpoints(ctx context.Context, maxAge time.Duration, pay func() error) (*endpoints, error) {
	known, asked, err := p.ask(ctx, maxAge, pay)
	if known != nil {
		return known, nil
	}
	if err == nil {
		select {
		case <-asked.done:
			known, err = asked.found, asked.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: discover: %w", ErrUnavailable, brief{err})
	}
	return known, nil
}

// ask returns the endpoints if they are known and not too old, or the request that is
// under way. The request outlives its first caller, until the issuer answers or the
// client's timeout: a caller that leaves must not make the others wait for one more answer.
func (p *Provider) ask(ctx context.Context, maxAge time.Duration, pay func() error) (*endpoints, *flight, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known != nil && p.cfg.Now().Sub(p.known.asked) < maxAge {
		return p.known, nil, nil
	}
	if p.flight == nil {
		if err := pay(); err != nil {
			return nil, nil, err
		}
		p.flight = &flight{done: make(chan struct{})}
		go p.fly(context.WithoutCancel(ctx), p.flight, p.known)
	}
	return nil, p.flight, nil
}

// fly asks the issuer.
func (p *Provider) fly(ctx context.Context, f *flight, known *endpoints) {
	defer close(f.done)
	f.found, f.err = p.discover(p.context(ctx), known)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flight = nil
	if f.err == nil {
		p.known = f.found
	}
}

// discover asks the issuer. Keys that are known stay known while their URL does.
func (p *Provider) discover(ctx context.Context, known *endpoints) (*endpoints, error) {
	issuer, err := oidc.NewProvider(ctx, p.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	var doc struct {
		KeysURL     string   `json:"jwks_uri"`
		AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
		SendsIss    bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := issuer.Claims(&doc); err != nil {
		return nil, err
	}
	e := &endpoints{
		asked:    p.cfg.Now(),
		oauth:    p.oauth(issuer.Endpoint(), doc.AuthMethods),
		keysURL:  doc.KeysURL,
		sendsIss: doc.SendsIss,
	}
	if known != nil && known.keysURL == e.keysURL {
		e.keys, e.bearer = known.keys, known.bearer
	} else {
		// They keep their context for later requests, so the request's must not end them.
		ctx := context.WithoutCancel(ctx)
		e.keys = oidc.NewRemoteKeySet(ctx, e.keysURL)
		e.bearer = oidc.NewRemoteKeySet(oidc.ClientContext(ctx, p.budget.limit(p.client)), e.keysURL)
	}
	if _, err := parseSecure(e.oauth.Endpoint.AuthURL); err != nil {
		return nil, fmt.Errorf("authorization endpoint: %w", err)
	}
	return e, nil
}

func (p *Provider) oauth(endpoint oauth2.Endpoint, methods []string) oauth2.Config {
	endpoint.AuthStyle = p.authStyle(methods)
	return oauth2.Config{
		ClientID:     p.cfg.ClientID,
		ClientSecret: p.cfg.ClientSecret,
		Endpoint:     endpoint,
		RedirectURL:  p.cfg.RedirectURL,
		Scopes:       p.cfg.Scopes,
	}
}

// authStyle picks one way to authenticate us. Left to itself oauth2 tries both,
// and a code that is sent twice looks stolen.
func (p *Provider) authStyle(methods []string) oauth2.AuthStyle {
	if p.cfg.ClientSecret == "" {
		return oauth2.AuthStyleInParams
	}
	if len(methods) == 0 || slices.Contains(methods, "client_secret_basic") {
		return oauth2.AuthStyleInHeader // the default of OpenID Connect
	}
	return oauth2.AuthStyleInParams
}

// issuerTransport tells an issuer that is down from one that says no.
type issuerTransport struct{ base http.RoundTripper }

func (t issuerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err == nil && resp.StatusCode >= http.StatusInternalServerError {
		err = errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return resp, nil
}
