// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP12StatusIsNoEvidence: a tenant that leaves with objects, and says in the status that
// nothing is left, is still one whose rights are looked after: those to what is not on
// offer any more are taken.
func TestP12StatusIsNoEvidence(t *testing.T) {
	binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}
	binding.Status.Conditions = []v1alpha1.Condition{v1alpha1.False(v1alpha1.ConditionRemoved, v1alpha1.SeverityInfo, v1alpha1.ReasonDraining, "")}
	if removalBegan(binding) {
		t.Error("the status of a tenant has its rights left alone")
	}
}

// TestP10LeavingIsNoLever: a tenant that leaves with objects has the backend look at what is
// left seldom, however often it writes.
func TestP10LeavingIsNoLever(t *testing.T) {
	r := &removals{}
	binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{UID: "x", DeletionTimestamp: new(metav1.Now())}}
	if left := r.resting(binding); left != 0 {
		t.Errorf("the first look is in %s", left)
	}
	if left := r.resting(binding); left <= 0 || left > removalRetry {
		t.Errorf("the next look is in %s", left)
	}
	binding.Annotations = map[string]string{v1alpha1.DrainingAnnotation: "true"}
	if left := r.resting(binding); left != 0 {
		t.Errorf("a step of a removal is in %s", left)
	}
}

// TestRemovalTakesItsSteps: a tenant that has waited for its deletion policy for a day is looked at within
// seconds after each step of its removal, and ever more rarely while a step lasts.
func TestRemovalTakesItsSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &removals{}
		binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{UID: "x", DeletionTimestamp: new(metav1.Now())}}
		time.Sleep(24 * time.Hour)
		left := func(what string) time.Duration {
			r.note(t.Context(), binding, &waiting{v1alpha1.ReasonDraining, what}, nil)
			return r.pace(binding)
		}
		if pause := left("a widget is left"); pause < 5*time.Minute {
			t.Errorf("without a policy it is looked at in %s", pause)
		}
		binding.Spec.DeletionPolicy = v1alpha1.DeletionPolicyDelete
		for _, step := range []string{"1 apiserviceexports are left", "2 apiservicenamespaces are left", "1 apiservicenamespaces are left"} {
			if pause := left(step); pause > removalRetry {
				t.Errorf("%s: it is looked at in %s", step, pause)
			}
			time.Sleep(time.Minute)
		}
		time.Sleep(24 * time.Hour)
		if pause := left("1 apiservicenamespaces are left"); pause < 5*time.Minute {
			t.Errorf("after a day in a step it is looked at in %s", pause)
		}
	})
}

// P13: ClusterBindings of namespaces that are no tenant's, and those of which the removal
// is over, hold up the removal of no tenant.
func TestP13BreakerCountsTenants(t *testing.T) {
	caches := &Caches{
		Owned:           cache.NewSharedIndexInformer(&cache.ListWatch{}, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{}),
		ClusterBindings: cache.NewTypedSharedIndexInformer[*v1alpha1.ClusterBinding](cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1alpha1.ClusterBinding{}, 0, cache.Indexers{})),
	}
	b := &removalBreaker{opts: &Options{RemovalsAtOnce: 1}, caches: caches}
	remove := func(h Holder, change func(*metav1.PartialObjectMetadata, *v1alpha1.ClusterBinding)) *v1alpha1.ClusterBinding {
		name := h.Namespace("cluster")
		ns := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: h.Annotations(), Labels: map[string]string{v1alpha1.TenantLabel: name}}}
		binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.ClusterBindingName, Namespace: name, Finalizers: []string{v1alpha1.TenantFinalizer},
			DeletionTimestamp: &metav1.Time{Time: time.Now().Add(-time.Minute)},
		}}
		binding.Spec.DeletionPolicy = v1alpha1.DeletionPolicyDelete
		change(ns, binding)
		if err := errors.Join(caches.Owned.GetStore().Add(ns), caches.ClusterBindings.GetStore().Add(binding)); err != nil {
			t.Fatal(err)
		}
		return binding
	}
	own := remove(Holder{Issuer: "i", Subject: "ada", Cluster: "1"}, func(*metav1.PartialObjectMetadata, *v1alpha1.ClusterBinding) {})
	remove(Holder{Issuer: "i", Subject: "ada", Cluster: "2"}, func(ns *metav1.PartialObjectMetadata, _ *v1alpha1.ClusterBinding) { ns.Labels = nil })
	remove(Holder{Issuer: "i", Subject: "ada", Cluster: "3"}, func(_ *metav1.PartialObjectMetadata, c *v1alpha1.ClusterBinding) {
		c.Finalizers = []string{"example.org/keep"}
	})
	remove(Holder{Issuer: "i", Subject: "ada", Cluster: "4"}, func(_ *metav1.PartialObjectMetadata, c *v1alpha1.ClusterBinding) { c.Namespace = "elsewhere" })
	if held := b.whyHeld(own); held != nil {
		t.Errorf("one tenant is removed: %s", held.Message)
	}
	remove(Holder{Issuer: "i", Subject: "ada", Cluster: "5"}, func(*metav1.PartialObjectMetadata, *v1alpha1.ClusterBinding) {})
	if held := b.whyHeld(own); held == nil || held.Reason != v1alpha1.ReasonRemovalHeld {
		t.Errorf("two tenants are removed: %+v", held)
	}
}

