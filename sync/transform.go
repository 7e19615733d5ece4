// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// Annotations that a Sync writes.
const (
	// MessageAnnotation on a source says why it is not in step.
	MessageAnnotation = domain + "sync-message"

	// ReleaseAnnotation on a source, with whatever value, lets its deletion pass
	// although too many are being deleted at once: see Options.DeletionLimit.
	ReleaseAnnotation = domain + "release-deletion"

	// TargetAnnotation on a source holds the UID of its target. It is written
	// only under LostReport. Removing it lets a lost target be created anew.
	TargetAnnotation = domain + "target-uid"

	// BoundAnnotation marks synced objects on the target, and copies of related
	// objects, on which it is a label too.
	BoundAnnotation = domain + "bound"

	// SourceAnnotation on a target or a copy names its source: see OriginOf.
	SourceAnnotation = domain + "source"

	// OwnerAnnotation on a copy of a related object says whose it is in Klutch's
	// words: Provider for the target side, Consumer for the source side.
	OwnerAnnotation = domain + "resource-owner"

	// ReferrerAnnotation on a copy of a related object names the bound object
	// that refers to its original.
	ReferrerAnnotation = domain + "referenced-by"

	// OrphanedAnnotation on a former target names its source, which was deleted
	// under DeletionOrphan.
	OrphanedAnnotation = domain + "orphaned-from"

	domain = "klutch.anynines.com/"
)

// An intent is what a Sync wants a target to be, and its hash.
type intent struct {
	object map[string]any
	hash   string
}

// newIntent derives from a source what its target should be: everything but
// status and those metadata that belong to the object as such.
func (o Options) newIntent(source *unstructured.Unstructured, from origin, target cache.ObjectName) intent {
	extra := Meta{}
	if o.TargetMeta != nil {
		extra = o.TargetMeta(from.name)
	}
	meta := map[string]any{"name": target.Name}
	if target.Namespace != "" {
		meta["namespace"] = target.Namespace
	}
	if labels := travelling(source.GetLabels(), o.Labels, extra.Labels); len(labels) > 0 {
		meta["labels"] = labels
	}
	if owners := ownerReferences(extra.OwnerReferences); len(owners) > 0 {
		meta["ownerReferences"] = owners
	}
	annotations := travelling(source.GetAnnotations(), o.Annotations, extra.Annotations)
	annotations[BoundAnnotation] = "true"
	annotations[SourceAnnotation] = from.record(0, "")
	meta["annotations"] = annotations

	object := travel.Body(source.Object)
	object["metadata"] = meta
	hash := hashOf(object)
	annotations[SourceAnnotation] = from.record(source.GetGeneration(), hash)
	return intent{object: object, hash: hash}
}

// travelling is what of some metadata travels, and what is added to it.
func travelling(have map[string]string, allowed func(string) bool, extra map[string]string) map[string]any {
	out := travel.Metadata(have, allowed)
	for k, v := range extra {
		out[k] = v
	}
	return out
}

func ownerReferences(refs []metav1.OwnerReference) []any {
	var out []any
	for _, r := range refs {
		o := map[string]any{"apiVersion": r.APIVersion, "kind": r.Kind, "name": r.Name, "uid": string(r.UID)}
		if r.Controller != nil {
			o["controller"] = *r.Controller
		}
		if r.BlockOwnerDeletion != nil {
			o["blockOwnerDeletion"] = *r.BlockOwnerDeletion
		}
		out = append(out, o)
	}
	return out
}

// hashOf is a short hash of a JSON value; encoding/json sorts the keys.
func hashOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "" // JSON values can be encoded
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// owns reports whether manager still owns on obj all that it applied, and nothing of it
// was lost.
func (i intent) owns(obj *unstructured.Unstructured, manager string) bool {
	return !lost(obj, manager) && fields.Of(obj, manager).Own(i.object)
}

// lostClaims in the metadata of a target, as a view has it, names the managers that
// own what is not there. A write while the schema does not know a field loses it, and
// not the claim to it.
const lostClaims = domain + "lost"

func noteLost(obj *unstructured.Unstructured, prefix string) {
	var losers []any
	for e := range fields.Entries(obj) {
		if strings.HasPrefix(e.Manager, prefix) && !e.Fields.Present(obj.Object) {
			losers = append(losers, e.Manager)
		}
	}
	if meta, ok := obj.Object["metadata"].(map[string]any); ok && losers != nil {
		meta[lostClaims] = losers
	}
}

// lost reports whether what manager owns of obj is not all there.
func lost(obj *unstructured.Unstructured, manager string) bool {
	losers, _, _ := unstructured.NestedSlice(obj.Object, "metadata", lostClaims)
	return slices.Contains(losers, any(manager))
}

// within reports whether have has all of want.
func within(want, have any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		for key, value := range w {
			ok = ok && (value == nil || within(value, h[key]))
		}
		return ok
	case []any:
		h, _ := have.([]any)
		return slices.EqualFunc(w, h, within)
	default:
		return hashOf(want) == hashOf(have)
	}
}

// newStatus is what the status of a source should be, nil if its target has none.
func newStatus(source, target *unstructured.Unstructured) map[string]any {
	status, ok := target.Object["status"].(map[string]any)
	if !ok || len(status) == 0 {
		return nil
	}
	published, _ := source.Object["status"].(map[string]any)
	from, _ := OriginOf(target)
	tr := translator{observed: target.GetGeneration(), stands: from.Generation}
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
// source, but it is not known which: what was published before still holds.
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
	case ok && before < t.stands:
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

// slimSource drops from a source what the engine never looks at.
func slimSource(obj any) any {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		noteFinalizers(u)
		u.SetManagedFields(nil)
		if a := u.GetAnnotations(); a[lastApplied] != "" {
			delete(a, lastApplied)
			u.SetAnnotations(a)
		}
	}
	return obj
}

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// slimTarget keeps of a target its metadata, its status, and those other
// top-level fields that keep names; of managed fields only what we applied, and that
// a legacy konnector holds some.
func slimTarget(prefix string, keep map[string]bool) func(any) any {
	return func(obj any) any {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj
		}
		noteLost(u, prefix)
		for key := range u.Object {
			if !keep[key] {
				delete(u.Object, key)
			}
		}
		meta, _ := u.Object["metadata"].(map[string]any)
		kept := fields.Except(u, func(e fields.Entry) bool { return !strings.HasPrefix(e.Manager, prefix) })
		if writer := legacy.Writer(u); writer != "" {
			kept = append(kept, map[string]any{"manager": writer})
		}
		meta["managedFields"] = kept
		return u
	}
}
