// SPDX-License-Identifier: Apache-2.0

package travel

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Status is what the status of a source should be, nil if its target has none. Stands is
// the generation of the source that the target was made from; 0 if others took off what says so.
func Status(source, target *unstructured.Unstructured, stands int64) map[string]any {
	status, ok := target.Object["status"].(map[string]any)
	if !ok || len(status) == 0 {
		return nil
	}
	published, _ := source.Object["status"].(map[string]any)
	tr := translator{observed: target.GetGeneration(), stands: stands}
	out := tr.translate(status, published)
	if conditions, ok := out["conditions"].([]any); ok {
		out["conditions"] = tr.conditions(conditions, published)
	}
	return out
}

// A translator turns generations of a target into those of its source: the
// target's generation observed stands for the source's generation stands.
type translator struct{ observed, stands int64 }

// translate returns a copy of object with its observedGeneration translated. A
// provider that has not yet observed the latest target has observed an older
// source, but it is not known which: what was published before still holds. So it does if the
// target does not say from which generation of the source it was made.
func (t translator) translate(object, published map[string]any) map[string]any {
	seen, ok := number(object["observedGeneration"])
	if !ok {
		return object
	}
	out := maps.Clone(object)
	before, ok := number(published["observedGeneration"])
	switch {
	case seen >= t.observed && t.stands > 0:
		out["observedGeneration"] = t.stands
	case ok && (before < t.stands || t.stands == 0):
		out["observedGeneration"] = before
	default:
		delete(out, "observedGeneration")
	}
	return out
}

func (t translator) conditions(conditions []any, published map[string]any) []any {
	before := map[any]map[string]any{}
	list, _ := published["conditions"].([]any)
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			if kind, ok := m["type"].(string); ok {
				before[kind] = m
			}
		}
	}
	out := make([]any, len(conditions))
	for i, c := range conditions {
		out[i] = c
		if m, ok := c.(map[string]any); ok {
			kind, _ := m["type"].(string)
			out[i] = t.translate(m, before[kind])
		}
	}
	return out
}

func number(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), true
	}
	return 0, false
}

// ConditionTypes returns the types of the conditions of a status, sorted.
func ConditionTypes(status map[string]any) (types []string) {
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		types = append(types, conditionType(c))
	}
	slices.Sort(types)
	return types
}

func conditionType(condition any) string {
	m, _ := condition.(map[string]any)
	kind, _ := m["type"].(string)
	return kind
}

// WithConditions returns the status give with those conditions of the status is that have one of
// types, and no type of give's.
func WithConditions(give, is map[string]any, types []string) map[string]any {
	have := ConditionTypes(give)
	conditions, _ := is["conditions"].([]any)
	others := slices.DeleteFunc(slices.Clone(conditions), func(c any) bool {
		return !slices.Contains(types, conditionType(c)) || slices.Contains(have, conditionType(c))
	})
	if len(others) == 0 {
		return give
	}
	out := maps.Clone(give)
	if out == nil {
		out = map[string]any{}
	}
	mine, _ := give["conditions"].([]any)
	out["conditions"] = slices.Concat(mine, others)
	return out
}

// OfTypes returns the status is without those conditions of which give has no type.
func OfTypes(is, give map[string]any) map[string]any {
	have := ConditionTypes(give)
	conditions, _ := is["conditions"].([]any)
	kept := slices.DeleteFunc(slices.Clone(conditions), func(c any) bool { return !slices.Contains(have, conditionType(c)) })
	if len(kept) == len(conditions) {
		return is
	}
	out := maps.Clone(is)
	if out["conditions"] = kept; len(have) == 0 {
		delete(out, "conditions")
	}
	return out
}
