// SPDX-License-Identifier: Apache-2.0

// Package names has every name that one Sync writes on objects: annotations, a label, and
// field managers. All begin with one domain, so that programs that have nothing to do with
// each other do not take the marks of the one for those of the other.
//
// A field manager is "domain/binding/incarnation": the binding tells apart the Syncs that
// write to one target cluster, and the incarnation, the end of a UID, the sources that bear
// one name after another: an apply for the second meets a conflict rather than take over
// what the first left.
package names

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// Names are the marks and field managers of one Sync. Create them with Of.
type Names struct {
	Domain string // with a slash at the end

	Message      string // annotation of a source: why it is not in step
	Release      string // annotation of a source: its deletion may pass
	Send         string // annotation of a source: its generation, to be sent though the target is of a later one
	Target       string // annotation of a source: the UID of its target
	TargetRecord string // annotation of a source: the same, of a Sync with a finalizer of its own; else Target
	Bound        string // annotation of targets and copies, and label of copies
	Source       string // annotation of targets and copies: what they were made from
	Owner        string // annotation of a copy: the side of its original
	Referrer     string // annotation of a copy: the object that refers to its original
	Orphaned     string // annotation of a former target: what it was made from
	Behind       string // annotation of a target: which generation of its source was seen behind it
	Adopted      string // label of a source, annotation of its target: the target's side made it first

	manager   string // without an incarnation
	finalizer string // that the Sync puts on its sources
}

// Klutch is the domain that Syncs have if they are given none.
const Klutch = "klutch.anynines.com"

const source, status = "source", "/status"

// IsSource reports whether an annotation is Source, of any domain.
func IsSource(annotation string) bool { return strings.HasSuffix(annotation, "/"+source) }

// Finalizer is the one of Syncs of the domain that are given none.
func (n *Names) Finalizer() string { return n.Domain + "syncer" }

// Of returns the names of the Sync of binding under domain.
func Of(domain, binding string) *Names {
	d := domain + "/"
	return &Names{
		Domain: d, Message: d + "sync-message", Release: d + "release-deletion", Send: d + "send-generation", Target: d + "target-uid", TargetRecord: d + "target-uid", Bound: d + "bound",
		Source: d + source, Owner: d + "resource-owner", Referrer: d + "referenced-by", Orphaned: d + "orphaned-from", Behind: d + "source-behind", Adopted: d + "adopted",
		manager: manager(d, binding),
	}
}

// Mine is the finalizer that the Sync puts on its sources.
func (n *Names) Mine() string { return cmp.Or(n.finalizer, n.Finalizer()) }

// With returns the names of a Sync with a finalizer: two Syncs of one source have a mark each.
func (n *Names) With(finalizer string) *Names {
	n.finalizer = finalizer
	if finalizer != n.Finalizer() {
		n.TargetRecord += "-" + travel.Hash(finalizer)[:8]
	}
	return n
}

// MaxManager is the longest field manager that API servers take.
const MaxManager = 128

const shortUID = 12

func manager(domain, binding string) string {
	room := MaxManager - len(domain) - 1 - shortUID
	if len(binding) > room {
		binding = binding[:room-33] + "-" + travel.Hash(binding)
	}
	return domain + binding
}

// Manager is the field manager of writes to a source, except to its status.
func (n *Names) Manager() string { return n.manager }

// StatusManager is the field manager of statuses.
func (n *Names) StatusManager() string { return StatusManager(n.manager) }

// StatusManager is the field manager of statuses of the Sync that writes to sources as manager.
func StatusManager(manager string) string { return manager + status }

// RelatedManager is the field manager of copies; end is that of all such.
func (n *Names) RelatedManager(end string) string { return n.manager + end }

// Incarnation is the field manager of the target of the source with a UID.
func (n *Names) Incarnation(uid types.UID) string {
	return n.manager + end(uid)
}

// Incarnations selects what was applied to the target of the source with a UID, also while the
// binding had another name.
func (n *Names) Incarnations(uid types.UID) func(fields.Entry) bool {
	return func(e fields.Entry) bool { return n.Applied(e) && strings.HasSuffix(e.Manager, end(uid)) }
}

func end(uid types.UID) string { return "/" + string(uid[max(0, len(uid)-shortUID):]) }

// Maker is the end of the UID of the source whose incarnation owns fields of a target; empty if
// none does.
func (n *Names) Maker(target *unstructured.Unstructured) string {
	for e := range fields.Entries(target) {
		if end, ok := strings.CutPrefix(e.Manager, n.manager+"/"); ok && n.Applied(e) {
			return end
		}
	}
	return ""
}

// Earlier selects what incarnations other than the one of manager have applied, also while the
// binding had another name.
func (n *Names) Earlier(manager string) func(fields.Entry) bool {
	return func(e fields.Entry) bool { return n.Applied(e) && e.Manager != manager }
}

// EarlierStatus selects what other Syncs have given of a status, or this one while its binding had
// another name.
func (n *Names) EarlierStatus(e fields.Entry) bool {
	return e.Manager != n.StatusManager() && strings.HasPrefix(e.Manager, n.Domain) && strings.HasSuffix(e.Manager, status)
}

// Applied selects the entries of applies by Syncs to targets.
func (n *Names) Applied(e fields.Entry) bool {
	return e.Applied && e.Subresource == "" && strings.HasPrefix(e.Manager, n.Domain) && !strings.HasSuffix(e.Manager, status)
}

// OriginMarks are the annotations by which a Sync knows its targets.
func (n *Names) OriginMarks() fields.Set {
	leaf := map[string]any{}
	return fields.Set{"f:metadata": map[string]any{"f:annotations": map[string]any{"f:" + n.Source: leaf, "f:" + n.Bound: leaf}}}
}

// Left selects the entries that lose the fields that manager has applied: entries of writers
// that created or updated the object, and of other Syncs. The entries of other appliers stay: they
// own their fields on purpose, and would apply them again.
func (n *Names) Left(manager string) func(fields.Entry) bool {
	return func(e fields.Entry) bool {
		return e.Subresource == "" && e.Manager != manager && (!e.Applied || n.Applied(e))
	}
}

// Own reports whether a key of labels or annotations is in the domain.
func (n *Names) Own(key string) bool { return strings.HasPrefix(key, n.Domain) }
