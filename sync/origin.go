// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/slim"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

const domain = names.Klutch + "/"

// Annotations that a Sync writes, unless it has a domain of its own: see Options.Domain.
const (
	// MessageAnnotation on a source says why it is not in step.
	MessageAnnotation = domain + "sync-message"

	// ReleaseAnnotation on a source, with the word that its message spells, lets its deletion pass
	// although too many are being deleted at once: see Options.DeletionLimit. The next deletion that
	// is held, or return of a target, has another word.
	ReleaseAnnotation = domain + "release-deletion"

	// SendAnnotation on a source that is older than its target, as after a restore from a
	// backup, with its generation, has it sent as it stands: no edit is needed.
	SendAnnotation = domain + "send-generation"

	// TargetAnnotation on a source holds the UID of its target, a slash, and its own:
	// a copy of the source has lost nothing. It is written only under LostReport.
	// Removing it lets a lost target be created anew. A Sync with another finalizer than the
	// usual one has one of its own, with a hash of that at its end; the message names it.
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

	// BehindAnnotation on a target says which generation its source had when it was seen
	// to be an earlier one than that in SourceAnnotation, as after a restore from a backup:
	// that generation, a slash, and a hash of SourceAnnotation. Later ones are new edits.
	BehindAnnotation = domain + "source-behind"

	// AdoptedLabel on a source, beside its TargetAnnotation, says that it was made for a
	// target that was there first: see Options.Adopt. It is an annotation on the target.
	AdoptedLabel = domain + "adopted"
)

// An Origin is what SourceAnnotation says: which source a target or a copy was
// made from, and from which state of it. It is one annotation and not six because
// API servers keep account of each field that is applied.
type Origin struct {
	// UID is that of the source, Cluster that of the namespace by which its cluster
	// is known, empty if that may not be read: see Cluster.IdentifiedBy.
	UID     types.UID `json:"uid"`
	Cluster types.UID `json:"cluster,omitempty"`

	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`

	// Generation is that of the source, and Hash that of what was applied, when
	// the target was last written. Copies of related objects have neither.
	Generation int64  `json:"generation,omitempty"`
	Hash       string `json:"hash,omitempty"`

	// Version is the resourceVersion that the source had when the target was made: what
	// happened to the source afterwards can be read from there on.
	Version string `json:"version,omitempty"`
}

// OriginOf returns the origin of an object that a Sync made; ok is false if none
// did, or if the record cannot be read.
func OriginOf(obj metav1.Object) (o Origin, ok bool) {
	return originIn(SourceAnnotation, obj)
}

// TakesOver reports whether a Sync with Klutch's domain takes a target over from Klutch's own
// konnector, as the one that was made from source.
func TakesOver(source, target metav1.Object) bool { return legacy.MadeFrom(source, target) }

// originIn is OriginOf where another annotation says so.
func originIn(annotation string, obj metav1.Object) (o Origin, ok bool) {
	text := obj.GetAnnotations()[annotation]
	if text == "" || json.Unmarshal([]byte(text), &o) != nil {
		return Origin{}, false
	}
	return o, o.UID != ""
}

// An origin is the identity of a source.
type origin struct {
	cluster types.UID // as in Origin
	uid     types.UID
	name    cache.ObjectName
	version string // as in Origin
}

// record is the value of SourceAnnotation.
func (o origin) record(generation int64, hash string) string {
	data, err := json.Marshal(Origin{
		UID: o.uid, Cluster: o.cluster, Namespace: o.name.Namespace, Name: o.name.Name, Generation: generation, Hash: hash, Version: o.version,
	})
	if err != nil {
		return "" // strings and numbers can be encoded
	}
	return string(data)
}

// since is o with the version that the target records or, of one that is not made from this
// source yet, with that of the source. A cluster that may not be read now stays recorded.
func (o origin) since(target Origin, source string) origin {
	if o.version = source; o.made(target) {
		o.version, o.cluster = target.version(), cmp.Or(o.cluster, target.cluster())
	}
	return o
}

// version is Version, of which the other cluster may have made anything.
func (o Origin) version() string {
	const longest = 20 // that API servers give
	return o.Version[:min(len(o.Version), longest)]
}

// cluster is Cluster, of which the other cluster may have made anything.
func (o Origin) cluster() types.UID {
	const longest = 36 // that API servers give
	return o.Cluster[:min(len(o.Cluster), longest)]
}

// made reports whether a target was made from this very source. No other one has
// its UID, in whatever cluster: one that took the place of another may be recorded
// under the name of that.
func (o origin) made(target Origin) bool { return o.uid != "" && target.UID == o.uid }

// madeFrom reports whether a target that says made of itself was made from the source of a UID.
// Others may take our annotations off: then the field manager of that incarnation tells, also that
// from before the binding had the name that it has.
func madeFrom(n *names.Names, made Origin, target *unstructured.Unstructured, source types.UID) bool {
	return made.UID == source || made.UID == "" && fields.By(target, n.Incarnations(source)) != nil
}

// sameName reports whether a target was made from a source of this name, in whatever
// incarnation and cluster.
func (o origin) sameName(target Origin) bool {
	return target.UID != "" && target.Name == o.name.Name && target.Namespace == o.name.Namespace
}

func (o origin) sameCluster(target Origin) bool {
	return target.Cluster == "" || o.cluster == "" || target.Cluster == o.cluster
}

// An intent is what a Sync wants a target to be, and its hash.
type intent struct {
	object map[string]any
	hash   string
}

// newIntent derives from a source what its target should be: everything but
// status and those metadata that belong to the object as such.
func (o Options) newIntent(n *names.Names, source *unstructured.Unstructured, from origin, target cache.ObjectName, composed func(...string) bool) intent {
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
	if isAdopted(n, source) {
		annotations[n.Adopted] = "true"
	}
	meta["annotations"] = annotations

	object := travel.Body(source.Object, composed)
	object["metadata"] = meta
	hash := travel.Hash(object)
	annotations[n.Source] = from.record(edits(source), hash)
	return intent{object: object, hash: hash}
}

// isAdopted reports whether a source was made for a target that was there first.
func isAdopted(n *names.Names, source *unstructured.Unstructured) bool {
	return source.GetLabels()[n.Adopted] == "true" && source.GetAnnotations()[n.Target] != ""
}

// recorded is the target's UID that a source with a UID has been given to keep; what a copy of
// another source brought along is none.
func recorded(mark string, source types.UID) string {
	target, of, _ := strings.Cut(mark, "/")
	if of != "" && of != string(source) {
		return ""
	}
	return target
}

// edits is the generation that a source has by what it asks for: API servers count its deletion as one
// more, if they count generations of its kind at all.
func edits(source metav1.Object) int64 {
	if source.GetDeletionTimestamp() != nil {
		return max(source.GetGeneration()-1, 0)
	}
	return source.GetGeneration()
}

// behind is the value of BehindAnnotation for a source of a generation.
func behind(generation int64, source string) string {
	return strconv.FormatInt(generation, 10) + "/" + travel.Hash(source)
}

// seenBehind is the generation of the source that a BehindAnnotation has, as long as the
// target is made from what it was made from then.
func seenBehind(value, source string) (generation int64, seen bool) {
	text, _, _ := strings.Cut(value, "/")
	generation, err := strconv.ParseInt(text, 10, 64)
	return generation, err == nil && value == behind(generation, source)
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
func (i intent) owns(obj *unstructured.Unstructured, manager string, schema fields.Schema) bool {
	return !slim.Lost(obj, manager) && fields.Of(obj, manager).Own(i.object, schema)
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
