// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// An effect is what a change of an API means for those who use it.
type effect string

const (
	added    effect = "added"    // there is more than there was
	widened  effect = "widened"  // what was valid still is, and more
	narrowed effect = "narrowed" // what was valid may not be any more
	removed  effect = "removed"  // something is not there any more
)

// A change is one difference between two snapshots of an API.
type change struct {
	effect effect
	path   string // "v1 spec.size"; empty for the API as a whole
	what   string // "maximum was 9 and is 5"
}

func (c change) String() string {
	if c.path == "" {
		return c.what
	}
	return c.path + ": " + c.what
}

// breaking tells whether an App Cluster may have to do something about c.
func (c change) breaking() bool { return c.effect == narrowed || c.effect == removed }

// breakingChanges returns those between two snapshots that take something away.
func breakingChanges(before, after *v1alpha1.APIServiceExportCRDSpec) []change {
	return slices.DeleteFunc(compare(before, after), func(c change) bool { return !c.breaking() })
}

const maxNamed = 5 // changes in a message

func heldMessage(breaking []change) string {
	var named []string
	for _, c := range breaking[:min(len(breaking), maxNamed)] {
		named = append(named, c.String())
	}
	if more := len(breaking) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return "the schema of App Clusters is kept, since the new one would break it (" + strings.Join(named, "; ") +
		"): take the change back, or set spec.breakingChanges of the template to Allow"
}

// compare returns what changed between two snapshots of an API, in order. What it
// cannot judge it takes to be narrower.
func compare(before, after *v1alpha1.APIServiceExportCRDSpec) []change {
	d := &difference{}
	if before.Names.Kind != after.Names.Kind {
		d.add(removed, "", "kind", before.Names.Kind, after.Names.Kind)
	}
	if before.Scope != after.Scope {
		d.add(removed, "", "scope", before.Scope, after.Scope)
	}
	for _, old := range before.Versions {
		i := slices.IndexFunc(after.Versions, func(v v1alpha1.APIServiceExportVersion) bool { return v.Name == old.Name })
		if i < 0 {
			d.say(removed, "", "version "+old.Name+" is gone")
			continue
		}
		d.version(old, after.Versions[i])
	}
	for _, v := range after.Versions {
		if !slices.ContainsFunc(before.Versions, func(o v1alpha1.APIServiceExportVersion) bool { return o.Name == v.Name }) {
			d.say(added, "", "version "+v.Name+" is new")
		}
	}
	return d.changes
}

// A difference collects changes.
type difference struct{ changes []change }

func (d *difference) say(e effect, path, what string) {
	d.changes = append(d.changes, change{e, path, what})
}

func (d *difference) add(e effect, path, what string, before, after any) {
	d.say(e, path, fmt.Sprintf("%s was %s and is %s", what, show(before), show(after)))
}

// show writes a value for people, and an absent one as "none".
func show(v any) string {
	r := reflect.ValueOf(v)
	if !r.IsValid() || r.IsZero() {
		return "none"
	}
	if r.Kind() == reflect.Pointer {
		return fmt.Sprint(r.Elem().Interface())
	}
	return fmt.Sprint(v)
}

func (d *difference) version(before, after v1alpha1.APIServiceExportVersion) {
	if before.Served && !after.Served {
		d.say(removed, "", "version "+before.Name+" is not served any more")
	}
	d.subresources(before.Name, before.Subresources, after.Subresources)
	old, errOld := decodeSchema(before.Schema)
	now, errNow := decodeSchema(after.Schema)
	if errOld != nil || errNow != nil {
		d.say(narrowed, before.Name, "the schema cannot be read")
		return
	}
	d.schema(before.Name+" ", old, now)
}

func decodeSchema(s v1alpha1.APIServiceExportSchema) (*apiextensionsv1.JSONSchemaProps, error) {
	props := &apiextensionsv1.JSONSchemaProps{}
	return props, json.Unmarshal(s.OpenAPIV3Schema.Raw, props)
}

func (d *difference) subresources(version string, before, after v1alpha1.CRDSubresources) {
	presence := func(name string, was, is bool) {
		switch {
		case was && !is:
			d.say(removed, version, "subresource "+name+" is gone")
		case !was && is:
			d.say(added, version, "subresource "+name+" is new")
		}
	}
	presence("status", before.Status != nil, after.Status != nil)
	presence("scale", before.Scale != nil, after.Scale != nil)
	if before.Scale != nil && after.Scale != nil && !reflect.DeepEqual(before.Scale, after.Scale) {
		d.say(narrowed, version, "subresource scale has other paths")
	}
}

