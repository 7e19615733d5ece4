// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/sync/internal/fields"
)

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
	ours := func(entry fields.Entry) bool { return entry.Manager == e.statusManager() }
	others := func(entry fields.Entry) bool { return entry.Manager != e.statusManager() }
	patch := fields.By(full, ours).Emptied(map[string]any{"status": give}, fields.By(full, others))
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
	others := func(entry fields.Entry) bool { return entry.Manager != ours && entry.Subresource == "" }
	patch := fields.Of(full, ours).Emptied(p.want.object, fields.By(full, others))
	if trim(patch, full.Object); len(patch) == 0 {
		return e.apply(ctx, p, p.pins())
	}
	patch["metadata"] = map[string]any{"uid": string(p.target.GetUID()), "resourceVersion": full.GetResourceVersion()}
	return e.patch(ctx, e.targets(p.name.Namespace), p.name.Name, patch)
}
