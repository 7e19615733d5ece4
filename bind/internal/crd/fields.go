// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Lacks are the fields, in the order of their paths, that a CRD as shipped has and a live one of
// the same single version has not: an API server prunes what is written to them. A live CRD with
// more versions, or of another scope, is another program's, and lacks nothing.
func Lacks(live, shipped *unstructured.Unstructured) (fields []string) {
	have, _, _ := unstructured.NestedSlice(live.Object, "spec", "versions")
	want, _, _ := unstructured.NestedSlice(shipped.Object, "spec", "versions")
	if len(have) != 1 || len(want) != 1 || scopeOf(live) != scopeOf(shipped) {
		return nil
	}
	is, _ := have[0].(map[string]any)
	should, _ := want[0].(map[string]any)
	if is["name"] != should["name"] {
		return nil
	}
	known := pathsIn(nested(is, "schema", "openAPIV3Schema"), "")
	for _, path := range pathsIn(nested(should, "schema", "openAPIV3Schema"), "") {
		if !slices.Contains(known, path) {
			fields = append(fields, path)
		}
	}
	slices.Sort(fields)
	return fields
}

func scopeOf(crd *unstructured.Unstructured) string {
	scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
	return scope
}

func nested(m map[string]any, path ...string) map[string]any {
	found, _, _ := unstructured.NestedMap(m, path...)
	return found
}

// pathsIn are the fields that a schema names, those of the items of lists too.
func pathsIn(schema map[string]any, at string) (paths []string) {
	for name := range nested(schema, "properties") {
		path := at + "." + name
		paths = append(append(paths, path), pathsIn(nested(schema, "properties", name), path)...)
	}
	if items := nested(schema, "items"); items != nil {
		paths = append(paths, pathsIn(items, at+"[]")...)
	}
	return paths
}