// schema compares what two schemas accept, field by field.
func (d *difference) schema(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	if before.Type != after.Type {
		d.types(path, before, after)
	}
	d.limits(path, before, after)
	d.flags(path, before, after)
	d.enum(path, before.Enum, after.Enum)
	d.rules(path, before.XValidations, after.XValidations)
	d.properties(path, before, after)
	d.required(path, before, after)
	d.additional(path, before, after)
	d.items(path, before.Items, after.Items)
	d.rest(path, before, after)
}

func (d *difference) types(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	e := narrowed
	if after.Type == "" || before.Type == "integer" && after.Type == "number" {
		e = widened
	}
	d.add(e, path, "type", before.Type, after.Type)
}

// A boundary is a number that values must not go beyond.
type boundary struct {
	name    string
	was, is *float64
	upper   bool
}

// wider compares what a limit lets through: 1 if that is more than it was, -1 if it
// is less. No limit is the widest.
func (l boundary) wider() int {
	switch {
	case l.was == nil && l.is == nil:
		return 0
	case l.was == nil:
		return -1
	case l.is == nil:
		return 1
	case l.upper:
		return cmp.Compare(*l.is, *l.was)
	}
	return cmp.Compare(*l.was, *l.is)
}

func number(n *int64) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}

func (d *difference) limits(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	for _, l := range []boundary{
		{"minimum", before.Minimum, after.Minimum, false},
		{"maximum", before.Maximum, after.Maximum, true},
		{"minLength", number(before.MinLength), number(after.MinLength), false},
		{"maxLength", number(before.MaxLength), number(after.MaxLength), true},
		{"minItems", number(before.MinItems), number(after.MinItems), false},
		{"maxItems", number(before.MaxItems), number(after.MaxItems), true},
		{"minProperties", number(before.MinProperties), number(after.MinProperties), false},
		{"maxProperties", number(before.MaxProperties), number(after.MaxProperties), true},
	} {
		switch w := l.wider(); {
		case w < 0:
			d.add(narrowed, path, l.name, l.was, l.is)
		case w > 0:
			d.add(widened, path, l.name, l.was, l.is)
		}
	}
	d.constraint(path, "pattern", before.Pattern, after.Pattern)
	d.constraint(path, "format", before.Format, after.Format)
	d.constraint(path, "multipleOf", value(before.MultipleOf), value(after.MultipleOf))
}

func value(f *float64) string {
	if f == nil {
		return ""
	}
	return fmt.Sprint(*f)
}

// constraint compares what only its absence makes wider.
func (d *difference) constraint(path, what, before, after string) {
	switch {
	case before == after:
	case after == "":
		d.add(widened, path, what, before, after)
	default:
		d.add(narrowed, path, what, before, after)
	}
}

func (d *difference) flags(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	isTrue := func(b *bool) bool { return b != nil && *b }
	for _, f := range []struct {
		name            string
		was, is, widens bool
	}{
		{"nullable", before.Nullable, after.Nullable, true},
		{"x-kubernetes-preserve-unknown-fields", isTrue(before.XPreserveUnknownFields), isTrue(after.XPreserveUnknownFields), true},
		{"x-kubernetes-int-or-string", before.XIntOrString, after.XIntOrString, true},
		{"x-kubernetes-embedded-resource", before.XEmbeddedResource, after.XEmbeddedResource, false},
		{"exclusiveMinimum", before.ExclusiveMinimum, after.ExclusiveMinimum, false},
		{"exclusiveMaximum", before.ExclusiveMaximum, after.ExclusiveMaximum, false},
		{"uniqueItems", before.UniqueItems, after.UniqueItems, false},
	} {
		switch {
		case f.was == f.is:
		case f.is == f.widens:
			d.say(widened, path, f.name+" was "+fmt.Sprint(f.was)+" and is "+fmt.Sprint(f.is))
		default:
			d.say(narrowed, path, f.name+" was "+fmt.Sprint(f.was)+" and is "+fmt.Sprint(f.is))
		}
	}
}

func (d *difference) enum(path string, before, after []apiextensionsv1.JSON) {
	was, is := texts(before), texts(after)
	switch {
	case len(was) == 0 && len(is) > 0:
		d.say(narrowed, path, "only certain values are valid: "+strings.Join(is, ", "))
		return
	case len(was) > 0 && len(is) == 0:
		d.say(widened, path, "all values are valid")
		return
	}
	if gone := without(was, is); len(gone) > 0 {
		d.say(removed, path, "value "+strings.Join(gone, ", ")+" is not valid any more")
	}
	if fresh := without(is, was); len(fresh) > 0 {
		d.say(widened, path, "value "+strings.Join(fresh, ", ")+" is new")
	}
}

