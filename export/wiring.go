// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/typed"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 15 * time.Second // so that an outage is over soon after it is over
)

// tenantOptions are what Options say of tenants.
func (e *Exporter) tenantOptions() *options {
	o := e.opts
	opts := &options{
		Platform: o.Name, NamespacePrefix: o.NamespacePrefix,
		APIServer: apiServer(o.APIServer), Backend: e.config,
		TokenTTL: o.TokenTTL, MaxLoginAge: o.MaxLoginAge, ReviewInterval: o.ReviewInterval,
		Caps: limits(o.Caps), RemovalsAtOnce: o.RemovalsAtOnce,
		Gates: o.Gates, Pauses: usualPauses(),
	}
	if gate := o.Gate; gate != nil {
		opts.Gate = func(ctx context.Context, namespace string, h holder) error {
			return gate.Open(ctx, Tenant{Namespace: namespace, Issuer: h.Issuer, Subject: h.Subject, Cluster: h.Cluster})
		}
	}
	return opts
}

// A control is one run of the controllers: what they see, and what they do.
type control struct {
	clients

	watches  clients
	catalog  Catalog
	caches   *caches
	tenants  *controllers
	services *services
	requests *requests
	exports  *exports

	templates cache.SharedIndexInformer // of our group
}

func newControl(e *Exporter) (*control, error) {
	c := &control{clients: e.clients, watches: e.watches, catalog: e.opts.Catalog}
	var errs [4]error
	specs := &pool{}
	caches := &caches{kube: e.kube}
	caches.exports, errs[0] = typed.Informer(c.watches.dyn, exportResource, specs.slim)
	caches.namespaces, errs[1] = typed.Informer(c.watches.dyn, namespaceResource, slimNamespace)
	caches.clusterBindings, errs[2] = typed.Informer(c.watches.dyn, clusterBindingResource, slimBinding)
	caches.crds = c.metadata(crdResource, nil)
	caches.owned = c.metadata(corev1.SchemeGroupVersion.WithResource("namespaces"), func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.TenantLabel })
	caches.accounts = c.metadata(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), named(v1alpha1.TenantServiceAccount))
	caches.bindings = c.metadata(rbacv1.SchemeGroupVersion.WithResource("rolebindings"), named(v1alpha1.TenantServiceAccount))
	caches.entries = c.metadata(rbacv1.SchemeGroupVersion.WithResource("rolebindings"), named(v1alpha1.BackendRoleBinding))
	caches.roles = c.metadata(rbacv1.SchemeGroupVersion.WithResource("roles"), named(v1alpha1.TenantServiceAccount))
	asked, err := typed.Informer(c.watches.dyn, requestResource, slimRequest)
	errs[3] = err
	c.templates = c.informTemplates(templateResource)

	schemas := &schemas{dyn: e.dyn}
	c.caches, c.services = caches, &services{catalog: e.opts.Catalog, authorizer: e.opts.Authorizer}
	c.tenants = newControllers(e.tenants, caches, schemas.resourceOf)
	c.requests = &requests{
		clients: e.clients, external: e.external.String(), requests: asked, services: c.services, schemas: schemas,
		rights: e.tenants.rights, caches: caches, authorizations: c.tenants.authorizations,
	}
	c.exports = &exports{
		clients: e.clients, review: e.opts.ReviewInterval, breaking: e.opts.BreakingChanges, exports: caches.exports, services: c.services, schemas: schemas,
		rights: e.tenants.rights, caches: caches, authorizations: c.tenants.authorizations, logins: c.tenants.logins,
	}
	return c, errors.Join(errs[:]...)
}

// named selects objects of one name: the rights of the backend are to no other.
func named(name string) metadatainformer.TweakListOptionsFunc {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
}

