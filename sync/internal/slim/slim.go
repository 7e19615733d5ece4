// SPDX-License-Identifier: Apache-2.0

// Package slim drops the parts of a cached object that the engine never reads. Ten thousand
// objects are watched on both sides: the parts that stay make up the memory of a konnector.
package slim

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
	"github.com/klutch-go/sdk/sync/internal/names"
)

// Source drops the parts of a source that the engine never reads.
func Source(n *names.Names) func(any) any {
	return func(obj any) any {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			NoteSource(u, n)
			u.SetManagedFields(nil)
			if a := u.GetAnnotations(); a[LastApplied] != "" {
				delete(a, LastApplied)
				u.SetAnnotations(a)
			}
		}
		return obj
	}
}

// Keys of the notes that this package adds to the metadata of a cached source. No API server has them.
const (
	syncFinalizers = "klutch.anynines.com/finalizers"
	servedStatus   = "klutch.anynines.com/served"
	syncApplied    = "klutch.anynines.com/applied"
)

// NoteSource notes in the metadata of a source, as a view has it, the finalizers that
// Syncs have put on it, in their order, and the usual one, which may be from before there was a
// Sync. Where that is the only one it is left out. It notes too whether the source was [Served], and
// whether a Sync has [Applied] it.
func NoteSource(source *unstructured.Unstructured, n *names.Names) {
	var held []any
	for _, finalizer := range source.GetFinalizers() {
		if finalizer == n.Finalizer() || holderOf(source, finalizer, n) != "" {
			held = append(held, finalizer)
		}
	}
	meta, ok := source.Object["metadata"].(map[string]any)
	if ok && len(held) > 0 && (len(held) > 1 || held[0] != n.Finalizer()) {
		meta[syncFinalizers] = held
	}
	holder := holderOf(source, n.Mine(), n)
	for e := range fields.Entries(source) {
		_, status := e.Fields["f:status"]
		ours := e.Manager == n.StatusManager() || holder != "" && e.Manager == names.StatusManager(holder)
		if status && (ours || n.Domain == names.Klutch+"/" && legacy.WroteStatus(e)) && given(e, source) && ok {
			meta[servedStatus] = true
		}
	}
	if ok && fields.By(source, n.Applied) != nil {
		meta[syncApplied] = true
	}
}

// given reports whether the writer of a status gave it to source itself. What a copy brings along is older
// than the copy, as clocks have it, and of a status that is a subresource a copy does not bring the fields.
func given(e fields.Entry, source *unstructured.Unstructured) bool {
	return !e.Before(source) || e.Subresource == "status" && e.Fields.Present(source.Object)
}

// Served reports whether a source has a status that the Sync gave it, also while its binding had another
// name, or the legacy konnector before it: there was a target of it.
func Served(source *unstructured.Unstructured) bool {
	served, _, _ := unstructured.NestedBool(source.Object, "metadata", servedStatus)
	return served
}

// Applied reports whether a Sync has applied a source, as the target of another one.
func Applied(source *unstructured.Unstructured) bool {
	applied, _, _ := unstructured.NestedBool(source.Object, "metadata", syncApplied)
	return applied
}

// holderOf is the field manager of the Sync that has put a finalizer on a source, be it under another
// name of its binding; empty if none has.
func holderOf(source *unstructured.Unstructured, finalizer string, n *names.Names) string {
	for e := range fields.Entries(source) {
		if strings.HasPrefix(e.Manager, n.Domain) && e.Subresource == "" && e.Fields.HasItem(finalizer, "metadata", "finalizers") {
			return e.Manager
		}
	}
	return ""
}

// FirstFinalizer is the first one that a Sync has put on a source; empty if none has.
func FirstFinalizer(source *unstructured.Unstructured, n *names.Names) string {
	held, _, _ := unstructured.NestedSlice(source.Object, "metadata", syncFinalizers)
	if len(held) > 0 {
		first, _ := held[0].(string)
		return first
	}
	if slices.Contains(source.GetFinalizers(), n.Finalizer()) {
		return n.Finalizer()
	}
	return ""
}

// LastApplied is an annotation of kubectl, which has all the content.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Target keeps of a target its metadata, its status, and those other
// top-level fields that keep names; of managed fields only what we applied, and that
// a legacy konnector holds some.
func Target(n *names.Names, keep map[string]bool) func(any) any {
	return func(obj any) any {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj
		}
		Note(u, n)
		for key := range u.Object {
			if !keep[key] {
				delete(u.Object, key)
			}
		}
		meta, _ := u.Object["metadata"].(map[string]any)
		kept := fields.Except(u, func(e fields.Entry) bool { return !strings.HasPrefix(e.Manager, n.Domain) })
		if writer := legacy.Writer(u); writer != "" {
			kept = append(kept, map[string]any{"manager": writer})
		}
		meta["managedFields"] = kept
		return u
	}
}

// Keys of such notes about the fields of a cached target that others have, or share.
const (
	lostClaims   = "klutch.anynines.com/lost"
	sharedClaims = "klutch.anynines.com/shared"
)

// Note records two facts in the metadata of a cached target: which of our managers own a field
// that is not in the object, and which share a field with a writer that did not apply it. A write
// while the schema lacks a field loses the field, but not its owner's entry.
func Note(obj *unstructured.Unstructured, n *names.Names) {
	var losers, sharers []any
	for e := range fields.Entries(obj) {
		if !strings.HasPrefix(e.Manager, n.Domain) {
			continue
		}
		if !e.Fields.Present(obj.Object) {
			losers = append(losers, e.Manager)
		}
		if n.Applied(e) && shares(obj, n, e) {
			sharers = append(sharers, e.Manager)
		}
	}
	meta, _ := obj.Object["metadata"].(map[string]any)
	if losers != nil {
		meta[lostClaims] = losers
	}
	if sharers != nil {
		meta[sharedClaims] = sharers
	}
}

// shares reports whether other writers, by an update rather than an apply, own fields of ours.
func shares(obj *unstructured.Unstructured, n *names.Names, ours fields.Entry) bool {
	left := n.Left(ours.Manager)
	for e := range fields.Entries(obj) {
		if left(e) && !legacy.Wrote(e) && ours.Fields.Overlaps(e.Fields) {
			return true
		}
	}
	return false
}

// Lost reports whether obj lacks a field that manager owns.
func Lost(obj *unstructured.Unstructured, manager string) bool {
	return noted(obj, lostClaims, manager)
}

// Shared reports whether other writers own, by an update, a field of obj that manager owns.
func Shared(obj *unstructured.Unstructured, manager string) bool {
	return noted(obj, sharedClaims, manager)
}

func noted(obj *unstructured.Unstructured, claims, manager string) bool {
	managers, _, _ := unstructured.NestedSlice(obj.Object, "metadata", claims)
	return slices.Contains(managers, any(manager))
}

// Related keeps the labels of a related object, and the metadata that name its
// owner. The field managers of copies end in managers.
func Related(n *names.Names, managers string) func(any) any {
	return func(obj any) any {
		if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
			o.ManagedFields = slices.DeleteFunc(o.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
				return !strings.HasSuffix(entry.Manager, managers)
			})
			for i, entry := range o.ManagedFields {
				o.ManagedFields[i] = metav1.ManagedFieldsEntry{Manager: entry.Manager}
			}
			maps.DeleteFunc(o.Annotations, func(key, _ string) bool {
				return !strings.HasPrefix(key, n.Domain) && key != corev1.ServiceAccountNameKey
			})
			o.OwnerReferences, o.Finalizers = nil, nil
		}
		return obj
	}
}
