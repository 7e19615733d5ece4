// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/slim"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// An intent is what a Sync wants a target to be, and its hash.
type intent struct {
	object map[string]any
	hash   string
}

// newIntent derives from a source what its target should be: everything but
// status and those metadata that belong to the object as such.
func (o Options) newIntent(n *names.Names, source *unstructured.Unstructured, from origin, target cache.ObjectName) intent {
	extra := Meta{}
	if o.TargetMeta != nil {
		extra = o.TargetMeta(from.name)
	}
	meta := map[string]any{"name": target.Name}
	if target.Namespace != "" {
		meta["namespace"] = target.Namespace
	}
	if labels := travelling(source.GetLabels(), notOwn(n, o.Labels), extra.Labels); len(labels) > 0 {
		meta["labels"] = labels
	}
	if owners := ownerReferences(extra.OwnerReferences); len(owners) > 0 {
		meta["ownerReferences"] = owners
	}
	annotations := travelling(source.GetAnnotations(), notOwn(n, o.Annotations), extra.Annotations)
	annotations[n.Bound] = "true"
	annotations[n.Source] = from.since(Origin{}, "").record(0, "")
	meta["annotations"] = annotations

	object := travel.Body(source.Object)
	object["metadata"] = meta
	hash := travel.Hash(object)
	annotations[n.Source] = from.record(source.GetGeneration(), hash)
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

// notOwn is allowed less what the engine itself writes.
func notOwn(n *names.Names, allowed func(key string) bool) func(key string) bool {
	return func(key string) bool { return !n.Own(key) && (allowed == nil || allowed(key)) }
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

// owns reports whether manager still owns on obj all that it applied, and nothing of it
// was lost.
func (i intent) owns(obj *unstructured.Unstructured, manager string) bool {
	return !slim.Lost(obj, manager) && fields.Of(obj, manager).Own(i.object)
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
		return travel.Hash(want) == travel.Hash(have)
	}
}