func (c *control) informTemplates(gvr schema.GroupVersionResource) cache.SharedIndexInformer {
	return dynamicinformer.NewFilteredDynamicInformer(c.watches.dyn, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
}

func (c *control) metadata(gvr schema.GroupVersionResource, tweak metadatainformer.TweakListOptionsFunc) cache.SharedIndexInformer {
	inf := metadatainformer.NewFilteredMetadataInformer(c.watches.meta, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, tweak).Informer()
	_ = inf.SetTransform(slim) // it has not started
	return inf
}

// A feed is an informer and which keys of a controller an object of it concerns.
type feed struct {
	from cache.SharedIndexInformer
	keys func(metav1.Object) []cache.ObjectName
}

// controllers are the controllers and what they listen to.
func (c *control) controllers() (map[string]*controller.Controller, error) {
	all := map[string]*controller.Controller{}
	var errs []error
	add := func(name string, fn controller.Func, feeds ...feed) {
		ctrl := controller.New(name, fn, controller.Options{
			Workers: 4,
			Limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, lastRetry),
		})
		for _, f := range feeds {
			_, err := ctrl.Watch(f.from, f.keys)
			errs = append(errs, err)
		}
		all[name] = ctrl
	}
	add("tenant", c.tenants.tenants.reconcile, feed{c.caches.owned, tenantKey}, feed{c.caches.clusterBindings, namespaceKey},
		feed{c.caches.accounts, namespaceKey}, feed{c.caches.bindings, namespaceKey}, feed{c.caches.entries, namespaceKey})
	add("clusterbinding", c.tenants.clusterBindings.reconcile, feed{c.caches.clusterBindings, controller.Self}, feed{c.caches.owned, clusterBindingKey})
	add("apiserviceexportrequest", c.requests.reconcile, feed{c.requests.requests, controller.Self}, feed{c.caches.crds, c.requests.askingFor})
	add("apiserviceexport", c.exports.reconcile, feed{c.caches.exports, controller.Self}, feed{c.caches.crds, c.exports.ofCRD}, feed{c.templates, c.exports.ofTemplate},
		feed{c.requests.requests, exportsAskedFor})
	add("apiserviceexporttemplate", c.reconcileTemplates, feed{c.templates, serviceKey})
	add("apiservicenamespace", c.tenants.namespaces.reconcile, feed{c.caches.namespaces, controller.Self}, feed{c.caches.exports, c.caches.namespacesOfTenant},
		feed{c.caches.owned, c.caches.namespacesKeys}, feed{c.caches.bindings, c.caches.namespaceAround}, feed{c.caches.roles, c.caches.namespaceAround},
		feed{c.caches.entries, c.caches.namespaceAround})
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
	for _, inf := range append(c.caches.all(), c.requests.requests, c.templates) {
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
	found := make(chan schema.GroupVersionResource, len(templateGroups))
	_, err := c.caches.crds.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		crd, ok := obj.(metav1.Object)
		i := slices.IndexFunc(templateGroups[1:], func(r schema.GroupVersionResource) bool { return ok && r.GroupResource().String() == crd.GetName() })
		if i >= 0 {
			select {
			case found <- templateGroups[i+1]:
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
			_, err := exports.Watch(inf, c.exports.ofTemplate)
			_, other := ours.Watch(inf, serviceKey)
			if err == nil && other == nil {
				running.Go(func() { inf.RunWithContext(ctx) })
				running.Go(func() { c.reviewAll(ctx, exports, inf) })
			}
		}
	}
}

// reviewAll looks at all exports once inf knows what there is: before, it may have
// been told by nobody that something went.
func (c *control) reviewAll(ctx context.Context, exports *controller.Controller, inf cache.SharedIndexInformer) {
	if !cache.WaitFor(ctx, "", inf.HasSyncedChecker()) {
		return
	}
	c.services.offers.Forget("")
	for _, key := range c.caches.exports.GetStore().ListKeys() {
		if name, err := cache.ParseObjectName(key); err == nil {
			exports.Add(name)
		}
	}
}
