// SPDX-License-Identifier: Apache-2.0

// Package crdcompat compares two snapshots of an API and says what the later one means
// for those who use the earlier. Each side takes over what is harmless and holds the rest:
//
//	change                                effect              the backend               the konnector
//	more is there, or valid               Added, Widened      takes it over             takes it over
//	fields that no schema names are kept  Opened              takes it over             holds it
//	a new rule                            Ruled               holds it, unless all      holds it, unless all
//	                                                          objects of the tenant     objects of the App
//	                                                          keep it                   Cluster keep it
//	less is valid, or something is gone   Narrowed, Removed   holds it                  holds it
//
// The backend holds nothing where the template says breakingChanges: Allow, or says nothing and
// Options.BreakingChanges of package export do. What the konnector holds waits for the consent of
// the App Cluster's owner. [Hold] puts back what was there in the place of the change alone, and
// takes over all else.
package crdcompat

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// An Effect is what a change of an API means for those who use it.
type Effect string

// The effects.
const (
	Added    Effect = "added"    // there is more than there was
	Widened  Effect = "widened"  // what was valid still is, and more
	Opened   Effect = "opened"   // fields that no schema names are kept, and were dropped
	Narrowed Effect = "narrowed" // what was valid may not be any more
	Ruled    Effect = "ruled"    // likewise by a rule, of which only objects tell: see [DropKeptRules]
	Removed  Effect = "removed"  // something is not there any more
)

// A Change is one difference between two snapshots of an API.
type Change struct {
	Effect Effect
	Path   string // "v1 spec.size"; empty for the API as a whole
	What   string // "maximum was 9 and is 5"
}

func (c Change) String() string {
	if c.Path == "" {
		return c.What
	}
	return c.Path + ": " + c.What
}

// Breaking tells whether an App Cluster may have to do something about c.
func (c Change) Breaking() bool {
	return c.Effect == Narrowed || c.Effect == Ruled || c.Effect == Removed
}

// NeedsConsent tells whether the owner of an App Cluster decides about c: a change that breaks existing
// objects, or has the App Cluster store fields that it dropped before.
func (c Change) NeedsConsent() bool { return c.Breaking() || c.Effect == Opened }

// Only returns those of changes that test picks.
func Only(changes []Change, test func(Change) bool) []Change {
	return slices.DeleteFunc(changes, func(c Change) bool { return !test(c) })
}

const (
	maxNamed = 5   // changes in a list
	maxText  = 160 // of each: names and rules are as long as their author likes
	maxPath  = 512 // of the place of each
)

// List names the first of some changes.
func List(changes []Change) string {
	var named []string
	for _, c := range changes[:min(len(changes), maxNamed)] {
		text := c.String()
		if len(text) > maxText {
			text = strings.ToValidUTF8(text[:maxText], "") + "…"
		}
		named = append(named, text)
	}
	if more := len(changes) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(named, "; ")
}

// Compare returns what changed between two snapshots of an API, in order. What it
// cannot judge it takes to be narrower.
func Compare(before, after *v1alpha1.APIServiceExportCRDSpec) []Change {
	var changes []Change
	for _, f := range findings(before, after) {
		changes = append(changes, f.Change)
	}
	return changes
}

// A finding is a change, and what has to be put back so that it is none.
type finding struct {
	Change

	undo []put
}

func findings(before, after *v1alpha1.APIServiceExportCRDSpec) []finding {
	d := &difference{}
	if before.Names.Kind != after.Names.Kind {
		d.say(Removed, place{}, changed("kind", before.Names.Kind, after.Names.Kind), "names")
	}
	if before.Scope != after.Scope {
		d.say(Removed, place{}, changed("scope", before.Scope, after.Scope), "scope")
	}
	for _, old := range before.Versions {
		i := slices.IndexFunc(after.Versions, func(v v1alpha1.APIServiceExportVersion) bool { return v.Name == old.Name })
		if i < 0 {
			d.gone(old, after.Versions)
			continue
		}
		d.version(old, after.Versions[i])
	}
	for _, v := range after.Versions {
		if !slices.ContainsFunc(before.Versions, func(o v1alpha1.APIServiceExportVersion) bool { return o.Name == v.Name }) {
			d.say(Added, place{}, "version "+v.Name+" is new")
		}
	}
	d.storage(before.Versions, after.Versions)
	return d.found
}

// A place is where two snapshots are compared.
type place struct {
	text string   // for people: "v1 spec.size"
	keys []string // in the JSON of a snapshot, where versions are found by their names
}

