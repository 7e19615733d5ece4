// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestCRDsHaveAllStoredKinds(t *testing.T) {
	want := []string{
		"apiservicebindings", "apiserviceexportrequests", "apiserviceexports", "apiserviceexporttemplates",
		"apiservicenamespaces", "appclusterbindings", "clusterbindings",
	}
	var got []string
	for _, name := range slices.Sorted(maps.Keys(v1alpha1.CRDs())) {
		got = append(got, strings.TrimSuffix(name, "."+v1alpha1.GroupVersion.Group))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CRDs (-want +got):\n%s", diff)
	}
}

func TestSchemeKnowsEveryKind(t *testing.T) {
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for name, crd := range v1alpha1.CRDs() {
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		for _, k := range []string{kind, kind + "List"} {
			if !s.Recognizes(v1alpha1.GroupVersion.WithKind(k)) {
				t.Errorf("%s: the scheme does not know %s", name, k)
			}
		}
	}
}

// What kubectl get and kubectl explain say: of each kind that has conditions whether an object is
// ready, why not, and its age; of each field what it is for.
func TestKindsTell(t *testing.T) {
	for name, crd := range v1alpha1.CRDs() {
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		version := versions[0].(map[string]any)
		paths := map[string]string{}
		columns, _, _ := unstructured.NestedSlice(version, "additionalPrinterColumns")
		for _, c := range columns {
			c := c.(map[string]any)
			paths[c["jsonPath"].(string)] = c["name"].(string)
		}
		const ready = `.status.conditions[?(@.type=="Ready")]`
		if paths[ready+".status"] != "Ready" || paths[ready+".reason"] != "Reason" && paths[ready+".message"] != "Message" || paths[".metadata.creationTimestamp"] != "Age" {
			t.Errorf("%s has the columns %v", name, paths)
		}
		root := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		if conditions, found, _ := unstructured.NestedMap(root, "properties", "status", "properties", "conditions"); !found {
			t.Errorf("%s has no conditions: %v", name, conditions)
		}
		described(t, name, root)
	}
}

// described wants a description of each field, however deep.
func described(t *testing.T, path string, s map[string]any) {
	t.Helper()
	properties, _, _ := unstructured.NestedMap(s, "properties")
	for name, field := range properties {
		field := field.(map[string]any)
		if words, _ := field["description"].(string); words == "" && name != "metadata" {
			t.Errorf("%s.%s has no description", path, name)
		}
		described(t, path+"."+name, field)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if below, ok := s[key].(map[string]any); ok {
			described(t, path+"[]", below)
		}
	}
}

// TestP10SchemasAreBounded: of the kinds that tenants write, and of their statuses, no
// list, map or string is without a bound, but the schema that an export carries whole.
func TestP10SchemasAreBounded(t *testing.T) {
	for name, crd := range v1alpha1.CRDs() {
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		root := versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		for part, s := range root["properties"].(map[string]any) {
			if (part == "spec" || part == "status") && !strings.HasPrefix(name, "appclusterbindings.") {
				bounded(t, name+"."+part, s.(map[string]any))
			}
		}
	}
}

func bounded(t *testing.T, path string, s map[string]any) {
	t.Helper()
	has := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { _, ok := s[k]; return ok })
	}
	switch s["type"] {
	case "array":
		if !has("maxItems") {
			t.Errorf("%s: any number of items", path)
		}
		bounded(t, path+"[]", s["items"].(map[string]any))
	case "string":
		if !has("maxLength", "enum", "format") && !strings.HasSuffix(path, ".labelSelectors[]{}") {
			t.Errorf("%s: any length", path)
		}
	case "object":
		open := has("additionalProperties", "x-kubernetes-preserve-unknown-fields")
		if open && !has("maxProperties") && !strings.HasSuffix(path, ".openAPIV3Schema") {
			t.Errorf("%s: any number of properties", path)
		}
		if more, ok := s["additionalProperties"].(map[string]any); ok {
			bounded(t, path+"{}", more)
		}
	}
	below, _ := s["properties"].(map[string]any)
	for name, s := range below {
		bounded(t, path+"."+name, s.(map[string]any))
	}
}

const exportSpec = `
spec:
  group: example.org
  names: {plural: widgets, kind: Widget}
  scope: Namespaced
  informerScope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}]
`

