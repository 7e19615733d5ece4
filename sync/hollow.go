// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// hollow reports whether want has an empty map of which parts are held still, in the
// notation of FieldsV1. An apply that takes the last part of a map away leaves null
// in its place, which schemas refuse.
func hollow(want, held map[string]any) bool {
	for key, value := range want {
		w, isMap := value.(map[string]any)
		h, _ := held["f:"+key].(map[string]any)
		if isMap && (len(w) == 0 && len(nulls(h, nil)) > 0 || hollow(w, h)) {
			return true
		}
	}
	return false
}

// emptied is the merge patch that takes away what is held of the empty maps of want,
// and by nobody else.
func emptied(want, held, others map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range want {
		w, isMap := value.(map[string]any)
		h, _ := held["f:"+key].(map[string]any)
		o, _ := others["f:"+key].(map[string]any)
		patch := map[string]any{}
		switch {
		case isMap && len(w) == 0:
			patch = nulls(h, o)
		case isMap:
			patch = emptied(w, h, o)
		}
		if len(patch) > 0 {
			out[key] = patch
		}
	}
	return out
}

func nulls(held, others map[string]any) map[string]any {
	out := map[string]any{}
	for field, value := range held {
		key, ok := strings.CutPrefix(field, "f:")
		mine, _ := value.(map[string]any)
		theirs, shared := others[field].(map[string]any)
		if patch := nulls(mine, theirs); ok && !shared {
			out[key] = nil
		} else if len(patch) > 0 {
			out[key] = patch
		}
	}
	return out
}

// empty takes away the last parts of maps that are to be empty. If others hold some
// of them, an apply does.
func (e *engine) empty(ctx context.Context, p *pair) (*unstructured.Unstructured, error) {
	full, err := e.targets(p.name.Namespace).Get(ctx, p.name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	ours := e.manager(p.from.uid)
	patch := emptied(p.want.object, fieldsOf(full, ours), legacy(full, func(manager string) bool { return manager != ours }))
	if len(patch) == 0 {
		return e.apply(ctx, p, p.pins())
	}
	patch["metadata"] = map[string]any{"uid": string(p.target.GetUID()), "resourceVersion": full.GetResourceVersion()}
	return e.patch(ctx, e.targets(p.name.Namespace), p.name.Name, patch)
}
