// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// maxToken is how long a token may be; a longer one is not looked at.
const maxToken = 16 << 10

// Providers are the issuers that a server trusts. A token is for the one that it
// names itself; one that names another is refused without a request.
// Several Providers of one issuer stand for several of our clients there.
type Providers []*Provider

// VerifyMachine is [Provider.VerifyMachine] of the issuer that raw names.
func (ps Providers) VerifyMachine(ctx context.Context, raw string, scopes ...string) (*Identity, error) {
	issuer, err := issuerOf(raw)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("%w: its issuer is not trusted here", ErrToken)
	for _, p := range ps {
		if p.cfg.Issuer != issuer {
			continue
		}
		var id *Identity
		if id, err = p.VerifyMachine(ctx, raw, scopes...); err == nil {
			return id, nil
		}
	}
	return nil, err
}

// VerifyMachine says whose access token raw is: one that a machine got from the
// issuer by client credentials (RFC 6749 section 4.4) and brings as a bearer. It
// must be signed, for one of the Audiences, in time, and allow all the scopes, in
// the claim scope or scp. The same keys sign what tells of people, so it also has to
// say that it is an access token; [Config.MachineClaim] lists what counts. What tells
// of a login or its end never does: ID tokens, refresh tokens, logout tokens, nor what
// a program got in the name of a person, as far as auth_time tells.
//
// A token with a key that is not known makes us ask the issuer for its keys three
// times in 30 seconds at most, for all senders together. One that the issuer has taken
// back counts for ten minutes at most.
//
// Its errors are ErrToken, ErrScope and ErrUnavailable; see [BearerChallenge].
func (p *Provider) VerifyMachine(ctx context.Context, raw string, scopes ...string) (*Identity, error) {
	token, err := p.bearer(ctx, raw)
	if err != nil {
		return nil, err
	}
	c, err := p.machineClaims(raw, token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, brief{err})
	}
	for _, err := range []error{p.checkTimes(token), c.checkKind(token), p.checkMachine(token, c)} {
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrToken, err)
		}
	}
	if missing := c.missing(scopes); len(missing) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrScope, strings.Join(missing, ", "))
	}
	if !p.marked(token, c, scopes) {
		return nil, fmt.Errorf("%w: nothing in it says that it is the access token of a machine", ErrToken)
	}
	id := p.identity(token, c.claims)
	id.Name = cmp.Or(id.Name, c.client())
	return id, nil
}

// bearer checks signature, issuer and expiry of a token from a stranger.
func (p *Provider) bearer(ctx context.Context, raw string) (*oidc.IDToken, error) {
	issuer, err := issuerOf(raw)
	switch {
	case err != nil:
		return nil, err
	case issuer != p.cfg.Issuer:
		return nil, fmt.Errorf("%w: its issuer is not trusted here", ErrToken)
	}
	e, err := p.issuer.endpoints(ctx, keysLife, p.budget.spend)
	if err != nil {
		return nil, err
	}
	return p.verify(ctx, e.bearer, raw)
}

// issuerOf returns the issuer that a token names, before its signature is checked.
func issuerOf(raw string) (string, error) {
	parts := strings.Split(raw, ".")
	if len(raw) > maxToken || len(parts) != 3 {
		return "", fmt.Errorf("%w: not a signed token", ErrToken)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var said struct {
		Issuer string `json:"iss"`
	}
	if err != nil || json.Unmarshal(payload, &said) != nil {
		return "", fmt.Errorf("%w: not a signed token", ErrToken)
	}
	return said.Issuer, nil
}

// machineClaims are those of an access token (RFC 9068, and issuers before it).
type machineClaims struct {
	claims

	ClientID string `json:"client_id"`
	Okta     string `json:"cid"`
	Scope    words  `json:"scope"`
	SCP      words  `json:"scp"`
	Use      string `json:"token_use"` // Amazon Cognito
	Type     string `json:"typ"`       // Keycloak

	all map[string]json.RawMessage
}

func (p *Provider) machineClaims(raw string, token *oidc.IDToken) (c machineClaims, err error) {
	if err = token.Claims(&c); err != nil {
		return c, err
	}
	if c.claims, err = p.claims(raw, token); err != nil {
		return c, err
	}
	return c, token.Claims(&c.all)
}

// client is the machine, as most issuers call it.
func (c machineClaims) client() string { return cmp.Or(c.ClientID, c.Okta, c.AuthorizedParty) }

func (c machineClaims) has(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return c.all[name] == nil })
}

// checkKind refuses what an issuer signs with the same key for other uses.
func (c machineClaims) checkKind(token *oidc.IDToken) error {
	switch {
	case token.Nonce != "" || token.AccessTokenHash != "" || c.has("c_hash") || c.has("s_hash"):
		return errors.New("it is an ID token")
	case c.has("auth_time") && token.Subject != c.client(), c.has("sid", "auth_time"):
		return errors.New("it tells of the session of a person")
	case c.Use != "" && c.Use != "access":
		return errors.New("token_use is not access")
	case c.Type != "" && !slices.Contains([]string{"bearer", "jwt", "at+jwt", "application/at+jwt"}, strings.ToLower(c.Type)):
		return errors.New("typ is not that of an access token")
	}
	return nil
}

