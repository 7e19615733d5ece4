// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/names"
)

const domain = names.Klutch + "/"

// Annotations that a Sync writes, unless it has a domain of its own: see Options.Domain.
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
// source yet, with that of the source.
func (o origin) since(target Origin, source string) origin {
	if o.version = source; o.made(target) {
		o.version = target.version()
	}
	return o
}

// version is Version, of which the other cluster may have made anything.
func (o Origin) version() string {
	const longest = 20 // that API servers give
	return o.Version[:min(len(o.Version), longest)]
}

// made reports whether a target was made from this very source. No other one has
// its UID, in whatever cluster: one that took the place of another may be recorded
// under the name of that.
func (o origin) made(target Origin) bool { return o.uid != "" && target.UID == o.uid }

// sameSlot reports whether a target was made from a source of this name, in
// whatever incarnation.
func (o origin) sameSlot(target Origin) bool { return o.sameName(target) && o.sameCluster(target) }

func (o origin) sameName(target Origin) bool {
	return target.UID != "" && target.Name == o.name.Name && target.Namespace == o.name.Namespace
}

func (o origin) sameCluster(target Origin) bool {
	return target.Cluster == "" || o.cluster == "" || target.Cluster == o.cluster
}
