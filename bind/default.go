// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// handedOver are the paths by which objects name what the App Cluster hands over.
func handedOver(claims []v1alpha1.AcceptablePermissionClaim) (paths [][]string) {
	for _, c := range claims {
		if c.State != v1alpha1.ClaimAccepted || c.Selector.Owner != v1alpha1.OwnerConsumer {
			continue
		}
		for _, r := range c.Selector.References {
			paths = append(paths, pathOf(r))
		}
	}
	return paths
}

func pathOf(r v1alpha1.Reference) []string {
	return strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.Path, "$"), "."), ".")
}

// dropDefaults leaves out of a CRD what would fill in paths that an object leaves empty:
// the provider would say then which Secrets of the App Cluster it gets.
func dropDefaults(crd *unstructured.Unstructured, paths [][]string) {
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
