// SPDX-License-Identifier: Apache-2.0

// Package metrics is what the programs tell Prometheus. Labels come from closed
// sets: never the name of an object, a namespace or a person, and no URL. The label
// resource is the name of a bound API, a hundred of them at most, then "other".
//
// Values are read from a census at each scrape, or counted by one hook, so that the
// public packages import no Prometheus. Bindings are told apart by bound API, never by
// URL or tenant. Not measured: the lag of a change, and client-go's own metrics.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	build "github.com/klutch-go/sdk/internal/version"
)

// A page answers in the format that Prometheus reads: what a program has to tell of
// itself, and what every program has.
type page struct {
	http.Handler

	registry *prometheus.Registry
}

func newPage(version string, own ...prometheus.Collector) page {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "klutch_build_info", Help: "Always 1; the version and the commit are labels.", ConstLabels: prometheus.Labels{"version": version, "commit": build.Commit()},
	})
	info.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(own...)
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return page{promhttp.HandlerFor(r, promhttp.HandlerOpts{}), r}
}

// A gauge is a metric that is looked up at each scrape.
type gauge struct{ *prometheus.Desc }

func newGauge(name, help string, labels ...string) gauge {
	return gauge{prometheus.NewDesc(name, help, labels, nil)}
}

func (g gauge) send(to chan<- prometheus.Metric, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(g.Desc, prometheus.GaugeValue, value, labels...)
}

// ready sends how many are ready, and how many are not.
func (g gauge) ready(to chan<- prometheus.Metric, ready, not int) {
	g.send(to, float64(ready), "true")
	g.send(to, float64(not), "false")
}

// gauges are collected by one look.
type gauges struct {
	all  []gauge
	look func(to chan<- prometheus.Metric)
}

// Describe implements [prometheus.Collector].
func (g gauges) Describe(to chan<- *prometheus.Desc) {
	for _, one := range g.all {
		to <- one.Desc
	}
}

// Collect implements [prometheus.Collector].
func (g gauges) Collect(to chan<- prometheus.Metric) { g.look(to) }
