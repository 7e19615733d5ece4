// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A new rule of a cluster-scoped API is judged by the tenant's own objects of it, whether or not the
// tenant has a service namespace, and by no other's.
func TestRulesOfPrefixedObjects(t *testing.T) {
	for name, test := range map[string]struct {
		owner   string
		size    int64
		spaces  []string
		reaches bool
	}{
		"its object breaks the rule":                        {owner: "ada", size: 9},
		"its object keeps the rule":                         {owner: "ada", size: 1, reaches: true},
		"its object breaks it, beside a service namespace":  {owner: "ada", size: 9, spaces: []string{"ada-shop"}},
		"its object keeps it, beside a service namespace":   {owner: "ada", size: 1, spaces: []string{"ada-shop"}, reaches: true},
		"another's object breaks it":                        {owner: "grace", size: 9, reaches: true},
		"another's breaks it whose name begins as its does": {owner: "ada-b", size: 9, reaches: true},
	} {
		t.Run(name, func(t *testing.T) {
			continents := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "continents"}
			c := fakecluster.New(
				fakecluster.Resource{GroupVersionResource: CRDResource, Kind: "CustomResourceDefinition", Cluster: true},
				fakecluster.Resource{GroupVersionResource: continents, Kind: "Continent", Cluster: true},
			)
			before, after := continentCRD(), continentCRD(map[string]any{"rule": "self.size < 5"})
			for gvr, o := range map[schema.GroupVersionResource]*unstructured.Unstructured{CRDResource: after, continents: {Object: map[string]any{
				"apiVersion": "example.org/v1", "kind": "Continent", "size": test.size,
				"metadata": map[string]any{"name": test.owner + "-mu", "annotations": map[string]any{v1alpha1.ClusterNamespaceAnnotation: test.owner}},
			}}} {
				if _, err := c.Client().Resource(gvr).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			spec, err := crdcompat.Snapshot(before)
			if err != nil {
				t.Fatal(err)
			}
			export := &v1alpha1.APIServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "ada", Name: after.GetName()}}
			export.Spec.APIServiceExportCRDSpec = *spec
			export.Spec.ClusterScopedIsolation = v1alpha1.IsolationPrefixed
			exports := &Exports{Clients: tenant.Clients{Dyn: c.Client()}, Schemas: &Schemas{Dyn: c.Client()}, Caches: &tenant.Caches{Namespaces: serviceNamespaces(t, "ada", test.spaces...)}}
			r := &revision{}
			condition, err := exports.reviseSchema(t.Context(), export, nil, r)
			if err != nil || (condition.Status == metav1.ConditionTrue) != test.reaches || (len(r.events) > 0) != test.reaches {
				t.Errorf("%+v, %v, and %d changes", condition, err, len(r.events))
			}
		})
	}
}

// Whether a tenant's objects keep a changed rule is found out once a review: a tenant, whose statuses
// have us look at its exports, does not decide how often.
func TestP10HeldRulesAreJudgedOnceAReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		continents := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "continents"}
		c := fakecluster.New(
			fakecluster.Resource{GroupVersionResource: CRDResource, Kind: "CustomResourceDefinition", Cluster: true},
			fakecluster.Resource{GroupVersionResource: continents, Kind: "Continent", Cluster: true},
		)
		for gvr, o := range map[schema.GroupVersionResource]*unstructured.Unstructured{
			CRDResource: continentCRD(map[string]any{"rule": "self.size < 5"}),
			continents: {Object: map[string]any{
				"apiVersion": "example.org/v1", "kind": "Continent", "size": int64(9),
				"metadata": map[string]any{"name": "ada-mu", "annotations": map[string]any{v1alpha1.ClusterNamespaceAnnotation: "ada"}},
			}},
		} {
			if _, err := c.Client().Resource(gvr).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		lists := 0
		c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			lists += tenant.One(r.Verb == "list" && r.Resource == continents)
			return do()
		})
		spec, err := crdcompat.Snapshot(continentCRD())
		if err != nil {
			t.Fatal(err)
		}
		export := &v1alpha1.APIServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "ada", Name: "continents.example.org", Generation: 1}}
		export.Spec.APIServiceExportCRDSpec = *spec
		export.Spec.ClusterScopedIsolation = v1alpha1.IsolationPrefixed
		exports := &Exports{Clients: tenant.Clients{Dyn: c.Client()}, Review: 10 * time.Minute, Schemas: &Schemas{Dyn: c.Client()}, Caches: &tenant.Caches{}}
		look := func(held bool) {
			t.Helper()
			condition, err := exports.reviseSchema(t.Context(), export, nil, &revision{})
			if err != nil || (condition.Reason == v1alpha1.ReasonBreakingChangeHeld) != held {
				t.Errorf("%+v, %v", condition, err)
			}
		}
		for range 100 {
			look(true)
		}
		if lists != 1 {
			t.Errorf("the objects were listed %d times for one change", lists)
		}
		for range 3 {
			time.Sleep(exports.Review)
			look(true)
		}
		if lists != 4 {
			t.Errorf("the objects were listed %d times in three reviews more", lists-1)
		}
		export.Generation++
		look(true)
		if lists != 5 {
			t.Errorf("the objects were listed %d times for another spec", lists-4)
		}
		if err := c.Client().Resource(continents).Delete(t.Context(), "ada-mu", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(exports.Review)
		look(false)
	})
}

func continentCRD(rules ...any) *unstructured.Unstructured {
	size := map[string]any{"type": "object", "properties": map[string]any{"size": map[string]any{"type": "integer"}}}
	if len(rules) > 0 {
		size["x-kubernetes-validations"] = rules
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "continents.example.org"}, "spec": map[string]any{
		"group": "example.org", "scope": "Cluster", "names": map[string]any{"plural": "continents", "singular": "continent", "kind": "Continent", "listKind": "ContinentList"},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": size}}},
	}}}
}

// serviceNamespaces are those of a tenant, as a cache shows them.
func serviceNamespaces(t *testing.T, of string, names ...string) cache.TypedSharedIndexInformer[*v1alpha1.APIServiceNamespace] {
	t.Helper()
	inf := cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1alpha1.APIServiceNamespace{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, name := range names {
		asked := &v1alpha1.APIServiceNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: of, Name: name}}
		asked.Status.Namespace = name
		if err := inf.GetStore().Add(asked); err != nil {
			t.Fatal(err)
		}
	}
	return cache.NewTypedSharedIndexInformer[*v1alpha1.APIServiceNamespace](inf)
}