func (p place) at(keys ...string) []string { return slices.Concat(p.keys, keys) }

func (p place) property(name string) place {
	return place{join(p.text, name), p.at("properties", name)}
}

func (p place) values() place { return place{join(p.text, "*"), p.at("additionalProperties")} }

func (p place) items() place { return place{p.text + "[]", p.at("items")} }

func ofVersion(name string) place { return place{name, []string{"versions", name}} }

// A difference collects what changed.
type difference struct{ found []finding }

// say notes a change, which is undone by what was at the keys below a place, or else at the
// place itself.
func (d *difference) say(e Effect, p place, what string, keys ...string) {
	d.found = append(d.found, finding{Change{e, p.text, what}, []put{{keys: p.at(keys...)}}})
}

// changed is how people read that something was one thing and is another.
func changed(what string, before, after any) string {
	return fmt.Sprintf("%s was %s and is %s", what, show(before), show(after))
}

// undoneBy replaces what the last change is undone by.
func (d *difference) undoneBy(undo ...put) { d.found[len(d.found)-1].undo = undo }

// gone notes that a version is gone. If it was the stored one, it is stored again when it is put back.
func (d *difference) gone(old v1alpha1.APIServiceExportVersion, after []v1alpha1.APIServiceExportVersion) {
	d.say(Removed, place{}, "version "+old.Name+" is gone")
	undo := []put{{keys: ofVersion(old.Name).keys}}
	if i := slices.IndexFunc(after, stored); old.Storage && i >= 0 {
		undo = append(undo, put{keys: ofVersion(after[i].Name).at("storage")})
	}
	d.undoneBy(undo...)
}

func stored(v v1alpha1.APIServiceExportVersion) bool { return v.Storage }

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

// storage looks at what becomes of stored objects: API servers read them by the schema
// of the version that they are stored in, and drop what that does not name.
func (d *difference) storage(before, after []v1alpha1.APIServiceExportVersion) {
	old, now := slices.IndexFunc(before, stored), slices.IndexFunc(after, stored)
	if old < 0 || now < 0 || before[old].Name == after[now].Name {
		return
	}
	s := &difference{}
	s.schemas(place{text: "stored as " + after[now].Name + " "}, before[old], after[now])
	for _, f := range s.found {
		if f.NeedsConsent() {
			f.undo = []put{{keys: ofVersion(before[old].Name).at("storage")}, {keys: ofVersion(after[now].Name).at("storage")}}
			d.found = append(d.found, f)
		}
	}
}

func (d *difference) version(before, after v1alpha1.APIServiceExportVersion) {
	p := ofVersion(before.Name)
	if before.Served && !after.Served {
		d.say(Removed, place{keys: p.keys}, "version "+before.Name+" is not served any more", "served")
	}
	d.subresources(p, before.Subresources, after.Subresources)
	d.schemas(place{p.text + " ", p.at("schema", "openAPIV3Schema")}, before, after)
}

func (d *difference) schemas(p place, before, after v1alpha1.APIServiceExportVersion) {
	old, errOld := decodeSchema(before.Schema)
	now, errNow := decodeSchema(after.Schema)
	if errOld != nil || errNow != nil {
		d.say(Narrowed, place{strings.TrimSpace(p.text), p.keys}, "the schema cannot be read")
		return
	}
	d.schema(p, old, now)
}

// decodeSchema reads a schema as API servers do: a field of another case is none.
func decodeSchema(s v1alpha1.APIServiceExportSchema) (*apiextensionsv1.JSONSchemaProps, error) {
	props := &apiextensionsv1.JSONSchemaProps{}
	return props, json.Unmarshal(s.OpenAPIV3Schema.Raw, props)
}

func (d *difference) subresources(p place, before, after v1alpha1.CRDSubresources) {
	presence := func(name string, was, is bool) {
		switch {
		case was && !is:
			d.say(Removed, p, "subresource "+name+" is gone", "subresources", name)
		case !was && is:
			d.say(Added, p, "subresource "+name+" is new")
		}
	}
	presence("status", before.Status != nil, after.Status != nil)
	presence("scale", before.Scale != nil, after.Scale != nil)
	if before.Scale != nil && after.Scale != nil && !reflect.DeepEqual(before.Scale, after.Scale) {
		d.say(Narrowed, p, "subresource scale has other paths", "subresources", "scale")
	}
}

