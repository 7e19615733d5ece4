// SPDX-License-Identifier: Apache-2.0

// Package sync keeps the objects of one resource in step between two
// Kubernetes API servers.
//
// The source is the side whose user decides what should exist; the target is
// the other one. One rule covers every direction: the source owns everything
// but status, the target owns status. So specs, and the labels and annotations
// that should travel, go from source to target, statuses come back, and a
// source object goes away only when its target has really gone.
//
//	source, err := klutchsync.NewCluster(appConfig)
//	…
//	target, err := klutchsync.NewCluster(controlPlaneConfig)
//	…
//	s, err := klutchsync.New(source, target, widgets, klutchsync.Options{Binding: "widgets"})
//	…
//	err = s.Run(ctx) // blocks until ctx is done
//
// # Nouns
//
// A [Cluster] is one API server. A [Sync] is one resource between two of them.
// A [Mapper] gives each source object its name on the target: [Identity],
// [Prefix] or [Namespaces]. [Related] objects, such as the Secret with a
// database's credentials, travel with the bound object that refers to them. A
// [Set] runs many Syncs by name and lets them come and go. [Hooks] and [Result]
// tell the embedding program what happened.
//
// # How it works
//
// Each source object has one key on one queue; events of its target and of its
// related objects lead to the same key. For a key the engine observes both
// sides, asks a pure function for the next step, and does that step: at most
// one write. Then it looks again. The steps, in the order of a first sync:
//
//   - put a finalizer on the source: from now on a target may exist
//   - apply the target, with the identity of its source in annotations
//   - apply the status of the target to the source whenever it changes
//   - when the source is being deleted, delete the target, wait until it has
//     gone, and take the finalizer off
//
// Names identify slots, UIDs identify things: whatever deletes, adopts or
// copies first makes sure that the UIDs agree, and lets the API server check
// them again. What cannot be read is unknown, not absent, and nothing is
// deleted because of it. An object on the target that somebody else made is
// never touched.
//
// # What the users of a source object see
//
// When an object cannot be brought in step (its target's name is taken, the
// target's API server refuses it, its target was lost, its deletion is held up),
// the annotation klutch.anynines.com/sync-message on the source says why, in one
// sentence. It goes away when the cause does.
//
// # Caveats
//
// Run owns all goroutines and connections of a Sync and has ended them when it
// returns; watches are shared by all Syncs that have a [Cluster] in common and
// end with the last of them. Source objects, and of target objects the metadata
// and the status, are cached in a compact form. Of related objects only the
// metadata is: their content is read when it has changed, compared by keyed
// hash, and forgotten.
//
// Where many sources are deleted at once the rest is held until [Sync.Release], see
// [Options].
//
// The package has the name of one in the standard library; import it as
// klutchsync.
package sync
