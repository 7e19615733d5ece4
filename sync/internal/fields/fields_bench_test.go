// SPDX-License-Identifier: Apache-2.0

package fields_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/klutch-go/sdk/sync/internal/fields"
)

const held = `{"f:metadata":{"f:annotations":{"f:klutch.anynines.com/bound":{},"f:klutch.anynines.com/source":{}},"f:labels":{"f:team":{}}},
	"f:spec":{"f:size":{},"f:version":{},"f:replicas":{},"f:backup":{"f:hour":{},"f:to":{"f:bucket":{},"f:key":{}}},
	"f:ports":{"k:{\"port\":80}":{".":{},"f:port":{},"f:name":{}},"k:{\"port\":443}":{".":{},"f:port":{},"f:name":{}}}}}`

const wanted = `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","namespace":"b","annotations":{"klutch.anynines.com/bound":"true",
	"klutch.anynines.com/source":"{}"},"labels":{"team":"x"}},"spec":{"size":"small","version":"1","replicas":3,"backup":{"hour":4,"to":{"bucket":"x","key":"y"}},
	"ports":[{"port":80,"name":"http"},{"port":443,"name":"https"}]}}`

// BenchmarkOwn is what each pass over an object asks. The library begins where we do, at
// decoded managed fields, and stops before lists: to look at those takes a schema.
func BenchmarkOwn(b *testing.B) {
	want := &unstructured.Unstructured{}
	set := fields.Set{}
	if err := want.UnmarshalJSON([]byte(wanted)); err != nil {
		b.Fatal(err)
	}
	if err := json.Unmarshal([]byte(held), &set); err != nil {
		b.Fatal(err)
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !set.Own(want.Object, nil) {
				b.Fatal("not owned")
			}
		}
	})
	b.Run("fieldpath", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			data, err := json.Marshal(set)
			if err != nil {
				b.Fatal(err)
			}
			if !hasAll(b, data, want.Object) {
				b.Fatal("not owned")
			}
		}
	})
	b.Run("fieldpath from JSON", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !hasAll(b, []byte(held), want.Object) {
				b.Fatal("not owned")
			}
		}
	})
}

func hasAll(b *testing.B, data []byte, object map[string]any) bool {
	b.Helper()
	s := &fieldpath.Set{}
	if err := s.FromJSON(bytes.NewReader(data)); err != nil {
		b.Fatal(err)
	}
	for _, top := range []string{"metadata", "spec"} {
		part := object[top].(map[string]any)
		for key, value := range part {
			if key != "name" && key != "namespace" && !has(s, fieldpath.MakePathOrDie(top, key), value) {
				return false
			}
		}
	}
	return true
}

func has(s *fieldpath.Set, path fieldpath.Path, value any) bool {
	m, ok := value.(map[string]any)
	if _, isList := value.([]any); isList {
		return true
	}
	for key, item := range m {
		if !has(s, append(path.Copy(), fieldpath.PathElement{FieldName: &key}), item) {
			return false
		}
	}
	return ok || s.Has(path)
}
