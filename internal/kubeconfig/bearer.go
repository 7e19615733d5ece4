// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// A Token is a bearer token that may change while clients use it.
type Token struct {
	host  string
	value atomic.Pointer[string]
}

// Rotating is RESTConfig with a token that can change.
func (k *Kubeconfig) Rotating() (*rest.Config, *Token, error) {
	server, err := url.Parse(k.Server)
	if err != nil {
		return nil, nil, fmt.Errorf("server: %w", err)
	}
	t := &Token{host: server.Host}
	t.value.Store(&k.Token)
	config := k.RESTConfig()
	config.BearerToken = ""
	config.Wrap(t.wrap)
	return config, t, nil
}

// Get returns the token.
func (t *Token) Get() string { return *t.value.Load() }

// Swap changes the token, and returns the one before.
func (t *Token) Swap(next string) (before string) { return *t.value.Swap(&next) }

func (t *Token) wrap(next http.RoundTripper) http.RoundTripper { return &bearer{t, next} }

// A bearer puts the credential on requests for the one host that it is for.
type bearer struct {
	*Token
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" || r.URL.Host != b.host {
		return nil, errElsewhere
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.Get())
	return b.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport, to close its connections.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// CloseIdleConnections is what [http.Client] calls to close connections.
func (b *bearer) CloseIdleConnections() {
	if c, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
