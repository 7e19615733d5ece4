// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

var widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

func widget(name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "spec": spec}}
	u.SetName(name)
	return u
}

func serve() (*Cluster, dynamic.ResourceInterface) {
	c := New(Resource{GroupVersionResource: widgets, Kind: "Widget", Check: func(o *unstructured.Unstructured) error {
		if o.Object["spec"] == nil {
			return errors.New("spec is required")
		}
		return nil
	}})
	return c, c.Client().Resource(widgets).Namespace("default")
}

func apply(t *testing.T, ri dynamic.ResourceInterface, u *unstructured.Unstructured, manager string) (*unstructured.Unstructured, error) {
	t.Helper()
	return ri.Apply(t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: manager})
}

func TestApply(t *testing.T) {
	_, ri := serve()
	first, err := apply(t, ri, widget("a", map[string]any{"x": "1", "y": "1"}), "m")
	if err != nil {
		t.Fatal(err)
	}
	if first.GetUID() == "" || first.GetGeneration() != 1 || first.GetResourceVersion() == "" {
		t.Errorf("created %v", first.Object["metadata"])
	}
	second, err := apply(t, ri, widget("a", map[string]any{"x": "2"}), "m")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"x": "2"}, second.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if second.GetGeneration() != 2 {
		t.Errorf("generation = %d", second.GetGeneration())
	}
	same, err := apply(t, ri, widget("a", map[string]any{"x": "2"}), "m")
	if err != nil || same.GetResourceVersion() != second.GetResourceVersion() {
		t.Errorf("an apply that changes nothing: %v, version %s", err, same.GetResourceVersion())
	}
	for name, test := range map[string]struct {
		change func(*unstructured.Unstructured)
		is     func(error) bool
	}{
		"other manager": {func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, "3", "spec", "x") }, apierrors.IsConflict},
		"other uid":     {func(u *unstructured.Unstructured) { u.SetUID("other") }, apierrors.IsInvalid},
		"old version":   {func(u *unstructured.Unstructured) { u.SetResourceVersion("1") }, apierrors.IsConflict},
		"uid of nothing": {func(u *unstructured.Unstructured) {
			u.SetName("b")
			u.SetUID("other")
		}, apierrors.IsConflict},
		"invalid": {func(u *unstructured.Unstructured) {
			u.SetName("b")
			delete(u.Object, "spec")
		}, apierrors.IsInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			u := widget("a", map[string]any{"x": "2"})
			test.change(u)
			if _, err := apply(t, ri, u, "n"); !test.is(err) {
				t.Errorf("apply: %v", err)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	_, ri := serve()
	if _, err := ri.Create(t.Context(), widget("a", map[string]any{}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	u := widget("a", map[string]any{"ignored": "x"})
	u.Object["status"] = map[string]any{"ready": true}
	got, err := ri.ApplyStatus(t.Context(), "a", u, metav1.ApplyOptions{FieldManager: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{map[string]any{}, map[string]any{"ready": true}, int64(1)}, []any{got.Object["spec"], got.Object["status"], got.GetGeneration()}); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
	got, err = ri.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"x":1},"status":{"ready":false}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{map[string]any{"x": int64(1)}, map[string]any{"ready": true}}, []any{got.Object["spec"], got.Object["status"]}); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
}

func TestDelete(t *testing.T) {
	_, ri := serve()
	u := widget("a", map[string]any{})
	u.SetFinalizers([]string{"one", "two"})
	u, err := ri.Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := types.UID("other")
	if err := ri.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another uid: %v", err)
	}
	uid := u.GetUID()
	if err := ri.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		t.Fatal(err)
	}
	got, err := ri.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || got.GetDeletionTimestamp() == nil {
		t.Fatalf("object with finalizers after delete: %v, %v", got, err)
	}
	for _, step := range []struct {
		patch string
		ok    bool
	}{
		{`[{"op":"test","path":"/metadata/finalizers/0","value":"two"},{"op":"remove","path":"/metadata/finalizers/0"}]`, false},
		{`[{"op":"test","path":"/metadata/finalizers/0","value":"one"},{"op":"remove","path":"/metadata/finalizers/0"}]`, true},
		{`[{"op":"remove","path":"/metadata/finalizers/7"}]`, false},
		{`[{"op":"replace","path":"/metadata/finalizers/0","value":"three"}]`, false},
		{`[{"op":"add","path":"/metadata/finalizers/-","value":"four"}]`, false},
		{`[{"op":"remove","path":"/metadata/finalizers"}]`, true},
	} {
		if _, err := ri.Patch(t.Context(), "a", types.JSONPatchType, []byte(step.patch), metav1.PatchOptions{}); (err == nil) != step.ok {
			t.Errorf("%s: %v", step.patch, err)
		}
	}
	if _, err := ri.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("object without finalizers after delete: %v", err)
	}
}

