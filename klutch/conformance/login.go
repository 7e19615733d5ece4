// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func loginChecks() []check {
	return []check{
		{"response", "WIRE 1.11", checkResponse},
		{"code belongs to its login and is good once", "RFC 6749 4.1.2, SECURITY 2", checkCode},
		{"unknown service", "RFC 6749 4.1.2.1", func(c checker) { noLogin(c, "nothing.conformance.example") }},
		{"refused service", "SECURITY 1.8", checkRefusedLogin},
	}
}

var errNoAnswer = errors.New("the browser is done, and nothing has arrived at the loopback address")

// open lets a browser go through a login. The login ends soon after the browser,
// whether or not it had an answer.
func (s *suite) open(ctx context.Context, cancel context.CancelCauseFunc, login Login) func(string) error {
	const enough = 10 * time.Second
	return func(target string) error {
		if err := login(ctx, target); err != nil {
			cancel(err)
			return err
		}
		time.AfterFunc(enough, func() { cancel(errNoAnswer) })
		return nil
	}
}

// bind is a whole login.
func (s *suite) bind(ctx context.Context, login Login, cluster string) (*v1alpha1.BindingResponse, error) {
	p, err := s.provider()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return s.client.Login(ctx, p, bind.LoginOptions{ClusterID: cluster, Services: []string{s.Service}, Open: s.open(ctx, cancel, login)})
}

// code is a login as far as the one-time code.
func (c checker) code(services ...string) (auth.Grant, error) {
	c.Helper()
	grant := c.tokenGrant()
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	return auth.Login(ctx, auth.LoginOptions{
		AuthorizeURL: grant.AuthenticatedURL, Issuer: grant.Issuer, ClientID: bind.ClientID,
		Params: url.Values{"c": {"conformance-1"}, "service": services}, Open: c.open(ctx, cancel, c.Login),
	})
}

func checkResponse(c checker) {
	t := c.tenant(c.one)
	if id := t.response.Authentication.OAuth2CodeGrant.ID; !strings.Contains(id, "/") {
		c.violated("authentication.oauth2CodeGrant.id %q is not <issuer>/<subject>", id)
	}
	if len(t.response.Requests) != 1 {
		c.Fatalf("%s: %d requests for one service", c.basis, len(t.response.Requests))
	}
	var asked v1alpha1.APIServiceExportRequestResponse
	c.must("the request is JSON", json.Unmarshal(t.response.Requests[0].Raw, &asked))
	if asked.APIVersion != v1alpha1.GroupVersion.String() || asked.Kind != "APIServiceExportRequest" {
		c.violated("a request is of kind %q, apiVersion %q", asked.Kind, asked.APIVersion)
	}
	if asked.ObjectMeta.Name != c.Service || len(asked.Spec.Resources) != 1 || asked.Spec.Resources[0].String() != c.Service {
		c.violated("the request %q asks for %v, not for %s", asked.ObjectMeta.Name, asked.Spec.Resources, c.Service)
	}
}

func checkCode(c checker) {
	grant, err := c.code(c.Service)
	c.must("log in", err)
	redeem := func(change func(*auth.Grant)) error {
		changed := grant
		change(&changed)
		_, err := changed.Redeem(c.Context(), auth.TokenEndpoint(c.tokenGrant().TokenURL, c.http.client))
		return err
	}
	for name, change := range map[string]func(*auth.Grant){
		"another verifier": func(g *auth.Grant) { g.Verifier = strings.Repeat("x", len(g.Verifier)) },
		"another redirect": func(g *auth.Grant) { g.RedirectURL = "http://127.0.0.1:1/callback" },
		"another client":   func(g *auth.Grant) { g.ClientID = "somebody" },
		"a changed code":   func(g *auth.Grant) { g.Code = "x" + g.Code },
	} {
		if _, refused := errors.AsType[*auth.Error](redeem(change)); !refused {
			c.violated("the code is taken with %s", name)
		}
	}
	if err := redeem(func(*auth.Grant) {}); err != nil {
		c.violated("the right program is refused: %v", err)
	}
	if refused, ok := errors.AsType[*auth.Error](redeem(func(*auth.Grant) {})); !ok || refused.Code != "invalid_grant" {
		c.violated("a code is redeemed twice: %v", refused)
	}
}

// noLogin fails if a login for services gives a code.
func noLogin(c checker, services ...string) {
	c.Helper()
	grant, err := c.code(services...)
	if _, refused := errors.AsType[*auth.Error](err); !refused || grant.Code != "" {
		c.violated("a login for %s ends with %v, not with an error for the program that waits", services, err)
	}
}

func checkRefusedLogin(c checker) {
	if c.Refused == "" {
		c.Skip("Options.Refused is empty")
	}
	noLogin(c, c.Refused)
}
