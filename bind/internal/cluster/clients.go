// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/inflight"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// Clients reach one cluster over connections that Close ends.
type Clients struct {
	Calls   dynamic.Interface  // everything that is answered at once
	Watches dynamic.Interface  // lists and watches
	Meta    metadata.Interface // lists and watches of metadata
	HTTP    *http.Client       // of calls
}

// Unlimited is config without a rate limit: it is up to the API server to say that it
// has too much to do.
func Unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	return config
}

// NewClients does no I/O. Each request is sent once: package queue paces what is refused.
func NewClients(config *rest.Config) (c Clients, err error) {
	config = rest.CopyConfig(config)
	inflight.Once(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	calls, watches := *client, *client
	calls.Timeout = CallTimeout
	watches.Transport = watchstore.Abreast(client.Transport)
	c.HTTP = &calls
	if c.Calls, err = dynamic.NewForConfigAndClient(config, c.HTTP); err != nil {
		return c, err
	}
	if c.Watches, err = dynamic.NewForConfigAndClient(config, &watches); err != nil {
		return c, err
	}
	c.Meta, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), &watches)
	return c, err
}

// Close ends the connections that are not in use.
func (c Clients) Close() { utilnet.CloseIdleConnectionsFor(c.HTTP.Transport) }
