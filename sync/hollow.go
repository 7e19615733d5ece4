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

// emptier reports whether want has an empty map where have has one with parts.
func emptier(want, have map[string]any) bool {
	for key, value := range want {
		w, isMap := value.(map[string]any)
		h, _ := have[key].(map[string]any)
		if isMap && (len(w) == 0 && len(h) > 0 || emptier(w, h)) {
			return true
		}
	}
	return false
}

// emptyStatus takes away what we hold of the maps that give empties, in the status of
// a source. If there is nothing to take, an apply does, and it reports false.
func (e *engine) emptyStatus(ctx context.Context, p *pair, give map[string]any) (obj *unstructured.Unstructured, taken bool, err error) {
	if !emptier(map[string]any{"status": give}, p.source.Object) {
		return nil, false, nil
	}
	full, err := e.sources(p.key.Namespace).Get(ctx, p.key.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, false, err
	case full.GetUID() != p.source.GetUID() || full.GetResourceVersion() != p.source.GetResourceVersion():
		return nil, false, errAgain
	}
	ours, others := e.statusHeld(full)
	patch := emptied(map[string]any{"status": give}, ours, others)
	if len(patch) == 0 {
		return nil, false, nil
	}
	patch["metadata"] = map[string]any{"resourceVersion": full.GetResourceVersion()}
	var part []string
	if !e.plainStatus.Load() {
		part = []string{"status"}
	}
	obj, err = e.patch(ctx, e.sources(p.key.Namespace), p.key.Name, patch, part...)
	return obj, err == nil, err
}

// statusHeld is what we hold of the status of a source, and what others do, in the
// notation of FieldsV1.
func (e *engine) statusHeld(source *unstructured.Unstructured) (ours, others map[string]any) {
	for _, m := range managedFields(source) {
		entry, _ := m.(map[string]any)
		fields, _ := entry["fieldsV1"].(map[string]any)
		if entry["manager"] == e.statusManager() {
			ours = union(ours, fields)
		} else {
			others = union(others, fields)
		}
	}
	return ours, others
}

// trim takes out of a patch what object does not have: what a schema lost is held still,
// and stands in no apply's way.
func trim(patch, object map[string]any) {
	for key, value := range patch {
		item, there := object[key]
		sub, _ := value.(map[string]any)
		below, _ := item.(map[string]any)
		if trim(sub, below); !there || value != nil && len(sub) == 0 {
			delete(patch, key)
		}
	}
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
	if trim(patch, full.Object); len(patch) == 0 {
		return e.apply(ctx, p, p.pins())
	}
	patch["metadata"] = map[string]any{"uid": string(p.target.GetUID()), "resourceVersion": full.GetResourceVersion()}
	return e.patch(ctx, e.targets(p.name.Namespace), p.name.Name, patch)
}
