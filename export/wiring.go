// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/exporttemplate"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/limit"
	"github.com/klutch-go/sdk/internal/typed"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// lastRetry is how long after an outage the last of many tenants is looked at again.
const lastRetry = 15 * time.Second

// tenantOptions are what Options say of tenants.
func (e *Exporter) tenantOptions() *tenant.Options {
	o := e.opts
	opts := &tenant.Options{
		Platform: o.Name, NamespacePrefix: o.NamespacePrefix,
		APIServer: tenant.APIServer(o.APIServer), Backend: e.config,
		TokenTTL: o.TokenTTL, MaxLoginAge: o.MaxLoginAge, ReviewInterval: o.ReviewInterval,
		Caps: tenant.Limits(o.Caps), RemovalsAtOnce: o.RemovalsAtOnce,
		Gates: o.Gates, Pauses: tenant.UsualPauses(), KlutchKonnectors: o.KlutchKonnectors,
		Prefixed: func(api string) bool { return slices.Contains(o.PrefixedAPIs, api) },
		Adopt: func(namespace string) bool {
			return slices.Contains(o.AdoptKlutchTenants, namespace) || slices.Contains(o.AdoptKlutchTenants, "all")
		},
	}
	if o.Provider != nil {
		opts.AdoptIssuer = o.Provider.Issuer()
	}
	if gate := o.Gate; gate != nil {
		opts.Gate = func(ctx context.Context, namespace string, h tenant.Holder) error {
			return gate.Open(ctx, Tenant{Namespace: namespace, Issuer: h.Issuer, Subject: h.Subject, Cluster: h.Cluster})
		}
	}
	return opts
}

// handshake are the settings of the handshake.
func (e *Exporter) handshake() handshake.Options {
	o, h := e.opts, e.opts.Handshake
	limits := h.Limits.withDefaults()
	s := handshake.Options{
		Name: o.Name, Version: o.Version, External: e.external,
		Catalog: catalogAdapter{o.Catalog}, Authorizer: authorizerAdapter{o.Authorizer}, Prefixed: o.PrefixedAPIs, Tenants: e.tenants,
		Provider: o.Provider, Sealer: h.Sealer, Machines: h.Machines, MachineScopes: h.MachineScopes,
		Devices: h.Devices, LegacyCLI: h.LegacyCLI, PerAddress: limits.PerAddress, PerSubject: limits.PerSubject,
		TrustedProxies: h.TrustedProxies, Hooks: h.Hooks.forHandshake(),
	}
	for _, i := range h.Issuers {
		s.Issuers = append(s.Issuers, handshake.Issuer{Name: i.Name, Title: i.title(), Provider: i.Provider})
	}
	if s.Sealer == nil {
		s.Sealer = func() *auth.Sealer { return o.Sealer }
	}
	return s
}

// A control is one run of the controllers, with the caches that they read.
type control struct {
	clients  tenant.Clients
	watches  tenant.Clients
	catalog  Catalog
	caches   *tenant.Caches
	tenants  *tenant.Controllers
	services *offer.Services
	requests *offer.Requests
	exports  *offer.Exports

	templates cache.SharedIndexInformer // of our group
	broken    sync.Map                  // of trouble: why tenants cannot have an API that is offered, by its name
	said      sync.Map                  // what the log has of templates of other groups, by UID: they carry no condition of ours
}

func newControl(e *Exporter) (*control, error) {
	c := &control{clients: e.clients, watches: e.watches, catalog: e.opts.Catalog}
	var err error
	if c.caches, err = c.newCaches(); err != nil {
		return nil, err
	}
	asked, err := typed.Informer(c.watches.Dyn, tenant.RequestResource, transformRequest)
	c.templates = c.informTemplates(templateResource)
	schemas := &offer.Schemas{Dyn: e.clients.Dyn}
	c.services = &offer.Services{Catalog: catalogAdapter{e.opts.Catalog}, Authorizer: authorizerAdapter{e.opts.Authorizer}, Prefixed: e.opts.PrefixedAPIs}
	c.tenants = tenant.NewControllers(e.tenants, c.caches, schemas.ResourceOf)
	c.requests = &offer.Requests{
		Clients: e.clients, External: e.external.String(), Requests: asked, Services: c.services, Schemas: schemas,
		Rights: e.tenants.Rights, Caches: c.caches, Authorizations: c.tenants.Authorizations, Looks: limit.PerMinute(tenant.MaxRequests),
	}
	c.exports = &offer.Exports{
		Clients: e.clients, Review: e.opts.ReviewInterval, Breaking: e.opts.BreakingChanges, Exports: c.caches.Exports, Services: c.services, Schemas: schemas,
		Rights: e.tenants.Rights, Caches: c.caches, Authorizations: c.tenants.Authorizations, Logins: c.tenants.Logins,
	}
	return c, err
}

