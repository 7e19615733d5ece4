// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// A Cluster is one API server as a Sync uses it. Any number of Syncs can share
// one. Create it with NewCluster or NewClusterForClients.
type Cluster struct {
	reads  dynamic.Interface // lists and watches
	writes dynamic.Interface // everything that is answered at once
	meta   metadata.Interface
}

// NewCluster returns the API server that config describes. Config is copied; its
// rate limit is replaced by none, since it is up to the API server to say that
// it has too much to do. Watches and writes go over connections of their own.
// NewCluster does no I/O.
func NewCluster(config *rest.Config) (*Cluster, error) {
	if config == nil {
		return nil, &OptionError{"config", "is nil"}
	}
	watches, writes := tune(config, 0), tune(config, 30*time.Second)
	c := &Cluster{}
	var err error
	if c.reads, err = dynamic.NewForConfig(watches); err != nil {
		return nil, fmt.Errorf("client for watches: %w", err)
	}
	if c.meta, err = metadata.NewForConfig(metadata.ConfigFor(watches)); err != nil {
		return nil, fmt.Errorf("client for metadata: %w", err)
	}
	if c.writes, err = dynamic.NewForConfig(writes); err != nil {
		return nil, fmt.Errorf("client for writes: %w", err)
	}
	return c, nil
}

// NewClusterForClients returns a Cluster behind clients that exist already, such
// as fakes. Meta may be nil if no related objects are synced.
func NewClusterForClients(dyn dynamic.Interface, meta metadata.Interface) (*Cluster, error) {
	if dyn == nil {
		return nil, &OptionError{"dyn", "is nil"}
	}
	return &Cluster{reads: dyn, writes: dyn, meta: meta}, nil
}

// tune returns a copy of config with connections of its own and no rate limit.
func tune(config *rest.Config, timeout time.Duration) *rest.Config {
	c := rest.CopyConfig(config)
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil
	c.Timeout = timeout
	if c.Dial == nil && c.Transport == nil {
		// client-go shares connections between configs with the same dialer.
		c.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return c
}
