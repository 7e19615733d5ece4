// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/redirect"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ClientID is the name of command line programs at a backend (RFC 6749 §2.2).
const ClientID = "kubectl-bind"

// ErrNotBackend says that what answers at a URL is not a Klutch backend.
var ErrNotBackend = errors.New("not a Klutch backend")

// ErrScheme says that a URL has http in the place of https, or the other way round.
var ErrScheme = errors.New("the URL has the wrong scheme")

// ClientOptions tune a Client. The zero value is ready to use.
type ClientOptions struct {
	// CAData is a bundle of PEM certificates that vouch for the backend, in place
	// of those of the system.
	CAData []byte
}

// A Client is the client's end of a backend's HTTP handshake: Discover, Login and
// what it does at the end, Redeem, and Offer, which binds nothing. It speaks https except to loopback
// addresses, and no backend can hold or flood it.
type Client struct {
	url  *url.URL
	http *http.Client
}

// NewClient returns a Client of the backend at the given URL, that of its
// discovery document. A URL without a path means its /export.
func NewClient(backend string, opts ClientOptions) (*Client, error) {
	u, err := url.Parse(backend)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("backend %q: not an http or https URL", backend)
	}
	if u.Scheme == "http" && !redirect.IsLoopback(u.Hostname()) {
		return nil, fmt.Errorf("backend %q: must be https, or http to a loopback address; try https://%s: %w", backend, u.Host+u.Path, ErrScheme)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/export"
	}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  20 * time.Second,
		MaxResponseHeaderBytes: 16 << 10,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if len(opts.CAData) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(opts.CAData) {
			return nil, errors.New("the backend's certificate authority: no PEM certificate in it")
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &Client{url: u, http: auth.Bounded(&http.Client{Transport: transport, Timeout: 30 * time.Second})}, nil
}

// Discover reads the discovery document. Every URL in it that this client is going
// to use is on the origin of the document. The error is ErrNotBackend if something
// else answers.
func (c *Client) Discover(ctx context.Context) (*v1alpha1.BindingProvider, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", c.url, err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.schemeError(withoutQuery(err))
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	}
	provider, kind := &v1alpha1.BindingProvider{}, mediaType(resp.Header)
	switch {
	case resp.StatusCode == http.StatusBadRequest && c.url.Scheme == "http" && strings.Contains(string(body), "HTTPS"):
		return nil, fmt.Errorf("%s speaks https; try https://%s: %w", c.url.Host, c.url.Host+c.url.Path, ErrScheme)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %d %s (%s): %w", c.url, resp.StatusCode, http.StatusText(resp.StatusCode), kind, ErrNotBackend)
	case json.Unmarshal(body, provider) != nil:
		return nil, fmt.Errorf("%s answers with %s: %w", c.url, kind, ErrNotBackend)
	}
	return provider, c.checkProvider(provider)
}

// schemeError knows a server that answers an https client in http.
func (c *Client) schemeError(err error) error {
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	return fmt.Errorf("%s speaks http, which counts on this machine alone: %w", c.url.Host, ErrScheme)
}

func (c *Client) checkProvider(p *v1alpha1.BindingProvider) error {
	if p.APIVersion != v1alpha1.BindingProviderAPIVersion || p.Kind != "BindingProvider" {
		return fmt.Errorf("%s answers with a document of kind %q, apiVersion %q: %w", c.url, p.Kind, p.APIVersion, ErrNotBackend)
	}
	grant := codeGrant(p)
	if grant == nil {
		return fmt.Errorf("%s offers no login that this program knows (%s): %w", c.url, v1alpha1.MethodOAuth2CodeGrant, ErrNotBackend)
	}
	for _, raw := range []string{grant.AuthenticatedURL, grant.TokenURL, grant.DeviceURL, grant.Issuer} {
		if raw != "" && !c.sameOrigin(raw) {
			return fmt.Errorf("%s sends the login to another place, %q: %w", c.url, raw, ErrNotBackend)
		}
	}
	return nil
}

// sameOrigin: a document that could name any URL could lend its trust to anyone.
func (c *Client) sameOrigin(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Scheme == c.url.Scheme && u.Host == c.url.Host && u.User == nil
}

// codeGrant returns the login that this client can do, or nil.
func codeGrant(p *v1alpha1.BindingProvider) *v1alpha1.OAuth2CodeGrant {
	for _, m := range p.AuthenticationMethods {
		if g := m.OAuth2CodeGrant; m.Method == v1alpha1.MethodOAuth2CodeGrant && g != nil && g.AuthenticatedURL != "" {
			return g
		}
	}
	return nil
}

// withoutQuery keeps what a redirect may have put into a query out of messages.
func withoutQuery(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		if u, err := url.Parse(e.URL); err == nil {
			u.RawQuery, u.Fragment = "", ""
			e.URL = u.String()
		}
	}
	return err
}

// printable keeps the characters that RFC 6749 §5.2 allows, and not many of them.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), 300)]
}

func mediaType(header http.Header) string {
	t, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return "something unknown"
	}
	return cmp.Or(map[string]string{"text/html": "a web page", "application/json": "JSON"}[t], printable(t))
}
