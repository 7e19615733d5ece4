// SPDX-License-Identifier: Apache-2.0

package prune

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

const widget = `{"paths":{"/apis/example.org/v1/widgets":{"get":{"x-kubernetes-group-version-kind":{"group":"example.org","version":"v1","kind":"Widget"}}}},"components":{"schemas":{"Widget":{"x-kubernetes-group-version-kind":[{"group":"example.org","version":"v1","kind":"Widget"}],"properties":{
	"apiVersion":{},"kind":{},"metadata":{},
	"spec":{"properties":{"size":{},"version":{},"replicas":{},"backup":{"properties":{"hour":{},"to":{"properties":{"bucket":{},"key":{}}}}},
		"ports":{"items":{"properties":{"port":{},"name":{}}}},"settings":{"additionalProperties":{}}}},
	"status":{"properties":{"phase":{},"conditions":{"items":{"properties":{"type":{},"status":{},"reason":{},"message":{},"lastTransitionTime":{}}}}}}}}}}}`

const aWidget = `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","namespace":"b","labels":{"team":"x"}},
	"spec":{"size":"small","version":"1","replicas":3,"backup":{"hour":4,"to":{"bucket":"x","key":"y"}},"ports":[{"port":80,"name":"http"},{"port":443,"name":"https"}],"settings":{"a":"1","b":"2"}},
	"status":{"phase":"Ready","conditions":[{"type":"Ready","status":"True","reason":"Up","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"Synced","status":"True","reason":"Up","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`

// BenchmarkPrune prunes an object of which nothing is left out, as at each look at one.
func BenchmarkPrune(b *testing.B) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(aWidget)); err != nil {
		b.Fatal(err)
	}
	d, err := Parse([]byte(widget), apischema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, dropped := d.Prune(u.Object); dropped {
				b.Fatal("something was left out")
			}
		}
	})
	s := structural(d, d.root)
	b.Run("apiextensions-apiserver", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			object := runtime.DeepCopyJSON(u.Object)
			if gone := pruning.PruneWithOptions(object, s, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(gone) > 0 {
				b.Fatalf("%v was left out", gone)
			}
		}
	})
}

// structural is n as the library needs it.
func structural(d *Document, n *node) *schema.Structural {
	if n = d.resolve(n); n == nil {
		return nil
	}
	s := &schema.Structural{Properties: map[string]schema.Structural{}, Items: structural(d, n.Items)}
	s.XEmbeddedResource = n.Embedded
	s.XPreserveUnknownFields = n.Preserve || n.Properties == nil && n.Additional.node == nil
	for name, sub := range n.Properties {
		s.Properties[name] = *structural(d, sub)
	}
	if n.Additional.node != nil {
		s.AdditionalProperties = &schema.StructuralOrBool{Structural: structural(d, n.Additional.node)}
	}
	return s
}
