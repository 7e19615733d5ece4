// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/fields"
)

func (w *Writer) source(seen *unstructured.Unstructured) dynamic.ResourceInterface {
	return w.Sources.Namespace(seen.GetNamespace())
}

// AddFinalizer puts our finalizer on the source, in the version that was seen.
func (w *Writer) AddFinalizer(ctx context.Context, seen *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	patch := []operation{
		{"test", "/metadata/uid", string(seen.GetUID())},
		{"test", "/metadata/resourceVersion", seen.GetResourceVersion()},
	}
	if len(seen.GetFinalizers()) == 0 {
		patch = append(patch, operation{"add", "/metadata/finalizers", []string{w.Finalizer}})
	} else {
		patch = append(patch, operation{"add", "/metadata/finalizers/-", w.Finalizer})
	}
	return w.jsonPatch(ctx, seen, patch)
}

// RemoveFinalizer takes our finalizer, and no other, off the source, as long as it is being
// deleted: a backup may bring it back to life.
func (w *Writer) RemoveFinalizer(ctx context.Context, seen *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	at := fmt.Sprintf("/metadata/finalizers/%d", slices.Index(seen.GetFinalizers(), w.Finalizer))
	return w.jsonPatch(ctx, seen, []operation{
		{"test", "/metadata/uid", string(seen.GetUID())},
		{"test", "/metadata/deletionTimestamp", seen.GetDeletionTimestamp().UTC().Format(time.RFC3339)},
		{"test", at, w.Finalizer},
		{"remove", at, nil},
	})
}

// An operation of RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (w *Writer) jsonPatch(ctx context.Context, seen *unstructured.Unstructured, patch []operation) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	obj, err := w.source(seen).Patch(ctx, seen.GetName(), types.JSONPatchType, data, metav1.PatchOptions{FieldManager: w.Names.Manager()})
	err = refuted(err) // a test failed
	if err == nil || errors.Is(err, fates.ErrAgain) || fates.Is(err, fates.Absent) {
		return obj, err
	}
	return nil, fmt.Errorf("patch source: %w", err)
}

// Annotate puts an annotation on the source, or takes it off if value is empty.
func (w *Writer) Annotate(ctx context.Context, seen *unstructured.Unstructured, key, value string) (*unstructured.Unstructured, error) {
	var v any
	if value != "" {
		v = value
	}
	return w.merge(ctx, w.source(seen), seen.GetName(), map[string]any{
		"uid": string(seen.GetUID()), "annotations": map[string]any{key: v},
	})
}

// EmptyStatus takes away what we own of the maps that give empties, in the status of
// a source. If there is nothing to take, an apply does, and it reports false.
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
	patch := fields.By(full, ours).Emptied(map[string]any{"status": give}, fields.By(full, others))
	if len(patch) == 0 {
		return nil, false, nil
	}
	patch["metadata"] = map[string]any{"resourceVersion": full.GetResourceVersion()}
	var part []string
	if !w.PlainStatus.Load() {
		part = []string{"status"}
	}
	obj, err = w.patch(ctx, w.source(seen), seen.GetName(), patch, part...)
	return obj, err == nil, err
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

// ApplyStatus applies a status to the source, of just the incarnation and the version that
// was seen: what an earlier request says that arrives only now is out of date.
func (w *Writer) ApplyStatus(ctx context.Context, seen *unstructured.Unstructured, give map[string]any) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": seen.GetAPIVersion(), "kind": seen.GetKind(), "status": give,
		"metadata": map[string]any{"name": seen.GetName(), "uid": string(seen.GetUID()), "resourceVersion": seen.GetResourceVersion()},
	}}
	object.SetNamespace(seen.GetNamespace())
	opts := metav1.ApplyOptions{FieldManager: w.Names.StatusManager(), Force: true}
	if w.PlainStatus.Load() {
		return w.source(seen).Apply(ctx, seen.GetName(), object, opts)
	}
	return w.source(seen).ApplyStatus(ctx, seen.GetName(), object, opts)
}
