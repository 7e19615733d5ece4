// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/watchstore"
)

// ReadSchemas makes schemas be read through raw.
func (c *Cluster) ReadSchemas(raw rest.Interface) { c.raw = raw }

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
			d := &document{}
			text := `{"components":{"schemas":{"T":{"properties":{"t":{}}},"Widget":{"properties":{"apiVersion":{},"kind":{},"metadata":{},"spec":` + test.schema + `},
				"x-kubernetes-group-version-kind":[{"group":"example.org","version":"v1","kind":"Widget"}]}}}}`
			if err := json.Unmarshal([]byte(text), d); err != nil {
				t.Fatal(err)
			}
			d.index()
			k := newKnowledge(&Cluster{stores: &watchstore.Stores{}}, widgets, nil)
			k.document = d
			u := object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"labels":{"any":"x"}},"spec":`+test.value+`}`)
			want := object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"labels":{"any":"x"}},"spec":`+test.want+`}`)
			before := u.DeepCopy()
			got := k.prune(u)
			wasPartial := k.partial
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pruned (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, u); diff != "" {
				t.Errorf("the object itself (-before +after):\n%s", diff)
			}
			if wasPartial == cmp.Equal(before, got) {
				t.Errorf("partial is %t", wasPartial)
			}
			u.Object["data"] = map[string]any{"x": "y"}
			if diff := cmp.Diff(want, k.prune(u)); diff != "" {
				t.Errorf("an unknown field at the top (-want +got):\n%s", diff)
			}
		})
	}
}
