// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/internal/text"
)

// How long claims may be that we keep with a session and send to the API server, in bytes.
const (
	maxSubject = 255      // OpenID Connect Core section 2
	maxEmail   = 254      // RFC 5321 section 4.5.3.1.3
	maxGroups  = 64 << 10 // as JSON: well over a thousand
	maxName    = 200      // of it the rest is left out
)

// unreadable are characters that no sub has (it is ASCII), and those for which JSON
// decoders put one and the same: two subs must not become one.
func unreadable(r rune) bool { return r == utf8.RuneError || unicode.IsControl(r) }

// maxSkew is how far the clock of an issuer may be ahead of ours.
const maxSkew = time.Minute

// An Identity is a person or a machine as one issuer knows it. Issuer and Subject
// together identify it for good; the rest may change from login to login.
type Identity struct {
	Issuer  string   `json:"issuer"`
	Subject string   `json:"subject"`
	Name    string   `json:"name,omitempty"`  // to be shown, never to be trusted
	Email   string   `json:"email,omitempty"` // empty unless it is one, and the issuer says that it is verified
	Groups  []string `json:"groups,omitempty"`
	// Expiry is when the token that proved this ends.
	Expiry time.Time `json:"expiry"`
}

// Verify says whose ID token raw is. This, [Provider.Finish] and
// [Provider.VerifyMachine] are the only ways to an Identity. Only a token issued to
// ClientID counts. A login passes its nonce, and then it has to be that login's; ""
// stands for an ID token that a person brings. Its errors are ErrToken and
// ErrUnavailable.
func (p *Provider) Verify(ctx context.Context, raw, nonce string) (*Identity, error) {
	check := p.direct
	if nonce == "" {
		check = p.bearer
	}
	token, err := check(ctx, raw)
	if err != nil {
		return nil, err
	}
	return p.identify(raw, token, nonce)
}

// direct checks signature, issuer and expiry of what the issuer has sent to us.
func (p *Provider) direct(ctx context.Context, raw string) (*oidc.IDToken, error) {
	e, err := p.issuer.endpoints(ctx, forever, free)
	if err != nil {
		return nil, err
	}
	return p.verify(ctx, e.keys, raw)
}

// verifyLogin is Verify with the access token of the same answer at hand.
func (p *Provider) verifyLogin(ctx context.Context, answer *oauth2.Token, nonce string) (*Identity, error) {
	raw, _ := answer.Extra("id_token").(string)
	if raw == "" || nonce == "" {
		return nil, fmt.Errorf("%w: missing", ErrToken)
	}
	token, err := p.direct(ctx, raw)
	if err != nil {
		return nil, err
	}
	if token.AccessTokenHash != "" && token.VerifyAccessToken(answer.AccessToken) != nil {
		return nil, fmt.Errorf("%w: at_hash is not that of the access token", ErrToken)
	}
	return p.identify(raw, token, nonce)
}

// verify checks signature, issuer and expiry. Which audience counts depends on
// the use and is checked by identify.
func (p *Provider) verify(ctx context.Context, set oidc.KeySet, raw string) (*oidc.IDToken, error) {
	keys := &keySet{KeySet: set}
	token, err := oidc.NewVerifier(p.cfg.Issuer, keys, &oidc.Config{
		SupportedSigningAlgs: asymmetric(),
		SkipClientIDCheck:    true,
		Now:                  p.cfg.Now,
	}).Verify(ctx, raw)
	switch {
	case err == nil:
		return token, nil
	case errors.Is(keys.err, errSpent) && !errors.Is(keys.err, ErrUnavailable) && ctx.Err() == nil:
		return nil, fmt.Errorf("%w: no key of the issuer that is known fits its signature", ErrToken)
	case errors.Is(keys.err, ErrUnavailable), ctx.Err() != nil:
		return nil, fmt.Errorf("%w: fetch keys: %w", ErrUnavailable, brief{err})
	default:
		return nil, fmt.Errorf("%w: %w", ErrToken, brief{err})
	}
}

// claims are those that go-oidc leaves to us.
type claims struct {
	AuthorizedParty   string      `json:"azp"`
	Name              string      `json:"name"`
	PreferredUsername string      `json:"preferred_username"`
	Email             string      `json:"email"`
	EmailVerified     looseBool   `json:"email_verified"`
	groups            looseString // under the configured name
	kind              string      // of the token, as its header says; most say nothing
}

// accessToken is the kind of token that RFC 9068 types; of ID tokens "" stands for all.
const accessToken = "at+jwt"