func (c *control) newCaches() (*tenant.Caches, error) {
	var errs [3]error
	specs, core, rbac := &interner{}, corev1.SchemeGroupVersion, rbacv1.SchemeGroupVersion
	caches := &tenant.Caches{
		Kube:     c.clients.Kube,
		CRDs:     c.metadata(offer.CRDResource, nil),
		Owned:    c.metadata(core.WithResource("namespaces"), func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.TenantLabel }),
		Accounts: c.metadata(core.WithResource("serviceaccounts"), named(v1alpha1.TenantServiceAccount)),
		Bindings: c.metadata(rbac.WithResource("rolebindings"), named(v1alpha1.TenantRoleBinding)),
		Roles:    c.metadata(rbac.WithResource("roles"), named(v1alpha1.ServiceNamespaceRole)),
		Entries:  c.metadata(rbac.WithResource("rolebindings"), named(v1alpha1.BackendRoleBinding)),
	}
	caches.Exports, errs[0] = typed.Informer(c.watches.Dyn, tenant.ExportResource, specs.transform)
	caches.Namespaces, errs[1] = typed.Informer(c.watches.Dyn, tenant.NamespaceResource, transformNamespace)
	caches.ClusterBindings, errs[2] = typed.Informer(c.watches.Dyn, tenant.ClusterBindingResource, transformBinding)
	return caches, errors.Join(errs[:]...)
}

// named selects objects of one name: the rights of the backend are to no other.
func named(name string) metadatainformer.TweakListOptionsFunc {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
}