// verdicts: each object is created on a real API server; an empty want means that it
// is accepted, otherwise the refusal says it. With change, the created object is
// updated by that merge and the verdict is about the update.
var verdicts = []struct {
	name, object, change, want string
}{
	{"binding", "kind: APIServiceBinding\nmetadata: {name: a}\nspec: {kubeconfigSecretRef: {name: k, namespace: ns, key: kubeconfig}}", "", ""},
	{"binding without spec", "kind: APIServiceBinding\nmetadata: {name: b}", "", ""},
	{"binding with another key", "kind: APIServiceBinding\nmetadata: {name: c}\nspec: {kubeconfigSecretRef: {name: k, namespace: ns, key: token}}", "", "Unsupported value"},
	{"binding without the Secret's namespace", "kind: APIServiceBinding\nmetadata: {name: c}\nspec: {kubeconfigSecretRef: {name: k, key: kubeconfig}}", "", "namespace: Required value"},
	{
		"binding moved to another Secret", "kind: APIServiceBinding\nmetadata: {name: d}\nspec: {kubeconfigSecretRef: {name: k, namespace: ns, key: kubeconfig}}",
		"spec: {kubeconfigSecretRef: {name: other}}", "kubeconfigSecretRef is immutable",
	},
	{
		"claim without an answer", "kind: APIServiceBinding\nmetadata: {name: e}\nspec: {kubeconfigSecretRef: {name: k, namespace: ns, key: kubeconfig}, permissionClaims: [{resource: secrets, version: v1}]}",
		"", "state: Required value",
	},
	{
		"claim that adopts and donates", "kind: APIServiceBinding\nmetadata: {name: f}\nspec: {kubeconfigSecretRef: {name: k, namespace: ns, key: kubeconfig}, permissionClaims: [{resource: secrets, version: v1, state: Accepted, autoAdopt: true, autoDonate: true}]}",
		"", "donate and adopt are mutually exclusive",
	},
	{
		"claim of a strange owner", "kind: APIServiceBinding\nmetadata: {name: g}\nspec: {kubeconfigSecretRef: {name: k, namespace: ns, key: kubeconfig}, permissionClaims: [{resource: secrets, version: v1, state: Accepted, selector: {owner: Nobody}}]}",
		"", "Unsupported value",
	},
	{
		"claim with a path that is no path", "kind: APIServiceBinding\nmetadata: {name: h}\nspec: {kubeconfigSecretRef: {name: k, namespace: ns, key: kubeconfig}, permissionClaims: [{resource: secrets, version: v1, state: Accepted, selector: {references: [{path: 'a[0]'}]}}]}",
		"", "path",
	},
	{"export", "kind: APIServiceExport\nmetadata: {name: widgets.example.org}" + exportSpec, "", ""},
	{"export of another name", "kind: APIServiceExport\nmetadata: {name: gadgets.example.org}" + exportSpec, "", "the name must be"},
	{"export moved to another scope", "kind: APIServiceExport\nmetadata: {name: widgets.example.org}" + exportSpec, "spec: {informerScope: Cluster}", "informerScope is immutable"},
	{
		"cluster-scoped export without isolation", "kind: APIServiceExport\nmetadata: {name: widgets.example.org}" + strings.ReplaceAll(strings.ReplaceAll(exportSpec, "scope: Namespaced", "scope: Cluster"), "informerScope: Namespaced", "informerScope: Cluster"),
		"", "clusterScopedIsolation must be defined",
	},
	{
		"cluster-scoped export watched by namespace", "kind: APIServiceExport\nmetadata: {name: widgets.example.org}" + strings.Replace(exportSpec, "  scope: Namespaced", "  scope: Cluster\n  clusterScopedIsolation: Prefixed", 1),
		"", "informerScope must be Cluster",
	},
	{
		"namespaced export with isolation", "kind: APIServiceExport\nmetadata: {name: widgets.example.org}" + exportSpec + "  clusterScopedIsolation: Prefixed\n",
		"", "clusterScopedIsolation is not relevant",
	},
	{"export without versions", "kind: APIServiceExport\nmetadata: {name: widgets.example.org}\nspec: {group: example.org, names: {plural: widgets, kind: Widget}, scope: Namespaced, informerScope: Namespaced, versions: []}", "", "should have at least 1 items"},
	{"request", "kind: APIServiceExportRequest\nmetadata: {name: a}\nspec: {resources: [{group: example.org, resource: widgets}]}", "", ""},
	{"request of nothing", "kind: APIServiceExportRequest\nmetadata: {name: b}\nspec: {resources: []}", "", "should have at least 1 items"},
	{"request that changes its mind", "kind: APIServiceExportRequest\nmetadata: {name: c}\nspec: {resources: [{resource: widgets}]}", "spec: {resources: [{resource: gadgets}]}", "resources are immutable"},
	{"request with other parameters", "kind: APIServiceExportRequest\nmetadata: {name: d}\nspec: {parameters: {a: 1}, resources: [{resource: widgets}]}", "spec: {parameters: {a: 2}}", "parameters are immutable"},
	{"request of a resource in capitals", "kind: APIServiceExportRequest\nmetadata: {name: e}\nspec: {resources: [{resource: Widgets}]}", "", "should match"},
	{"service namespace", "kind: APIServiceNamespace\nmetadata: {name: shop}", "", ""},
	{"cluster binding", "kind: ClusterBinding\nmetadata: {name: cluster}\nspec: {providerPrettyName: P, kubeconfigSecretRef: {name: kubeconfig, key: kubeconfig}}", "", ""},
	{"cluster binding of another name", "kind: ClusterBinding\nmetadata: {name: other}\nspec: {providerPrettyName: P, kubeconfigSecretRef: {name: kubeconfig, key: kubeconfig}}", "", "cluster binding name should be cluster"},
	{"cluster binding without a provider's name", "kind: ClusterBinding\nmetadata: {name: cluster}\nspec: {providerPrettyName: '', kubeconfigSecretRef: {name: kubeconfig, key: kubeconfig}}", "", "at least 1 chars"},
	{"template", "kind: APIServiceExportTemplate\nmetadata: {name: a}\nspec: {apiServiceSelector: {group: example.org, resource: widgets}}", "", ""},
	{"template without an API", "kind: APIServiceExportTemplate\nmetadata: {name: b}\nspec: {}", "", "apiServiceSelector: Required value"},
	{"template that leads to no page", "kind: APIServiceExportTemplate\nmetadata: {name: b}\nspec: {apiServiceSelector: {resource: widgets}, documentationURL: 'javascript:alert(1)'}", "", "documentationURL"},
	{"template with a category of no letter", "kind: APIServiceExportTemplate\nmetadata: {name: b}\nspec: {apiServiceSelector: {resource: widgets}, categories: [databases, '']}", "", "categories[1]"},
	{"app cluster binding", "kind: AppClusterBinding\nmetadata: {name: a}\nspec: {kubeconfigSecretRef: {name: k, namespace: ns, key: kubeconfig}, konnector: {deploy: true, overrides: {resources: {limits: {cpu: '1'}}}}}", "", ""},
	{
		"app cluster binding moved", "kind: AppClusterBinding\nmetadata: {name: b}\nspec: {kubeconfigSecretRef: {name: k, namespace: ns, key: kubeconfig}}",
		"spec: {kubeconfigSecretRef: {namespace: other}}", "kubeconfigSecretRef is immutable",
	},
}

