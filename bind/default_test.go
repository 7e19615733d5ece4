// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// P20: a provider does not say which Secrets of the App Cluster it gets: neither by a
// default of its schema, nor by a status.
func TestP20ProviderNamesSecrets(t *testing.T) {
	claim := func(path string) v1alpha1.AcceptablePermissionClaim {
		return v1alpha1.AcceptablePermissionClaim{State: v1alpha1.ClaimAccepted, PermissionClaim: v1alpha1.PermissionClaim{
			GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1",
			Selector: v1alpha1.ResourceSelector{Owner: v1alpha1.OwnerConsumer, References: []v1alpha1.Reference{{Path: path}}},
		}}
	}
	for _, path := range []string{"status.secret", ".status.secret", "$.status.secret"} {
		if why := unsupported(claim(path).PermissionClaim, v1alpha1.NamespacedScope); why == "" {
			t.Errorf("a claim by %s is kept", path)
		}
	}
	if why := unsupported(claim("spec.auth.secret").PermissionClaim, v1alpha1.NamespacedScope); why != "" {
		t.Errorf("a claim by spec is not kept: %s", why)
	}
	spec := widgetExport(t).Spec
	spec.Versions[0].Schema.OpenAPIV3Schema = runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"spec":{"type":"object","default":{"auth":{"secret":"payroll"}},"properties":{
		"size":{"type":"integer","default":1},"auth":{"type":"object","default":{},"properties":{"secret":{"type":"string","default":"payroll"},"mode":{"type":"string","default":"tls"}}}}}}}`)}
	crd, err := newCRD("widgets.example.org", &spec)
	if err != nil {
		t.Fatal(err)
	}
	dropDefaults(crd, handedOver([]v1alpha1.AcceptablePermissionClaim{claim("spec.auth.secret")}))
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	got, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec")
	want := map[string]any{"type": "object", "properties": map[string]any{
		"size": map[string]any{"type": "integer", "default": 1.0},
		"auth": map[string]any{"type": "object", "properties": map[string]any{
			"secret": map[string]any{"type": "string"}, "mode": map[string]any{"type": "string", "default": "tls"},
		}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema of spec (-want +got):\n%s", diff)
	}
}

// P21: the consent to a change is to that change: the same schema takes something else
// away from another one, and a name that is short has a second schema.
func TestP21ConsentToOneChange(t *testing.T) {
	crd := func(fields ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"fields": fields}}}
	}
	first, err := changeHash(crd("a", "b"), crd("a"))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := changeHash(crd("a", "b", "c"), crd("a")); again == first {
		t.Error("the consent to take b away is one to take b and c away")
	}
	if len(first) < 64 {
		t.Errorf("%s is made of %d bits", first, 4*len(first))
	}
}
