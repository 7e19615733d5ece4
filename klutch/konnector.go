// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/leader"
	"github.com/klutch-go/sdk/internal/metrics"
	"github.com/klutch-go/sdk/internal/serve"
	"github.com/klutch-go/sdk/internal/version"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A Konnector is the whole konnector: controllers, health, leader election. Its
// fields are its configuration; only Config is required.
//
//	err := klutch.Konnector{Config: config, HealthAddress: ":8080"}.Run(ctx)
type Konnector struct {
	// Config reaches the App Cluster with the rights of the shipped ClusterRole.
	Config *rest.Config
	// LeaseNamespace and LeaseName name the Lease by which one of several replicas
	// works. Empty means klutch-bind for both.
	LeaseNamespace, LeaseName string
	// Identity tells this replica from the others. Empty means a random one.
	Identity string
	// HealthAddress is where /livez, /readyz and /healthz are served, such as
	// ":8080". Empty means nowhere.
	HealthAddress string
	// Metrics, if any, are served at /metrics of HealthAddress: see Measured. What other
	// ones count comes from Options.Sync and Observe.
	Metrics http.Handler
	// Observe, if not nil, is given the bind.Konnector before it runs.
	Observe func(*bind.Konnector)
	// Options of the controllers. An empty Version means that of this module.
	Options bind.Options
}

// Run runs the konnector until ctx is done.
func (k Konnector) Run(ctx context.Context) error {
	k = k.withDefaults()
	konnector, err := bind.New(k.Config, k.Options)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(k.Config)
	if err != nil {
		return fmt.Errorf("client for the App Cluster: %w", err)
	}
	if k.Observe != nil {
		k.Observe(konnector)
	}
	logr.FromContextOrDiscard(ctx).Info("starting the konnector", "version", k.Options.Version, "commit", version.Commit(), "health", k.HealthAddress, "appCluster", k.Config.Host,
		"bindingsIn", v1alpha1.Namespace, "lease", k.LeaseNamespace+"/"+k.LeaseName, "replica", k.Identity)
	lease := leader.Lease{Namespace: k.LeaseNamespace, Name: k.LeaseName, Identity: k.Identity}
	return group.Run(ctx,
		func(ctx context.Context) error {
			return serveAt(ctx, k.HealthAddress, nil, serve.Limits{}, health(k.Metrics, nil))
		},
		func(ctx context.Context) error { return leader.Run(ctx, client, lease, konnector.Run) },
	)
}

func (k Konnector) withDefaults() Konnector {
	k.LeaseNamespace = cmp.Or(k.LeaseNamespace, v1alpha1.Namespace)
	k.LeaseName = cmp.Or(k.LeaseName, v1alpha1.LeaseName)
	k.Identity = cmp.Or(k.Identity, rand.Text())
	k.Options.Version = cmp.Or(k.Options.Version, Version())
	return k
}

// Measured is k with metrics for Prometheus, served at /metrics of HealthAddress, which
// deploy/README.md lists. Options.Sync and Observe go on to be called.
func (k Konnector) Measured() Konnector {
	m, complete, observe := metrics.NewKonnector(cmp.Or(k.Options.Version, Version())), k.Options.Sync, k.Observe
	k.Metrics = m
	k.Options.Sync = func(binding string, o *klutchsync.Options) {
		if complete != nil {
			complete(binding, o)
		}
		m.Sync(binding, o)
	}
	k.Observe = func(b *bind.Konnector) {
		m.Watch(b.Census)
		if observe != nil {
			observe(b)
		}
	}
	return k
}