func TestRealAPIServer(t *testing.T) {
	c := cluster.ForTest(t, "crds")
	dyn, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	installCRDs(t, dyn)
	for _, v := range verdicts {
		t.Run(v.name, func(t *testing.T) {
			got := judge(t, dyn, v.object, v.change)
			switch {
			case v.want == "" && got != nil:
				t.Errorf("refused: %v", got)
			case v.want != "" && got == nil:
				t.Errorf("accepted, want a refusal that says %q", v.want)
			case v.want != "" && !strings.Contains(got.Error(), v.want):
				t.Errorf("refused with %q, want %q", got, v.want)
			}
		})
	}
	t.Run("defaults", func(t *testing.T) { testDefaults(t, dyn) })
	t.Run("P10 what was stored before there were bounds", func(t *testing.T) { testRatchet(t, dyn) })
	t.Run("schemas travel whole", func(t *testing.T) { testSchemaKept(t, dyn) })
}

func installCRDs(t *testing.T, dyn dynamic.Interface) {
	t.Helper()
	crds := dyn.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for name, crd := range v1alpha1.CRDs() {
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name := range v1alpha1.CRDs() {
		resource, _, _ := strings.Cut(name, ".")
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
			_, err := dyn.Resource(v1alpha1.Resource(resource)).Namespace("default").List(ctx, metav1.ListOptions{})
			return err == nil, nil
		})
		if err != nil {
			t.Fatalf("%s is not served: %v", name, err)
		}
	}
}

// judge creates the object, changes it if asked, and removes it again.
func judge(t *testing.T, dyn dynamic.Interface, object, change string) error {
	t.Helper()
	u := parse(t, object)
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	ri := dyn.Resource(gvr).Namespace("default")
	created, err := ri.Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = ri.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}) }()
	if change == "" {
		return nil
	}
	merge(created.Object, parse(t, change).Object)
	_, err = ri.Update(t.Context(), created, metav1.UpdateOptions{})
	return err
}

