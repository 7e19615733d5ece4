// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// isPeer reports whether manager is one of Klutch's own konnector, which creates
// objects under the one name and applies them under the other.
func isPeer(manager string) bool { return manager == "konnector" || manager == "klutch.anynines.com" }

// inherits reports whether the target was made from this very source by a peer,
// which records no UID. The evidence is the peer's mark and field manager on the
// target, its finalizer on the source, and that the target is not the older one:
// a source that was made again under an old name does not inherit. Nothing but the
// clocks tells it from the one before, so that clocks which differ by more than a
// minute leave a conflict: taking over would give one user the database of another.
// It takes a live read to see, since the peer's fields are not cached.
func (e *engine) inherits(p *pair) bool {
	a := p.target.GetAnnotations()
	going := p.target.GetDeletionTimestamp() != nil && !p.state.source.deleting
	if e.opts.Finalizer != DefaultFinalizer || !p.state.source.finalizer || going ||
		a[BoundAnnotation] != "true" || a[SourceAnnotation] != "" || a[OrphanedAnnotation] != "" {
		return false
	}
	const skew = time.Minute
	if p.target.GetCreationTimestamp().Add(skew).Before(p.source.GetCreationTimestamp().Time) {
		return false
	}
	return fieldsOf(p.target, e.manager(p.from.uid)) != nil || legacy(p.target, isPeer) != nil
}

// contender is the peer that holds fields of a target, other than its status; empty
// if none.
func contender(target *unstructured.Unstructured) string {
	for _, entry := range managedFields(target) {
		e, _ := entry.(map[string]any)
		if manager, _ := e["manager"].(string); isPeer(manager) && e["subresource"] == nil {
			return manager
		}
	}
	return ""
}

// isFormer reports whether manager is ours of another incarnation than p's source.
func (e *engine) isFormer(p *pair) func(manager string) bool {
	return func(manager string) bool {
		return strings.HasPrefix(manager, e.fieldManager+"/") && manager != e.manager(p.from.uid)
	}
}

// legacy is what others applied to target, in the notation of FieldsV1; nil if
// nothing.
func legacy(target *unstructured.Unstructured, other func(manager string) bool) map[string]any {
	var fields map[string]any
	for _, entry := range managedFields(target) {
		e, _ := entry.(map[string]any)
		manager, _ := e["manager"].(string)
		if more, ok := e["fieldsV1"].(map[string]any); ok && other(manager) && e["subresource"] == nil {
			fields = union(fields, more)
		}
	}
	return fields
}

func union(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range b {
		mine, both := out[key].(map[string]any)
		if more, ok := value.(map[string]any); ok && both {
			value = union(mine, more)
		}
		out[key] = value
	}
	return out
}

// applied turns the fields of an update into those of an apply, which owns the
// items of a list but no maps as such: others may add to them.
func applied(fields map[string]any, item bool) map[string]any {
	out := map[string]any{}
	for key, value := range fields {
		if sub, ok := value.(map[string]any); ok && (key != "." || item) {
			out[key] = applied(sub, strings.HasPrefix(key, "k:"))
		}
	}
	return out
}

// migrate makes what a peer applied to the target ours, or what an earlier source
// of the name did, as if we had applied it: the next apply takes away what the
// source does not have. That it is due shows in that nobody holds SourceAnnotation.
func (e *engine) migrate(ctx context.Context, p *pair) (*unstructured.Unstructured, error) {
	other := isPeer
	if t := p.state.target.relation; t == relationPredecessor || t == relationOrphan {
		other = e.isFormer(p)
	}
	ours := e.manager(p.from.uid)
	fields := applied(union(legacy(p.target, other), fieldsOf(p.target, ours)), false)
	unstructured.RemoveNestedField(fields, "f:metadata", "f:annotations", "f:"+SourceAnnotation)
	entries := []any{map[string]any{
		"manager": ours, "operation": string(metav1.ManagedFieldsOperationApply),
		"apiVersion": p.target.GetAPIVersion(), "fieldsType": "FieldsV1", "fieldsV1": fields,
		"time": metav1.Now().UTC().Format(time.RFC3339),
	}}
	for _, entry := range managedFields(p.target) {
		m, _ := entry.(map[string]any)
		if manager, _ := m["manager"].(string); manager != ours && !other(manager) || m["subresource"] != nil {
			entries = append(entries, entry)
		}
	}
	return e.merge(ctx, e.targets(p.name.Namespace), p.name.Name, map[string]any{
		"uid": string(p.target.GetUID()), "resourceVersion": p.target.GetResourceVersion(), "managedFields": entries,
	})
}
