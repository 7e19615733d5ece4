// SPDX-License-Identifier: Apache-2.0

package crdcompat

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestSnapshot(t *testing.T) {
	crd := widgets()
	spec, err := Snapshot(crd)
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	const want = `group: example.org
names:
  kind: Widget
  plural: widgets
  singular: widget
scope: Namespaced
versions:
- name: v1
  schema:
    openAPIV3Schema:
      properties:
        spec:
          properties:
            size:
              default: 1
              type: integer
              x-kubernetes-validations:
              - rule: self < 9
          type: object
          x-kubernetes-preserve-unknown-fields: true
        status:
          type: object
          x-kubernetes-preserve-unknown-fields: true
      type: object
  served: true
  storage: true
  subresources:
    status: {}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	first, _ := Hash(spec)
	again, _ := Hash(must(Snapshot(widgets())))
	global := widgets()
	if err := unstructured.SetNestedField(global.Object, "Cluster", "spec", "scope"); err != nil {
		t.Fatal(err)
	}
	other, _ := Hash(must(Snapshot(global)))
	if first != again || first == other {
		t.Errorf("hashes %s %s %s", first, again, other)
	}
}

func TestSnapshotOfVersions(t *testing.T) {
	version := func(name string, served, storage bool) map[string]any {
		return map[string]any{"name": name, "served": served, "storage": storage, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}
	}
	for name, test := range map[string]struct {
		conversion string
		versions   []any
		want       string
	}{
		"all that are served": {"None", []any{version("v1", true, true), version("v2", true, false), version("v3", false, false)}, "v1* v2"},
		"webhook":             {"Webhook", []any{version("v1", true, false), version("v2", true, true)}, "v2*"},
		"storage not served":  {"None", []any{version("v1", false, true), version("v2", true, false)}, "v2*"},
		"nothing":             {"Webhook", []any{version("v1", false, true), version("v2", true, false)}, ""},
	} {
		crd := widgets()
		spec, _ := crd.Object["spec"].(map[string]any)
		spec["conversion"] = map[string]any{"strategy": test.conversion}
		spec["versions"] = test.versions
		got, err := Snapshot(crd)
		if (test.want == "") != errors.Is(err, ErrNoVersion) {
			t.Errorf("%s: %v", name, err)
		}
		var names []string
		for i := 0; got != nil && i < len(got.Versions); i++ {
			names = append(names, got.Versions[i].Name+map[bool]string{true: "*"}[got.Versions[i].Storage])
		}
		if strings.Join(names, " ") != test.want {
			t.Errorf("%s: %v, want %s", name, names, test.want)
		}
	}
}

// widgets is the CRD of an API.
func widgets() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {size: {type: integer, default: 1, x-kubernetes-validations: [{rule: "self < 9"}]}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`), &u.Object); err != nil {
		panic(err)
	}
	return u
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
