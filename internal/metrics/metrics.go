// SPDX-License-Identifier: Apache-2.0

// Package metrics is what the programs tell Prometheus. Labels come from closed
// sets: never the name of an object, a namespace or a person.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/klutch-go/sdk/export"
)

// A Backend collects the metrics of a backend.
type Backend struct {
	registry *prometheus.Registry
	logins   *prometheus.CounterVec
	requests *prometheus.HistogramVec
}

// NewBackend returns the metrics of a backend of that version.
func NewBackend(version string) *Backend {
	b := &Backend{
		registry: prometheus.NewRegistry(),
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "klutch_logins_total", Help: "Attempts of people and machines to sign in, by how they ended.",
		}, []string{"result"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "klutch_http_request_duration_seconds", Help: "How long requests of the handshake took, by route and status.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 9),
		}, []string{"route", "code"}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "klutch_build_info", Help: "Always 1; the version is a label.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	b.registry.MustRegister(b.logins, b.requests, info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, result := range []export.LoginResult{export.LoginSucceeded, export.LoginRefused, export.LoginUnavailable, export.LoginLimited} {
		b.logins.WithLabelValues(string(result)) // so that a rate sees the first one
	}
	return b
}

// Hooks count what an exporter does, and pass it on to next.
func (b *Backend) Hooks(next export.Hooks) export.Hooks {
	return export.Hooks{
		Login: func(result export.LoginResult) {
			b.logins.WithLabelValues(string(result)).Inc()
			if next.Login != nil {
				next.Login(result)
			}
		},
		Request: func(route string, code int, took time.Duration) {
			b.requests.WithLabelValues(route, strconv.Itoa(code)).Observe(took.Seconds())
			if next.Request != nil {
				next.Request(route, code, took)
			}
		},
	}
}

// Watch counts what census returns whenever somebody asks for the metrics. It
// reports false where it cannot tell: on a replica that does not lead.
func (b *Backend) Watch(census func() (export.Census, bool)) {
	b.registry.MustRegister(&state{
		census:  census,
		tenants: prometheus.NewDesc("klutch_tenants", "Tenants, by whether they are ready; only of the replica that leads.", []string{"ready"}, nil),
		exports: prometheus.NewDesc("klutch_exports", "Exports of all tenants, by whether they are ready; only of the replica that leads.", []string{"ready"}, nil),
	})
}

// ServeHTTP answers in the format that Prometheus reads.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(b.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// state is a collector of what is there.
type state struct {
	census           func() (export.Census, bool)
	tenants, exports *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (s *state) Describe(to chan<- *prometheus.Desc) {
	to <- s.tenants
	to <- s.exports
}

// Collect implements [prometheus.Collector].
func (s *state) Collect(to chan<- prometheus.Metric) {
	census, ok := s.census()
	if !ok {
		return
	}
	for desc, count := range map[*prometheus.Desc]export.Count{s.tenants: census.Tenants, s.exports: census.Exports} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(count.Ready), "true")
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(count.NotReady), "false")
	}
}
