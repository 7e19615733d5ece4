// SPDX-License-Identifier: Apache-2.0

package sync

// Annotations that a Sync writes.
const (
	// MessageAnnotation on a source says why it is not in step.
	MessageAnnotation = "klutch.anynines.com/sync-message"

	// TargetAnnotation on a source holds the UID of its target. It is written
	// only under the policy Lost: Report. Removing it lets the target be created anew.
	TargetAnnotation = "klutch.anynines.com/target-uid"

	// BoundAnnotation marks synced objects on the target.
	BoundAnnotation = "klutch.anynines.com/bound"

	// These identify the source of a target or of a copy.
	SourceUIDAnnotation        = "klutch.anynines.com/source-uid"
	SourceClusterUIDAnnotation = "klutch.anynines.com/source-cluster-uid"
	SourceNamespaceAnnotation  = "klutch.anynines.com/source-namespace"
	SourceNameAnnotation       = "klutch.anynines.com/source-name"
	SourceGenerationAnnotation = "klutch.anynines.com/source-generation"
	SpecHashAnnotation         = "klutch.anynines.com/spec-hash"

	// OwnerAnnotation on a copy of a related object says whose it is in Klutch's
	// words: Provider or Consumer.
	OwnerAnnotation = "klutch.anynines.com/resource-owner"
)