// P10: of tenants that come and go nothing stays in memory, and a tenant has one pass at a time.
func TestP10LocksGo(t *testing.T) {
	locks, running, passes := &tenantLocks{}, 0, sync.WaitGroup{}
	for range 100 {
		passes.Go(func() {
			defer locks.lock("t")()
			if running++; running != 1 {
				t.Errorf("%d passes at once", running)
			}
			running--
		})
	}
	passes.Wait()
	if n := len(locks.byTenant); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// TestOrphanWaits: a removal that leaves cluster-scoped objects waits while the garbage
// collector may not know their kind, of which it would leave none.
func TestOrphanWaits(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t", Labels: map[string]string{v1alpha1.TenantLabel: "t"}, Annotations: map[string]string{v1alpha1.ExportedAnnotation: "old.example.org,new.example.org"}}}
	young := time.Minute
	c := &contents{unknown: func(crd string) time.Duration { return map[string]time.Duration{"new.example.org": young}[crd] }}
	waits, err := c.drainPrefixed(t.Context(), ns, v1alpha1.DeletionPolicyOrphan)
	if err != nil || waits == nil || waits.Reason != v1alpha1.ReasonDraining || !strings.Contains(waits.Message, "new.example.org for 1m0s") {
		t.Errorf("with a new kind: %v, %v", waits, err)
	}
	young = 0
	if waits, err := c.drainPrefixed(t.Context(), ns, v1alpha1.DeletionPolicyOrphan); err != nil || waits != nil {
		t.Errorf("once it is known: %v, %v", waits, err)
	}
}

// TestUnknownPolicyTakesNothing: a deletion policy that this backend does not know, as where the
// CRD is a newer one, is none. The token and the rights of the tenant stay while objects are left.
func TestUnknownPolicyTakesNothing(t *testing.T) {
	for policy, known := range map[v1alpha1.DeletionPolicy]bool{"": false, "Archive": false, v1alpha1.DeletionPolicyDelete: true, v1alpha1.DeletionPolicyOrphan: true} {
		binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}
		binding.Spec.DeletionPolicy = policy
		if removalBegan(binding) != known || countsAsRemoval(binding) != known {
			t.Errorf("%q: removed at once: %t, counted: %t, want %t", policy, removalBegan(binding), countsAsRemoval(binding), known)
		}
		tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t", Annotations: map[string]string{v1alpha1.ExportedAnnotation: "things.example.org"}}}
		looked := false
		r := &removals{contents: &contents{resourceOf: func(context.Context, string) (schema.GroupVersionResource, error) {
			looked = true
			return schema.GroupVersionResource{}, errors.New("look no further")
		}}}
		if _, err := r.unlessEmpty(t.Context(), binding, tenant); looked == known || (err == nil) != known {
			t.Errorf("%q: what is left was looked at: %t, %v", policy, looked, err)
		}
	}
}

