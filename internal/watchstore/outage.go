// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"context"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/fates"
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
		if !fates.IsOutage(resp, err) {
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
