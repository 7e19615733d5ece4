// SPDX-License-Identifier: Apache-2.0

package crdcompat

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// What breaks is put back, and the rest arrives.
func TestMergeSchemas(t *testing.T) {
	const object = "type: object, properties: "
	for name, test := range map[string]struct{ before, after, want string }{
		"a field goes, another comes":            {object + "{a: {type: string}}", object + "{b: {type: string}}", object + "{a: {type: string}, b: {type: string}}"},
		"a field comes and is required":          {object + "{a: {type: string}}", object + "{a: {type: string}, b: {type: string}}, required: [b]", object + "{a: {type: string}, b: {type: string}}"},
		"one that is there is required":          {object + "{a: {type: string}, c: {type: string}}, required: [c]", object + "{a: {type: string}, b: {type: string}, c: {type: string}}, required: [a, c]", object + "{a: {type: string}, b: {type: string}, c: {type: string}}, required: [c]"},
		"the default of one that is required":    {object + "{a: {type: string, default: x}}, required: [a]", object + "{a: {type: string}, b: {type: string}}, required: [a]", object + "{a: {type: string, default: x}, b: {type: string}}, required: [a]"},
		"a value goes, another comes":            {object + "{a: {type: string, enum: [x, z]}}", object + "{a: {type: string, enum: [z, new]}}", object + "{a: {type: string, enum: [z, new, x]}}"},
		"only certain values":                    {object + "{a: {type: string}}", object + "{a: {type: string, description: new, enum: [x]}}", object + "{a: {type: string, description: new}}"},
		"one limit is narrower, the other wider": {object + "{a: {type: integer, minimum: 3, maximum: 9}}", object + "{a: {type: integer, minimum: 1, maximum: 8}}", object + "{a: {type: integer, minimum: 1, maximum: 9}}"},
		"a limit comes":                          {object + "{a: {type: string}}", object + "{a: {type: string, maxLength: 3, nullable: true}}", object + "{a: {type: string, nullable: true}}"},
		"a rule, and a field beside it":          {object + "{a: {type: integer}}", object + "{a: {type: integer}, b: {type: string}}, x-kubernetes-validations: [{rule: self.a < 5}]", object + "{a: {type: integer}, b: {type: string}}"},
		"a rule in the place of another one":     {object + "{a: {type: integer, x-kubernetes-validations: [{rule: self < 9}]}}", object + "{a: {type: integer, x-kubernetes-validations: [{rule: self < 5}]}, b: {type: string}}", object + "{a: {type: integer, x-kubernetes-validations: [{rule: self < 9}]}, b: {type: string}}"},
		"a rule that counts for new objects too": {object + "{a: {type: integer, x-kubernetes-validations: [{rule: 'self >= oldSelf'}]}}", object + "{a: {type: integer, x-kubernetes-validations: [{rule: 'self >= oldSelf', optionalOldSelf: true}]}, b: {type: string}}", object + "{a: {type: integer, x-kubernetes-validations: [{rule: 'self >= oldSelf'}]}, b: {type: string}}"},
		"another type, whole":                    {object + "{a: {type: string, maxLength: 3, default: x}}", object + "{a: {type: integer, maximum: 3, default: 1}, b: {type: string}}", object + "{a: {type: string, maxLength: 3, default: x}, b: {type: string}}"},
		"another pattern, with its default":      {object + "{a: {type: string, pattern: ^a, default: a}}", object + "{a: {type: string, pattern: ^b, default: b}, b: {type: string}}", object + "{a: {type: string, pattern: ^a, default: a}, b: {type: string}}"},
		"what is not named is kept":              {object + "{a: {type: string}}", object + "{b: {type: string}}, x-kubernetes-preserve-unknown-fields: true", object + "{a: {type: string}, b: {type: string}}"},
		"what could be anything is described":    {object + "{a: {type: string}}, x-kubernetes-preserve-unknown-fields: true", object + "{a: {type: string, nullable: true}, b: {type: string}}, x-kubernetes-preserve-unknown-fields: true", object + "{a: {type: string, nullable: true}}, x-kubernetes-preserve-unknown-fields: true"},
		"a map is one of certain fields":         {object + "{a: {type: object, additionalProperties: {type: string}}}", object + "{a: {type: object, properties: {x: {type: string}}}, b: {type: string}}", object + "{a: {type: object, additionalProperties: {type: string}, properties: {}}, b: {type: string}}"},
		"values of a map":                        {object + "{a: {type: object, additionalProperties: {type: string}}}", object + "{a: {type: object, additionalProperties: {type: string, maxLength: 3}}, b: {type: string}}", object + "{a: {type: object, additionalProperties: {type: string}}, b: {type: string}}"},
		"items of a list":                        {object + "{a: {type: array, items: {type: object, properties: {x: {type: string}}}}}", object + "{a: {type: array, items: {type: object, properties: {z: {type: string}}}}}", object + "{a: {type: array, items: {type: object, properties: {x: {type: string}, z: {type: string}}}}}"},
		"a list becomes a set":                   {object + "{a: {type: array, items: {type: string}}}", object + "{a: {type: array, items: {type: string}, x-kubernetes-list-type: set}, b: {type: string}}", object + "{a: {type: array, items: {type: string}}, b: {type: string}}"},
		"alternatives":                           {object + "{a: {type: integer}}, anyOf: [{required: [a]}]", object + "{a: {type: integer}, b: {type: string}}, anyOf: [{required: [b]}]", object + "{a: {type: integer}, b: {type: string}}, anyOf: [{required: [a]}]"},
		"a default that the old values refuse":   {object + "{a: {type: object, default: {x: 9}, properties: {x: {type: integer}}}}", object + "{a: {type: object, default: {x: y}, properties: {x: {type: string}}}, b: {type: string}}", object + "{a: {type: object, default: {x: 9}, properties: {x: {type: integer}}}}"},
		"a field with another case is none":      {object + "{a: {type: string}}", "type: object, Properties: {a: {type: string}}, properties: {b: {type: string}}", "type: object, Properties: {a: {type: string}}, properties: {a: {type: string}, b: {type: string}}"},
		"fields that are named as keywords":      {object + "{enum: {type: string}, required: {type: string}}", object + "{new: {type: string}}", object + "{enum: {type: string}, required: {type: string}, new: {type: string}}"},
	} {
		before, after, want := apiOf(test.before), apiOf(test.after), apiOf(test.want)
		got := Merge(t.Context(), before, after, Change.NeedsConsent)
		if diff := cmp.Diff(schemaIn(t, want), schemaIn(t, got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		checkMerge(t, before, after)
	}
}

func schemaIn(t *testing.T, spec *v1alpha1.APIServiceExportCRDSpec) (schema any) {
	t.Helper()
	if err := json.Unmarshal(spec.Versions[0].Schema.OpenAPIV3Schema.Raw, &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// checkMerge holds what a merge promises, whatever it is given.
func checkMerge(t *testing.T, before, after *v1alpha1.APIServiceExportCRDSpec) {
	t.Helper()
	for name, breaks := range map[string]func(Change) bool{"breaking": Change.Breaking, "needs consent": Change.NeedsConsent} {
		got := Merge(t.Context(), before, after, breaks)
		if changes := Only(Compare(before, got), breaks); len(changes) > 0 && got != before {
			t.Errorf("%s: the merge breaks what is there: %v", name, changes)
		}
		if none := len(Only(Compare(before, after), breaks)) == 0; none != (got == after) && before != after {
			t.Errorf("%s: all is taken over: %t, want %t", name, got == after, none)
		}
		if again := Merge(t.Context(), got, after, breaks); !Same(again, got) && json.Valid(after.Versions[0].Schema.OpenAPIV3Schema.Raw) && json.Valid(before.Versions[0].Schema.OpenAPIV3Schema.Raw) {
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(again)
			t.Errorf("%s: a second merge takes over more:\n%s\n%s", name, a, b)
		}
	}
}

// A rule that no object meets yet waits with the limit that says how often it is evaluated.
func TestHoldOfALongList(t *testing.T) {
	before := apiOf("type: object, properties: {a: {type: array, items: {type: string}}}")
	after := apiOf("type: object, properties: {b: {type: string}, a: {type: array, maxItems: 3, items: {type: string, x-kubernetes-validations: [{rule: self != 'z'}]}}}")
	got, held := Hold(t.Context(), before, after, Change.NeedsConsent, store{})
	if want := "v1 spec.a: maxItems was none and is 3; v1 spec.a[]: rule self != 'z' is new"; List(held) != want {
		t.Errorf("held %v, want %s", held, want)
	}
	if diff := cmp.Diff(schemaIn(t, apiOf("type: object, properties: {b: {type: string}, a: {type: array, items: {type: string}}}")), schemaIn(t, got)); diff != "" {
		t.Errorf("taken over (-want +got):\n%s", diff)
	}
}

// checkHold holds what is promised of the two that decide together, whatever they are given: what
// needs consent is rules that all objects keep, or does not arrive, and a second look brings no more.
func checkHold(t *testing.T, before, after *v1alpha1.APIServiceExportCRDSpec, objects store) {
	t.Helper()
	for name, breaks := range map[string]func(Change) bool{"breaking": Change.Breaking, "needs consent": Change.NeedsConsent} {
		got, held := Hold(t.Context(), before, after, breaks, objects)
		if arrived := Only(Compare(before, got), breaks); len(DropKeptRules(t.Context(), arrived, got, objects)) > 0 {
			t.Errorf("%s: arrived without consent: %v", name, arrived)
		}
		if got != after && len(held) == 0 && !Same(got, after) && len(Only(Compare(before, after), breaks)) > 0 {
			t.Errorf("%s: something waits, and is not told", name)
		}
		if again, _ := Hold(t.Context(), got, after, breaks, objects); !Same(again, got) {
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(again)
			t.Errorf("%s: a second look takes over more:\n%s\n%s", name, a, b)
		}
	}
}

func TestMergeVersions(t *testing.T) {
	const some = "type: object, properties: {a: {type: string}}"
	version := func(name, schema string, storage bool) v1alpha1.APIServiceExportVersion {
		v := apiOf(schema).Versions[0]
		v.Name, v.Storage = name, storage
		return v
	}
	api := func(versions ...v1alpha1.APIServiceExportVersion) *v1alpha1.APIServiceExportCRDSpec {
		spec := apiOf(some)
		spec.Versions = versions
		return spec
	}
	unserved := version("v1", some, false)
	unserved.Served = false
	status := version("v1", some, true)
	status.Subresources.Status = &v1alpha1.CRDStatusSubresource{}
	other := api(version("v1", some, true), version("v2", some, false))
	other.Names.Kind, other.Scope = "Gadget", v1alpha1.ClusterScope
	for name, test := range map[string]struct {
		before, after, want *v1alpha1.APIServiceExportCRDSpec
	}{
		"a version comes":            {api(version("v1", some, true)), api(version("v2", some, true), version("v1", some, false)), api(version("v2", some, true), version("v1", some, false))},
		"one takes another's place":  {api(version("v1", some, true)), api(version("v2", some, true)), api(version("v2", some, false), version("v1", some, true))},
		"one is not served any more": {api(version("v1", some, true)), api(version("v2", some, true), unserved), api(version("v2", some, true), version("v1", some, false))},
		"objects would lose a field": {api(version("v1", some, true)), api(version("v1", some, false), version("v2", "type: object", true)), api(version("v1", some, true), version("v2", "type: object", false))},
		"status goes":                {api(status), api(version("v1", some, true), version("v2", some, false)), api(status, version("v2", some, false))},
		"kind and scope":             {api(version("v1", some, true)), other, api(version("v1", some, true), version("v2", some, false))},
	} {
		if diff := cmp.Diff(tree(t, test.want), tree(t, Merge(t.Context(), test.before, test.after, Change.Breaking))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		checkMerge(t, test.before, test.after)
	}
}

func tree(t *testing.T, spec *v1alpha1.APIServiceExportCRDSpec) any {
	t.Helper()
	v, err := decode(spec)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Rules go on where all objects keep them and they fit what is there, whatever else waits.
func TestHold(t *testing.T) {
	rule := func(text string) string { return `, x-kubernetes-validations: [{rule: "` + text + `"}]` }
	const among = "self.a in ['x', 'y']"
	before := apiOf("type: object, properties: {a: {type: string}}")
	for name, test := range map[string]struct {
		after, a, held string
		merged         bool
	}{
		"kept by all":                 {"type: object, properties: {a: {type: string}, b: {type: string}}" + rule(among), "x", "", false},
		"broken by one":               {"type: object, properties: {a: {type: string}, b: {type: string}}" + rule(among), "z", "v1 spec: rule self.a in ['x', 'y'] is new", true},
		"broken, and a field is gone": {"type: object, properties: {b: {type: string}}" + rule("self.b != 'z'"), "x", "v1 spec: rule self.b != 'z' is new; v1 spec.a: is gone", true},
		"kept, and a field is gone":   {"type: object, properties: {b: {type: string, maxLength: 9}}" + rule("!has(self.b) || self.b != 'z'"), "x", "v1 spec.a: is gone", true},
		"it may cost more":            {"type: object, properties: {a: {type: string, enum: [z]}, b: {type: string}}" + rule(among), "x", "v1 spec: rule self.a in ['x', 'y'] is new; v1 spec.a: only certain values are valid: \"z\"", true},
		"it fits another type":        {"type: object, properties: {a: {type: integer}, b: {type: string}}" + rule("!has(self.a) || self.a > 3"), "", "v1 spec: rule !has(self.a) || self.a > 3 is new; v1 spec.a: type was string and is integer", true},
		"nothing that anyone notices": {"type: object, properties: {a: {type: string, description: new}}", "x", "", false},
	} {
		after := apiOf(test.after)
		objects := store{specs: []map[string]any{{}}}
		if test.a != "" {
			objects.specs[0]["a"] = test.a
		}
		got, held := Hold(t.Context(), before, after, Change.NeedsConsent, objects)
		if List(held) != test.held || (got != after) != test.merged {
			t.Errorf("%s: held %v, merged %t", name, held, got != after)
		}
		if _, there := schemaIn(t, got).(map[string]any)["properties"].(map[string]any)["spec"].(map[string]any)["properties"].(map[string]any)["b"]; test.merged && !there {
			t.Errorf("%s: the harmless field waits too", name)
		}
	}
}

// FuzzMerge: a merge never breaks what is there, takes all over if nothing breaks, and is
// itself once it is in place.
func FuzzMerge(f *testing.F) {
	for _, pair := range [][2]string{
		{`{"type":"object"}`, `{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}`},
		{`{"type":"object","properties":{"a":{"type":"string","enum":["a","b"]}}}`, `{"type":"object","properties":{"a":{"type":"string","maxLength":3,"pattern":"^a","enum":["b","c"]}}}`},
		{`{"type":"array","items":{"type":"integer","minimum":1}}`, `{"type":"array","maxItems":1,"items":{"x-kubernetes-int-or-string":true}}`},
		{`{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"oneOf":[{"required":["a"]}]}`},
		{`{"type":"object","properties":{"a":{"type":"integer","default":1}},"required":["a"]}`, `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a","b"],"x-kubernetes-validations":[{"rule":"self.a > 1"}]}`},
		{`{"type":"integer","x-kubernetes-validations":[{"rule":"self > 1"}]}`, `{"type":"number","nullable":true,"not":{"minimum":0}}`},
		{`{"type":"object","properties":{"a":{}}}`, `{"type":"object","Properties":{"a":{}}}`},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) { checkMerge(t, schemaOnly(before), schemaOnly(after)) })
}

// The promises of a merge hold of schemas that differ in all that schemas have.
func TestMergeOfAny(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test that can be repeated
		before, after := schemaOnly(anySchema(r, 3)), schemaOnly(anySchema(r, 3))
		checkMerge(t, before, after)
		checkHold(t, before, after, store{specs: []map[string]any{{}}})
		if t.Failed() {
			t.Fatalf("seed %d: from %s to %s", seed, before.Versions[0].Schema.OpenAPIV3Schema.Raw, after.Versions[0].Schema.OpenAPIV3Schema.Raw)
		}
	}
}

// The promises of Hold, for schemas that lose fields, gain others, and get other rules.
func TestHoldOfAny(t *testing.T) {
	more := 0 // rules arrived where something else waits
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test that can be repeated
		before := schemaOnly(anySchema(r, 3))
		tree := schemaIn(t, before)
		revise(r, tree)
		text, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		after, objects := schemaOnly(string(text)), store{specs: []map[string]any{{}}}
		checkHold(t, before, after, objects)
		if t.Failed() {
			t.Fatalf("seed %d: from %s to %s", seed, before.Versions[0].Schema.OpenAPIV3Schema.Raw, text)
		}
		got, _ := Hold(t.Context(), before, after, Change.NeedsConsent, objects)
		if got != after && !Same(got, Merge(t.Context(), before, after, Change.NeedsConsent)) {
			more++
		}
	}
	if more < 3 {
		t.Errorf("rules arrived %d times where something else waits", more)
	}
}

// revise changes the objects of a schema.
func revise(r *rand.Rand, schema any) {
	at, _ := schema.(map[string]any)
	fields, ok := at["properties"].(map[string]any)
	if !ok {
		return
	}
	if r.IntN(2) == 0 {
		at["x-kubernetes-validations"] = []any{map[string]any{"rule": []string{"self == self", "true", "self == oldSelf", "self != self"}[r.IntN(4)]}}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if revise(r, fields[name]); r.IntN(3) == 0 {
			delete(fields, name)
			at["required"] = []any{}
		}
	}
	fields["new"] = map[string]any{"type": "string"}
}

func anySchema(r *rand.Rand, depth int) string {
	kind := []string{"object", "object", "object", "array", "string", "integer"}[r.IntN(6)]
	if depth == 3 {
		kind = "object"
	}
	fields := []string{`"type":"` + kind + `"`}
	maybe := func(text string) {
		if r.IntN(4) == 0 {
			fields = append(fields, text)
		}
	}
	maybe(`"nullable":true`)
	maybe(`"x-kubernetes-validations":[{"rule":"` + []string{"self == self", "true", "self == oldSelf", "self != self"}[r.IntN(4)] + `"}]`)
	maybe(`"description":"x"`)
	maybe(`"anyOf":[{"minimum":` + strconv.Itoa(r.IntN(2)) + `}]`)
	switch {
	case kind == "string":
		maybe(`"maxLength":` + strconv.Itoa(1+r.IntN(3)))
		maybe([]string{`"enum":["a","b"]`, `"enum":["b","c"]`, `"enum":["a"]`}[r.IntN(3)])
		maybe([]string{`"pattern":"^a"`, `"pattern":"^b"`}[r.IntN(2)])
		maybe(`"default":"` + []string{"a", "b"}[r.IntN(2)] + `"`)
	case kind == "integer":
		maybe(`"minimum":` + strconv.Itoa(r.IntN(3)))
		maybe(`"maximum":` + strconv.Itoa(3+r.IntN(3)))
		maybe(`"exclusiveMaximum":true`)
		maybe(`"default":3`)
	case kind == "array" && depth > 0:
		fields = append(fields, `"items":`+anySchema(r, depth-1))
		maybe([]string{`"x-kubernetes-list-type":"set"`, `"maxItems":` + strconv.Itoa(1+r.IntN(3))}[r.IntN(2)])
	case kind == "object" && depth > 0 && r.IntN(4) == 0:
		fields = append(fields, `"additionalProperties":`+anySchema(r, depth-1))
	case kind == "object":
		var properties, required []string
		for _, name := range []string{"a", "b", "enum"} {
			if depth > 0 && r.IntN(2) == 0 {
				properties = append(properties, fmt.Sprintf("%q:%s", name, anySchema(r, depth-1)))
				if r.IntN(3) == 0 {
					required = append(required, strconv.Quote(name))
				}
			}
		}
		fields = append(fields, `"properties":{`+strings.Join(properties, ",")+`}`, `"required":[`+strings.Join(required, ",")+`]`)
		maybe(`"x-kubernetes-preserve-unknown-fields":true`)
	}
	return "{" + strings.Join(fields, ",") + "}"
}
