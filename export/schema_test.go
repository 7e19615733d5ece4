// SPDX-License-Identifier: Apache-2.0

package export

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestSnapshot(t *testing.T) {
	crd := crdOf("widgets", v1alpha1.NamespacedScope)
	spec, err := snapshot(crd)
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
	first, _ := sourceHash(spec)
	again, _ := sourceHash(must(snapshot(crdOf("widgets", v1alpha1.NamespacedScope))))
	other, _ := sourceHash(must(snapshot(crdOf("widgets", v1alpha1.ClusterScope))))
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
		crd := crdOf("widgets", v1alpha1.NamespacedScope)
		spec, _ := crd.Object["spec"].(map[string]any)
		spec["conversion"] = map[string]any{"strategy": test.conversion}
		spec["versions"] = test.versions
		got, err := snapshot(crd)
		if (test.want == "") != errors.Is(err, errNoVersion) {
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
