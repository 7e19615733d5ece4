// SPDX-License-Identifier: Apache-2.0

// Package patient makes informers come back soon after an outage.
//
// Client-go's reflectors wait longer after each failed list or watch, up to a
// minute, so that a control plane that is back is not noticed for as long. Behind
// [Config] they see no failure while the API server cannot be reached: the request
// is sent again, every second or two, until there is an answer or its context ends.
package patient

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// Retries begin soon, and never take long: an outage ends for everybody at once.
const (
	first = 100 * time.Millisecond
	last  = 2 * time.Second
)

// Config returns a copy of config for the clients of informers. Reads that meet no
// API server, or one that is not ready, are sent again; everything else is as it was.
func Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return transport{rt} })
	return config
}

type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet || req.Body != nil && req.Body != http.NoBody {
		return t.next.RoundTrip(req)
	}
	for pause := first; ; pause = min(2*pause, last) {
		resp, err := t.next.RoundTrip(req.Clone(req.Context()))
		if !away(resp, err) {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		if err := wait(req.Context(), pause); err != nil {
			return nil, err
		}
	}
}

// away reports whether nobody answered who could.
func away(resp *http.Response, err error) bool {
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case err != nil:
		return errors.As(err, &network)
	default:
		return resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusBadGateway
	}
}

func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause/2 + rand.N(pause)) //nolint:gosec // jitter is no secret
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