func testDefaults(t *testing.T, dyn dynamic.Interface) {
	t.Helper()
	requests := dyn.Resource(v1alpha1.Resource("apiserviceexportrequests")).Namespace("default")
	u := parse(t, "apiVersion: klutch.anynines.com/v1alpha1\nkind: APIServiceExportRequest\nmetadata: {name: defaults}\nspec: {resources: [{resource: widgets, permissionClaims: [{resource: secrets, version: v1}]}]}")
	got, err := requests.Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(got.Object, "status", "phase"); phase != "Pending" {
		t.Errorf("status.phase = %q, want Pending", phase)
	}
	var r v1alpha1.APIServiceExportRequest
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &r); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.ResourceSelector{Names: []string{"*"}, Namespaces: []string{"*"}}
	if diff := cmp.Diff(want, r.Spec.Resources[0].PermissionClaims[0].Selector); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
}

// testRatchet: an object from before the bounds can be changed where it keeps them; a
// value beyond them can stay or shrink.
func testRatchet(t *testing.T, dyn dynamic.Interface) {
	t.Helper()
	const name = "clusterbindings.klutch.anynines.com"
	crds := dyn.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	install := func(crd *unstructured.Unstructured) {
		t.Helper()
		if _, err := crds.Apply(t.Context(), name, crd, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
	}
	bindings := dyn.Resource(v1alpha1.Resource("clusterbindings")).Namespace("default")
	patch := func(ctx context.Context, text string) error {
		_, err := bindings.Patch(ctx, "cluster", types.MergePatchType, []byte(`{"status":`+text+`}`), metav1.PatchOptions{}, "status")
		return err
	}
	long := strings.Repeat("x", 40_000)
	condition := func(kind, message string) string {
		return `{"type":"` + kind + `","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","message":"` + message + `"}`
	}
	old := v1alpha1.CRDs()[name]
	unbound(old.Object)
	install(old)
	u := parse(t, "apiVersion: klutch.anynines.com/v1alpha1\nkind: ClusterBinding\nmetadata: {name: cluster}\nspec: {kubeconfigSecretRef: {name: k, key: kubeconfig}, providerPrettyName: x}")
	if _, err := bindings.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until := func(what string, done func(context.Context) bool) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) { return done(ctx), nil })
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	until("stored without bounds", func(ctx context.Context) bool {
		return patch(ctx, `{"konnectorVersion":"`+long+`","conditions":[`+condition("Odd", long)+`]}`) == nil
	})
	install(v1alpha1.CRDs()[name])
	// Each try is longer than the one before it: a value that an API server stored under
	// the former schema may stay under the new one, and would never be refused.
	longer := long
	until("bounds in force", func(ctx context.Context) bool {
		longer += "x"
		return apierrors.IsInvalid(patch(ctx, `{"konnectorVersion":"`+longer+`"}`))
	})
	if err := patch(t.Context(), `{"heartbeatInterval":"5m0s","conditions":[`+condition("Odd", long)+`,`+condition("Healthy", "")+`]}`); err != nil {
		t.Errorf("a change beside what is too long: %v", err)
	}
	if err := patch(t.Context(), `{"konnectorVersion":"v1.0.0"}`); err != nil {
		t.Errorf("a shorter version: %v", err)
	}
	if err := patch(t.Context(), `{"konnectorVersion":"`+long+`"}`); err == nil {
		t.Error("what was too long came back")
	}
}

// unbound takes the bounds of strings out of a schema.
func unbound(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["maxLength"].(int64); ok {
			delete(v, "maxLength")
		}
		for _, below := range v {
			unbound(below)
		}
	case []any:
		for _, below := range v {
			unbound(below)
		}
	}
}

// testSchemaKept: an export's schema is stored to the letter, also what the export's
// own schema knows nothing of.
func testSchemaKept(t *testing.T, dyn dynamic.Interface) {
	t.Helper()
	u := parse(t, "apiVersion: klutch.anynines.com/v1alpha1\nkind: APIServiceExport\nmetadata: {name: widgets.example.org}"+exportSpec)
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	openAPI := map[string]any{
		"type":                     "object",
		"x-kubernetes-validations": []any{map[string]any{"rule": "self.spec.plan == oldSelf.spec.plan", "message": "no"}},
		"properties":               map[string]any{"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true, "default": map[string]any{"a": "b"}}},
	}
	versions[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": openAPI}
	_ = unstructured.SetNestedSlice(u.Object, versions, "spec", "versions")
	got, err := dyn.Resource(v1alpha1.Resource("apiserviceexports")).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions, _, _ = unstructured.NestedSlice(got.Object, "spec", "versions")
	kept := versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"]
	if diff := cmp.Diff(any(openAPI), kept); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return u
}

func merge(dst, src map[string]any) {
	for k, v := range src {
		if sub, ok := v.(map[string]any); ok {
			if under, ok := dst[k].(map[string]any); ok {
				merge(under, sub)
				continue
			}
		}
		dst[k] = v
	}
}
