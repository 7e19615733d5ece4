// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"net/http"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/cluster"
)

// clients reach one cluster over connections that close ends.
type clients struct {
	calls   dynamic.Interface  // everything that is answered at once
	watches dynamic.Interface  // lists and watches
	meta    metadata.Interface // lists and watches of metadata
	http    *http.Client       // of calls
}

// unlimited is config without a rate limit: it is up to the API server to say that it
// has too much to do.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	return config
}

func newClients(config *rest.Config) (c clients, err error) {
	patient, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	calls := *patient
	calls.Timeout = cluster.CallTimeout
	c.http = &calls
	if c.calls, err = dynamic.NewForConfigAndClient(config, c.http); err != nil {
		return c, err
	}
	if c.watches, err = dynamic.NewForConfigAndClient(config, patient); err != nil {
		return c, err
	}
	c.meta, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), patient)
	return c, err
}

func (c clients) close() { c.http.CloseIdleConnections() }