func texts(values []apiextensionsv1.JSON) []string {
	var all []string
	for _, v := range values {
		all = append(all, string(v.Raw))
	}
	return all
}

// without returns those of all that are not in others.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}

func (d *difference) rules(path string, before, after apiextensionsv1.ValidationRules) {
	rules := func(all apiextensionsv1.ValidationRules) (texts []string) {
		for _, r := range all {
			texts = append(texts, r.Rule)
		}
		return texts
	}
	for _, r := range without(rules(after), rules(before)) {
		d.say(narrowed, path, "rule "+r+" is new")
	}
	for _, r := range without(rules(before), rules(after)) {
		d.say(widened, path, "rule "+r+" is gone")
	}
}

// open tells whether a schema keeps fields that it does not name.
func open(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields || s.AdditionalProperties != nil
}

func (d *difference) properties(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(before.Properties)) {
		old := before.Properties[name]
		now, ok := after.Properties[name]
		switch {
		case ok:
			d.schema(join(path, name), &old, &now)
		case open(after):
			d.say(widened, join(path, name), "is not described any more")
		default:
			d.say(removed, join(path, name), "is gone")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after.Properties)) {
		if _, ok := before.Properties[name]; ok {
			continue
		}
		if open(before) {
			d.say(narrowed, join(path, name), "could be anything before")
		} else {
			d.say(added, join(path, name), "is new")
		}
	}
}

func join(path, name string) string {
	if path == "" || strings.HasSuffix(path, " ") {
		return path + name
	}
	return path + "." + name
}

// required: a field with a default is never missing.
func (d *difference) required(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	was, is := demanded(before), demanded(after)
	for _, name := range without(is, was) {
		d.say(narrowed, join(path, name), "is required")
	}
	for _, name := range without(was, is) {
		d.say(widened, join(path, name), "is not required any more")
	}
}

func demanded(s *apiextensionsv1.JSONSchemaProps) []string {
	return slices.DeleteFunc(slices.Sorted(slices.Values(s.Required)), func(name string) bool { return s.Properties[name].Default != nil })
}

func (d *difference) additional(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	was, is := before.AdditionalProperties, after.AdditionalProperties
	switch {
	case was == nil && is == nil:
	case is == nil:
		d.say(removed, join(path, "*"), "is gone")
	case was == nil && len(before.Properties) == 0 && before.XPreserveUnknownFields == nil:
		d.say(added, join(path, "*"), "is new")
	case was != nil && was.Schema != nil && is.Schema != nil:
		d.schema(join(path, "*"), was.Schema, is.Schema)
	case !reflect.DeepEqual(was, is):
		d.say(narrowed, join(path, "*"), "is described otherwise")
	}
}

func (d *difference) items(path string, before, after *apiextensionsv1.JSONSchemaPropsOrArray) {
	switch {
	case before == nil && after == nil:
	case before == nil:
		d.say(narrowed, path+"[]", "is described")
	case after == nil:
		d.say(widened, path+"[]", "is not described any more")
	case before.Schema != nil && after.Schema != nil:
		d.schema(path+"[]", before.Schema, after.Schema)
	case !reflect.DeepEqual(before, after):
		d.say(narrowed, path+"[]", "is described otherwise")
	}
}

// rest compares what changes of cannot be judged: they are taken to be narrower.
func (d *difference) rest(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	for _, f := range []struct {
		name    string
		was, is any
	}{
		{"allOf", before.AllOf, after.AllOf},
		{"anyOf", before.AnyOf, after.AnyOf},
		{"oneOf", before.OneOf, after.OneOf},
		{"not", before.Not, after.Not},
		{"x-kubernetes-list-type", listType(before), listType(after)},
		{"x-kubernetes-list-map-keys", before.XListMapKeys, after.XListMapKeys},
		{"x-kubernetes-map-type", mapType(before), mapType(after)},
	} {
		if !reflect.DeepEqual(f.was, f.is) {
			d.say(narrowed, path, f.name+" changed")
		}
	}
}

func listType(s *apiextensionsv1.JSONSchemaProps) string {
	if s.XListType == nil {
		return "atomic"
	}
	return *s.XListType
}

func mapType(s *apiextensionsv1.JSONSchemaProps) string {
	if s.XMapType == nil {
		return "granular"
	}
	return *s.XMapType
}
