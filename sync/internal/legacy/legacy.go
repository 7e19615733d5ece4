// SPDX-License-Identifier: Apache-2.0

// Package legacy knows what the konnector that Klutch shipped before this one leaves
// behind on a target, so that a cluster can change from one to the other in place.
//
// A legacy konnector creates a target under one field manager and updates it under
// another, marks it as bound, and holds its source by the finalizer that we use too; it
// records nowhere which source a target was made from. [MadeFrom] therefore goes by all
// that there is, and by the clocks: taking a target over wrongly would give one user the
// database of another, so that a doubt is left as a conflict, to which people can consent.
//
// What it applied must become ours ([TakeOver]) before anything else is done: next to an
// apply of ours its entry would own each field for ever, and what users remove at the
// source would stay on the target. An apply by force does not do: it shares fields and takes
// none away. Nor does client-go's csaupgrade: it leaves alone what was applied, and makes us
// the owner of whole maps, to which others may have added. What an earlier source of the
// name, a predecessor, applied beside this one is taken over in the same way.
package legacy

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/internal/legacycopy"
	"github.com/klutch-go/sdk/sync/internal/fields"
)

// Names that a legacy konnector writes.
const (
	finalizer  = "klutch.anynines.com/syncer"
	bound      = "klutch.anynines.com/bound"
	createdBy  = "konnector"
	updatedBy  = "klutch.anynines.com"
	clocksSkew = time.Minute // by which the clocks of two clusters may differ
)

// Wrote reports whether an entry, other than of a status, is a legacy konnector's.
func Wrote(e fields.Entry) bool {
	return (e.Manager == createdBy || e.Manager == updatedBy) && e.Subresource == ""
}

// WroteStatus reports whether an entry that has a status is a legacy konnector's.
func WroteStatus(e fields.Entry) bool { return e.Manager == createdBy || e.Manager == updatedBy }

// WroteCopy reports whether an entry of a copy is a legacy konnector's.
func WroteCopy(e fields.Entry) bool {
	return !e.Applied && e.Manager == legacycopy.Manager && e.Subresource == ""
}

// Writer is the field manager of the legacy konnector that owns fields of target; empty
// if none does.
func Writer(target *unstructured.Unstructured) string {
	for e := range fields.Entries(target) {
		if Wrote(e) {
			return e.Manager
		}
	}
	return ""
}

// MadeFrom reports whether target looks as a legacy konnector leaves one that it made
// from source: the mark is on the one, the finalizer on the other, and the target is not
// the older one, as it would be if the source had been made again under its old name.
func MadeFrom(source, target metav1.Object) bool {
	ending := target.GetDeletionTimestamp() != nil && source.GetDeletionTimestamp() == nil
	older := target.GetCreationTimestamp().Time.Add(clocksSkew).Before(source.GetCreationTimestamp().Time)
	return target.GetAnnotations()[bound] == "true" && slices.Contains(source.GetFinalizers(), finalizer) && !ending && !older
}

// TakeOver is what metadata.managedFields of target has to be for all that others own to
// be as if manager had applied it: its next apply takes away what it leaves out. Unclaimed
// are the paths of fields that no manager owns then: an annotation by the absence of which
// the apply is due, or what stays on target though the apply leaves it out.
func TakeOver(target *unstructured.Unstructured, manager string, others func(fields.Entry) bool, unclaimed ...[]string) []any {
	taken := func(e fields.Entry) bool { return e.Subresource == "" && (e.Manager == manager || others(e)) }
	all := fields.By(target, others).Union(fields.Of(target, manager)).Applied()
	for _, path := range unclaimed {
		unstructured.RemoveNestedField(all, path...)
	}
	return append([]any{fields.AppliedBy(target, manager, all)}, fields.Except(target, taken)...)
}

// Annotation is the path of an annotation's field.
func Annotation(key string) []string { return []string{"f:metadata", "f:annotations", "f:" + key} }

// Label is the path of a label's field.
func Label(key string) []string { return []string{"f:metadata", "f:labels", "f:" + key} }
