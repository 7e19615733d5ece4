// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/legacycopy"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// What becomes of objects and copies where this konnector takes the place of Klutch's.
const (
	outcomeOurs     = "stay, this konnector made them"
	outcomeTaken    = "taken over as they are"
	outcomeMade     = "made"
	outcomeOthers   = "left alone, since nothing says that Klutch's konnector made what has their name"
	outcomeUnmarked = "left alone, since Klutch's konnector made the claim for an object of the provider, on which nothing says so"
	outcomeAlone    = "left as they are, since they have no original that the claim selects"
)

// What becomes of objects where the legacy konnector takes the place of this one.
const (
	outcomeDeleted  = "have no claim, so that Klutch's konnector deletes them"
	outcomeReturned = "stayed when their claim was deleted, so that Klutch's konnector makes a claim of them"
	outcomeHeld     = "deleted here, and held by this konnector, so that Klutch's deletes them in the Control Plane Cluster at once"
	outcomeAnew     = "lost, so that Klutch's konnector makes them anew, and empty"
)

// outcomeOfClaim is what becomes of a claim and its object; adopts says that the binding takes up
// objects of the provider.
func outcomeOfClaim(source, target *metav1.PartialObjectMetadata, adopts bool) string {
	says := func(why klutchsync.Reason) bool {
		return strings.HasPrefix(source.GetAnnotations()[klutchsync.MessageAnnotation], string(why)+": ")
	}
	origin := klutchsync.Origin{}
	if target != nil {
		origin, _ = klutchsync.OriginOf(target)
	}
	switch {
	case target == nil && says(klutchsync.ReasonLost):
		return outcomeAnew
	case target == nil:
		return outcomeMade
	case source.DeletionTimestamp != nil && says(klutchsync.ReasonHeld):
		return outcomeHeld
	case origin.UID == source.UID:
		return outcomeOurs
	case origin.UID != "":
		return outcomeOthers
	case klutchsync.TakesOver(source, target), adopts && isMarked(source, target):
		return outcomeTaken
	case slices.ContainsFunc(source.ManagedFields, madeByLegacy):
		return outcomeUnmarked
	}
	return outcomeOthers
}

// isMarked reports whether a claim names the object that it was made for.
func isMarked(source, target *metav1.PartialObjectMetadata) bool {
	return source.Labels[klutchsync.AdoptedLabel] == "true" && source.Annotations[klutchsync.TargetAnnotation] == string(target.UID)
}

// madeByLegacy reports whether an entry of managed fields is that by which the legacy konnector made
// an object: of users' claims it writes the finalizer and an annotation.
func madeByLegacy(e metav1.ManagedFieldsEntry) bool {
	return legacycopy.Wrote(e.Manager, string(e.Operation), e.Subresource) && e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), `"f:spec":`)
}

// outcomeOfObject is what becomes of an object in the Control Plane Cluster that has no claim; empty
// if the legacy konnector would have a claim of it anyway, or it is going.
func outcomeOfObject(target *metav1.PartialObjectMetadata) string {
	switch {
	case target.DeletionTimestamp != nil:
		return ""
	case target.Annotations[v1alpha1.BoundAnnotation] == "true":
		return outcomeDeleted
	case target.Annotations[klutchsync.OrphanedAnnotation] != "":
		return outcomeReturned
	}
	return ""
}

// outcomeOfCopy is what becomes of an object where copies lie; empty if it has nothing to do with a claim.
func outcomeOfCopy(copied *metav1.PartialObjectMetadata, owner v1alpha1.Owner, original bool) string {
	switch klutchs := legacycopy.Is(copied, string(owner)); {
	case klutchs && original:
		return outcomeTaken
	case klutchs:
		return outcomeAlone
	case cluster.CopyMarksOf(copied).IsOf(owner):
		return outcomeOurs
	case original:
		return outcomeOthers
	}
	return ""
}
