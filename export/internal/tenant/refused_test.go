// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A service namespace that an API server does not let the backend make, for whatever reason, is
// told to its tenant, at once if it is refused and else once that has lasted, and is an error that
// package queue paces.
func TestServiceNamespaceRefused(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		refusal := answer.Err(fakecluster.Request{Verb: "create", Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Object: cache.NewObjectName("", "team")})
		t.Run(strings.ReplaceAll(refusal.Error(), "/", " "), func(t *testing.T) {
			h := Holder{Issuer: "i", Subject: "ada", Cluster: "1"}
			tenant := h.Namespace("cluster")
			dyn := fakecluster.New(fakecluster.Resource{GroupVersionResource: NamespaceResource, Kind: "APIServiceNamespace"}).Client()
			asked := &v1alpha1.APIServiceNamespace{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceNamespace"},
				ObjectMeta: metav1.ObjectMeta{Name: "team", Namespace: tenant, Finalizers: []string{v1alpha1.ServiceNamespaceFinalizer}},
			}
			create(t, dyn.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}), map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": tenant}})
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(asked)
			if err != nil {
				t.Fatal(err)
			}
			asked.UID = create(t, dyn.Resource(NamespaceResource).Namespace(tenant), object).GetUID()
			kube := fake.NewClientset()
			kube.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
			clients := Clients{Kube: kube, Dyn: dyn}
			caches := &Caches{
				Kube: kube, Owned: cache.NewSharedIndexInformer(&cache.ListWatch{}, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{}),
				Namespaces:      informerOf(&v1alpha1.APIServiceNamespace{}),
				ClusterBindings: informerOf(&v1alpha1.ClusterBinding{}),
				Exports:         informerOf(&v1alpha1.APIServiceExport{}),
			}
			ns := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: tenant, Annotations: h.Annotations(), Labels: map[string]string{v1alpha1.TenantLabel: tenant}}}
			if err := caches.Owned.GetStore().Add(ns); err != nil {
				t.Fatal(err)
			}
			if err := caches.Namespaces.GetStore().Add(asked); err != nil {
				t.Fatal(err)
			}
			opts := &Options{Caps: Limits{Namespaces: -1}, Adopt: func(string) bool { return false }}
			namespaces := NewControllers(New(clients, opts), caches, nil).Namespaces
			for _, lasts := range []bool{false, true} {
				ctx := t.Context()
				if lasts {
					ctx = fates.FailingSince(ctx, time.Now().Add(-time.Minute))
				}
				_, err := namespaces.Reconcile(ctx, cache.MetaObjectToName(asked))
				u, failed := dyn.Resource(NamespaceResource).Namespace(tenant).Get(t.Context(), "team", metav1.GetOptions{})
				if failed != nil {
					t.Fatal(failed)
				}
				said := refusal.Error()
				if answer.Kind == fates.Exists { // it is read, and is not there
					said = "not found"
				} else if fates.Of(err) != fates.Of(refusal) {
					t.Errorf("lasting %t: %v", lasts, err)
				}
				conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
				told := len(conditions) == 1 && conditions[0].(map[string]any)["reason"] == reasonRefused && strings.Contains(conditions[0].(map[string]any)["message"].(string), said)
				if told != (lasts || fates.IsRefused(refusal)) {
					t.Errorf("lasting %t: %v, %v", lasts, conditions, err)
				}
			}
		})
	}
}

// What an API server has against keeping a tenant, whose credential then ends, is told by its ClusterBinding,
// at once if it is a refusal and else once that has lasted, until the tenant is kept again.
func TestKeepingRefused(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		refusal := answer.Err(fakecluster.Request{Verb: "get", Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}})
		t.Run(strings.ReplaceAll(refusal.Error(), "/", " "), func(t *testing.T) {
			h := Holder{Issuer: "i", Subject: "ada", Cluster: "1"}
			tenant := h.Namespace("cluster")
			c := fakecluster.New(fakecluster.Resource{GroupVersionResource: ClusterBindingResource, Kind: "ClusterBinding"})
			create(t, c.Client().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}), map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": tenant}})
			bindings := c.Client().Resource(ClusterBindingResource).Namespace(tenant)
			create(t, bindings, map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ClusterBinding", "metadata": map[string]any{"name": v1alpha1.ClusterBindingName}})
			kube := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.TenantRecordSecret}, Data: map[string][]byte{RecordKey: []byte("{}")}})
			kube.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
			metas := func() cache.SharedIndexInformer {
				return cache.NewSharedIndexInformer(&cache.ListWatch{}, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
			}
			caches := &Caches{Kube: kube, Owned: metas(), Accounts: metas(), Bindings: metas(), Entries: metas(), ClusterBindings: informerOf(&v1alpha1.ClusterBinding{})}
			if err := caches.Owned.GetStore().Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: tenant, Annotations: h.Annotations(), Labels: map[string]string{v1alpha1.TenantLabel: tenant}}}); err != nil {
				t.Fatal(err)
			}
			tenants := New(Clients{Kube: kube, Dyn: c.Client()}, &Options{})
			tenants.Rights.self.Store(&rbacv1.Subject{})
			r := NewControllers(tenants, caches, nil).Tenants
			said := func(ctx context.Context) *v1alpha1.Condition {
				t.Helper()
				binding := &v1alpha1.ClusterBinding{}
				look := func() {
					u, err := bindings.Get(ctx, v1alpha1.ClusterBindingName, metav1.GetOptions{})
					if err == nil {
						err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, binding)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				look()
				if err := caches.ClusterBindings.GetStore().Add(binding.DeepCopy()); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Reconcile(ctx, cache.NewObjectName("", tenant)); err != nil && fates.Of(err) != fates.Of(refusal) {
					t.Fatal(err)
				}
				look()
				return v1alpha1.FindCondition(binding.Status.Conditions, v1alpha1.ConditionKept)
			}
			if c := said(t.Context()); (c != nil) != fates.IsRefused(refusal) {
				t.Errorf("at first %+v", c)
			}
			if c := said(fates.FailingSince(t.Context(), time.Now().Add(-time.Minute))); c == nil || c.Reason != reasonRefused || c.Severity != v1alpha1.SeverityWarning || !strings.Contains(c.Message, fates.Stable(refusal)) {
				t.Errorf("once it has lasted %+v", c)
			}
			r.passes.Store(tenant, pass{caches.snapshot(tenant), time.Now().Add(time.Hour)}) // it is as a pass has left it
			if c := said(t.Context()); c == nil || c.Status != metav1.ConditionTrue {
				t.Errorf("once it is kept %+v", c)
			}
		})
	}
}

