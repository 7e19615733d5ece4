// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/klutch-go/sdk/bind"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// maxResources is how many resources have series of their own. The resources beyond share
// the series of "other".
const maxResources = 100

// A Konnector collects the metrics of a konnector, and serves them. The label
// resource is that of a bound API, resource.group.
type Konnector struct {
	page

	passes *prometheus.CounterVec
	took   *prometheus.HistogramVec

	mu      sync.Mutex
	labels  map[string]bool
	tallies map[string]*tally // the latest of each binding
}

// NewKonnector returns the metrics of a konnector of that version.
func NewKonnector(version string) *Konnector {
	k := &Konnector{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "klutch_sync_passes_total", Help: "Passes over objects, by what they did and how they ended.",
		}, []string{"resource", "action", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "klutch_sync_pass_duration_seconds", Help: "How long passes over objects took, without the time in the queue.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"resource"}),
		labels:  map[string]bool{},
		tallies: map[string]*tally{},
	}
	k.page = newPage(version, k.passes, k.took)
	return k
}

// Sync has the Sync of a binding counted; see [bind.Options].
func (k *Konnector) Sync(binding string, opts *klutchsync.Options) {
	t := k.tally(binding)
	opts.Hooks.Done = before(t.count, opts.Hooks.Done)
	opts.Hooks.Reported = before(t.blocked.report, opts.Hooks.Reported)
}

// before is a hook that calls count and then next, which may be nil.
func before[T any](count func(T), next func(context.Context, T)) func(context.Context, T) {
	return func(ctx context.Context, v T) {
		count(v)
		if next != nil {
			next(ctx, v)
		}
	}
}

// tally makes all series of a resource at once: so a pass need not look for its own,
// and a rate sees the first one.
func (k *Konnector) tally(binding string) *tally {
	k.mu.Lock()
	defer k.mu.Unlock()
	label := k.label(binding)
	t := &tally{took: k.took.WithLabelValues(label)}
	for a, action := range actions {
		for r, result := range results {
			t.passes[a][r] = k.passes.WithLabelValues(label, action, result)
		}
	}
	k.tallies[binding] = t
	return t
}

// label returns the label of a binding; the caller holds the lock.
func (k *Konnector) label(binding string) string {
	if !k.labels[binding] && len(k.labels) == maxResources {
		return "other"
	}
	k.labels[binding] = true
	return binding
}

// Watch reads census at each scrape. Census
// reports false where it cannot tell: on a replica that does not lead.
func (k *Konnector) Watch(census func() ([]bind.Bound, bool)) {
	bindings := newGauge("klutch_bindings", "Bindings, by whether they are ready.", "ready")
	a := api{
		newGauge("klutch_sync_objects", "Objects that are known; of these, those that are blocked, as their users are told, "+
			"and those whose deletion is held; and objects of the Control Plane Cluster that are orphaned, that is without their source.", "resource", "state"),
		newGauge("klutch_control_plane_up", "Whether the Control Plane Cluster of a bound API answers, and takes the token.", "resource"),
		newGauge("klutch_token_expiry_seconds", "Seconds until the token for the Control Plane Cluster of a bound API ends.", "resource"),
		newGauge("klutch_heartbeat_age_seconds", "Seconds since the Control Plane Cluster of a bound API took a heartbeat.", "resource"),
	}
	k.registry.MustRegister(gauges{[]gauge{bindings, a.objects, a.up, a.token, a.heartbeat}, func(to chan<- prometheus.Metric) {
		all, ok := census()
		if !ok {
			return
		}
		n := len(slices.DeleteFunc(slices.Clone(all), func(b bind.Bound) bool { return !b.Ready }))
		bindings.ready(to, n, len(all)-n)
		for resource, s := range k.sums(all) {
			a.send(to, resource, s)
		}
	}})
}

// An api holds the gauges of each bound API.
type api struct{ objects, up, token, heartbeat gauge }

func (a api) send(to chan<- prometheus.Metric, resource string, s *sum) {
	for state, n := range s.objects {
		a.objects.send(to, float64(n), resource, state)
	}
	a.up.send(to, s.up, resource)
	if !s.tokenEnds.IsZero() {
		a.token.send(to, time.Until(s.tokenEnds).Seconds(), resource)
	}
	if !s.heartbeat.IsZero() {
		a.heartbeat.send(to, time.Since(s.heartbeat).Seconds(), resource)
	}
}

// A sum is the worst of all bindings of one label.
type sum struct {
	objects              map[string]int
	up                   float64 // 1 if all are
	tokenEnds, heartbeat time.Time
}

func (k *Konnector) sums(all []bind.Bound) map[string]*sum {
	k.mu.Lock()
	defer k.mu.Unlock()
	sums := map[string]*sum{}
	for _, b := range all {
		label := k.label(b.Name)
		s := sums[label]
		if s == nil {
			s = &sum{objects: map[string]int{}, up: 1}
			sums[label] = s
		}
		s.add(b, k.tallies[b.Name])
	}
	return sums
}

// add has no tally while no Sync has been made.
func (s *sum) add(b bind.Bound, t *tally) {
	s.objects["known"] += b.Sync.Objects
	s.objects["held"] += b.Sync.Held
	s.objects["orphaned"] += b.Sync.Orphans
	s.objects["blocked"] += 0
	if t != nil {
		s.objects["blocked"] += min(t.blocked.count(), b.Sync.Objects) // none, once the Sync has ended
	}
	if !b.Up {
		s.up = 0
	}
	s.tokenEnds, s.heartbeat = first(s.tokenEnds, b.TokenEnds), first(s.heartbeat, b.Heartbeat)
}

// first is the earlier of two times; zero is unknown.
func first(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
