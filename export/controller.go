// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/redirect"
	"github.com/klutch-go/sdk/internal/typed"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// APIServer is how App Clusters reach the Control Plane Cluster's API server. What is
// empty is taken from the rest.Config.
type APIServer struct {
	URL           string // https
	TLSServerName string // name in the certificate, if not that of URL
	CAData        []byte // PEM
}

// Options configure an Exporter. Provider, Sealer and ExternalURL belong together
// and are needed for the HTTP handshake alone.
type Options struct {
	// Name is how the backend calls itself to people. Default "Klutch".
	Name string
	// Version is the backend's version, such as v1.2.0. Default "v0.0.0".
	Version string
	// ExternalURL is where browsers and kubectl-bind reach Handler: scheme and
	// host; https, or http to a loopback address.
	ExternalURL string
	// APIServer is what the kubeconfigs of tenants say.
	APIServer APIServer
	// NamespacePrefix begins the names of tenant namespaces. Default "cluster".
	NamespacePrefix string

	// Provider logs people in.
	Provider *auth.Provider
	// Sealer seals cookies and one-time codes. All replicas need the same keys.
	Sealer *auth.Sealer
	// Handshake tunes what Handler serves. The zero value works.
	Handshake Handshake

	// Catalog says what is on offer. Default: the APIServiceExportTemplates.
	Catalog Catalog
	// Authorizer says who may bind what. Default: SubjectAccessReviews for the
	// names that Users gives.
	Authorizer Authorizer
	// Users maps identities to RBAC names for the default Authorizer.
	Users Users

	// TokenTTL is how long a tenant's token lives, at least 10 minutes. It is
	// renewed after two thirds of it. Default one hour, which is the most that the
	// shipped admission policy lets through.
	TokenTTL time.Duration

	// MaxLoginAge is how long after the last login, or bind of a machine, the credential
	// of a tenant is renewed: then it ends, until the next one. Zero means for ever.
	MaxLoginAge time.Duration

	// ReviewInterval is how often the right to what was exported is checked again,
	// in case nothing else gives reason to. Default ten minutes.
	ReviewInterval time.Duration
	// Caps bound what tenants can make the Control Plane Cluster hold. The zero
	// value works.
	Caps Caps
	// RemovalsAtOnce is how many tenants may be removed at the same time, with their
	// objects or without: beyond it each waits for a word of its own. Default 3, less
	// than zero means any number.
	RemovalsAtOnce int
	// Gates are names of gates that are closed for each tenant until the platform
	// team, or a program of theirs, opens them: with the annotation
	// gate.klutch.anynines.com/<name>=open on the tenant namespace. With any other
	// value such an annotation closes a gate for that tenant alone.
	Gates []string
	// Gate, if any, is asked beside them.
	Gate Gate

	// BreakingChanges of an API are held from App Clusters that have it already,
	// which is the default, or allowed; a template may say otherwise for its API.
	BreakingChanges v1alpha1.BreakingChanges
}

const (
	minTokenTTL = 10 * time.Minute // what a kube-apiserver issues at least
	userAgent   = "klutch-backend"

	reviewInterval = 10 * time.Minute
	removalsAtOnce = 3

	firstRetry = 50 * time.Millisecond
	lastRetry  = 15 * time.Second // so that an outage is over soon after it is over
)

