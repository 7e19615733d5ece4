// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Klutch's CRD of bindings lacks fields of ours, at each depth; one of another scope or with more
// versions is left alone.
func TestLacks(t *testing.T) {
	shipped := v1alpha1.CRDs()["apiservicebindings.klutch.anynines.com"]
	changed := func(change func(spec map[string]any)) *unstructured.Unstructured {
		u := shipped.DeepCopy()
		spec := u.Object["spec"].(map[string]any)
		change(spec)
		return u
	}
	remove := func(spec map[string]any, path ...string) {
		version := spec["versions"].([]any)[0].(map[string]any)
		unstructured.RemoveNestedField(version, append([]string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}, path...)...)
	}
	klutchs := changed(func(spec map[string]any) {
		remove(spec, "maxAdoptedObjects")
		remove(spec, "permissionClaims", "items", "properties", "selector", "properties", "references")
	})
	for name, c := range map[string]struct {
		live *unstructured.Unstructured
		want []string
	}{
		"ours":                      {shipped, nil},
		"Klutch's":                  {klutchs, []string{".spec.maxAdoptedObjects", ".spec.permissionClaims[].selector.references"}},
		"one that knows more":       {changed(func(spec map[string]any) { spec["more"] = true }), nil},
		"Klutch's of another scope": {changed(func(spec map[string]any) { remove(spec, "maxAdoptedObjects"); spec["scope"] = "Cluster" }), nil},
		"one with another version": {changed(func(spec map[string]any) {
			remove(spec, "maxAdoptedObjects")
			spec["versions"] = append(spec["versions"].([]any), map[string]any{"name": "v1"})
		}), nil},
	} {
		got := crd.Lacks(c.live, shipped)
		for len(got) > len(c.want) && c.want != nil { // below the claims' references
			got = got[:len(c.want)]
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
