// SPDX-License-Identifier: Apache-2.0

package crdcompat

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FuzzSnapshot takes a schema, columns and names through an export and back into a
// CRD, as a konnector does: nothing is lost, nothing is added.
func FuzzSnapshot(f *testing.F) {
	f.Add(`{"type":"object"}`, "w", ".spec.size", true)
	f.Add(`{"type":"object","properties":{"a":{"type":"string","default":"x","x-kubernetes-validations":[{"rule":"self < 'z'"}]}}}`, "", "", false)
	f.Add(`{"type":"object","x-unknown-to-us":{"a":[1,2.5,1e3,9007199254740993]},"description":"<&>\u2028"}`, "é", "x", true)
	f.Add(`{"":{}}`, "\xd7", "\x90", false) // valid only when joined
	f.Fuzz(func(t *testing.T, schema, short, path string, scale bool) {
		var props map[string]any
		if json.Unmarshal([]byte(schema), &props) != nil || len(props) == 0 || !utf8.ValidString(short) || !utf8.ValidString(path) {
			t.Skip() // not JSON
		}
		version := map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": props}}
		if scale {
			version["subresources"] = map[string]any{"status": map[string]any{}, "scale": map[string]any{"specReplicasPath": path, "statusReplicasPath": short}}
			version["additionalPrinterColumns"] = []any{map[string]any{"name": short, "type": "string", "jsonPath": path}}
		}
		crd := widgets()
		spec, _ := crd.Object["spec"].(map[string]any)
		spec["versions"] = []any{version}
		if names, ok := spec["names"].(map[string]any); ok && short != "" {
			names["shortNames"] = []any{short}
		}
		first, err := Snapshot(crd)
		if err != nil {
			t.Skip() // not a CRD
		}
		data, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		back := &unstructured.Unstructured{Object: map[string]any{}}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatal(err)
		}
		back.Object["spec"] = fields
		second, err := Snapshot(back)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
		want, err := json.Marshal(props)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(first.Versions[0].Schema.OpenAPIV3Schema.Raw); got != string(want) {
			t.Errorf("schema %s, want %s", got, want)
		}
		if changes := Compare(first, second); len(changes) > 0 {
			t.Errorf("differs from itself: %v", changes)
		}
	})
}
