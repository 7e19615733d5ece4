// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"errors"
	"net/http"
	"sync/atomic"
)

// A credential is a token that may change while clients use it.
type credential struct {
	host  string
	value atomic.Pointer[string]
}

func (c *credential) wrap(next http.RoundTripper) http.RoundTripper { return &bearer{c, next} }

// A bearer puts the credential on requests for the one host that it is for.
type bearer struct {
	*credential
	next http.RoundTripper
}

// errElsewhere: a redirect must not carry the token to another host.
var errElsewhere = errors.New("the Control Plane Cluster redirects to another host")

// RoundTrip implements [http.RoundTripper].
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" || r.URL.Host != b.host {
		return nil, errElsewhere
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+*b.value.Load())
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
