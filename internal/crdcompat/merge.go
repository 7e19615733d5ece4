// SPDX-License-Identifier: Apache-2.0

package crdcompat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Hold says what of after is to be taken over where before is in use: all that needs no
// consent, and new rules if all objects keep the rules of the result. Held is what of after
// waits for consent.
func Hold(ctx context.Context, before, after *v1alpha1.APIServiceExportCRDSpec, needsConsent func(Change) bool, objects ...Lister) (merged *v1alpha1.APIServiceExportCRDSpec, held []Change) {
	merged = Merge(ctx, before, after, func(c Change) bool { return c.Effect != Ruled && needsConsent(c) })
	rulesKept := len(DropKeptRules(ctx, Only(Compare(before, merged), needsConsent), merged, objects...)) == 0
	switch {
	case rulesKept && merged == after: // no change but of rules needs consent
		return after, nil
	case merged == before || !rulesKept || !rulesFit(merged, after): // the new rules wait too; without them parts may fit that did not
		merged = Merge(ctx, before, after, needsConsent)
	}
	return merged, Only(Compare(merged, after), needsConsent)
}

// rulesFit tells whether the CEL rules of merged, which come from after, fit the schema of merged: an API server
// checks their types and their cost.
func rulesFit(merged, after *v1alpha1.APIServiceExportCRDSpec) bool {
	for _, v := range merged.Versions {
		i := slices.IndexFunc(after.Versions, func(a v1alpha1.APIServiceExportVersion) bool { return a.Name == v.Name })
		if i < 0 {
			continue // it is whole
		}
		ofMerged, errMerged := decodeSchema(v.Schema)
		ofAfter, errAfter := decodeSchema(after.Versions[i].Schema)
		if errMerged != nil || errAfter != nil || !fit(ofMerged, ofAfter) {
			return false
		}
	}
	return true
}

// fit is rulesFit of one schema. What a list or map repeats costs as often as it may be there.
func fit(merged, after *apiextensionsv1.JSONSchemaProps) bool {
	if len(merged.XValidations) > 0 || merged.Items != nil || merged.AdditionalProperties != nil {
		roomier := merged.DeepCopy()
		trim(roomier, after)
		return equality.Semantic.DeepEqual(roomier, after)
	}
	for name, field := range merged.Properties {
		if wanted, ok := after.Properties[name]; ok && !fit(&field, &wanted) {
			return false
		}
	}
	return true
}

// trim takes from merged what it has beside after that no rule of after meets: fields and values, and
// what it does not require.
func trim(merged, after *apiextensionsv1.JSONSchemaProps) {
	merged.Required = after.Required
	if len(merged.Enum) > 0 && len(after.Enum) > 0 {
		merged.Enum = after.Enum
	}
	for name, field := range merged.Properties {
		if wanted, ok := after.Properties[name]; ok {
			trim(&field, &wanted)
			merged.Properties[name] = field
		} else {
			delete(merged.Properties, name)
		}
	}
	if merged.Items != nil && merged.Items.Schema != nil && after.Items != nil && after.Items.Schema != nil {
		trim(merged.Items.Schema, after.Items.Schema)
	}
}

// maxRounds is how often Merge compares with before what it has put back, since one change can
// hide another: where a schema begins to keep all fields, one that it no longer names is none.
const maxRounds = 8

// Merge returns after, with before's part in each place where a change breaks. From before to
// the result Compare finds no change that breaks: the author of after could have published the
// result. Where the parts do not fit together, Merge returns before.
func Merge(ctx context.Context, before, after *v1alpha1.APIServiceExportCRDSpec, breaks func(Change) bool) *v1alpha1.APIServiceExportCRDSpec {
	merged, err := undo(before, after, breaks)
	if err != nil {
		return before
	}
	if merged == after {
		return after
	}
	// If a second merge took over more, two of them would be a way around consent.
	if again, err := undo(merged, after, breaks); err != nil || !Same(again, merged) || !valid(ctx, merged) {
		return before
	}
	return merged
}

// Same tells whether two snapshots say the same.
func Same(a, b *v1alpha1.APIServiceExportCRDSpec) bool {
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// undo returns after, with before's part in each place where a change breaks.
func undo(before, after *v1alpha1.APIServiceExportCRDSpec, breaks func(Change) bool) (*v1alpha1.APIServiceExportCRDSpec, error) {
	beforeTree, err := decode(before)
	if err != nil {
		return nil, err
	}
	tree, err := decode(after)
	if err != nil {
		return nil, err
	}
	merged := after
	for range maxRounds {
		found := slices.DeleteFunc(findings(before, merged), func(f finding) bool { return !breaks(f.Change) })
		if len(found) == 0 {
			return merged, nil
		}
		done := map[string]bool{}
		for _, f := range found {
			for _, p := range f.undo {
				if key := strings.Join(p.keys, "\x00"); !done[key] {
					done[key], tree = true, p.back(beforeTree, tree, p.keys)
				}
			}
		}
		if merged, err = encode(tree); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("a change breaks what is there after %d rounds", maxRounds)
}

// decode keeps numbers as they are written.
func decode(spec *v1alpha1.APIServiceExportCRDSpec) (tree any, err error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return tree, d.Decode(&tree)
}

func encode(tree any) (*v1alpha1.APIServiceExportCRDSpec, error) {
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	spec := &v1alpha1.APIServiceExportCRDSpec{}
	return spec, json.Unmarshal(data, spec)
}

// valid tells whether API servers take the schemas, of which parts have two authors.
func valid(ctx context.Context, spec *v1alpha1.APIServiceExportCRDSpec) bool {
	judges, err := newJudges(spec)
	if err != nil {
		return false
	}
	for _, j := range judges {
		errs := structural.ValidateStructural(field.NewPath("schema"), j.schema)
		more, err := defaulting.ValidateDefaults(ctx, field.NewPath("schema"), j.schema, true, true)
		if err != nil || len(errs)+len(more) > 0 {
			return false
		}
	}
	return true
}