// Informers see what happens, from before and after they started.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ri := serve()
		if _, err := apply(t, ri, widget("a", map[string]any{"x": "1"}), "m"); err != nil {
			t.Fatal(err)
		}
		inf := dynamicinformer.NewDynamicSharedInformerFactory(c.Client(), 0).ForResource(widgets).Informer()
		var seen []string
		note := func(kind string) func(any) {
			return func(o any) { seen = append(seen, kind+" "+o.(*unstructured.Unstructured).GetName()) }
		}
		_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: note("add"), UpdateFunc: func(_, o any) { note("update")(o) }, DeleteFunc: note("delete"),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { inf.RunWithContext(ctx); close(done) }()
		synctest.Wait()
		if _, err := apply(t, ri, widget("a", map[string]any{"x": "2"}), "m"); err != nil {
			t.Fatal(err)
		}
		if err := ri.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"add a", "update a", "delete a"}, seen); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		cancel()
		<-done
	})
}

func TestWithdrawAndIntercept(t *testing.T) {
	c, ri := serve()
	if _, err := apply(t, ri, widget("a", map[string]any{}), "m"); err != nil {
		t.Fatal(err)
	}
	c.Withdraw(widgets)
	_, err := ri.Get(t.Context(), "a", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		t.Errorf("get of what is not served: %v", err)
	}
	c.Serve(Resource{GroupVersionResource: widgets, Kind: "Widget"})
	if _, err := ri.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after the resource came back: %v", err)
	}
	if _, err := c.Client().Resource(widgets).Namespace("nowhere").Create(t.Context(), widget("a", nil), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("create without a namespace: %v", err)
	}
	c.Intercept(func(_ context.Context, r Request, _ func() error) error { return fmt.Errorf("%s lost", r.Verb) })
	if _, err := ri.Get(t.Context(), "a", metav1.GetOptions{}); err == nil || err.Error() != "get lost" {
		t.Errorf("get: %v", err)
	}
}

func ExampleNew() {
	c := New(Resource{GroupVersionResource: widgets, Kind: "Widget"})
	u, err := c.Client().Resource(widgets).Namespace("default").Create(context.Background(), widget("a", nil), metav1.CreateOptions{})
	fmt.Println(u.GetName(), u.GetGeneration(), err)
	// Output: a 1 <nil>
}

// Labels of others stay when the last one that a manager applied goes, as API
// servers have it by the schema of metadata.
func TestApplyWithoutLabels(t *testing.T) {
	_, ri := serve()
	labelled := func(labels map[string]string) map[string]string {
		u := widget("a", map[string]any{})
		u.SetLabels(labels)
		got, err := apply(t, ri, u, "one")
		if err != nil {
			t.Fatal(err)
		}
		return got.GetLabels()
	}
	labelled(map[string]string{"mine": "1"})
	patch := []byte(`{"metadata":{"labels":{"theirs":"1"}}}`)
	if _, err := ri.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "two"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"theirs": "1"}, labelled(nil)); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}
