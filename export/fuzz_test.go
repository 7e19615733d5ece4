// SPDX-License-Identifier: Apache-2.0

package export

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// FuzzP26Prefix: the name of a tenant is the same each time, and no name of one
// tenant, or of a service namespace of it, begins like those of another.
func FuzzP26Prefix(f *testing.F) {
	f.Add("https://issuer", "ada", "c1", "c10", "team-a")
	f.Add("", "-", "a", "-a", "x-y")
	f.Add("i", "ada#c1", "", "c1", strings.Repeat("x", 63))
	f.Fuzz(func(t *testing.T, issuer, subject, cluster, other, namespace string) {
		one, two := holder{issuer, subject, cluster}.namespace("cluster"), holder{issuer, subject, other}.namespace("cluster")
		if one != (holder{issuer, subject, cluster}).namespace("cluster") {
			t.Error("another name for the same tenant")
		}
		if cluster == other {
			return
		}
		if strings.HasPrefix(serviceNamespaceName(one, namespace), two) || strings.HasPrefix(two, one) {
			t.Errorf("%q and %q: %s and %s", cluster, other, one, two)
		}
	})
}

// FuzzCompare: a schema is compatible with itself, the same pair is always judged in
// the same way, and a change that is seen on the way there is seen on the way back.
func FuzzCompare(f *testing.F) {
	for _, pair := range [][2]string{
		{`{"type":"object"}`, `{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`},
		{`{"type":"string","enum":["a","b"]}`, `{"type":"string","maxLength":3,"pattern":"^a"}`},
		{`{"type":"array","items":{"type":"integer","minimum":1}}`, `{"type":"array","maxItems":1,"items":{"x-kubernetes-int-or-string":true}}`},
		{`{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"oneOf":[{"required":["a"]}]}`},
		{`{"type":"integer","x-kubernetes-validations":[{"rule":"self > 1"}]}`, `{"type":"number","nullable":true,"not":{"minimum":0}}`},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		a, b := schemaOnly(before), schemaOnly(after)
		if changes := compare(a, a); len(changes) > 0 && json.Valid([]byte(before)) && readable(a) {
			t.Errorf("%s differs from itself: %v", before, changes)
		}
		there := compare(a, b)
		if diff := cmp.Diff(there, compare(a, b), cmp.AllowUnexported(change{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("another judgement of the same (-first +second):\n%s", diff)
		}
		if back := compare(b, a); (len(there) == 0) != (len(back) == 0) && !slices.ContainsFunc(slices.Concat(there, back), oneWay) {
			t.Errorf("%s to %s: %v, and back: %v", before, after, there, back)
		}
		if len(breakingChanges(a, b)) > 0 && !strings.Contains(heldMessage(breakingChanges(a, b)), there[0].path) && len(there) == 1 {
			t.Errorf("the message does not say where: %v", there)
		}
	})
}

// oneWay changes need not have one that undoes them: there is nothing to tell where a
// field becomes required that has a default.
func oneWay(c change) bool { return strings.Contains(c.what, "required") }

func schemaOnly(schema string) *v1alpha1.APIServiceExportCRDSpec {
	return &v1alpha1.APIServiceExportCRDSpec{Versions: []v1alpha1.APIServiceExportVersion{{
		Name: "v1", Served: true, Storage: true,
		Schema: v1alpha1.APIServiceExportSchema{OpenAPIV3Schema: runtime.RawExtension{Raw: []byte(schema)}},
	}}}
}

func readable(spec *v1alpha1.APIServiceExportCRDSpec) bool {
	_, err := decodeSchema(spec.Versions[0].Schema)
	return err == nil
}