// schema compares what two schemas accept, field by field.
func (d *difference) schema(p place, before, after *apiextensionsv1.JSONSchemaProps) {
	if before.Type != after.Type {
		d.types(p, before, after)
	}
	d.limits(p, before, after)
	d.flags(p, before, after)
	d.enum(p, before.Enum, after.Enum)
	d.rules(p, before.XValidations, after.XValidations)
	d.properties(p, before, after)
	d.required(p, before, after)
	d.additional(p, before, after)
	d.items(p, before.Items, after.Items)
	d.rest(p, before, after)
}

func (d *difference) types(p place, before, after *apiextensionsv1.JSONSchemaProps) {
	e := Narrowed
	if after.Type == "" || before.Type == "integer" && after.Type == "number" {
		e = Widened
	}
	d.say(e, p, changed("type", before.Type, after.Type))
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

func (d *difference) limits(p place, before, after *apiextensionsv1.JSONSchemaProps) {
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
			d.say(Narrowed, p, changed(l.name, l.was, l.is), l.name)
		case w > 0:
			d.say(Widened, p, changed(l.name, l.was, l.is))
		}
	}
	d.constraint(p, "pattern", before.Pattern, after.Pattern)
	d.constraint(p, "format", before.Format, after.Format)
	d.constraint(p, "multipleOf", value(before.MultipleOf), value(after.MultipleOf))
}

func value(f *float64) string {
	if f == nil {
		return ""
	}
	return fmt.Sprint(*f)
}

// constraint compares what only its absence makes wider.
func (d *difference) constraint(p place, what, before, after string) {
	switch {
	case before == after:
	case after == "":
		d.say(Widened, p, changed(what, before, after))
	default:
		d.say(Narrowed, p, changed(what, before, after))
	}
}

func (d *difference) flags(p place, before, after *apiextensionsv1.JSONSchemaProps) {
	isTrue := func(b *bool) bool { return b != nil && *b }
	for _, f := range []struct {
		name       string
		was, is    bool
		gain, loss Effect
	}{
		{"nullable", before.Nullable, after.Nullable, Widened, Narrowed},
		{"x-kubernetes-preserve-unknown-fields", isTrue(before.XPreserveUnknownFields), isTrue(after.XPreserveUnknownFields), Opened, Narrowed},
		{"x-kubernetes-int-or-string", before.XIntOrString, after.XIntOrString, Widened, Narrowed},
		{"x-kubernetes-embedded-resource", before.XEmbeddedResource, after.XEmbeddedResource, Narrowed, Widened},
		{"exclusiveMinimum", before.ExclusiveMinimum, after.ExclusiveMinimum, Narrowed, Widened},
		{"exclusiveMaximum", before.ExclusiveMaximum, after.ExclusiveMaximum, Narrowed, Widened},
		{"uniqueItems", before.UniqueItems, after.UniqueItems, Narrowed, Widened},
	} {
		switch {
		case f.is == f.was:
		case f.is:
			d.say(f.gain, p, f.name+" was false and is true", f.name)
		default:
			d.say(f.loss, p, f.name+" was true and is false", f.name)
		}
	}
}

func (d *difference) enum(p place, before, after []apiextensionsv1.JSON) {
	was, is := texts(before), texts(after)
	switch {
	case len(was) == 0 && len(is) > 0:
		d.say(Narrowed, p, "only certain values are valid: "+strings.Join(is, ", "), "enum")
		return
	case len(was) > 0 && len(is) == 0:
		d.say(Widened, p, "all values are valid")
		return
	}
	if gone := without(was, is); len(gone) > 0 {
		d.say(Removed, p, "value "+strings.Join(gone, ", ")+" is not valid any more")
		d.undoneBy(put{p.at("enum"), union})
	}
	if fresh := without(is, was); len(fresh) > 0 {
		d.say(Widened, p, "value "+strings.Join(fresh, ", ")+" is new")
	}
}

func texts(values []apiextensionsv1.JSON) []string {
	var all []string
	for _, v := range values {
		all = append(all, string(v.Raw))
	}
	return all
}

func ruleTexts(all apiextensionsv1.ValidationRules) (texts []string) {
	for _, r := range all {
		text := r.Rule
		if r.OptionalOldSelf != nil && *r.OptionalOldSelf {
			text += " (optionalOldSelf)"
		}
		texts = append(texts, text)
	}
	return texts
}

// without returns the strings of all that others does not have.
func without(all, others []string) []string {
	known := make(map[string]bool, len(others))
	for _, s := range others {
		known[s] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return known[s] })
}

