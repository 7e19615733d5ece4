// SPDX-License-Identifier: Apache-2.0

package prune_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/sync/internal/prune"
)

func object(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		tb.Fatal(err)
	}
	return u
}

func parse(tb testing.TB, resource, spec string) *prune.Document {
	tb.Helper()
	d, err := prune.Parse([]byte(`{"paths":{"/apis/example.org/v1/namespaces/{namespace}/widgets":{"get":{"x-kubernetes-group-version-kind":{"group":"example.org","version":"v1","kind":"Widget"}}}},
		"components":{"schemas":{"T":{"properties":{"t":{}}},"Widget":{"properties":{"apiVersion":{},"kind":{},"metadata":{"properties":{}},"spec":`+spec+`},
		"x-kubernetes-group-version-kind":[{"group":"example.org","version":"v1","kind":"Widget"}]}}}}`), schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: resource})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// What a schema does not know is left out, at any depth; what it leaves open is not.
func TestPrune(t *testing.T) {
	for name, test := range map[string]struct{ schema, value, want string }{
		"known":             {`{"properties":{"a":{"type":"string"}}}`, `{"a":"x"}`, `{"a":"x"}`},
		"unknown":           {`{"properties":{"a":{}}}`, `{"a":1,"b":2}`, `{"a":1}`},
		"unknown below":     {`{"properties":{"a":{"properties":{"b":{}}}}}`, `{"a":{"b":1,"c":2}}`, `{"a":{"b":1}}`},
		"in a list":         {`{"properties":{"a":{"items":{"properties":{"b":{}}}}}}`, `{"a":[{"b":1},{"c":2}]}`, `{"a":[{"b":1},{}]}`},
		"in a map":          {`{"additionalProperties":{"properties":{"b":{}}}}`, `{"x":{"b":1,"c":2}}`, `{"x":{"b":1}}`},
		"any in a map":      {`{"additionalProperties":true}`, `{"x":{"b":1}}`, `{"x":{"b":1}}`},
		"none in a map":     {`{"properties":{"a":{}},"additionalProperties":false}`, `{"b":1}`, `{}`},
		"preserved":         {`{"properties":{"a":{"properties":{"c":{}}}},"x-kubernetes-preserve-unknown-fields":true}`, `{"b":1,"a":{"d":1}}`, `{"b":1,"a":{}}`},
		"an object, open":   {`{"type":"object"}`, `{"b":1}`, `{"b":1}`},
		"an embedded one":   {`{"properties":{"spec":{}},"x-kubernetes-embedded-resource":true}`, `{"apiVersion":"v1","kind":"X","metadata":{"name":"a"},"x":1}`, `{"apiVersion":"v1","kind":"X","metadata":{"name":"a"}}`},
		"by reference":      {`{"properties":{"a":{"$ref":"#/components/schemas/T"}}}`, `{"a":{"t":1,"u":1}}`, `{"a":{"t":1}}`},
		"by reference, all": {`{"properties":{"a":{"allOf":[{"$ref":"#/components/schemas/T"}]}}}`, `{"a":{"t":1,"u":1}}`, `{"a":{"t":1}}`},
		"by no reference":   {`{"properties":{"a":{"$ref":"#/components/schemas/U"}}}`, `{"a":{"t":1}}`, `{"a":{"t":1}}`},
		"another shape":     {`{"properties":{"a":{"properties":{"b":{}}}}}`, `{"a":"text"}`, `{"a":"text"}`},
	} {
		t.Run(name, func(t *testing.T) {
			d := parse(t, "widgets", test.schema)
			u := object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"labels":{"any":"x"}},"spec":`+test.value+`}`)
			want := object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"labels":{"any":"x"}},"spec":`+test.want+`}`)
			before := u.DeepCopy()
			got, dropped := d.Prune(u.Object)
			if diff := cmp.Diff(want.Object, got); diff != "" {
				t.Errorf("pruned (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, u); diff != "" {
				t.Errorf("the object itself (-before +after):\n%s", diff)
			}
			if dropped == cmp.Equal(before.Object, got) {
				t.Errorf("dropped is %t", dropped)
			}
			u.Object["data"] = map[string]any{"x": "y"}
			if got, _ = d.Prune(u.Object); !cmp.Equal(want.Object, got) {
				t.Errorf("an unknown field at the top (-want +got):\n%s", cmp.Diff(want.Object, got))
			}
		})
	}
}

// A kind that a document does not have, or no document, prunes nothing.
func TestUnknownKind(t *testing.T) {
	u := object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"a":1}}`)
	for resource, d := range map[string]*prune.Document{"gadgets": parse(t, "gadgets", `{}`), "no document": nil} {
		if got, dropped := d.Prune(u.Object); dropped || !cmp.Equal(u.Object, got) {
			t.Errorf("%s: dropped is %t, object %v", resource, dropped, got)
		}
	}
	one, other := parse(t, "widgets", `{"properties":{"a":{"default":1}}}`), parse(t, "widgets", `{"properties":{"a":{"default":2}}}`)
	if one.Same(other) || one.Same(nil) || !one.Same(parse(t, "widgets", `{"properties":{"a":{"default":1}}}`)) {
		t.Error("schemas are not told apart by a default")
	}
	if !parse(t, "gadgets", `{}`).Same(parse(t, "gadgets", `{"properties":{"a":{}}}`)) {
		t.Error("another kind has changed, and the resource seems to")
	}
}
