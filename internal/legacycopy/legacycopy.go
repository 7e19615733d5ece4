// SPDX-License-Identifier: Apache-2.0

// Package legacycopy knows the copies of related objects that Klutch's own konnector writes:
// by an update of the whole object, with one annotation and no mark of ours. From a copy that
// we made its next update takes our marks off.
package legacycopy

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// OwnerAnnotation says which side has the original: Provider or Consumer.
	OwnerAnnotation = domain + "resource-owner"
	// Manager is the field manager of its updates.
	Manager = "konnector"

	domain  = "klutch.anynines.com/"
	related = "/related" // ends our field managers of copies
)

// Is reports whether Klutch's konnector has written o as the copy of an object of owner's,
// and no other program has taken it up since.
func Is(o metav1.Object, owner string) bool {
	annotations := o.GetAnnotations()
	if owner == "" || annotations[OwnerAnnotation] != owner {
		return false
	}
	for key := range annotations {
		if key != OwnerAnnotation && strings.HasPrefix(key, domain) {
			return false
		}
	}
	for _, e := range o.GetManagedFields() {
		if isOurs(e) || Wrote(e.Manager, string(e.Operation), e.Subresource) && ownsMark(e) {
			return true
		}
	}
	return false
}

// Wrote reports whether an entry of managed fields is that of its updates.
func Wrote(manager, operation, subresource string) bool {
	return manager == Manager && operation == string(metav1.ManagedFieldsOperationUpdate) && subresource == ""
}

// isOurs reports whether an entry is that of a Sync: it made the copy, and the marks are gone.
func isOurs(e metav1.ManagedFieldsEntry) bool {
	return strings.HasPrefix(e.Manager, domain) && strings.HasSuffix(e.Manager, related) && ownsMark(e)
}

// ownsMark reports whether an entry owns the annotation.
func ownsMark(e metav1.ManagedFieldsEntry) bool {
	var owned struct {
		Metadata struct {
			Annotations map[string]any `json:"f:annotations"`
		} `json:"f:metadata"`
	}
	if e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &owned) != nil {
		return false
	}
	_, ok := owned.Metadata.Annotations["f:"+OwnerAnnotation]
	return ok
}
