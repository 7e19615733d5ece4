// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// wrap is a [transport.WrapperFunc].
func (b *boundary) wrap(next http.RoundTripper) http.RoundTripper {
	for inner := next; inner != nil; {
		if t, ok := inner.(*http.Transport); ok { // of this client alone: client-go shares none that have a dialer
			t.MaxResponseHeaderBytes, t.ResponseHeaderTimeout = maxHeader, headerTime
		}
		wrapper, ok := inner.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		inner = wrapper.WrappedRoundTripper()
	}
	return &bounded{b, next}
}

// A bounded transport passes the boundary.
type bounded struct {
	*boundary
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport, to close its connections.
func (t *bounded) WrappedRoundTripper() http.RoundTripper { return t.next }

// CloseIdleConnections is what [http.Client] calls to close connections.
func (t *bounded) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.check(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	watching := r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "watch=")
	limited, cancel := limit(r, watching)
	resp, err := t.next.RoundTrip(limited)
	if err != nil {
		cancel()
		return nil, err
	}
	body := &body{ReadCloser: resp.Body, boundary: t.boundary, request: r, done: limited.Context().Done(), cancel: cancel}
	if watching && resp.StatusCode == http.StatusOK {
		body.frames = &frames{}
	}
	resp.Body = body
	if err := t.sanitize(resp, r); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// limit bounds the time of a request, and asks for JSON alone: in the binary format of
// Kubernetes two bytes make an object.
func limit(r *http.Request, watching bool) (limited *http.Request, cancel context.CancelFunc) {
	ctx, cancel := r.Context(), func() {}
	switch _, has := ctx.Deadline(); {
	case watching:
		ctx, cancel = context.WithTimeout(ctx, lifetime(r.URL.Query().Get("timeoutSeconds")))
	case !has:
		ctx, cancel = context.WithTimeout(ctx, answerTime)
	}
	accept := r.Header.Get("Accept")
	binary := strings.Contains(accept, "protobuf") || strings.Contains(accept, "cbor")
	if ctx == r.Context() && !binary {
		return r, cancel
	}
	r = r.WithContext(ctx)
	if binary {
		r.Header = r.Header.Clone()
		r.Header.Set("Accept", textOf(accept))
	}
	return r, cancel
}

func lifetime(asked string) time.Duration {
	seconds, err := strconv.Atoi(asked)
	if err != nil || seconds <= 0 {
		return watchMost
	}
	return min(time.Duration(seconds)*time.Second+watchExtra, watchMost)
}

func textOf(accept string) string {
	var kept []string
	for part := range strings.SplitSeq(accept, ",") {
		if !strings.Contains(part, "protobuf") && !strings.Contains(part, "cbor") {
			kept = append(kept, part)
		}
	}
	if len(kept) == 0 {
		return "application/json"
	}
	return strings.Join(kept, ",")
}

// bound has all requests of config pass a boundary.
func bound(config *rest.Config) *rest.Config {
	config.WrapTransport = newBoundary(config.Host).wrap
	config.WarningHandlerWithContext = rest.NoWarnings{} // not the other side's to write on our terminal, or into our log
	return config
}
