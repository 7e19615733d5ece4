// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"golang.org/x/oauth2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/bind/internal/legacylogin"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrResponse says that a backend's answer to a login makes no sense, or belongs
// to another login.
var ErrResponse = errors.New("answer of the backend refused")

// ErrNoDevice says that a backend knows no login on another device.
var ErrNoDevice = errors.New("the backend knows no login on another device")

// ErrNoOffer says that a backend tells what it offers on its pages alone.
var ErrNoOffer = errors.New("the backend does not tell programs what it offers")

// LoginOptions describe a login at a backend.
type LoginOptions struct {
	// ClusterID tells the clusters of one person apart, see [ClusterID]. Offer does without.
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

	scopes []string
}

// Login lets a person log in and choose services with a browser, until ctx ends,
// and returns what the backend hands out then. A refusal is an [*auth.Error].
func (c *Client) Login(ctx context.Context, p *v1alpha1.BindingProvider, opts LoginOptions) (*v1alpha1.BindingResponse, error) {
	grant := codeGrant(p)
	if grant == nil {
		return nil, fmt.Errorf("%s: %w", c.url, ErrNotBackend)
	}
	if grant.TokenURL == "" && !opts.Device {
		return c.loginLegacy(ctx, grant, opts)
	}
	code, err := c.authorize(ctx, grant, opts)
	if err != nil {
		return nil, err
	}
	return c.Redeem(ctx, p, code)
}

// Offer lets a person log in, until ctx ends, and returns who they are and what they may
// bind. Nothing is made at the backend, and no credential is handed out. The error is
// ErrNoOffer if the backend does not know that.
func (c *Client) Offer(ctx context.Context, p *v1alpha1.BindingProvider, opts LoginOptions) (*v1alpha1.OfferResponse, error) {
	grant := codeGrant(p)
	if grant == nil || grant.TokenURL == "" || !slices.Contains(grant.ScopesSupported, v1alpha1.ScopeOffer) {
		return nil, fmt.Errorf("%s: %w", c.url, ErrNoOffer)
	}
	opts.scopes = []string{v1alpha1.ScopeOffer}
	code, err := c.authorize(ctx, grant, opts)
	if err != nil {
		return nil, err
	}
	body, err := c.redeem(ctx, grant, &code)
	if err != nil {
		return nil, err
	}
	r := &v1alpha1.OfferResponse{}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrResponse, printable(err.Error()))
	}
	return r, answersTo(r.TypeMeta, "OfferResponse", r.Authentication, code.State)
}

// authorize has a person log in and returns the one-time code for it.
func (c *Client) authorize(ctx context.Context, grant *v1alpha1.OAuth2CodeGrant, opts LoginOptions) (auth.Grant, error) {
	if opts.Device {
		return c.authorizeDevice(ctx, grant, opts)
	}
	code, err := auth.Login(ctx, auth.LoginOptions{
		AuthorizeURL: grant.AuthenticatedURL,
		Issuer:       grant.Issuer,
		ClientID:     ClientID,
		Scopes:       opts.scopes,
		Params:       opts.params(),
		Prompt:       opts.Prompt,
		Open:         opts.Open,
	})
	if err != nil {
		err = fmt.Errorf("log in at %s: %w", c.url.Host, err)
	}
	return code, err
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
	params := url.Values{}
	if o.ClusterID != "" {
		params.Set("c", o.ClusterID)
	}
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
	body, err := c.redeem(ctx, grant, &code)
	if err != nil {
		return nil, err
	}
	return readResponse(body, code.State)
}

// redeem is Redeem for whatever answers the login.
func (c *Client) redeem(ctx context.Context, grant *v1alpha1.OAuth2CodeGrant, code *auth.Grant) ([]byte, error) {
	code.ClientID = ClientID
	body, err := code.Redeem(ctx, auth.TokenEndpoint(grant.TokenURL, c.http))
	if refused, ok := errors.AsType[*auth.Error](err); ok && refused.Code == "invalid_response" {
		err = fmt.Errorf("%w: %s", ErrResponse, refused.Description)
	}
	if err != nil {
		err = fmt.Errorf("log in at %s: %w", c.url.Host, withoutQuery(err))
	}
	return body, err
}

// readResponse takes what answers the login with the given session ID.
func readResponse(body []byte, session string) (*v1alpha1.BindingResponse, error) {
	r := &v1alpha1.BindingResponse{}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrResponse, printable(err.Error()))
	}
	if err := answersTo(r.TypeMeta, "BindingResponse", r.Authentication, session); err != nil {
		return nil, err
	}
	if len(r.Kubeconfig) == 0 {
		return nil, fmt.Errorf("%w: it has no kubeconfig", ErrResponse)
	}
	return r, nil
}

// answersTo tells whether a document is of the kind that answers the login with the given
// session ID.
func answersTo(t metav1.TypeMeta, kind string, a v1alpha1.BindingResponseAuthentication, session string) error {
	switch grant := a.OAuth2CodeGrant; {
	case t.APIVersion != v1alpha1.GroupVersion.String() || t.Kind != kind:
		return fmt.Errorf("%w: kind %q, apiVersion %q is no %s", ErrResponse, t.Kind, t.APIVersion, kind)
	case grant == nil || grant.SessionID != session:
		return fmt.Errorf("%w: it belongs to another login", ErrResponse)
	}
	return nil
}

// authorizeDevice is the login of a machine without a browser (RFC 8628).
func (c *Client) authorizeDevice(ctx context.Context, grant *v1alpha1.OAuth2CodeGrant, opts LoginOptions) (auth.Grant, error) {
	if grant.DeviceURL == "" || grant.TokenURL == "" {
		return auth.Grant{}, fmt.Errorf("%s: %w", c.url, ErrNoDevice)
	}
	if !c.sameOrigin(grant.DeviceURL) {
		return auth.Grant{}, fmt.Errorf("%s sends the login to another place, %q: %w", c.url, grant.DeviceURL, ErrNotBackend)
	}
	params := opts.params()
	if len(opts.scopes) > 0 {
		params["scope"] = opts.scopes
	}
	code, err := auth.LoginDevice(ctx, auth.DeviceOptions{
		DeviceURL:  grant.DeviceURL,
		ClientID:   ClientID,
		Params:     params,
		Prompt:     opts.promptDevice,
		HTTPClient: c.http,
	})
	if err != nil {
		err = fmt.Errorf("log in at %s: %w", c.url.Host, err)
	}
	return code, err
}

// promptDevice leaves the URL with the code in it aside: who types a code has it
// from their own terminal, and not from a stranger's link.
func (o LoginOptions) promptDevice(d *oauth2.DeviceAuthResponse) {
	if o.Prompt != nil {
		o.Prompt(d.VerificationURI, d.UserCode)
	}
}
