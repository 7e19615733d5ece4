// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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
	// MachineClaim, if it has a Name, is the only evidence that a token is a
	// machine's, for issuers whose access tokens do not show it otherwise: a claim
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
	issuer *discovery
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
	b := &budget{now: cfg.Now}
	return &Provider{cfg: cfg, client: client, budget: b, issuer: &discovery{cfg: cfg, client: client, budget: b}}, nil
}

// Issuer is the URL of the issuer, as in [Identity].
func (p *Provider) Issuer() string { return p.cfg.Issuer }

// Probe asks the issuer for its endpoints, whatever is known of them. The error is
// ErrUnavailable if it does not answer as an issuer of that URL should.
func (p *Provider) Probe(ctx context.Context) error {
	_, err := p.issuer.endpoints(ctx, 0, free)
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
	e, err := p.issuer.endpoints(ctx, 10*time.Second, free)
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
	e, err := p.issuer.endpoints(ctx, forever, free)
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
