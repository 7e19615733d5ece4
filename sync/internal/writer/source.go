// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
	"github.com/klutch-go/sdk/sync/internal/names"
)

func (w *Writer) source(seen *unstructured.Unstructured) dynamic.ResourceInterface {
	return w.Sources.Namespace(seen.GetNamespace())
}

// AddFinalizer puts our finalizer on the source, in the version that was seen.
func (w *Writer) AddFinalizer(ctx context.Context, seen *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	add := operation{"add", "/metadata/finalizers/-", w.Finalizer}
	if len(seen.GetFinalizers()) == 0 {
		add = operation{"add", "/metadata/finalizers", []string{w.Finalizer}}
	}
	return w.jsonPatch(ctx, w.source(seen), seen, []operation{add})
}

// RemoveFinalizer takes our finalizer, and no other, off the source, in the version that was seen being
// deleted: a backup may bring it back to life.
func (w *Writer) RemoveFinalizer(ctx context.Context, seen *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	at := fmt.Sprintf("/metadata/finalizers/%d", slices.Index(seen.GetFinalizers(), w.Finalizer))
	return w.TakeAway(ctx, w.source(seen), seen, []string{at})
}

// An operation of RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// TakeAway takes parts of an object, of any resource, away from all managers that own them.
func (w *Writer) TakeAway(ctx context.Context, client dynamic.ResourceInterface, seen *unstructured.Unstructured, pointers []string, subresource ...string) (*unstructured.Unstructured, error) {
	patch := make([]operation, 0, len(pointers))
	for _, pointer := range pointers {
		patch = append(patch, operation{"remove", pointer, nil})
	}
	return w.jsonPatch(ctx, client, seen, patch, subresource...)
}

// jsonPatch patches an object of just the incarnation and the version that was seen. An API server
// answers 409 where a replaced value is another one, and 422 where a test of the patch fails, as it does to
// an invalid object.
func (w *Writer) jsonPatch(ctx context.Context, client dynamic.ResourceInterface, seen *unstructured.Unstructured, patch []operation, subresource ...string) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(append([]operation{{"replace", "/metadata/uid", string(seen.GetUID())}, {"replace", "/metadata/resourceVersion", seen.GetResourceVersion()}}, patch...))
	if err != nil {
		return nil, err
	}
	obj, err := client.Patch(ctx, seen.GetName(), types.JSONPatchType, data, metav1.PatchOptions{FieldManager: w.Names.Manager()}, subresource...)
	return obj, refuted(err)
}

// Annotate puts an annotation on the source, or takes it off if value is empty.
func (w *Writer) Annotate(ctx context.Context, seen *unstructured.Unstructured, key, value string) (*unstructured.Unstructured, error) {
	var v any
	if value != "" {
		v = value
	}
	return w.Merge(ctx, w.source(seen), seen.GetName(), map[string]any{
		"uid": string(seen.GetUID()), "annotations": map[string]any{key: v},
	})
}

// EmptyStatus takes away what we own of the maps and lists that give empties, in the status
// of a source. If there is nothing to take, an apply does, and it reports false.
func (w *Writer) EmptyStatus(ctx context.Context, seen *unstructured.Unstructured, give map[string]any) (obj *unstructured.Unstructured, taken bool, err error) {
	if !emptier(map[string]any{"status": give}, seen.Object) {
		return nil, false, nil
	}
	full, err := w.source(seen).Get(ctx, seen.GetName(), metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, false, err
	case full.GetUID() != seen.GetUID() || full.GetResourceVersion() != seen.GetResourceVersion():
		return nil, false, fates.ErrAgain
	}
	ours := func(e fields.Entry) bool { return e.Manager == w.Names.StatusManager() }
	others := func(e fields.Entry) bool { return e.Manager != w.Names.StatusManager() }
	pointers := fields.By(full, ours).Emptied(map[string]any{"status": give}, fields.By(full, others)).Pointers(full.Object, "")
	if len(pointers) == 0 {
		return nil, false, nil
	}
	obj, err = w.TakeAway(ctx, w.source(seen), full, pointers, w.statusPart()...)
	return obj, err == nil, err
}

// statusPart is the part of a source that its status is written to: a subresource, or none.
func (w *Writer) statusPart() []string {
	if w.Plain() {
		return nil
	}
	return []string{"status"}
}

// emptier reports whether want may have an empty map or list where have has one with parts, or
// nothing but empty lists.
func emptier(want, have any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, _ := have.(map[string]any)
		bare := true
		for key, value := range w {
			if emptier(value, h[key]) {
				return true
			}
			bare = bare && hollow(value)
		}
		for key := range h {
			if _, wanted := w[key]; bare && !wanted {
				return true
			}
		}
		return false
	case []any:
		h, _ := have.([]any)
		if len(w) == 0 || len(h) == 0 {
			return len(h) > 0
		}
		return slices.ContainsFunc(w, hollow) && !equality.Semantic.DeepEqual(w, h) // which item was which, managed fields tell
	default:
		return false
	}
}

// hollow reports whether an empty map or list is in value.
func hollow(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for _, part := range v {
			if hollow(part) {
				return true
			}
		}
		return len(v) == 0
	case []any:
		return len(v) == 0 || slices.ContainsFunc(v, hollow)
	default:
		return false
	}
}

// ApplyStatus applies a status to the source, of just the incarnation and the version that
// was seen: what an earlier request says that arrives only now is out of date. It takes away what
// only a legacy konnector has given, a Sync under another name, or this one before the kind got or lost its
// status subresource: no apply of ours would ever end it. So it does with what no writer has, if unclaimed
// says that we have lost what we had; else that may be the API server's defaults, which come back each time.
func (w *Writer) ApplyStatus(ctx context.Context, seen *unstructured.Unstructured, give map[string]any, unclaimed bool) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": seen.GetAPIVersion(), "kind": seen.GetKind(), "status": give,
		"metadata": map[string]any{"name": seen.GetName(), "uid": string(seen.GetUID()), "resourceVersion": seen.GetResourceVersion()},
	}}
	object.SetNamespace(seen.GetNamespace())
	opts := metav1.ApplyOptions{FieldManager: w.Names.StatusManager(), Force: true}
	part := w.statusPart()
	obj, err := w.source(seen).Apply(ctx, seen.GetName(), object, opts, part...)
	if err != nil {
		return obj, err
	}
	before := func(e fields.Entry) bool {
		ours := e.Manager == w.Names.StatusManager() && e.Subresource != strings.Join(part, "")
		return ours || w.Names.EarlierStatus(e) || w.Names.Domain == names.Klutch+"/" && legacy.WroteStatus(e)
	}
	earlier, others := fields.By(obj, before), fields.By(obj, func(e fields.Entry) bool { return !before(e) })
	goes := earlier.Emptied(noStatus, others)
	if _, claimed := others["f:status"]; unclaimed && claimed {
		goes = goes.Union(earlier.Union(others).Unclaimed(map[string]any{"status": obj.Object["status"]}))
	}
	if left := goes.Pointers(obj.Object, ""); len(left) > 0 {
		return w.TakeAway(ctx, w.source(seen), obj, left, part...)
	}
	return obj, nil
}

var noStatus = map[string]any{"status": map[string]any{}}
