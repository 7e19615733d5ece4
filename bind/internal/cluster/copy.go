// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// CopyMarks are the marks that Syncs leave on the copies of related objects.
type CopyMarks struct {
	Source, Owner, Bound, Label string

	// Managers are the field managers of the Syncs that made the copy, without their
	// common end.
	Managers []string
}

// relatedManager ends the field managers of Syncs on copies.
const relatedManager = "/related"

// CopyMarksOf reads the marks on an object.
func CopyMarksOf(o metav1.Object) CopyMarks {
	a := o.GetAnnotations()
	m := CopyMarks{Source: a[klutchsync.SourceAnnotation], Owner: a[klutchsync.OwnerAnnotation], Bound: a[v1alpha1.BoundAnnotation], Label: o.GetLabels()[v1alpha1.BoundAnnotation]}
	for _, entry := range o.GetManagedFields() {
		if manager, ok := strings.CutSuffix(entry.Manager, relatedManager); ok {
			m.Managers = append(m.Managers, manager)
		}
	}
	return m
}

// IsCopy reports whether an object is a copy that a Sync made, of whichever binding. It
// goes by the marks that no original can be without once it has travelled: all else
// that a copy says of itself, such as its labels, comes from the other side.
func IsCopy(o metav1.Object) bool {
	m := CopyMarksOf(o)
	return m.Source != "" || m.Owner != "" || m.Bound != "" || m.Label != "" || len(m.Managers) > 0
}

// IsOf reports whether the marks are those of a whole copy of an object of owner's.
func (m CopyMarks) IsOf(owner v1alpha1.Owner) bool {
	return m.Source != "" && m.Owner == string(owner) && m.Label == "true"
}

// Without are the entries of managed fields less those of the Syncs that leaving is true of.
func Without(entries []metav1.ManagedFieldsEntry, leaving func(manager string) bool) []metav1.ManagedFieldsEntry {
	return slices.DeleteFunc(slices.Clone(entries), func(e metav1.ManagedFieldsEntry) bool {
		manager, ok := strings.CutSuffix(e.Manager, relatedManager)
		return ok && leaving(manager)
	})
}
