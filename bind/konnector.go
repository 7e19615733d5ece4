// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/konnector"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// DefaultHeartbeatInterval is how often backends expect to hear of a konnector.
const DefaultHeartbeatInterval = 5 * time.Minute

// Options tune a Konnector. The zero value is ready to use.
type Options struct {
	// Version is told to backends; a semantic version such as v1.2.0. Empty means
	// v0.0.0.
	Version string
	// HeartbeatInterval is told to backends, too; the heart beats twice as often.
	// At the same pace rotated credentials are fetched. 0 means
	// DefaultHeartbeatInterval.
	HeartbeatInterval time.Duration
	// NamespaceGrace is the time between the two looks that must find a namespace
	// of the App Cluster gone before its service namespace is given up, and that in
	// which no object is met in a namespace before it counts as uninvited. 0 means a
	// minute.
	NamespaceGrace time.Duration
	// SchemaInterval is the least time between two changes of the CRD of one binding;
	// of what the provider publishes meanwhile the newest counts. 0 means 30 seconds.
	SchemaInterval time.Duration
	// CRDOwnerReferences sets on the CRD of every binding the owner reference without which
	// Klutch's command line tool and konnector refuse it. The CRDs of bindings that were not
	// applied, as Klutch's tool makes them, have it always.
	CRDOwnerReferences bool
	// Sync completes the options of the Sync of a binding, for policies and hooks.
	// It must not touch what makes the binding: Mapper, TargetScope, TargetMeta
	// and Related. Calls follow each other. Nil changes nothing.
	Sync func(binding string, opts *klutchsync.Options)
}

// A Konnector keeps the promises of all APIServiceBindings of one App Cluster.
// Create it with New.
type Konnector struct {
	config  *rest.Config
	opts    Options
	running atomic.Pointer[konnector.Konnector]
}

// New returns a Konnector for the App Cluster that config describes, in which the
// APIServiceBindings and their Secrets are, too. Config is copied. New does no I/O.
func New(config *rest.Config, opts Options) (*Konnector, error) {
	if config == nil {
		return nil, errors.New("bind: config is nil")
	}
	return &Konnector{config: rest.CopyConfig(config), opts: opts.withDefaults()}, nil
}

func (o Options) withDefaults() Options {
	if o.Version == "" {
		o.Version = "v0.0.0"
	}
	if o.HeartbeatInterval <= 0 {
		o.HeartbeatInterval = DefaultHeartbeatInterval
	}
	if o.NamespaceGrace <= 0 {
		o.NamespaceGrace = time.Minute
	}
	if o.SchemaInterval <= 0 {
		o.SchemaInterval = 30 * time.Second
	}
	return o
}

// Run works until ctx is done and leaves nothing running. Only one Konnector may
// run for an App Cluster at a time; see klutch.Konnector for one that elects a
// leader. What is missing at first, such as rights or the CRD of
// APIServiceBindings, is logged and waited for.
func (k *Konnector) Run(ctx context.Context) error {
	a, err := konnector.New(k.config, konnector.Options(k.opts))
	if err != nil {
		return err
	}
	k.running.Store(a)
	defer k.running.Store(nil)
	return a.Run(ctx)
}

// A Bound is what a Konnector knows of one APIServiceBinding. What it does not know
// is zero.
type Bound struct {
	Name  string // resource.group
	Ready bool
	// Up says that the Control Plane Cluster answered, and took the token, when it
	// was last looked at.
	Up bool
	// TokenEnds is when the token ends that is in use.
	TokenEnds time.Time
	// Heartbeat is when the Control Plane Cluster last took one.
	Heartbeat time.Time
	Sync      klutchsync.Status
}

// Census tells of all bindings what Run knows, without I/O. It reports false while Run
// does not run here, or has not seen everything yet.
func (k *Konnector) Census() ([]Bound, bool) {
	a := k.running.Load()
	if a == nil {
		return nil, false
	}
	known, ok := a.Census()
	var all []Bound
	for _, b := range known {
		all = append(all, Bound(b))
	}
	return all, ok
}