// checkMachine checks that the token is for one of the Audiences. A token without aud must
// say that it is an access token, and is for its client, which has to be one of the Audiences.
func (p *Provider) checkMachine(token *oidc.IDToken, c machineClaims) error {
	switch {
	case slices.ContainsFunc(token.Audience, func(aud string) bool { return slices.Contains(p.cfg.Audiences, aud) }):
		return nil
	case len(token.Audience) > 0:
		return errors.New("aud is not one for machines")
	case c.Use != "access" || !slices.Contains(p.cfg.Audiences, c.ClientID):
		return errors.New("aud is missing, and client_id is not one that may do without")
	}
	return nil
}

// marked tells whether something in a token says that it is a machine's access token.
// It has all the scopes: an issuer gives those that we demand to access tokens alone.
func (p *Provider) marked(token *oidc.IDToken, c machineClaims, scopes []string) bool {
	if name := p.cfg.MachineClaim.Name; name != "" {
		var values looseString
		return json.Unmarshal(c.all[name], &values) == nil && slices.Contains(values, p.cfg.MachineClaim.Value)
	}
	return len(scopes) > 0 ||
		c.kind == accessToken || // RFC 9068
		c.Use == "access" || // Amazon Cognito
		strings.EqualFold(c.Type, "Bearer") && c.ClientID != "" || // a service account of Keycloak
		token.Subject == cmp.Or(c.ClientID, c.Okta) // who was let in is the client itself
}

func (c machineClaims) missing(scopes []string) []string {
	return slices.DeleteFunc(slices.Clone(scopes), func(s string) bool {
		return slices.Contains(c.Scope, s) || slices.Contains(c.SCP, s)
	})
}

// words is a list of strings of which most issuers write one with blanks.
type words []string

// UnmarshalJSON implements [json.Unmarshaler].
func (w *words) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*w = strings.Fields(one)
		return nil
	}
	return json.Unmarshal(data, (*[]string)(w))
}

// BearerToken returns the token of a request (RFC 6750 section 2.1), or "" where
// there is none, or more than one.
func BearerToken(r *http.Request) string {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// BearerChallenge is how a server answers an error of VerifyMachine: an HTTP status
// and the value of WWW-Authenticate (RFC 6750 section 3), which is empty where
// another token would not help. A request without a token is answered 401 and
// "Bearer".
func BearerChallenge(err error) (status int, authenticate string) {
	switch {
	case errors.Is(err, ErrUnavailable):
		return http.StatusServiceUnavailable, ""
	case errors.Is(err, ErrScope):
		return http.StatusForbidden, `Bearer error="insufficient_scope"`
	case errors.Is(err, ErrToken):
		return http.StatusUnauthorized, `Bearer error="invalid_token"`
	default:
		return http.StatusInternalServerError, ""
	}
}

// MachineOptions describe a machine that logs in by itself.
type MachineOptions struct {
	// Issuer is asked for its token endpoint, unless TokenURL names it: https, or
	// http to a loopback address.
	Issuer, TokenURL string
	// ClientID and ClientSecret are the machine's at the issuer.
	ClientID, ClientSecret string
	// Scopes that the backend wants, such as klutch/bind.
	Scopes []string
	// Params are further parameters of the token request, such as audience or
	// resource.
	Params url.Values
	// HTTPClient reaches the issuer, within the limits of [Bounded].
	HTTPClient *http.Client
}

// MachineTokens returns the access tokens of a machine, each until shortly before
// it expires. They come by client credentials from the issuer, which is asked for
// its endpoints now. A refusal is an [*Error]; everything else is ErrUnavailable.
// The source uses ctx for later requests too.
func MachineTokens(ctx context.Context, opts MachineOptions) (oauth2.TokenSource, error) {
	cfg := clientcredentials.Config{
		ClientID: opts.ClientID, ClientSecret: opts.ClientSecret,
		TokenURL: opts.TokenURL, Scopes: opts.Scopes, EndpointParams: opts.Params,
		AuthStyle: oauth2.AuthStyleInHeader,
	}
	p, err := New(Config{Issuer: cmp.Or(opts.Issuer, opts.TokenURL), ClientID: opts.ClientID, ClientSecret: opts.ClientSecret, HTTPClient: opts.HTTPClient})
	if err != nil {
		return nil, err
	}
	if opts.TokenURL == "" {
		e, err := p.issuer.endpoints(ctx, forever, free)
		if err != nil {
			return nil, err
		}
		cfg.TokenURL, cfg.AuthStyle = e.oauth.Endpoint.TokenURL, e.oauth.Endpoint.AuthStyle
	}
	return oauth2.ReuseTokenSource(nil, machineTokens{cfg.TokenSource(p.context(ctx))}), nil
}

// machineTokens gives the errors of a token endpoint our form, without what else
// is in its answers.
type machineTokens struct{ oauth2.TokenSource }

// Token implements [oauth2.TokenSource].
func (t machineTokens) Token() (*oauth2.Token, error) {
	token, err := t.TokenSource.Token()
	if err != nil {
		return nil, exchangeError(err)
	}
	return token, nil
}