func (c *control) informTemplates(gvr schema.GroupVersionResource) cache.SharedIndexInformer {
	return dynamicinformer.NewFilteredDynamicInformer(c.watches.Dyn, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
}

func (c *control) metadata(gvr schema.GroupVersionResource, tweak metadatainformer.TweakListOptionsFunc) cache.SharedIndexInformer {
	inf := metadatainformer.NewFilteredMetadataInformer(c.watches.Meta, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, tweak).Informer()
	_ = inf.SetTransform(transformMetadata) // it has not started
	return inf
}

// A feed has a controller look at what objects of an informer concern.
type feed func(*controller.Controller) error

// watch feeds the keys that each event of from concerns.
func watch(from cache.SharedIndexInformer, keys func(metav1.Object) []cache.ObjectName) feed {
	return func(c *controller.Controller) error {
		_, err := c.Watch(from, keys)
		return err
	}
}

// watchSpecs is watch where the statuses, which tenants write, concern nothing.
func watchSpecs(from cache.SharedIndexInformer, keys func(metav1.Object) []cache.ObjectName) feed {
	return func(c *controller.Controller) error {
		_, err := c.WatchSpecs(from, keys)
		return err
	}
}

// controllers are the controllers and what they listen to.
func (c *control) controllers() (map[string]*controller.Controller, error) {
	all := map[string]*controller.Controller{}
	var errs []error
	work := func(opts controller.Options, name string, fn controller.Func, feeds ...feed) {
		opts.Patience = lastRetry
		ctrl := controller.New(name, fn, opts)
		for _, f := range feeds {
			errs = append(errs, f(ctrl))
		}
		all[name] = ctrl
	}
	add := func(name string, fn controller.Func, feeds ...feed) {
		work(controller.Options{Workers: 4}, name, fn, feeds...)
	}
	// Keys in the namespaces of tenants share the workers by tenant: slow requests for one tenant hold no other tenant. The
	// keys of the other controllers are tenants or services, without a namespace, and hold one worker each.
	fair := func(workers int) controller.Options {
		return controller.Options{Workers: workers, PerNamespace: workers * 3 / 4}
	}
	add("tenant", c.tenants.Tenants.Reconcile, watch(c.caches.Owned, tenant.Key), watchSpecs(c.caches.ClusterBindings, tenant.NamespaceKey),
		watch(c.caches.Accounts, tenant.NamespaceKey), watch(c.caches.Bindings, tenant.NamespaceKey), watch(c.caches.Entries, tenant.NamespaceKey))
	work(controller.Options{Workers: 4, Meanwhile: c.tenants.ClusterBindings.Meanwhile}, "clusterbinding", c.tenants.ClusterBindings.Reconcile, watch(c.caches.ClusterBindings, controller.Self), watch(c.caches.Owned, tenant.ClusterBindingKey))
	work(fair(4), "apiserviceexportrequest", c.requests.Reconcile, watch(c.requests.Requests, controller.Self), watch(c.caches.CRDs, c.requests.AskingFor))
	work(fair(4), "apiserviceexport", c.exports.Reconcile, watch(c.caches.Exports, controller.Self), watch(c.caches.CRDs, c.exports.OfCRD), watch(c.templates, c.exportsOffered), watch(c.caches.Owned, c.caches.ExportsOfAdopted),
		watch(c.caches.ClusterBindings, c.caches.ExportsOfSilent), watch(c.requests.Requests, offer.ExportsAskedFor))
	add("apiserviceexporttemplate", c.reconcileTemplates, watch(c.templates, serviceKey), watch(c.caches.CRDs, c.offering))
	add("prefixed", c.tenants.Prefixed.Reconcile, watch(c.caches.Owned, tenant.Key), watchSpecs(c.caches.Exports, tenant.NamespaceKey))
	work(fair(16), "apiservicenamespace", c.tenants.Namespaces.Reconcile, watch(c.caches.Namespaces, controller.Self), watchSpecs(c.caches.Exports, c.caches.NamespacesOfTenant),
		watch(c.caches.Owned, c.caches.NamespacesKeys), watch(c.caches.Bindings, c.caches.NamespaceAround), watch(c.caches.Roles, c.caches.NamespaceAround),
		watch(c.caches.Entries, c.caches.NamespaceAround)) // a tenant asks for many at once, and each pass waits for one answer after another
	return all, errors.Join(errs...)
}

func (c *control) run(ctx context.Context) error {
	ctrls, err := c.controllers()
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{func(ctx context.Context) error {
		c.followForeignTemplates(ctx, ctrls["apiserviceexport"], ctrls["apiserviceexporttemplate"])
		return nil
	}}
	for _, inf := range append(c.caches.All(), c.requests.Requests, c.templates) {
		parts = append(parts, group.Informer(inf))
	}
	for _, ctrl := range ctrls {
		parts = append(parts, ctrl.Run)
	}
	return group.Run(ctx, parts...)
}

// followForeignTemplates lets changes of templates of other groups reach exports and
// our templates, once there are such.
func (c *control) followForeignTemplates(ctx context.Context, exports, ours *controller.Controller) {
	found := make(chan schema.GroupVersionResource, len(exporttemplate.Resources()))
	_, err := c.caches.CRDs.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		crd, ok := obj.(metav1.Object)
		i := slices.IndexFunc(exporttemplate.Resources()[1:], func(r schema.GroupVersionResource) bool { return ok && r.GroupResource().String() == crd.GetName() })
		if i >= 0 {
			select {
			case found <- exporttemplate.Resources()[i+1]:
			case <-ctx.Done():
			}
		}
	}})
	if err != nil {
		return // ctx is done
	}
	var running sync.WaitGroup
	defer running.Wait()
	for known := map[schema.GroupVersionResource]bool{}; ; {
		select {
		case <-ctx.Done():
			return
		case gvr := <-found:
			if known[gvr] {
				continue
			}
			known[gvr] = true
			inf := c.informTemplates(gvr)
			_, err := exports.Watch(inf, c.exportsOffered)
			_, other := ours.Watch(inf, serviceKey)
			if err == nil && other == nil {
				running.Go(func() { inf.RunWithContext(ctx) })
				running.Go(func() { c.reviewAll(ctx, exports, inf) })
			}
		}
	}
}

// reviewAll looks at all exports once inf has synced: no event told of templates that
// were deleted before.
func (c *control) reviewAll(ctx context.Context, exports *controller.Controller, inf cache.SharedIndexInformer) {
	if !cache.WaitFor(ctx, "", inf.HasSyncedChecker()) {
		return
	}
	c.services.Offers.Forget("")
	for _, key := range c.caches.Exports.GetStore().ListKeys() {
		if name, err := cache.ParseObjectName(key); err == nil {
			exports.Add(name)
		}
	}
}

// exportsOffered are the exports of the API that a template offers.
func (c *control) exportsOffered(template metav1.Object) []cache.ObjectName {
	service := serviceKey(template)
	if len(service) == 0 {
		return nil
	}
	return c.exports.OfService(service[0].Name)
}
