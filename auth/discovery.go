// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// A discovery asks an issuer for its endpoints and keeps the answer.
type discovery struct {
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
	keysAt   time.Time // since when these are asked for keys
	sendsIss bool      // RFC 9207: every callback has an iss parameter
}

// forever is an age that no answer has.
const forever time.Duration = math.MaxInt64

// free is the price of a request that no budget pays for.
func free() error { return nil }

// endpoints returns what the issuer said about itself at most maxAge ago. If need be
// the first caller pays, and all that come until the issuer has answered share that.
func (d *discovery) endpoints(ctx context.Context, maxAge time.Duration, pay func() error) (*endpoints, error) {
	known, asked, err := d.ask(ctx, maxAge, pay)
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
func (d *discovery) ask(ctx context.Context, maxAge time.Duration, pay func() error) (*endpoints, *flight, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known != nil && d.cfg.Now().Sub(d.known.asked) < maxAge {
		return d.known, nil, nil
	}
	if d.flight == nil {
		if err := pay(); err != nil {
			return nil, nil, err
		}
		d.flight = &flight{done: make(chan struct{})}
		go d.fly(context.WithoutCancel(ctx), d.flight, d.known)
	}
	return nil, d.flight, nil
}

// fly asks the issuer.
func (d *discovery) fly(ctx context.Context, f *flight, known *endpoints) {
	defer close(f.done)
	f.found, f.err = d.discover(oidc.ClientContext(ctx, d.client), known)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flight = nil
	if f.err == nil {
		d.known = f.found
	}
}

// discover asks the issuer. Keys that are known stay known for as long as keysLife, while
// their URL does: left to itself go-oidc knows a key for good that an issuer has taken back.
func (d *discovery) discover(ctx context.Context, known *endpoints) (*endpoints, error) {
	issuer, err := oidc.NewProvider(ctx, d.cfg.Issuer)
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
		asked:    d.cfg.Now(),
		oauth:    d.oauth(issuer.Endpoint(), doc.AuthMethods),
		keysURL:  doc.KeysURL,
		sendsIss: doc.SendsIss,
	}
	if known != nil && known.keysURL == e.keysURL && e.asked.Sub(known.keysAt) < keysLife {
		e.keys, e.bearer, e.keysAt = known.keys, known.bearer, known.keysAt
	} else {
		client := ofKeys(d.client)
		e.keys, e.bearer, e.keysAt = newKeySet(ctx, client, e.keysURL), newKeySet(ctx, d.budget.limit(client), e.keysURL), e.asked
	}
	if _, err := parseSecure(e.oauth.Endpoint.AuthURL); err != nil {
		return nil, fmt.Errorf("authorization endpoint: %w", err)
	}
	return e, nil
}

func (d *discovery) oauth(endpoint oauth2.Endpoint, methods []string) oauth2.Config {
	endpoint.AuthStyle = d.authStyle(methods)
	return oauth2.Config{
		ClientID:     d.cfg.ClientID,
		ClientSecret: d.cfg.ClientSecret,
		Endpoint:     endpoint,
		RedirectURL:  d.cfg.RedirectURL,
		Scopes:       d.cfg.Scopes,
	}
}

// authStyle picks one way to authenticate us. Left to itself oauth2 tries both,
// and a code that is sent twice looks stolen.
func (d *discovery) authStyle(methods []string) oauth2.AuthStyle {
	if d.cfg.ClientSecret == "" {
		return oauth2.AuthStyleInParams
	}
	if len(methods) == 0 || slices.Contains(methods, "client_secret_basic") {
		return oauth2.AuthStyleInHeader // the default of OpenID Connect
	}
	return oauth2.AuthStyleInParams
}
