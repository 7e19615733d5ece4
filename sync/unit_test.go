// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/slim"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

func TestNewRefuses(t *testing.T) {
	fake := fakecluster.New()
	c, err := NewClusterForClients(fake.Client(), fake.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewClusterForClients(fake.Client(), fake.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	bare, err := NewClusterForClients(fake.Client(), nil)
	if err != nil {
		t.Fatal(err)
	}
	related := []Related{{Resource: secrets, From: TargetSide}}
	for name, test := range map[string]struct {
		source, target *Cluster
		resource       schema.GroupVersionResource
		opts           Options
		option         string
	}{
		"no source":         {nil, c, widgets, Options{}, "source"},
		"no target":         {c, nil, widgets, Options{}, "target"},
		"no resource":       {c, c, schema.GroupVersionResource{Version: "v1"}, Options{}, "resource"},
		"no version":        {c, c, schema.GroupVersionResource{Resource: "widgets"}, Options{}, "resource"},
		"no clusters":       {&Cluster{}, &Cluster{}, widgets, Options{}, "source"},
		"nil table":         {c, other, widgets, Options{Mapper: (*Namespaces)(nil)}, "Mapper"},
		"onto itself":       {c, c.IdentifiedBy("default"), widgets, Options{}, "Mapper"},
		"bare prefix":       {c, c, widgets, Options{Mapper: Prefix("")}, "Mapper"},
		"bad binding":       {c, other, widgets, Options{Binding: "a\nb"}, "Binding"},
		"bare finalizer":    {c, other, widgets, Options{Finalizer: "ours"}, "Finalizer"},
		"bad finalizer":     {c, other, widgets, Options{Finalizer: "example.org/a b"}, "Finalizer"},
		"unknown scope":     {c, c, widgets, Options{TargetScope: "Some"}, "TargetScope"},
		"scope of identity": {c, c, widgets, Options{TargetScope: ScopeMapped}, "TargetScope"},
		"unknown conflict":  {c, c, widgets, Options{Conflict: "x"}, "Conflict"},
		"unknown drift":     {c, c, widgets, Options{Drift: "x"}, "Drift"},
		"unknown lost":      {c, c, widgets, Options{Lost: "x"}, "Lost"},
		"unknown deletion":  {c, c, widgets, Options{Deletion: "x"}, "Deletion"},
		"no metadata":       {c, bare, widgets, Options{Related: related}, "Related"},
		"related nothing":   {c, c, widgets, Options{Related: []Related{{From: TargetSide}}}, "Related[0].Resource"},
		"related nowhere":   {c, c, widgets, Options{Related: []Related{{Resource: secrets}}}, "Related[0].From"},
		"related no path":   {c, c, widgets, Options{Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status..name"}}}}, "Related[0].References"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(test.source, test.target, test.resource, test.opts)
			var bad *OptionError
			if !errors.As(err, &bad) || bad.Option != test.option {
				t.Errorf("New: %v, want an OptionError about %s", err, test.option)
			}
		})
	}
	if _, err := NewCluster(nil); err == nil {
		t.Error("NewCluster(nil) is fine")
	}
	if _, err := NewClusterForClients(nil, nil); err == nil {
		t.Error("NewClusterForClients(nil, nil) is fine")
	}
	if _, err := NewCluster(&rest.Config{Host: "::not a host"}); err == nil {
		t.Error("NewCluster of no host is fine")
	}
}

func TestMappers(t *testing.T) {
	table := NewNamespaces(nil)
	for range 2 {
		if !table.Set("a", "svc-a") {
			t.Error("Set refuses what is free, or its own")
		}
	}
	if table.Set("b", "svc-a") {
		t.Error("two namespaces share a target")
	}
	for name, test := range map[string]struct {
		mapper         Mapper
		source, target cache.ObjectName
	}{
		"identity":   {Identity(), cache.NewObjectName("ns", "a"), cache.NewObjectName("ns", "a")},
		"prefix":     {Prefix("t1-"), cache.NewObjectName("", "a"), cache.NewObjectName("", "t1-a")},
		"namespaces": {table, cache.NewObjectName("a", "x"), cache.NewObjectName("svc-a", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := test.mapper.Target(test.source); !ok || got != test.target {
				t.Errorf("Target = %v, %t", got, ok)
			}
			if got, ok := test.mapper.Source(test.target); !ok || got != test.source {
				t.Errorf("Source = %v, %t", got, ok)
			}
		})
	}
	if _, ok := Prefix("t1-").Source(cache.NewObjectName("", "t2-a")); ok {
		t.Error("an object of another prefix has a source")
	}
	if _, ok := Prefix("t1-").Source(cache.NewObjectName("", "t1-")); ok {
		t.Error("a bare prefix has a source")
	}
	table.Set("a", "svc-a2")
	if _, ok := table.Source(cache.NewObjectName("svc-a", "x")); ok {
		t.Error("a namespace that is mapped no more has a source")
	}
	table.Delete("a")
	if _, ok := table.Target(cache.NewObjectName("a", "x")); ok {
		t.Error("a deleted namespace has a target")
	}
}

// The intent has what travels, and its hash changes just with that.
func TestIntent(t *testing.T) {
	source := object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","namespace":"team","uid":"u","generation":3,
		"resourceVersion":"9","finalizers":["f"],"ownerReferences":[{"name":"o"}],"labels":{"keep":"1","drop":"1"},"annotations":{"helm.sh/chart":"x"}},
		"spec":{"size":"small","resourceRef":{"name":"x"},"crossplane":{"resourceRefs":[]}},"data":{"k":"v"},"status":{"phase":"x"}}`)
	opts := Options{
		Labels: func(k string) bool { return k == "keep" },
		TargetMeta: func(cache.ObjectName) Meta {
			return Meta{
				Labels:          map[string]string{"tenant": "t"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "t", UID: "tu"}},
			}
		},
	}
	from := origin{cluster: "c", uid: "u", name: cache.NewObjectName("team", "a")}
	got := opts.newIntent(klutchNames, source, from, cache.NewObjectName("svc", "a"), nil)
	want := map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget",
		"metadata": map[string]any{
			"name": "a", "namespace": "svc",
			"labels":          map[string]any{"keep": "1", "tenant": "t"},
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": "t", "uid": "tu"}},
			"annotations": map[string]any{
				BoundAnnotation:  "true",
				SourceAnnotation: `{"uid":"u","cluster":"c","namespace":"team","name":"a","generation":3,"hash":"` + got.hash + `"}`,
			},
		},
		"spec": map[string]any{"size": "small", "crossplane": map[string]any{}},
		"data": map[string]any{"k": "v"},
	}
	if diff := cmp.Diff(want, got.object); diff != "" {
		t.Errorf("intent (-want +got):\n%s", diff)
	}
	source.SetResourceVersion("10")
	source.SetGeneration(4)
	source.Object["status"] = nil
	if again := opts.newIntent(klutchNames, source, from, cache.NewObjectName("svc", "a"), nil); again.hash != got.hash {
		t.Error("the hash changes with what does not travel")
	}
	source.SetLabels(map[string]string{"keep": "2"})
	if again := opts.newIntent(klutchNames, source, from, cache.NewObjectName("svc", "a"), nil); again.hash == got.hash {
		t.Error("the hash does not change with a label")
	}
	for path, want := range map[string]string{"": `{"crossplane":{"resourceRefs":[]},"resourceRef":{"name":"x"},"size":"small"}`, "spec": `{"crossplane":{"resourceRefs":[]},"size":"small"}`, "spec.crossplane": `{"crossplane":{},"resourceRef":{"name":"x"},"size":"small"}`} {
		composed := func(p ...string) bool { return strings.Join(p, ".") == path }
		got := opts.newIntent(klutchNames, source, from, cache.NewObjectName("svc", "a"), composed).object["spec"]
		if text, err := json.Marshal(got); err != nil || string(text) != want {
			t.Errorf("composed at %q: %s, want %s, %v", path, text, want, err)
		}
	}
}

// A provider's generations are published as those of the source.
func TestStatusTranslation(t *testing.T) {
	for name, test := range map[string]struct {
		target, source, want string
	}{
		"no status":      {`{}`, `{"status":{"x":1}}`, `null`},
		"no generations": {`{"status":{"x":1}}`, `{}`, `{"x":1}`},
		"up to date":     {`{"status":{"observedGeneration":7}}`, `{}`, `{"observedGeneration":4}`},
		"ahead":          {`{"status":{"observedGeneration":8}}`, `{}`, `{"observedGeneration":4}`},
		"behind":         {`{"status":{"observedGeneration":6}}`, `{}`, `{}`},
		"behind, known":  {`{"status":{"observedGeneration":6}}`, `{"status":{"observedGeneration":3}}`, `{"observedGeneration":3}`},
		"unmarked":       {`{"status":{"observedGeneration":7}}`, `{"status":{"observedGeneration":3}}`, `{"observedGeneration":3}`},
		"conditions": {
			`{"status":{"conditions":[{"type":"A","observedGeneration":7},{"type":"B","observedGeneration":6},{"type":"C","observedGeneration":1}]}}`,
			`{"status":{"conditions":[{"type":"B","observedGeneration":2}]}}`,
			`{"conditions":[{"observedGeneration":4,"type":"A"},{"observedGeneration":2,"type":"B"},{"type":"C"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			parse := func(text string) *unstructured.Unstructured {
				return object(t, strings.Replace(text, "{", `{"apiVersion":"v1","kind":"X","metadata":{"name":"a"}`+map[bool]string{true: "", false: ","}[text == "{}"], 1))
			}
			target, source := parse(test.target), parse(test.source)
			target.SetGeneration(7)
			target.SetAnnotations(map[string]string{SourceAnnotation: `{"uid":"u","generation":4}`})
			data, err := json.Marshal(travel.Status(source, target, map[bool]int64{true: 0, false: 4}[name == "unmarked"]))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(data)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFieldManager(t *testing.T) {
	const uid = types.UID("5f0c1d5e-8b1a-4f0e-9d55-0123456789ab")
	for _, binding := range []string{"", "widgets", strings.Repeat("long", 50), strings.Repeat("long", 51)} {
		if got := names.Of(names.Klutch, binding).Incarnation(uid); len(got) > names.MaxManager || !strings.HasSuffix(got, "/0123456789ab") {
			t.Errorf("manager of %q = %q", binding, got)
		}
	}
	if names.Of(names.Klutch, strings.Repeat("long", 50)).Manager() == names.Of(names.Klutch, strings.Repeat("long", 51)).Manager() {
		t.Error("two long bindings share a manager")
	}
}

// Everything that a Sync keeps of a target is small.
func TestSlimTarget(t *testing.T) {
	u := object(t, `{"apiVersion":"v1","kind":"X","metadata":{"name":"a","managedFields":[{"manager":"klutch.anynines.com/b/1"},{"manager":"kubectl"},{"manager":"konnector","operation":"Update","fieldsV1":{"f:spec":{}}},{"manager":"konnector","operation":"Update","subresource":"status"}]},"spec":{"big":1},"status":{"s":1}}`)
	got := slim.Target(klutchNames, map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "status": true})(u)
	want := object(t, `{"apiVersion":"v1","kind":"X","metadata":{"name":"a","managedFields":[{"manager":"klutch.anynines.com/b/1"},{"manager":"konnector"}]},"status":{"s":1}}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("slim target (-want +got):\n%s", diff)
	}
}
