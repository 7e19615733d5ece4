// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"strconv"
	gosync "sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/cluster"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

const widgetCRD = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "widgets.example.org"},
  "spec": {
    "group": "example.org", "scope": "Namespaced",
    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
    "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
      "type": "object",
      "properties": {
        "spec": {"type": "object", "properties": {
          "size": {"type": "string", "enum": ["small", "medium", "large"]},
          "color": {"type": "string"},
          "late": {"type": "string"},
          "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
            "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}},
          "args": {"type": "array", "items": {"type": "string"}}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}}`

func admin(tb testing.TB, config *rest.Config) *dynamic.DynamicClient {
	tb.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func eventually(tb testing.TB, what string, ok func(context.Context) (bool, error)) {
	tb.Helper()
	if err := wait.PollUntilContextTimeout(tb.Context(), 20*time.Millisecond, 2*time.Minute, true, ok); err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
}

func install(tb testing.TB, d dynamic.Interface, namespaces ...string) {
	tb.Helper()
	if _, err := d.Resource(crds).Create(tb.Context(), object(tb, widgetCRD), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatal(err)
	}
	for _, n := range namespaces {
		ns := object(tb, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+n+`"}}`)
		if _, err := d.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(tb.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			tb.Fatal(err)
		}
	}
	eventually(tb, "CRD served", func(ctx context.Context) (bool, error) {
		_, err := d.Resource(widgets).Namespace("default").List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
}

// each runs a subtest for each case, all at once, however few CPUs there are: they wait for
// API servers more than they work.
func each[C any](t *testing.T, cases map[string]C, run func(t *testing.T, name string, c C)) {
	t.Helper()
	var wg gosync.WaitGroup
	for name, c := range cases {
		wg.Go(func() { t.Run(name, func(t *testing.T) { run(t, name, c) }) })
	}
	wg.Wait()
}

// The engine relies on what real API servers answer (TestServerFacts).
func TestServerFacts(t *testing.T) {
	t.Parallel()
	d := admin(t, cluster.Reused(t, "facts").Config())
	install(t, d)
	ri := d.Resource(widgets).Namespace("default")
	apply := func(name, manager, meta, spec string) (*unstructured.Unstructured, error) {
		u := object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{`+meta+`},"spec":`+spec+`}`)
		u.SetName(name)
		return ri.Apply(t.Context(), name, u, metav1.ApplyOptions{FieldManager: manager})
	}
	first, err := apply("a", "one", `"resourceVersion":"1","annotations":{"src":"1"}`, `{"size":"small"}`)
	if err != nil {
		t.Fatalf("apply that pins a version where nothing is: %v", err)
	}
	const otherUID = `"uid":"11111111-1111-1111-1111-111111111111"`
	for name, test := range map[string]struct {
		object, manager, meta, spec string
		is                          func(error) bool
	}{
		"pins no version, something is": {"a", "two", `"resourceVersion":"1"`, `{}`, apierrors.IsConflict},
		"other incarnation, same spec": {
			"a", "two", `"annotations":{"src":"2"}`, `{"size":"small"}`,
			func(err error) bool { return len(fates.Holders(err)) == 1 },
		},
		"other uid":         {"a", "one", otherUID, `{"size":"small"}`, apierrors.IsInvalid},
		"uid where nothing": {"b", "one", otherUID, `{"size":"small"}`, apierrors.IsConflict},
		"invalid":           {"a", "one", ``, `{"size":"huge"}`, apierrors.IsInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := apply(test.object, test.manager, test.meta, test.spec); !test.is(err) {
				t.Errorf("apply: %v", err)
			}
		})
	}
	_, err = apply("held", "one", `"finalizers":["example.org/hold"]`, `{}`)
	if err == nil {
		err = ri.Delete(t.Context(), "held", metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	dying, err := ri.Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last, err := ri.Patch(t.Context(), "held", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers/0"}]`), metav1.PatchOptions{})
	if err != nil || last.GetResourceVersion() != dying.GetResourceVersion() || last.GetDeletionTimestamp() == nil || len(last.GetFinalizers()) > 0 {
		t.Errorf("the patch that ends an object answers with version %v, before it was %v: %v", last, dying.GetResourceVersion(), err)
	}
	if _, err = ri.Patch(t.Context(), "a", types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/uid","value":"x"}]`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("JSON patch whose test fails: %v", err)
	}
	if _, err = ri.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"uid":"x"}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("merge patch of another uid: %v", err)
	}
	got, err := ri.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"annotations":{"src":null},"managedFields":[{}]}}`), metav1.PatchOptions{})
	if err != nil || len(got.GetManagedFields()) > 0 || field(got, "spec", "size") != "small" {
		t.Errorf("disowned: %v, %v", got, err)
	}
	uid, version := first.GetUID(), first.GetResourceVersion()
	if err := ri.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}); !apierrors.IsConflict(err) {
		t.Errorf("delete of an old version: %v", err)
	}
	if _, err := ri.Get(t.Context(), "z", metav1.GetOptions{}); !absent(err) {
		t.Errorf("get of nothing: %v", err)
	}
	for _, gvr := range []schema.GroupVersionResource{
		{Group: "example.org", Version: "v1", Resource: "gizmos"},
		{Group: "example.org", Version: "v2", Resource: "widgets"},
		{Group: "example.com", Version: "v1", Resource: "widgets"},
	} {
		if _, err := d.Resource(gvr).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{}); err == nil || absent(err) {
			t.Errorf("get of what is not served is read as absence: %v", err)
		}
	}
}

// The same scenarios on two real API servers.
func TestRealScenarios(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	install(t, source)
	install(t, target)
	// The provider is stricter than what was bound.
	if _, err := source.Resource(crds).Patch(t.Context(), "widgets.example.org", types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/enum"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	from, err := NewCluster(app.Config())
	if err != nil {
		t.Fatal(err)
	}
	to, err := NewCluster(control.Config())
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	each(t, scenarios, func(t *testing.T, _ string, play func(*world)) {
		t.Helper()
		ns := "team" + strconv.FormatInt(n.Add(1), 10)
		w := &world{TB: t, source: source, target: target, from: from, to: to, sourceNS: ns, targetNS: "svc-" + ns}
		w.namespace(source, w.sourceNS)
		w.namespace(target, w.targetNS)
		play(w)
	})
}

// A control plane that is away for a while, and an App Cluster that takes rights
// back for a while, cost nothing but time.
func TestRealOutage(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	install(t, source)
	install(t, target)
	from, err := NewCluster(app.Config())
	if err != nil {
		t.Fatal(err)
	}
	to, err := NewCluster(control.Config())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, source: source, target: target, from: from, to: to, sourceNS: "default", targetNS: "default"}
	defer w.run(Options{Mapper: Identity()})()
	for _, name := range []string{"a", "b"} {
		w.create(source, "default", w.widget(name, `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf(name) != nil })
	}
	if err := control.StopServer(); err != nil {
		t.Fatal(err)
	}
	w.delete(source, "default", "a")
	w.merge(source, "default", "b", `{"spec":{"size":"large"}}`)
	w.create(source, "default", w.widget("c", `{"size":"small"}`, ``))
	time.Sleep(5 * time.Second)
	if w.get(source, "default", "a") == nil {
		t.Error("the source was let go while the control plane was away")
	}
	if err := control.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.until("everything is in step again", func() bool {
		return w.get(source, "default", "a") == nil && w.targetOf("a") == nil &&
			field(w.targetOf("b"), "spec", "size") == "large" && w.targetOf("c") != nil
	})
	t.Logf("in step %v after the control plane came back", time.Since(began).Round(100*time.Millisecond))
}
