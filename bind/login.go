// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/bind/internal/legacylogin"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrResponse says that a backend's answer to a login makes no sense, or belongs
// to another login.
var ErrResponse = errors.New("answer of the backend refused")

// ErrNoDevice says that a backend knows no login on another device.
var ErrNoDevice = errors.New("the backend knows no login on another device")

// LoginOptions describe a login at a backend.
type LoginOptions struct {
	// ClusterID tells the clusters of one person apart, see [ClusterID].
	ClusterID string
	// Services are preselected on the page, as "<resource>.<group>".
	Services []string
	// Prompt shows where to go, and the code that the page shows too. The code is
	// empty where the backend knows none. It is called before Open.
	Prompt func(url, displayCode string)
	// Open opens a browser and returns. Nil leaves that to the person.
	Open func(url string) error
	// Device leaves the browser to any other device (RFC 8628): the person types
	// there the code that Prompt shows. Open is not called. The error is
	// ErrNoDevice if the backend does not know that.
	Device bool
}

// Login lets a person log in and choose services with a browser, until ctx ends,
// and returns what the backend hands out then. A refusal is an [*auth.Error].
func (c *Client) Login(ctx context.Context, p *v1alpha1.BindingProvider, opts LoginOptions) (*v1alpha1.BindingResponse, error) {
	grant := codeGrant(p)
	if grant == nil {
		return nil, fmt.Errorf("%s: %w", c.url, ErrNotBackend)
	}
	if opts.Device {
		return c.loginDevice(ctx, p, opts)
	}
	if grant.TokenURL == "" {
		return c.loginLegacy(ctx, grant, opts)
	}
	code, err := auth.Login(ctx, auth.LoginOptions{
		AuthorizeURL: grant.AuthenticatedURL,
		Issuer:       grant.Issuer,
		ClientID:     ClientID,
		Params:       opts.params(),
		Prompt:       opts.Prompt,
		Open:         opts.Open,
	})
	if err != nil {
		return nil, fmt.Errorf("log in at %s: %w", c.url.Host, err)
	}
	return c.Redeem(ctx, p, code)
}

// loginLegacy is the login at a backend without a token endpoint.
func (c *Client) loginLegacy(ctx context.Context, grant *v1alpha1.OAuth2CodeGrant, opts LoginOptions) (*v1alpha1.BindingResponse, error) {
	login := legacylogin.Login{AuthorizeURL: grant.AuthenticatedURL, ClusterID: opts.ClusterID, Prompt: opts.Prompt, Open: opts.Open, Read: readResponse}
	response, err := login.Run(ctx)
	if errors.Is(err, legacylogin.ErrURL) {
		return nil, fmt.Errorf("%s: %w", c.url, ErrNotBackend)
	}
	if err != nil {
		return nil, fmt.Errorf("log in at %s: %w", c.url.Host, err)
	}
	return response, nil
}

// params are what a login says of its own beside what OAuth does.
func (o LoginOptions) params() url.Values {
	params := url.Values{"c": {o.ClusterID}}
	if len(o.Services) > 0 {
		params["service"] = o.Services
	}
	return params
}

// Redeem trades the one-time code of a login for the backend's response (RFC 6749
// §4.1.3 with RFC 7636). It is checked to be the answer to that very login. Where
// the login is on another device, Redeem waits for the person.
func (c *Client) Redeem(ctx context.Context, p *v1alpha1.BindingProvider, code auth.Grant) (*v1alpha1.BindingResponse, error) {
	grant := codeGrant(p)
	if grant == nil || !c.sameOrigin(grant.TokenURL) {
		return nil, fmt.Errorf("%s has no token endpoint: %w", c.url, ErrNotBackend)
	}
	code.ClientID = ClientID
	body, err := code.Redeem(ctx, auth.TokenEndpoint(grant.TokenURL, c.http))
	if refused, ok := errors.AsType[*auth.Error](err); ok && refused.Code == "invalid_response" {
		err = fmt.Errorf("%w: %s", ErrResponse, refused.Description)
	}
	if err != nil {
		return nil, fmt.Errorf("log in at %s: %w", c.url.Host, withoutQuery(err))
	}
	return readResponse(body, code.State)
}

// readResponse takes what answers the login with the given session ID.
func readResponse(body []byte, session string) (*v1alpha1.BindingResponse, error) {
	r := &v1alpha1.BindingResponse{}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrResponse, printable(err.Error()))
	}
	grant := r.Authentication.OAuth2CodeGrant
	switch {
	case r.APIVersion != v1alpha1.GroupVersion.String() || r.Kind != "BindingResponse":
		return nil, fmt.Errorf("%w: kind %q, apiVersion %q is no BindingResponse", ErrResponse, r.Kind, r.APIVersion)
	case grant == nil || grant.SessionID != session:
		return nil, fmt.Errorf("%w: it belongs to another login", ErrResponse)
	case len(r.Kubeconfig) == 0:
		return nil, fmt.Errorf("%w: it has no kubeconfig", ErrResponse)
	}
	return r, nil
}

// loginDevice is the login of a machine without a browser (RFC 8628).
func (c *Client) loginDevice(ctx context.Context, p *v1alpha1.BindingProvider, opts LoginOptions) (*v1alpha1.BindingResponse, error) {
	grant := codeGrant(p)
	if grant.DeviceURL == "" || grant.TokenURL == "" {
		return nil, fmt.Errorf("%s: %w", c.url, ErrNoDevice)
	}
	if !c.sameOrigin(grant.DeviceURL) {
		return nil, fmt.Errorf("%s sends the login to another place, %q: %w", c.url, grant.DeviceURL, ErrNotBackend)
	}
	code, err := auth.LoginDevice(ctx, auth.DeviceOptions{
		DeviceURL:  grant.DeviceURL,
		ClientID:   ClientID,
		Params:     opts.params(),
		Prompt:     opts.promptDevice,
		HTTPClient: c.http,
	})
	if err != nil {
		return nil, fmt.Errorf("log in at %s: %w", c.url.Host, err)
	}
	return c.Redeem(ctx, p, code)
}

// promptDevice leaves the URL with the code in it aside: who types a code has it
// from their own terminal, and not from a stranger's link.
func (o LoginOptions) promptDevice(d *oauth2.DeviceAuthResponse) {
	if o.Prompt != nil {
		o.Prompt(d.VerificationURI, d.UserCode)
	}
}