var prefixPattern = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,22}[a-z0-9])?$`)

// An Exporter serves the handshake and runs the controllers of the control plane's
// half. Create it with New.
type Exporter struct {
	opts     Options
	external *url.URL
	config   *rest.Config
	kube     kubernetes.Interface
	dyn      dynamic.Interface
	meta     metadata.Interface
	watches  struct { // clients for informers, which outlive an outage
		dyn  dynamic.Interface
		meta metadata.Interface
	}
	running atomic.Pointer[control]        // nil while Run does not
	self    atomic.Pointer[rbacv1.Subject] // nil while it is not known

	quotaDelay, bindGrace, revocation, rotationPause time.Duration
}

// New returns an Exporter that works with the rights of config, which should be
// those of the shipped ClusterRole. It does no I/O.
func New(config *rest.Config, opts Options) (*Exporter, error) {
	external, err := opts.complete()
	if err != nil {
		return nil, err
	}
	e := &Exporter{opts: opts, external: external, config: rest.CopyConfig(config), quotaDelay: quotaDelay, bindGrace: bindGrace, revocation: revocation, rotationPause: rotationPause}
	e.config.QPS = -1 // the API server's priority and fairness is the limit
	e.config.UserAgent = cmp.Or(e.config.UserAgent, userAgent)
	if err := e.connect(); err != nil {
		return nil, err
	}
	if e.opts.Catalog == nil {
		e.opts.Catalog = templates{e.dyn}
	}
	if e.opts.Authorizer == nil {
		e.opts.Authorizer = reviews{e.kube, e.opts.Users, e.opts.Handshake.users(e.opts.Provider), e.opts.Provider}
	}
	return e, nil
}

// connect makes the clients.
func (e *Exporter) connect() (err error) {
	if e.kube, err = kubernetes.NewForConfig(e.config); err != nil {
		return err
	}
	if e.dyn, err = dynamic.NewForConfig(e.config); err != nil {
		return err
	}
	if e.meta, err = metadata.NewForConfig(e.config); err != nil {
		return err
	}
	lasting := watchstore.Config(e.config)
	if e.watches.dyn, err = dynamic.NewForConfig(lasting); err != nil {
		return err
	}
	if e.watches.meta, err = metadata.NewForConfig(lasting); err != nil {
		return err
	}
	return nil
}

// complete sets defaults and checks; it returns ExternalURL parsed.
func (o *Options) complete() (*url.URL, error) {
	o.Name = cmp.Or(o.Name, "Klutch")
	o.Version = cmp.Or(o.Version, "v0.0.0")
	o.NamespacePrefix = strings.TrimSuffix(cmp.Or(o.NamespacePrefix, "cluster"), "-")
	o.TokenTTL = cmp.Or(o.TokenTTL, time.Hour)
	o.RemovalsAtOnce = cmp.Or(o.RemovalsAtOnce, removalsAtOnce)
	o.Caps = o.Caps.withDefaults()
	o.ReviewInterval = cmp.Or(o.ReviewInterval, reviewInterval)
	o.BreakingChanges = cmp.Or(o.BreakingChanges, v1alpha1.BreakingChangesHold)
	switch {
	case !prefixPattern.MatchString(o.NamespacePrefix):
		return nil, fmt.Errorf("namespace prefix %q: must match %s", o.NamespacePrefix, prefixPattern)
	case o.TokenTTL < minTokenTTL:
		return nil, fmt.Errorf("token lifetime %s: must be at least %s", o.TokenTTL, minTokenTTL)
	case o.MaxLoginAge != 0 && o.MaxLoginAge < o.TokenTTL:
		return nil, fmt.Errorf("age of logins %s: must be at least that of a token, %s", o.MaxLoginAge, o.TokenTTL)
	case o.APIServer.URL != "" && !strings.HasPrefix(o.APIServer.URL, "https://"):
		return nil, errors.New("API server URL: must begin with https://")
	case (o.Provider == nil) != (o.Sealer == nil):
		return nil, errors.New("the handshake needs both Provider and Sealer")
	}
	if err := errors.Join(o.Users.validate(), o.Handshake.validateIssuers(o.Provider, o.Users), checkGates(o.Gates)); err != nil {
		return nil, err
	}
	if o.Provider == nil {
		return &url.URL{}, nil
	}
	return parseExternal(o.ExternalURL)
}

func parseExternal(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("external URL: %w", err)
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("external URL %q: must be a scheme and a host", u.Redacted())
	case u.Scheme != "https" && (u.Scheme != "http" || !redirect.IsLoopback(u.Hostname())):
		return nil, fmt.Errorf("external URL %q: must be https, or http to a loopback address", u.Redacted())
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// url returns the absolute URL of a path of Handler.
func (e *Exporter) url(path string) string { return e.external.JoinPath(path).String() }

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

// A control is one run of the controllers: what they see, and what they do.
type control struct {
	*Exporter
	schemas   memo[publication] // by CRD
	offers    memo[[]Service]   // one, which many exports are held against
	standings standings
	passes    sync.Map // of pass: the last one over each tenant
	logins    sync.Map // of strings: what was recorded last of the login of each tenant
	looks     sync.Map // of times: the last look at what is left of a tenant that goes, by UID of its ClusterBinding

	exports         cache.TypedSharedIndexInformer[*v1alpha1.APIServiceExport]
	requests        cache.TypedSharedIndexInformer[*v1alpha1.APIServiceExportRequest]
	namespaces      cache.TypedSharedIndexInformer[*v1alpha1.APIServiceNamespace]
	clusterBindings cache.TypedSharedIndexInformer[*v1alpha1.ClusterBinding]
	templates       cache.SharedIndexInformer // of our group
	// Of these only the metadata is kept:
	crds     cache.SharedIndexInformer
	owned    cache.SharedIndexInformer // tenant and service namespaces
	accounts cache.SharedIndexInformer // ServiceAccounts of tenants
	bindings cache.SharedIndexInformer // RoleBindings of tenants, in both kinds of namespaces
	roles    cache.SharedIndexInformer // Roles of tenants
	entries  cache.SharedIndexInformer // RoleBindings of the backend itself, in both kinds of namespaces
}

func newControl(e *Exporter) (*control, error) {
	c := &control{Exporter: e}
	var errs [4]error
	specs := &pool{}
	c.exports, errs[0] = typed.Informer(e.watches.dyn, exportResource, specs.slim)
	c.requests, errs[1] = typed.Informer(e.watches.dyn, requestResource, slimRequest)
	c.namespaces, errs[2] = typed.Informer(e.watches.dyn, namespaceResource, slimNamespace)
	c.clusterBindings, errs[3] = typed.Informer(e.watches.dyn, clusterBindingResource, slimBinding)
	c.templates = c.informTemplates(templateResource)
	c.crds = c.metadata(crdResource, nil)
	c.owned = c.metadata(corev1.SchemeGroupVersion.WithResource("namespaces"), func(o *metav1.ListOptions) { o.LabelSelector = tenantLabel })
	c.accounts = c.metadata(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), named(v1alpha1.TenantServiceAccount))
	c.bindings = c.metadata(rbacv1.SchemeGroupVersion.WithResource("rolebindings"), named(v1alpha1.TenantServiceAccount))
	c.entries = c.metadata(rbacv1.SchemeGroupVersion.WithResource("rolebindings"), named(ownBinding))
	c.roles = c.metadata(rbacv1.SchemeGroupVersion.WithResource("roles"), named(v1alpha1.TenantServiceAccount))
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
	add("tenant", c.reconcileTenant, feed{c.owned, tenantKey}, feed{c.clusterBindings, namespaceKey},
		feed{c.accounts, namespaceKey}, feed{c.bindings, namespaceKey}, feed{c.entries, namespaceKey})
	add("clusterbinding", c.reconcileClusterBinding, feed{c.clusterBindings, controller.Self}, feed{c.owned, clusterBindingKey})
	add("apiserviceexportrequest", c.reconcileRequest, feed{c.requests, controller.Self}, feed{c.crds, c.requestsFor})
	add("apiserviceexport", c.reconcileExport, feed{c.exports, controller.Self}, feed{c.crds, c.exportsOf}, feed{c.templates, c.exportsOffered},
		feed{c.requests, exportsAskedFor})
	add("apiserviceexporttemplate", c.reconcileTemplates, feed{c.templates, serviceKey})
	add("apiservicenamespace", c.reconcileNamespace, feed{c.namespaces, controller.Self}, feed{c.exports, c.namespacesOfTenant},
		feed{c.owned, c.namespacesKeys}, feed{c.bindings, c.namespaceAround}, feed{c.roles, c.namespaceAround},
		feed{c.entries, c.namespaceAround})
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
	for _, inf := range []cache.SharedIndexInformer{c.exports, c.requests, c.namespaces, c.clusterBindings, c.templates, c.crds, c.owned, c.accounts, c.bindings, c.roles, c.entries} {
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
	_, err := c.crds.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
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
			_, err := exports.Watch(inf, c.exportsOffered)
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
	c.offers.forget("")
	for _, key := range c.exports.GetStore().ListKeys() {
		if name, err := cache.ParseObjectName(key); err == nil {
			exports.Add(name)
		}
	}
}

// tenantKey is the tenant namespace that ns is, if it is one.
func tenantKey(ns metav1.Object) []cache.ObjectName {
	if ns.GetLabels()[tenantLabel] != ns.GetName() {
		return nil
	}
	return []cache.ObjectName{cache.NewObjectName("", ns.GetName())}
}

// clusterBindingKey is the ClusterBinding of the tenant namespace that ns is, if it is
// one.
func clusterBindingKey(ns metav1.Object) []cache.ObjectName {
	if len(tenantKey(ns)) == 0 {
		return nil
	}
	return []cache.ObjectName{cache.NewObjectName(ns.GetName(), v1alpha1.ClusterBindingName)}
}

// namespaceKey is the namespace of o.
func namespaceKey(o metav1.Object) []cache.ObjectName {
	return []cache.ObjectName{cache.NewObjectName("", o.GetNamespace())}
}

// tenantNamespace returns a namespace. What the cache has not seen yet is looked up.
func (c *control) tenantNamespace(ctx context.Context, name string) (metav1.Object, error) {
	if ns, ok := stored(c.owned, name); ok {
		return ns, nil
	}
	ns, err := c.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return ns, nil
}

// holderIn returns the holder of a tenant namespace that is there to stay.
func (c *control) holderIn(ctx context.Context, namespace string) (holder, bool, error) {
	ns, err := c.tenantNamespace(ctx, namespace)
	if apierrors.IsNotFound(err) {
		return holder{}, false, nil
	}
	if err != nil {
		return holder{}, false, err
	}
	h, ok := holderOf(ns)
	return h, ok && ns.GetDeletionTimestamp() == nil, nil
}

// leaving tells whether a tenant is about to lose its rights, or has lost them.
func (c *control) leaving(tenant string) bool {
	binding, ok := lookup(c.clusterBindings, cache.NewObjectName(tenant, v1alpha1.ClusterBindingName))
	return ok && terminating(binding)
}

// lookup returns the object of that name from a cache. It must not be changed.
func lookup[T cache.Object](inf cache.TypedSharedIndexInformer[T], key cache.ObjectName) (o T, ok bool) {
	obj, _, _ := inf.GetStore().GetByKey(key.String())
	o, ok = obj.(T)
	return o, ok
}

// stored is lookup where only the metadata counts.
func stored(inf cache.SharedInformer, key string) (metav1.Object, bool) {
	obj, _, _ := inf.GetStore().GetByKey(key)
	o, ok := obj.(metav1.Object)
	return o, ok
}

// inNamespace returns all objects of a namespace from a cache, by name. They must
// not be changed.
func inNamespace[T cache.Object](inf cache.TypedSharedIndexInformer[T], namespace string) []T {
	all, _ := inf.GetTypedIndexer().ByTypedIndex(cache.NamespaceIndex, namespace)
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}
