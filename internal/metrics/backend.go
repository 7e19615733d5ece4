// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/klutch-go/sdk/export"
)

// A Backend collects the metrics of a backend, and serves them.
type Backend struct {
	page

	logins   *prometheus.CounterVec
	requests *prometheus.HistogramVec
	issuers  *prometheus.GaugeVec
}

// NewBackend returns the metrics of a backend of that version.
func NewBackend(version string) *Backend {
	b := &Backend{
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "klutch_logins_total", Help: "Attempts of people and machines to sign in, by how they ended.",
		}, []string{"result"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "klutch_http_request_duration_seconds", Help: "How long requests of the handshake took, by route and status.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 9),
		}, []string{"route", "code"}),
		issuers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "klutch_issuer_up", Help: "Whether the issuer answered at the last look, by its name in the configuration.",
		}, []string{"issuer"}),
	}
	b.page = newPage(version, b.logins, b.requests, b.issuers)
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

// IssuerSeen takes whether an issuer answers.
func (b *Backend) IssuerSeen(name string, up bool) {
	value := 0.0
	if up {
		value = 1
	}
	b.issuers.WithLabelValues(name).Set(value)
}

// Watch reads census at each scrape. Census
// reports false where it cannot tell: on a replica that does not lead.
func (b *Backend) Watch(census func() (export.Census, bool)) {
	tenants := newGauge("klutch_tenants", "Tenants, by whether they are ready; only of the replica that leads.", "ready")
	exports := newGauge("klutch_exports", "Exports of all tenants, by whether they are ready; only of the replica that leads.", "ready")
	templates := newGauge("klutch_templates", "Templates of services, by whether tenants can have what they offer; only of the replica that leads.", "ready")
	b.registry.MustRegister(gauges{[]gauge{tenants, exports, templates}, func(to chan<- prometheus.Metric) {
		if now, ok := census(); ok {
			tenants.ready(to, now.Tenants.Ready, now.Tenants.NotReady)
			exports.ready(to, now.Exports.Ready, now.Exports.NotReady)
			templates.ready(to, now.Templates.Ready, now.Templates.NotReady)
		}
	}})
}