// kindOf reads the typ of a token's header, which is signed as its claims are. That of
// a token for another use, such as the end of a session, is refused (RFC 8725 section
// 3.11).
func kindOf(raw string) (string, error) {
	encoded, _, _ := strings.Cut(raw, ".")
	data, err := base64.RawURLEncoding.DecodeString(encoded)
	var header struct {
		Type string `json:"typ"`
	}
	if err != nil || json.Unmarshal(data, &header) != nil {
		return "", errors.New("its header cannot be read")
	}
	switch kind := strings.TrimPrefix(strings.ToLower(header.Type), "application/"); kind {
	case "", "jwt":
		return "", nil
	case accessToken:
		return kind, nil
	default:
		return "", fmt.Errorf("it is typed %.40q", header.Type)
	}
}

func (p *Provider) identify(raw string, token *oidc.IDToken, nonce string) (*Identity, error) {
	c, err := p.claims(raw, token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, brief{err})
	}
	for _, err := range []error{p.checkTimes(token), c.checkKind(), checkNonce(token, nonce), p.checkParty(token, c)} {
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrToken, err)
		}
	}
	return p.identity(token, c), nil
}

func (p *Provider) identity(token *oidc.IDToken, c claims) *Identity {
	id := &Identity{
		Issuer:  p.cfg.Issuer,
		Subject: token.Subject,
		Name:    text.Clip(cmp.Or(c.Name, c.PreferredUsername), maxName),
		Groups:  c.groups,
		Expiry:  token.Expiry,
	}
	if c.EmailVerified == "true" && len(c.Email) <= maxEmail {
		id.Email = c.Email
	}
	return id
}

func (p *Provider) claims(raw string, token *oidc.IDToken) (claims, error) {
	var c claims
	if err := token.Claims(&c); err != nil {
		return c, err
	}
	var all map[string]json.RawMessage
	if err := token.Claims(&all); err != nil {
		return c, err
	}
	if groups, ok := all[p.cfg.GroupsClaim]; ok {
		if len(groups) > maxGroups {
			return c, fmt.Errorf("claim %s has %d KB, more than %d: have the issuer send the groups alone that decide about services", p.cfg.GroupsClaim, len(groups)>>10, maxGroups>>10)
		}
		if err := json.Unmarshal(groups, &c.groups); err != nil {
			return c, fmt.Errorf("claim %s: %w", p.cfg.GroupsClaim, err)
		}
	}
	var err error
	if c.kind, err = kindOf(raw); err == nil && all["events"] != nil {
		err = errors.New("it tells of an event, such as a logout")
	}
	return c, err
}

func (p *Provider) checkTimes(token *oidc.IDToken) error {
	switch {
	case token.Subject == "":
		return errors.New("sub is missing")
	case len(token.Subject) > maxSubject || strings.ContainsFunc(token.Subject, unreadable):
		return errors.New("sub is too long, or no text")
	case token.IssuedAt.Unix() <= 0:
		return errors.New("iat is missing")
	case token.IssuedAt.After(p.cfg.Now().Add(maxSkew)):
		return errors.New("iat is in the future")
	}
	return nil
}

func checkNonce(token *oidc.IDToken, nonce string) error {
	if nonce != "" && subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1 {
		return errors.New("nonce is not that of this login")
	}
	return nil
}

// checkKind refuses a token that is no ID token.
func (c claims) checkKind() error {
	if c.kind != "" {
		return errors.New("it is an access token")
	}
	return nil
}

// checkParty checks aud and azp (OpenID Connect Core section 3.1.3.7, items 3 to 5).
func (p *Provider) checkParty(token *oidc.IDToken, c claims) error {
	switch {
	case p.cfg.ClientID == "":
		return errors.New("people do not sign in here")
	case !slices.Contains(token.Audience, p.cfg.ClientID):
		return fmt.Errorf("aud is not %s", p.cfg.ClientID)
	case c.AuthorizedParty == "" && len(token.Audience) > 1:
		return errors.New("azp is missing beside several audiences")
	case c.AuthorizedParty != "" && c.AuthorizedParty != p.cfg.ClientID:
		return fmt.Errorf("azp is not %s", p.cfg.ClientID)
	}
	return nil
}

// asymmetric are the algorithms that need the issuer's private key: neither
// "none" nor a MAC with our client secret.
func asymmetric() []string {
	return []string{
		oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512,
		oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
	}
}

// looseString is a list of strings of which some issuers write one as itself.
type looseString []string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *looseString) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = looseString{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// looseBool is "true" or "false", which some issuers write as a string.
type looseBool string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *looseBool) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) != nil {
		s = string(data)
	}
	*l = looseBool(s)
	return nil
}
