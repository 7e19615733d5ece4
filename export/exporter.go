// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/inflight"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// An Exporter serves the handshake and runs the controllers of the control plane's
// half. Create it with New.
type Exporter struct {
	opts     Options
	external *url.URL
	config   *rest.Config
	clients  tenant.Clients
	watches  tenant.Clients // for informers, which outlive an outage
	tenants  *tenant.Tenants
	running  atomic.Pointer[control] // nil while Run does not
}

// New returns an Exporter that works with the rights of config, which should be
// those of the shipped ClusterRole. It does no I/O.
func New(config *rest.Config, opts Options) (*Exporter, error) {
	external, err := opts.complete()
	if err != nil {
		return nil, err
	}
	e := &Exporter{opts: opts, external: external, config: rest.CopyConfig(config)}
	e.config.QPS = -1 // the API server's priority and fairness is the limit
	e.config.UserAgent = cmp.Or(e.config.UserAgent, tenant.UserAgent)
	once := rest.CopyConfig(e.config) // package queue paces what is refused
	inflight.Once(once)
	if e.clients, err = tenant.Connect(once); err != nil {
		return nil, err
	}
	if e.watches, err = tenant.Connect(watchstore.Config(once)); err != nil {
		return nil, err
	}
	e.assemble()
	return e, nil
}

// assemble makes what the Exporter works with of its options and clients.
func (e *Exporter) assemble() {
	if e.opts.Catalog == nil {
		e.opts.Catalog = templates{e.clients.Dyn}
	}
	if e.opts.Authorizer == nil {
		e.opts.Authorizer = reviews{e.clients.Kube, e.opts.Users, e.opts.Handshake.users(e.opts.Provider), e.opts.Provider}
	}
	e.tenants = tenant.New(e.clients, e.tenantOptions())
}

// Handler returns the HTTP handshake: discovery, login, the page on which a person
// chooses services, and the endpoint at which kubectl-bind redeems its one-time
// code. It answers nothing but 404 if Options had no Provider.
func (e *Exporter) Handler() http.Handler {
	if e.opts.Provider == nil {
		return http.NotFoundHandler()
	}
	h := handshake.New(e.handshake())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(inflight.Patient(r.Context())))
	})
}

// Run runs the controllers until ctx is done. Run them once at a time: elect a
// leader among replicas.
func (e *Exporter) Run(ctx context.Context) error {
	c, err := newControl(e)
	if err != nil {
		return err
	}
	e.running.Store(c)
	defer e.running.Store(nil)
	return c.run(ctx)
}