func (d *difference) rules(p place, before, after apiextensionsv1.ValidationRules) {
	was, is := ruleTexts(before), ruleTexts(after)
	for _, r := range without(is, was) {
		effect := Ruled
		if strings.Contains(r, "oldSelf") { // about a change, of which no object that exists tells
			effect = Narrowed
		}
		d.say(effect, p, "rule "+r+" is new", "x-kubernetes-validations")
	}
	for _, r := range without(was, is) {
		d.say(Widened, p, "rule "+r+" is gone")
	}
}

// open tells whether a schema keeps fields that it does not name.
func open(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields || s.AdditionalProperties != nil
}

func (d *difference) properties(p place, before, after *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(before.Properties)) {
		old := before.Properties[name]
		now, ok := after.Properties[name]
		switch {
		case ok:
			d.schema(p.property(name), &old, &now)
		case open(after):
			d.say(Widened, p.property(name), "is not described any more")
		default:
			d.say(Removed, p.property(name), "is gone")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after.Properties)) {
		if _, ok := before.Properties[name]; ok {
			continue
		}
		if open(before) {
			d.say(Narrowed, p.property(name), "could be anything before")
		} else {
			d.say(Added, p.property(name), "is new")
		}
	}
}

func join(path, name string) string {
	if path != "" && !strings.HasSuffix(path, " ") {
		path += "."
	}
	return text.Clip(path+name, maxPath)
}

// required compares which fields objects must have. One with a default is never missing, so that it
// counts as not required.
func (d *difference) required(p place, before, after *apiextensionsv1.JSONSchemaProps) {
	was, is := demanded(before), demanded(after)
	for _, name := range without(is, was) {
		d.say(Narrowed, p.property(name), "is required")
		if slices.Contains(before.Required, name) {
			d.undoneBy(put{keys: p.property(name).at("default")})
		} else {
			d.undoneBy(put{p.at("required"), common})
		}
	}
	for _, name := range without(was, is) {
		d.say(Widened, p.property(name), "is not required any more")
	}
}

func demanded(s *apiextensionsv1.JSONSchemaProps) []string {
	return slices.DeleteFunc(slices.Sorted(slices.Values(s.Required)), func(name string) bool { return s.Properties[name].Default != nil })
}

func (d *difference) additional(p place, before, after *apiextensionsv1.JSONSchemaProps) {
	was, is := before.AdditionalProperties, after.AdditionalProperties
	switch {
	case was == nil && is == nil:
	case is == nil:
		d.say(Removed, p.values(), "is gone")
	case was == nil && len(before.Properties) == 0 && before.XPreserveUnknownFields == nil:
		d.say(Added, p.values(), "is new")
	case was != nil && was.Schema != nil && is.Schema != nil:
		d.schema(p.values(), was.Schema, is.Schema)
	case !reflect.DeepEqual(was, is):
		d.say(Narrowed, p.values(), "is described otherwise")
	}
}

func (d *difference) items(p place, before, after *apiextensionsv1.JSONSchemaPropsOrArray) {
	switch {
	case before == nil && after == nil:
	case before == nil:
		d.say(Narrowed, p.items(), "is described")
	case after == nil:
		d.say(Widened, p.items(), "is not described any more")
	case before.Schema != nil && after.Schema != nil:
		d.schema(p.items(), before.Schema, after.Schema)
	case !reflect.DeepEqual(before, after):
		d.say(Narrowed, p.items(), "is described otherwise")
	}
}

// rest compares what changes of cannot be judged: they are taken to be narrower.
func (d *difference) rest(p place, before, after *apiextensionsv1.JSONSchemaProps) {
	for _, f := range []struct {
		name    string
		was, is any
		keys    []string
	}{
		{"allOf", before.AllOf, after.AllOf, []string{"allOf"}},
		{"anyOf", before.AnyOf, after.AnyOf, []string{"anyOf"}},
		{"oneOf", before.OneOf, after.OneOf, []string{"oneOf"}},
		{"not", before.Not, after.Not, []string{"not"}},
		{"x-kubernetes-list-type", listType(before), listType(after), nil},
		{"x-kubernetes-list-map-keys", before.XListMapKeys, after.XListMapKeys, nil},
		{"x-kubernetes-map-type", mapType(before), mapType(after), []string{"x-kubernetes-map-type"}},
	} {
		if !reflect.DeepEqual(f.was, f.is) {
			d.say(Narrowed, p, f.name+" changed", f.keys...)
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
