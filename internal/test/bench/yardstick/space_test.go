// SPDX-License-Identifier: Apache-2.0

package yardstick

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var widgets = schema.GroupVersionResource{Group: "bench.example.org", Version: "v1", Resource: "widgets"}

// TestTenant: with the rights of a tenant, an object goes through its life in the service namespace, and nothing is
// asked for elsewhere.
func TestTenant(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"}
	spaces := fakecluster.Resource{GroupVersionResource: v1alpha1.Resource("apiservicenamespaces"), Kind: "APIServiceNamespace", Plain: true}
	app, control := fakecluster.New(served), fakecluster.New(served, spaces)
	for name, c := range map[string]*fakecluster.Cluster{"shop": app, "tenant": control, "tenant-shop": control} {
		create(t, c.Client(), stack.Namespaces, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	}
	create(t, control.Client(), spaces.GroupVersionResource, map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": spaces.Kind,
		"metadata": map[string]any{"namespace": "tenant", "name": "shop"}, "status": map[string]any{"namespace": "tenant-shop"},
	})
	tenant := control.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if !slices.Contains([]string{"tenant", "tenant-shop"}, r.Object.Namespace) {
			return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, errors.New("not a namespace of the tenant"))
		}
		return do()
	})
	sources := app.Client().Resource(widgets).Namespace("shop")
	targets := control.Client().Resource(widgets).Namespace("tenant-shop")
	seenSources, seenTargets := events(t, sources), events(t, targets)

	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, app.Client(), tenant.Client(), Options{Tenant: "tenant", Resources: []schema.GroupVersionResource{widgets}})
	}()
	create(t, app.Client(), widgets, map[string]any{
		"apiVersion": "bench.example.org/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "shop", "name": "a"}, "spec": map[string]any{"size": "small"},
	})
	await(t, ended, seenTargets, func(e watch.Event, _ string) bool { return e.Type == watch.Added })
	status := []byte(`{"status":{"phase":"Running"}}`)
	if _, err := targets.Patch(ctx, "a", types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	await(t, ended, seenSources, func(_ watch.Event, phase string) bool { return phase == "Running" })
	if err := sources.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, ended, seenTargets, func(e watch.Event, _ string) bool { return e.Type == watch.Deleted })
	await(t, ended, seenSources, func(e watch.Event, _ string) bool { return e.Type == watch.Deleted })
}

func create(t *testing.T, client dynamic.Interface, r schema.GroupVersionResource, object map[string]any) {
	t.Helper()
	u := &unstructured.Unstructured{Object: object}
	if _, err := client.Resource(r).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func events(t *testing.T, c dynamic.ResourceInterface) <-chan watch.Event {
	t.Helper()
	w, err := c.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w.ResultChan()
}

// await returns once an event, or the phase in it, is as it should be.
func await(t *testing.T, ended <-chan error, seen <-chan watch.Event, good func(e watch.Event, phase string) bool) {
	t.Helper()
	for {
		select {
		case err := <-ended:
			t.Fatalf("the yardstick has ended: %v", err)
		case e := <-seen:
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				t.Fatalf("%s: %v", e.Type, e.Object)
			}
			if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); good(e, phase) {
				return
			}
		}
	}
}