// What an API server has against a step of the removal of a tenant is told by its ClusterBinding, at once
// if it is a refusal and else once that has lasted, also where looks rest in between.
func TestRemovalRefused(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		refusal := answer.Err(fakecluster.Request{Verb: "list", Resource: NamespaceResource})
		t.Run(strings.ReplaceAll(refusal.Error(), "/", " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := Holder{Issuer: "i", Subject: "ada", Cluster: "1"}
				tenant := h.Namespace("cluster")
				c := fakecluster.New(
					fakecluster.Resource{GroupVersionResource: NamespaceResource, Kind: "APIServiceNamespace"},
					fakecluster.Resource{GroupVersionResource: ClusterBindingResource, Kind: "ClusterBinding"},
				)
				create(t, c.Client().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}), map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": tenant}})
				bindings := c.Client().Resource(ClusterBindingResource).Namespace(tenant)
				made := create(t, bindings, map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ClusterBinding", "metadata": map[string]any{"name": v1alpha1.ClusterBindingName, "finalizers": []any{v1alpha1.TenantFinalizer}}})
				c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "list" && r.Resource == NamespaceResource {
						return refusal
					}
					return do()
				})
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Annotations: h.Annotations(), Labels: map[string]string{v1alpha1.TenantLabel: tenant}}}
				r := &removals{
					Clients: Clients{Kube: fake.NewClientset(ns), Dyn: c.Client(), Meta: c.Metadata()},
					breaker: &removalBreaker{opts: &Options{RemovalsAtOnce: -1}}, contents: &contents{}, locks: &tenantLocks{},
				}
				going := metav1.Now()
				told := func() bool {
					t.Helper()
					u, err := bindings.Get(t.Context(), v1alpha1.ClusterBindingName, metav1.GetOptions{})
					binding := &v1alpha1.ClusterBinding{}
					if err == nil {
						err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, binding)
					}
					if err != nil {
						t.Fatal(err)
					}
					binding.DeletionTimestamp = &going
					if _, err := r.remove(t.Context(), binding); err != nil && fates.Of(err) != fates.Of(refusal) {
						t.Fatal(err)
					}
					if u, err = bindings.Get(t.Context(), v1alpha1.ClusterBindingName, metav1.GetOptions{}); err == nil {
						err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, binding)
					}
					if err != nil {
						t.Fatal(err)
					}
					said := v1alpha1.FindCondition(binding.Status.Conditions, v1alpha1.ConditionRemoved)
					return said != nil && said.Reason == reasonRefused && said.Severity == v1alpha1.SeverityWarning && strings.Contains(said.Message, fates.Stable(refusal))
				}
				if made.GetUID() == "" || told() != fates.IsRefused(refusal) {
					t.Errorf("at first: told is %t", !fates.IsRefused(refusal))
				}
				for range 40 {
					time.Sleep(time.Second)
					told()
				}
				if !told() {
					t.Error("it is not told after forty seconds")
				}
			})
		})
	}
}

func create(t *testing.T, client dynamic.ResourceInterface, object map[string]any) *unstructured.Unstructured {
	t.Helper()
	u, err := client.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func informerOf[T interface {
	cache.Object
	runtime.Object
}](example T) cache.TypedSharedIndexInformer[T] {
	return cache.NewTypedSharedIndexInformer[T](cache.NewSharedIndexInformer(&cache.ListWatch{}, example, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))
}
