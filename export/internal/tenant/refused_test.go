// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"strings"
	"testing"
	"time"

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
