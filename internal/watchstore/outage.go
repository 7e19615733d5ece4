// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// Config returns a copy of config for the clients of informers that others make. Reads that
// meet no API server, or one that is not ready, are sent again until there is an answer or
// their context ends, and their watches are [Abreast]; everything else is as it was.
func Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return Abreast(transport{rt}) })
	return config
}

// lastOutage is the longest pause, so that the end of an outage is noticed within three seconds.
const lastOutage = 2 * time.Second

type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet || req.Body != nil && req.Body != http.NoBody {
		return t.next.RoundTrip(req)
	}
	for pause := First; ; pause = min(2*pause, lastOutage) {
		resp, err := t.next.RoundTrip(req.Clone(req.Context()))
		if !isOutage(resp, err) {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(Random(pause)):
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
}

// isOutage reports whether no API server answered that is ready.
func isOutage(resp *http.Response, err error) bool {
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
