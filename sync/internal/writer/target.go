// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
)

// A Target is the object that is meant, and what it should be.
type Target struct {
	Name    cache.ObjectName
	Seen    *unstructured.Unstructured // nil if there is none
	Want    map[string]any
	Manager string // that applies it: see names.Names.Incarnation
}

func (w *Writer) target(t Target) dynamic.ResourceInterface {
	return w.Targets.Namespace(t.Name.Namespace)
}

// pins make the API server refuse an apply unless the target is just this one.
type pins struct {
	uid     types.UID
	version string
	force   bool
}

// pins are those of an apply to a known target. What we know of it may be from
// before someone else's time, and an earlier request of ours may arrive only now:
// neither must bring back an older generation of the source.
func (t Target) pins() pins {
	return pins{uid: t.Seen.GetUID(), version: t.Seen.GetResourceVersion()}
}

// nothing is a resourceVersion that no object ever has. An apply that pins it
// creates an object, or meets a conflict if there is one.
const nothing = "1"

// Create applies a target where there must be none.
func (w *Writer) Create(ctx context.Context, t Target) (*unstructured.Unstructured, error) {
	return w.apply(ctx, t, pins{version: nothing})
}

// Apply applies a target, in the version that was seen, and yields to others.
func (w *Writer) Apply(ctx context.Context, t Target) (*unstructured.Unstructured, error) {
	return w.apply(ctx, t, t.pins())
}

// Force takes over what others hold of a target, in the version that was seen.
func (w *Writer) Force(ctx context.Context, t Target) (*unstructured.Unstructured, error) {
	pin := t.pins()
	pin.force = true
	return w.apply(ctx, t, pin)
}

func (w *Writer) apply(ctx context.Context, t Target, pin pins) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: t.Want}
	if pin.uid != "" {
		object.SetUID(pin.uid)
	}
	if pin.version != "" {
		object.SetResourceVersion(pin.version)
	}
	return w.target(t).Apply(ctx, t.Name.Name, object, metav1.ApplyOptions{FieldManager: t.Manager, Force: pin.force})
}

// Empty takes away what is left in maps and lists that are to be empty. If others hold all
// of that, an apply does.
func (w *Writer) Empty(ctx context.Context, t Target) (*unstructured.Unstructured, error) {
	full, err := w.target(t).Get(ctx, t.Name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	others := func(e fields.Entry) bool { return e.Manager != t.Manager && e.Subresource == "" }
	emptied := fields.Of(full, t.Manager).Emptied(t.Want, fields.By(full, others))
	pointers := emptied.Pointers(full.Object, "")
	if len(pointers) == 0 {
		return w.Apply(ctx, t)
	}
	full.SetUID(t.Seen.GetUID())
	return w.TakeAway(ctx, w.target(t), full, pointers)
}

// Migrate takes over what a legacy konnector applied to the target, or an earlier source of the name did
// beside this one: others tells their entries. What others own beside them stays shared, until Own.
func (w *Writer) Migrate(ctx context.Context, t Target, others func(fields.Entry) bool) (*unstructured.Unstructured, error) {
	return w.Merge(ctx, w.target(t), t.Name.Name, map[string]any{
		"uid": string(t.Seen.GetUID()), "resourceVersion": t.Seen.GetResourceVersion(),
		"managedFields": legacy.TakeOver(t.Seen, t.Manager, others, legacy.Annotation(w.Names.Source)),
	})
}

// Own takes our marks, and the fields applied to the target, away from writers that did not mean to
// own it too, so that it goes when an apply leaves it out. Where we have applied none, what was
// applied before is ours. The target must have been seen live.
func (w *Writer) Own(ctx context.Context, t Target) (*unstructured.Unstructured, error) {
	ours, marks := fields.Of(t.Seen, t.Manager), w.Names.OriginMarks()
	managed := ours != nil
	if !managed {
		ours = fields.By(t.Seen, w.Names.Earlier(t.Manager))
	}
	entries := fields.Alone(t.Seen, w.Names.Left(t.Manager), ours, marks)
	if !managed {
		entries = append(entries, fields.AppliedBy(t.Seen, t.Manager, ours.Union(marks)))
	}
	return w.Merge(ctx, w.target(t), t.Name.Name, map[string]any{
		"uid": string(t.Seen.GetUID()), "resourceVersion": t.Seen.GetResourceVersion(),
		"managedFields": entries,
	})
}

// Note annotates the target, in the version that was seen.
func (w *Writer) Note(ctx context.Context, t Target, key, value string) (*unstructured.Unstructured, error) {
	return w.Merge(ctx, w.target(t), t.Name.Name, map[string]any{
		"uid": string(t.Seen.GetUID()), "resourceVersion": t.Seen.GetResourceVersion(),
		"annotations": map[string]any{key: value},
	})
}

// LetGo takes our identity and our claim to fields off the target, and leaves
// the fields: an empty apply would remove them. Source names for people what it was made
// from.
func (w *Writer) LetGo(ctx context.Context, t Target, source string) (*unstructured.Unstructured, error) {
	full, err := w.target(t).Get(ctx, t.Name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	others := fields.Except(full, func(e fields.Entry) bool { return e.Manager == t.Manager })
	if len(others) == 0 {
		others = []any{map[string]any{}} // an empty list would be ignored
	}
	return w.Merge(ctx, w.target(t), t.Name.Name, map[string]any{
		"uid": string(t.Seen.GetUID()), "resourceVersion": full.GetResourceVersion(),
		"annotations": map[string]any{w.Names.Bound: nil, w.Names.Source: nil, w.Names.Adopted: nil, w.Names.Orphaned: source}, "managedFields": others,
	})
}

// Delete deletes the target, if it still is in the version that was seen.
func (w *Writer) Delete(ctx context.Context, t Target) (Outcome, error) {
	uid, version := t.Seen.GetUID(), t.Seen.GetResourceVersion()
	return w.Remove(ctx, t.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
}
