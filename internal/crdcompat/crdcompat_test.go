// SPDX-License-Identifier: Apache-2.0

package crdcompat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// apiOf returns an API with one version of that schema, in YAML.
func apiOf(schema string) *v1alpha1.APIServiceExportCRDSpec {
	properties := ""
	if schema != "" {
		properties = "spec: {" + schema + "}"
	}
	raw, err := yaml.ToJSON([]byte("type: object\nproperties: {" + properties + "}"))
	if err != nil {
		panic(err)
	}
	return &v1alpha1.APIServiceExportCRDSpec{
		Group: "example.com", Scope: v1alpha1.NamespacedScope, Names: v1alpha1.CRDNames{Plural: "widgets", Kind: "Widget"},
		Versions: []v1alpha1.APIServiceExportVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: v1alpha1.APIServiceExportSchema{OpenAPIV3Schema: runtime.RawExtension{Raw: raw}},
		}},
	}
}

func TestCompareSchemas(t *testing.T) {
	for _, test := range []struct{ before, after, want string }{
		{"type: object, properties: {a: {type: string}}", "type: object, properties: {a: {type: string, description: new, title: x, example: y}}", ""},
		{"type: object", "type: object, properties: {a: {type: string}}", "added v1 spec.a: is new"},
		{"type: object, properties: {a: {type: string}}", "type: object", "removed v1 spec.a: is gone"},
		{"type: object, properties: {a: {type: string}}", "type: object, x-kubernetes-preserve-unknown-fields: true", "opened v1 spec: x-kubernetes-preserve-unknown-fields was false and is true|widened v1 spec.a: is not described any more"},
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
		{"type: integer", "type: integer, x-kubernetes-validations: [{rule: self < 9}]", "ruled v1 spec: rule self < 9 is new"},
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
		for _, c := range Compare(apiOf(test.before), apiOf(test.after)) {
			got = append(got, fmt.Sprintf("%s %s", c.Effect, c))
		}
		if diff := cmp.Diff(test.want, strings.Join(got, "|")); diff != "" {
			t.Errorf("from %s to %s (-want +got):\n%s", test.before, test.after, diff)
		}
		if same := Compare(apiOf(test.before), apiOf(test.before)); len(same) > 0 {
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
		for _, c := range Compare(test[0], test[1]) {
			got = append(got, c.String())
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q, want %q", got, want)
		}
		breaks := want != "" && !strings.HasSuffix(want, "is new")
		if got := Only(Compare(test[0], test[1]), Change.Breaking); (len(got) > 0) != breaks {
			t.Errorf("%s: breaking %v", want, got)
		}
	}
}

func TestList(t *testing.T) {
	changes := make([]Change, 7)
	changes[0].What = strings.Repeat("é", maxText)
	if got := List(changes); !strings.HasSuffix(got, "; and 2 more") || len(got) > 2*maxText || !utf8.ValidString(got) {
		t.Error(got)
	}
}

// Objects are read by the schema of the version that they are stored in.
func TestStorageVersion(t *testing.T) {
	for after, want := range map[string]string{
		"type: object, properties: {a: {type: string}, b: {type: string}}": "version v2 is new",
		"type: object": "version v2 is new|stored as v2 spec.a: is gone",
		"type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}": "version v2 is new|stored as v2 spec: x-kubernetes-preserve-unknown-fields was false and is true",
	} {
		old := apiOf("type: object, properties: {a: {type: string}}")
		now := apiOf("type: object, properties: {a: {type: string}}")
		v2 := apiOf(after).Versions[0]
		v2.Name, now.Versions[0].Storage = "v2", false
		now.Versions = append(now.Versions, v2)
		var got []string
		for _, c := range Compare(old, now) {
			got = append(got, c.String())
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
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
		if changes := Compare(a, a); len(changes) > 0 && json.Valid([]byte(before)) && readable(a) {
			t.Errorf("%s differs from itself: %v", before, changes)
		}
		there := Compare(a, b)
		if diff := cmp.Diff(there, Compare(a, b), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("another judgement of the same (-first +second):\n%s", diff)
		}
		if back := Compare(b, a); (len(there) == 0) != (len(back) == 0) && !slices.ContainsFunc(slices.Concat(there, back), oneWay) {
			t.Errorf("%s to %s: %v, and back: %v", before, after, there, back)
		}
	})
}

// oneWay changes need not have one that undoes them: there is nothing to tell where a
// field becomes required that has a default.
func oneWay(c Change) bool { return strings.Contains(c.What, "required") }

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

// The place of a change is short, however long the names above it are: a schema of a megabyte can have a name of
// half of that above thousands of fields that change.
func TestLongPaths(t *testing.T) {
	api := func(of string) *v1alpha1.APIServiceExportCRDSpec {
		var all strings.Builder
		for n := range 2000 {
			fmt.Fprintf(&all, `"f%d":{"type":%q},`, n, of)
		}
		spec := apiOf("")
		spec.Versions[0].Schema.OpenAPIV3Schema.Raw = []byte(`{"type":"object","properties":{"` + strings.Repeat("x", 10_000) + `":{"type":"object","properties":{` + strings.TrimSuffix(all.String(), ",") + `}}}}`)
		return spec
	}
	changes, kept := Compare(api("string"), api("boolean")), 0
	for _, c := range changes {
		kept += len(c.Path)
	}
	if len(changes) != 2000 || kept > len(changes)*maxPath || !strings.HasSuffix(changes[0].Path, ".f0") {
		t.Errorf("%d changes, with %d bytes of paths", len(changes), kept)
	}
}
