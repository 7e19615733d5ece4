// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// apiOf returns an API with one version of that schema, in YAML.
func apiOf(schema string) *v1alpha1.APIServiceExportCRDSpec {
	crd := crdOf("widgets", v1alpha1.NamespacedScope)
	fields := object("{" + schema + "}").Object
	if len(fields) > 0 {
		fields = map[string]any{"spec": fields}
	}
	crd = changed(crd, []any{map[string]any{
		"name": "v1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": fields}},
	}}, "spec", "versions")
	return must(snapshot(crd))
}

func TestCompareSchemas(t *testing.T) {
	for _, test := range []struct{ before, after, want string }{
		{"type: object, properties: {a: {type: string}}", "type: object, properties: {a: {type: string, description: new, title: x, example: y}}", ""},
		{"type: object", "type: object, properties: {a: {type: string}}", "added v1 spec.a: is new"},
		{"type: object, properties: {a: {type: string}}", "type: object", "removed v1 spec.a: is gone"},
		{"type: object, properties: {a: {type: string}}", "type: object, x-kubernetes-preserve-unknown-fields: true", "widened v1 spec: x-kubernetes-preserve-unknown-fields was false and is true|widened v1 spec.a: is not described any more"},
		{"type: object, x-kubernetes-preserve-unknown-fields: true", "type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}", "narrowed v1 spec.a: could be anything before"},
		{"type: object, properties: {a: {type: string}}", "type: object, required: [a], properties: {a: {type: string}}", "narrowed v1 spec.a: is required"},
		{"type: object, properties: {a: {type: string}}", "type: object, required: [a], properties: {a: {type: string, default: x}}", ""},
		{"type: object, required: [a], properties: {a: {type: string, default: x}}", "type: object, required: [a], properties: {a: {type: string}}", "narrowed v1 spec.a: is required"},
		{"type: object, required: [a], properties: {a: {type: string}}", "type: object, properties: {a: {type: string}}", "widened v1 spec.a: is not required any more"},
		{"type: object, properties: {a: {type: string, default: x}}", "type: object, properties: {a: {type: string, default: z}}", ""},
		{"type: integer", "type: number", "widened v1 spec: type was integer and is number"},
		{"type: number", "type: integer", "narrowed v1 spec: type was number and is integer"},
		{"type: string", "type: boolean", "narrowed v1 spec: type was string and is boolean"},
		{"type: string, enum: [a, b]", "type: string, enum: [a, b, c]", `widened v1 spec: value "c" is new`},
		{"type: string, enum: [a, b]", "type: string, enum: [b]", `removed v1 spec: value "a" is not valid any more`},
		{"type: string, enum: [a, b]", "type: string, enum: [b, c]", `removed v1 spec: value "a" is not valid any more|widened v1 spec: value "c" is new`},
		{"type: string", "type: string, enum: [a]", `narrowed v1 spec: only certain values are valid: "a"`},
		{"type: string, enum: [a]", "type: string", "widened v1 spec: all values are valid"},
		{"type: integer, minimum: 1", "type: integer, minimum: 2", "narrowed v1 spec: minimum was 1 and is 2"},
		{"type: integer, minimum: 2", "type: integer, minimum: 1", "widened v1 spec: minimum was 2 and is 1"},
		{"type: integer, maximum: 1", "type: integer, maximum: 2", "widened v1 spec: maximum was 1 and is 2"},
		{"type: integer", "type: integer, maximum: 2", "narrowed v1 spec: maximum was none and is 2"},
		{"type: integer, maximum: 2", "type: integer", "widened v1 spec: maximum was 2 and is none"},
		{"type: string, maxLength: 9", "type: string, maxLength: 8", "narrowed v1 spec: maxLength was 9 and is 8"},
		{"type: string, minLength: 0", "type: string, minLength: 0", ""},
		{"type: array, items: {type: string}, maxItems: 2", "type: array, items: {type: string}, maxItems: 1", "narrowed v1 spec: maxItems was 2 and is 1"},
		{"type: string", "type: string, pattern: ^a$", "narrowed v1 spec: pattern was none and is ^a$"},
		{"type: string, pattern: ^a$", "type: string", "widened v1 spec: pattern was ^a$ and is none"},
		{"type: string, format: date", "type: string, format: email", "narrowed v1 spec: format was date and is email"},
		{"type: string, nullable: true", "type: string", "narrowed v1 spec: nullable was true and is false"},
		{"type: string", "type: string, nullable: true", "widened v1 spec: nullable was false and is true"},
		{"type: integer", "type: integer, x-kubernetes-validations: [{rule: self < 9}]", "narrowed v1 spec: rule self < 9 is new"},
		{"type: integer, x-kubernetes-validations: [{rule: self < 9}]", "type: integer", "widened v1 spec: rule self < 9 is gone"},
		{"type: integer, x-kubernetes-validations: [{rule: self < 9}]", "type: integer, x-kubernetes-validations: [{rule: self < 9, message: small}]", ""},
		{"type: array, items: {type: object, properties: {a: {type: string}}}", "type: array, items: {type: object}", "removed v1 spec[].a: is gone"},
		{"type: object, additionalProperties: {type: string}", "type: object, additionalProperties: {type: string, maxLength: 1}", "narrowed v1 spec.*: maxLength was none and is 1"},
		{"type: object, additionalProperties: {type: string}", "type: object", "removed v1 spec.*: is gone"},
		{"type: object", "type: object, additionalProperties: {type: string}", "added v1 spec.*: is new"},
		{"type: array, items: {type: string}", "type: array, items: {type: string}, x-kubernetes-list-type: set", "narrowed v1 spec: x-kubernetes-list-type changed"},
		{"type: array, items: {type: string}", "type: array, items: {type: string}, x-kubernetes-list-type: atomic", ""},
		{"type: integer, anyOf: [{minimum: 1}]", "type: integer, anyOf: [{minimum: 2}]", "narrowed v1 spec: anyOf changed"},
		{"", "type: object", "added v1 spec: is new"},
	} {
		var got []string
		for _, c := range compare(apiOf(test.before), apiOf(test.after)) {
			got = append(got, fmt.Sprintf("%s %s", c.effect, c))
		}
		if diff := cmp.Diff(test.want, strings.Join(got, "|")); diff != "" {
			t.Errorf("from %s to %s (-want +got):\n%s", test.before, test.after, diff)
		}
		if same := compare(apiOf(test.before), apiOf(test.before)); len(same) > 0 {
			t.Errorf("%s differs from itself: %v", test.before, same)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	version := func(name string, change func(*v1alpha1.APIServiceExportVersion)) v1alpha1.APIServiceExportVersion {
		v := apiOf("type: object").Versions[0]
		v.Name = name
		if change != nil {
			change(&v)
		}
		return v
	}
	api := func(versions ...v1alpha1.APIServiceExportVersion) *v1alpha1.APIServiceExportCRDSpec {
		spec := apiOf("type: object")
		spec.Versions = versions
		return spec
	}
	other := api(version("v1", nil))
	other.Names.Kind = "Gadget"
	status := func(v *v1alpha1.APIServiceExportVersion) {
		v.Subresources.Status = &v1alpha1.CRDStatusSubresource{}
	}
	scale := func(path string) func(*v1alpha1.APIServiceExportVersion) {
		return func(v *v1alpha1.APIServiceExportVersion) {
			v.Subresources.Scale = &v1alpha1.CRDScaleSubresource{SpecReplicasPath: path}
		}
	}
	for want, test := range map[string][2]*v1alpha1.APIServiceExportCRDSpec{
		"version v2 is new":  {api(version("v1", nil)), api(version("v1", nil), version("v2", nil))},
		"version v1 is gone": {api(version("v1", nil), version("v2", nil)), api(version("v2", nil))},
		"version v1 is not served any more": {
			api(version("v1", nil)), api(version("v1", func(v *v1alpha1.APIServiceExportVersion) { v.Served = false })),
		},
		"":                                      {api(version("v1", nil)), api(version("v1", func(v *v1alpha1.APIServiceExportVersion) { v.Deprecated = true }))},
		"kind was Widget and is Gadget":         {api(version("v1", nil)), other},
		"v1: subresource status is gone":        {api(version("v1", status)), api(version("v1", nil))},
		"v1: subresource status is new":         {api(version("v1", nil)), api(version("v1", status))},
		"v1: subresource scale has other paths": {api(version("v1", scale(".spec.a"))), api(version("v1", scale(".spec.b")))},
	} {
		var got []string
		for _, c := range compare(test[0], test[1]) {
			got = append(got, c.String())
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q, want %q", got, want)
		}
		breaks := want != "" && !strings.HasSuffix(want, "is new")
		if got := breakingChanges(test[0], test[1]); (len(got) > 0) != breaks {
			t.Errorf("%s: breaking %v", want, got)
		}
	}
}

func TestHeldMessage(t *testing.T) {
	got := heldMessage(make([]change, 7))
	if !strings.Contains(got, "and 2 more") || !strings.Contains(got, "breakingChanges") {
		t.Error(got)
	}
}
