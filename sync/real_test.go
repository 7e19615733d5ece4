// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
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

	"github.com/klutch-go/sdk/internal/cluster"
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

func admin(t *testing.T, config *rest.Config) *dynamic.DynamicClient {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func eventually(t *testing.T, what string, ok func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 20*time.Second, true, ok); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func install(t *testing.T, d dynamic.Interface, namespaces ...string) {
	t.Helper()
	if _, err := d.Resource(crds).Create(t.Context(), object(t, widgetCRD), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range namespaces {
		ns := object(t, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+n+`"}}`)
		if _, err := d.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	eventually(t, "CRD served", func(ctx context.Context) (bool, error) {
		_, err := d.Resource(widgets).Namespace("default").List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
}

// The engine relies on what real API servers answer.
func TestServerFacts(t *testing.T) {
	d := admin(t, cluster.ForTest(t, "facts").Config())
	install(t, d)
	ri := d.Resource(widgets).Namespace("default")
	apply := func(manager, text string, force bool) (*unstructured.Unstructured, error) {
		return ri.Apply(t.Context(), "a", object(t, text), metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	first, err := apply("one", `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"1","annotations":{"src":"1"}},"spec":{"size":"small","ports":[{"name":"x","port":1}],"args":["a"]}}`, false)
	if err != nil {
		t.Fatalf("apply with a version where nothing is: %v", err)
	}
	f, _ := json.Marshal(first.Object["metadata"])
	t.Logf("%s", f)
	_, err = apply("two", `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"1","annotations":{"b":"1"}},"spec":{"size":"small"}}`, true)
	t.Logf("pinned to nothing, exists: %v conflict=%v causes=%v", err, apierrors.IsConflict(err), conflicting(err))
	_, err = apply("two", `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","annotations":{"src":"2"}},"spec":{"size":"small"}}`, false)
	t.Logf("other incarnation: %v %v", err, conflicting(err))
	_, err = apply("one", `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","uid":"11111111-1111-1111-1111-111111111111","annotations":{"src":"1"}},"spec":{"size":"small"}}`, false)
	t.Logf("other uid: %v invalid=%v conflict=%v", err, apierrors.IsInvalid(err), apierrors.IsConflict(err))
	_, err = ri.Apply(t.Context(), "b", object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"b","uid":"11111111-1111-1111-1111-111111111111"},"spec":{"size":"small"}}`), metav1.ApplyOptions{FieldManager: "one"})
	t.Logf("uid, gone: %v conflict=%v", err, apierrors.IsConflict(err))
	_, err = apply("one", `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","annotations":{"src":"1"}},"spec":{"size":"huge"}}`, false)
	t.Logf("invalid: %v invalid=%v", err, apierrors.IsInvalid(err))
	_, err = ri.Patch(t.Context(), "a", types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/uid","value":"x"}]`), metav1.PatchOptions{})
	t.Logf("test fails: %v invalid=%v reason=%v", err, apierrors.IsInvalid(err), apierrors.ReasonForError(err))
	got, err := ri.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"uid":"`+string(first.GetUID())+`","resourceVersion":"`+first.GetResourceVersion()+`","annotations":{"src":null},"managedFields":[{}]}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f, _ = json.Marshal(got.Object)
	t.Logf("disowned: %s", f)
	_, err = ri.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"uid":"xyz","annotations":{"src":null}}}`), metav1.PatchOptions{})
	t.Logf("merge patch with other uid: %v invalid=%v conflict=%v", err, apierrors.IsInvalid(err), apierrors.IsConflict(err))
	_, err = d.Resource(schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gizmos"}).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
	t.Logf("not served: %v absent=%v", err, absent(err))
	_, err = d.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gizmos"}).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
	t.Logf("group not served: %v absent=%v", err, absent(err))
	_, err = ri.Get(t.Context(), "zzz", metav1.GetOptions{})
	t.Logf("gone: %v absent=%v", err, absent(err))
	uid, rv := first.GetUID(), "1"
	err = ri.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}})
	t.Logf("delete with old version: %v conflict=%v", err, apierrors.IsConflict(err))
	_, err = ri.Get(t.Context(), "a", metav1.GetOptions{})
	sec := d.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("default")
	_, err = sec.Apply(t.Context(), "s", object(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","resourceVersion":"1"},"data":{"a":"YQ=="}}`), metav1.ApplyOptions{FieldManager: "one"})
	t.Logf("secret create pinned: %v", err)
	_, err = sec.Apply(t.Context(), "s", object(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","resourceVersion":"1"},"data":{"a":"YQ=="}}`), metav1.ApplyOptions{FieldManager: "two"})
	t.Logf("secret create pinned, exists: %v", err)
}

// The same scenarios on two real API servers.
func TestRealScenarios(t *testing.T) {
	app, control := cluster.ForTest(t, "app"), cluster.ForTest(t, "control")
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
	n := 0
	for name := range maps.Keys(scenarios) {
		n++
		ns := "team" + strconv.Itoa(n)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{T: t, source: source, target: target, from: from, to: to, sourceNS: ns, targetNS: "svc-" + ns}
			w.namespace(source, w.sourceNS)
			w.namespace(target, w.targetNS)
			scenarios[name](w)
		})
	}
}
