// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// widgetExport is the export of bind/testdata/widgets.yaml.
func widgetExport(tb testing.TB) *v1alpha1.APIServiceExport {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "widgets.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &u.Object); err != nil {
		tb.Fatal(err)
	}
	e, err := cluster.Decode[v1alpha1.APIServiceExport](u)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func TestP21CheckExport(t *testing.T) {
	group := func(g string) func(*v1alpha1.APIServiceExportSpec) {
		return func(s *v1alpha1.APIServiceExportSpec) { s.Group = g }
	}
	for name, tc := range map[string]struct {
		binding string // "" means the name of the export
		change  func(*v1alpha1.APIServiceExportSpec)
		want    string // in the error; "" means accepted
	}{
		"as it is":                       {},
		"other plural":                   {"gadgets.example.org", nil, "about widgets.example.org"},
		"other group":                    {"widgets.example.com", nil, "about widgets.example.org"},
		"core group":                     {change: group(""), want: "of Kubernetes itself"},
		"apps":                           {change: group("apps"), want: "of Kubernetes itself"},
		"k8s.io":                         {change: group("rbac.authorization.k8s.io"), want: "reserved"},
		"x-k8s.io is no subdomain of it": {change: group("example.x-k8s.io")},
		"kubernetes.io":                  {change: group("policy.kubernetes.io"), want: "reserved"},
		"ours":                           {change: group("klutch.anynines.com"), want: "reserved"},
		"below ours":                     {change: group("evil.klutch.anynines.com"), want: "reserved"},
		"beside ours":                    {change: group("anynines.com")},
		"no kind":                        {change: func(s *v1alpha1.APIServiceExportSpec) { s.Names.Kind = "" }, want: "no kind"},
		"odd scope":                      {change: func(s *v1alpha1.APIServiceExportSpec) { s.Scope = "Galaxy" }, want: "Galaxy"},
		"not isolated":                   {change: func(s *v1alpha1.APIServiceExportSpec) { s.Scope, s.ClusterScopedIsolation = "Cluster", "None" }, want: "only Prefixed"},
		"isolated":                       {change: func(s *v1alpha1.APIServiceExportSpec) { s.Scope, s.ClusterScopedIsolation = "Cluster", "Prefixed" }},
		"nothing served":                 {change: func(s *v1alpha1.APIServiceExportSpec) { s.Versions[0].Served = false }, want: "no version is served"},
		"not stored":                     {change: func(s *v1alpha1.APIServiceExportSpec) { s.Versions[0].Storage = false }, want: "0 versions"},
		"no versions":                    {change: func(s *v1alpha1.APIServiceExportSpec) { s.Versions = nil }, want: "no version is served"},
		"stored twice": {change: func(s *v1alpha1.APIServiceExportSpec) {
			v := s.Versions[0]
			v.Name = "v2"
			s.Versions = append(s.Versions, v)
		}, want: "2 versions"},
		"twice": {change: func(s *v1alpha1.APIServiceExportSpec) { s.Versions = append(s.Versions, s.Versions[0]) }, want: "twice"},
		"too much": {change: func(s *v1alpha1.APIServiceExportSpec) {
			s.Versions[0].Schema.OpenAPIV3Schema.Raw = []byte(strings.Repeat(" ", maxSchema+1))
		}, want: "bytes"},
		"deep":     {change: nestedIn(maxNested)},
		"too deep": {change: nestedIn(maxNested + 1), want: "nested deeper"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := widgetExport(t).Spec
			if tc.change != nil {
				tc.change(&spec)
			}
			binding := tc.binding
			if binding == "" {
				binding = spec.Names.Plural + "." + spec.Group
			}
			if spec.Group == "" {
				binding = spec.Names.Plural
			}
			err := checkExport(binding, &spec)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// FuzzP21CheckExport: no group, plural or binding name gets a group through that
// Kubernetes or Klutch own.
func FuzzP21CheckExport(f *testing.F) {
	f.Add("widgets.example.org", "widgets", "example.org")
	f.Add("a.k8s.io", "a", "k8s.io")
	f.Add("a.b.k8s.io", "a.b", "k8s.io")
	f.Fuzz(func(t *testing.T, binding, plural, group string) {
		spec := widgetExport(t).Spec
		spec.Names.Plural, spec.Group = plural, group
		if checkExport(binding, &spec) != nil {
			return
		}
		for _, bad := range []string{"k8s.io", "kubernetes.io", "klutch.anynines.com"} {
			if group == bad || strings.HasSuffix(group, "."+bad) {
				t.Errorf("accepted %q", group)
			}
		}
		if crd, err := NewCRD(binding, &spec); err == nil && crd.GetName() != plural+"."+group {
			t.Errorf("CRD %q for %q of %q", crd.GetName(), plural, group)
		}
	})
}

// What the export says arrives to the letter, and nothing else does.
func TestNewCRD(t *testing.T) {
	e := widgetExport(t)
	crd, err := NewCRD(e.Name, &e.Spec)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "widgets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	spec := want["spec"].(map[string]any)
	delete(spec, "informerScope")
	got := runtime.DeepCopyJSON(map[string]any{"spec": normal(t, crd.Object["spec"])})
	if diff := cmp.Diff(normal(t, spec), got["spec"]); diff != "" {
		t.Errorf("spec (-export +CRD):\n%s", diff)
	}
}

// normal makes numbers comparable.
func normal(t *testing.T, v any) any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSameSpec(t *testing.T) {
	for name, tc := range map[string]struct {
		path  []string // of the change; nil means none
		value any
		same  bool
	}{
		"nothing":         {nil, nil, true},
		"default said":    {[]string{"names", "singular"}, "widget", true},
		"conversion said": {[]string{"conversion"}, map[string]any{"strategy": "None"}, true},
		"preserve said":   {[]string{"preserveUnknownFields"}, false, true},
		"another case":    {[]string{"Conversion"}, map[string]any{"strategy": "Webhook"}, true},
		"webhook":         {[]string{"conversion"}, map[string]any{"strategy": "Webhook"}, false},
		"short names":     {[]string{"names", "shortNames"}, []any{"w"}, false},
		"scope":           {[]string{"scope"}, "Cluster", false},
	} {
		t.Run(name, func(t *testing.T) {
			e := widgetExport(t)
			a, err := NewCRD(e.Name, &e.Spec)
			if err != nil {
				t.Fatal(err)
			}
			b := a.DeepCopy()
			if tc.path != nil {
				if err := unstructured.SetNestedField(b.Object, tc.value, append([]string{"spec"}, tc.path...)...); err != nil {
					t.Fatal(err)
				}
			}
			same, err := SameSpec(a, b)
			if same != tc.same || err != nil {
				t.Errorf("same is %t, %v; want %t", same, err, tc.same)
			}
		})
	}
}

func TestSyncVersion(t *testing.T) {
	spec := v1alpha1.APIServiceExportSpec{APIServiceExportCRDSpec: v1alpha1.APIServiceExportCRDSpec{
		Group: "example.org", Names: v1alpha1.CRDNames{Plural: "widgets"},
		Versions: []v1alpha1.APIServiceExportVersion{{Name: "v1alpha1"}, {Name: "v1", Served: true}, {Name: "v2", Served: true}},
	}}
	for running, want := range map[string]string{"": "v1", "v2": "v2", "v1alpha1": "v1", "v0": "v1"} {
		if got := SyncVersion(&spec, running); got.Version != want || got.Resource != "widgets" || got.Group != "example.org" {
			t.Errorf("running in %q: got %s", running, got)
		}
	}
}

// nestedIn makes a schema of lists that deep.
func nestedIn(depth int) func(*v1alpha1.APIServiceExportSpec) {
	return func(s *v1alpha1.APIServiceExportSpec) {
		s.Versions[0].Schema.OpenAPIV3Schema.Raw = []byte(`{"type":"array"` + strings.Repeat(`,"items":{"type":"array"`, depth-1) + strings.Repeat("}", depth))
	}
}

// What a CRD records that is no clusterScopedIsolation that objects can be synced under counts as none: under it each
// object would have the target of another one.
func TestIsolation(t *testing.T) {
	for recorded, want := range map[string]v1alpha1.Isolation{"": "", "Prefixed": v1alpha1.IsolationPrefixed, "Namespaced": v1alpha1.IsolationNamespaced, "None": "", "namespaced": ""} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetAnnotations(map[string]string{v1alpha1.IsolationAnnotation: recorded})
		if got := Isolation(u); got != want {
			t.Errorf("%q is %q, want %q", recorded, got, want)
		}
	}
}