// One instance that the API server keeps, of a kind of namespaces or of the cluster, keeps none of the
// others of a tenant that goes with all it has.
func TestProtectedInstance(t *testing.T) {
	h := Holder{Issuer: "i", Subject: "ada", Cluster: "1"}
	tenant := h.Namespace("cluster")
	resource := func(plural string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: plural}
	}
	c := fakecluster.New(
		fakecluster.Resource{GroupVersionResource: resource("gadgets"), Kind: "Gadget"},
		fakecluster.Resource{GroupVersionResource: resource("widgets"), Kind: "Widget"},
		fakecluster.Resource{GroupVersionResource: resource("zones"), Kind: "Zone", Cluster: true},
		fakecluster.Resource{GroupVersionResource: ExportResource, Kind: "APIServiceExport"},
		fakecluster.Resource{GroupVersionResource: NamespaceResource, Kind: "APIServiceNamespace"},
	)
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	for _, name := range []string{tenant, "service"} {
		create(t, c.Client().Resource(namespaces), map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	}
	for _, name := range []string{"a", "b"} {
		for kind, where := range map[string]dynamic.ResourceInterface{
			"Gadget": c.Client().Resource(resource("gadgets")).Namespace("service"), "Widget": c.Client().Resource(resource("widgets")).Namespace("service"),
			"Zone": c.Client().Resource(resource("zones")),
		} {
			metadata := map[string]any{"name": name}
			if kind == "Zone" {
				metadata = map[string]any{"name": tenant + "-" + name, "annotations": map[string]any{v1alpha1.ClusterNamespaceAnnotation: tenant}}
			}
			create(t, where, map[string]any{"apiVersion": "example.org/v1", "kind": kind, "metadata": metadata})
		}
	}
	create(t, c.Client().Resource(NamespaceResource).Namespace(tenant), map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceNamespace", "metadata": map[string]any{"name": "team"}})
	c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if r.Verb == "delete" && (r.Object.Name == "a" || r.Object.Name == tenant+"-a") {
			return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, errors.New("it is protected"))
		}
		return do()
	})
	clients := Clients{Kube: fake.NewClientset(), Dyn: c.Client(), Meta: c.Metadata()}
	held := &contents{Clients: clients, resourceOf: func(_ context.Context, crd string) (schema.GroupVersionResource, error) {
		plural, _, _ := strings.Cut(crd, ".")
		return resource(plural), nil
	}}
	left := func(gvr schema.GroupVersionResource, namespace string) (names []string) {
		t.Helper()
		list, err := c.Client().Resource(gvr).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list.Items {
			names = append(names, u.GetName())
		}
		return names
	}
	service := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "service", Labels: map[string]string{v1alpha1.TenantLabel: tenant}, Annotations: map[string]string{v1alpha1.ExportedAnnotation: "gadgets.example.org,widgets.example.org"},
	}}
	if err := held.deleteExported(t.Context(), service); !fates.IsRefused(err) || !strings.Contains(err.Error(), "it is protected (and so it is with 1 more)") {
		t.Errorf("service namespace: %v", err)
	}
	for _, plural := range []string{"gadgets", "widgets"} {
		if names := left(resource(plural), "service"); !slices.Equal(names, []string{"a"}) {
			t.Errorf("%s are left: %v", plural, names)
		}
	}
	r := &removals{Clients: clients, breaker: &removalBreaker{opts: &Options{RemovalsAtOnce: -1}}, contents: held, locks: &tenantLocks{}}
	going := metav1.Now()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: tenant, DeletionTimestamp: &going, Labels: map[string]string{v1alpha1.TenantLabel: tenant}, Annotations: map[string]string{v1alpha1.ExportedAnnotation: "zones.example.org"},
	}}
	binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, DeletionTimestamp: &going}, Spec: v1alpha1.ClusterBindingSpec{DeletionPolicy: v1alpha1.DeletionPolicyDelete}}
	for range 2 { // the second time all that can go has gone
		if waits, err := r.drain(t.Context(), binding, ns); waits != nil || !fates.IsRefused(err) {
			t.Errorf("tenant: %v, %v", waits, err)
		}
	}
	if zones, asked := left(resource("zones"), ""), left(NamespaceResource, tenant); !slices.Equal(zones, []string{tenant + "-a"}) || len(asked) > 0 {
		t.Errorf("zones are left: %v, and APIServiceNamespaces: %v", zones, asked)
	}
}

