// SPDX-License-Identifier: Apache-2.0

package crd

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// DropDefaults leaves out of a CRD what would fill in paths that an object leaves empty:
// the provider would say then which Secrets of the App Cluster it gets.
func DropDefaults(crd *unstructured.Unstructured, paths [][]string) {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		for _, path := range paths {
			dropDefault(schema, path)
		}
		if schema != nil {
			_ = unstructured.SetNestedMap(version, schema, "schema", "openAPIV3Schema") // it was there
		}
	}
	if len(paths) > 0 && versions != nil {
		_ = unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
	}
}

func dropDefault(schema map[string]any, path []string) {
	if schema == nil {
		return
	}
	delete(schema, "default")
	if len(path) == 0 {
		return
	}
	properties, _ := schema["properties"].(map[string]any)
	property, _ := properties[path[0]].(map[string]any)
	dropDefault(property, path[1:])
	others, _ := schema["additionalProperties"].(map[string]any)
	dropDefault(others, path[1:])
}