// stuffed is an API server that stores objects of a tenant: those whose name begins with "w" have as much metadata as
// there can be. It notes how often it was asked for a list, and how much of an answer was read at most.
type stuffed struct {
	most int // only the client touches it

	mu    sync.Mutex
	left  []string
	lists int
}

func (a *stuffed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodDelete {
		a.left = slices.DeleteFunc(a.left, func(name string) bool { return strings.HasSuffix(r.URL.Path, "/"+name) })
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusSuccess})
		return
	}
	a.lists++
	limit, from := len(a.left), 0
	_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &limit)
	_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &from)
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	to := min(len(a.left), from+limit)
	for _, name := range a.left[from:to] {
		o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "service", UID: types.UID(name)}}
		if strings.HasPrefix(name, "w") {
			o.Annotations = map[string]string{"x": strings.Repeat("x", 3<<19)}
		}
		list.Items = append(list.Items, o)
	}
	if to < len(a.left) {
		list.Continue = strconv.Itoa(to)
	}
	_ = json.NewEncoder(w).Encode(list)
}

// A reading counts what is read of an answer.
type reading struct {
	io.ReadCloser
	api *stuffed
	n   int
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.n += n
	r.api.most = max(r.api.most, r.n)
	return n, err
}

// contents are those of the namespace "service" at a.
func (a *stuffed) contents(t *testing.T) (*contents, *corev1.Namespace) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	clients, err := Connect(&rest.Config{Host: server.URL, QPS: -1, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil {
				resp.Body = &reading{ReadCloser: resp.Body, api: a}
			}
			return resp, err
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := &contents{Clients: clients, resourceOf: func(context.Context, string) (schema.GroupVersionResource, error) {
		return schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, nil
	}}
	return c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "service", Annotations: map[string]string{v1alpha1.ExportedAnnotation: "widgets.example.org"}}}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stuff adds objects whose names begin so, behind those that are there.
func (a *stuffed) stuff(name string, n int) *stuffed {
	for range n {
		a.left = append(a.left, fmt.Sprintf("%s%d-", name, len(a.left)))
	}
	return a
}

// A tenant that is removed has made its objects as large as it liked, and in which order it liked: to delete them does
// not take the memory of the backend, which has 512 MB.
func TestP8RemovedObjectsAreLarge(t *testing.T) {
	for name, api := range map[string]*stuffed{
		"large":                (&stuffed{}).stuff("w", 20),
		"large after small":    (&stuffed{}).stuff("s", 600).stuff("w", 20),
		"large between small":  (&stuffed{}).stuff("s", 60).stuff("w", 4).stuff("s", 60).stuff("w", 4),
		"small after large":    (&stuffed{}).stuff("w", 7).stuff("s", 600),
		"as many as in a page": (&stuffed{}).stuff("s", fewestListed),
	} {
		t.Run(name, func(t *testing.T) {
			c, ns := api.contents(t)
			if err := c.deleteExported(t.Context(), ns); err != nil || len(api.left) > 0 {
				t.Errorf("%v, and %d objects are left", err, len(api.left))
			}
			if api.most > 8<<20 {
				t.Errorf("%d MB of an answer were read", api.most>>20)
			}
		})
	}
}

// Many objects are not many requests, which hold a worker, and whether there is one is the first.
func TestManyObjectsAreFewLists(t *testing.T) {
	api := (&stuffed{}).stuff("s", 10_000)
	c, ns := api.contents(t)
	all, err := c.own(t.Context(), schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, ns, 0)
	if err != nil || len(all) != 10_000 || all[9_999].Name != api.left[9_999] || api.lists > 30 {
		t.Errorf("%d objects in %d lists: %v", len(all), api.lists, err)
	}
	api.lists = 0
	if left := AsRefusal(c.checkEmpty(t.Context(), ns)); left == nil || left.Reason != ReasonObjectsRemain || api.lists != 1 {
		t.Errorf("%v after %d lists", left, api.lists)
	}
}
