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
// sides, asks a pure function for the next step, and takes that step: at most
// one write. Then it looks again. The steps, in the order of a first sync:
//
//   - put a finalizer on the source: from now on a target may exist
//   - apply the target, with the identity of its source in an annotation
//   - apply the status of the target to the source whenever it changes
//   - when the source is being deleted, delete the target, wait until it has
//     gone, and take the finalizer off
//
// Names identify slots, UIDs identify things: a step that deletes, adopts or
// copies first makes sure that the UIDs agree, and lets the API server check
// them again. What cannot be read is unknown, not absent, and nothing is
// deleted because of it. A foreign object on the target is not touched, unless a
// policy says that it becomes the target.
//
// # What the users of a source object see
//
// When an object cannot be brought in step (its target's name is taken, the
// target's API server refuses it, its target was lost, its deletion is held),
// the annotation klutch.anynines.com/sync-message on the source says why, in one
// sentence: any schema takes an annotation. It goes away when the cause does. A
// source that may not be written cannot carry a message: what rights do not
// allow is tried again, ever more rarely, and stands in [Status].
//
// # What has to be there
//
// A Sync makes neither kinds nor namespaces. While a side does not serve the resource,
// [Sync.Run] goes on, and Err of [Status] is a [ReadError] that says so, whether there is a
// logger or not; if it is the target's side, each source says so too after ten seconds
// (ReasonMissing). Sources whose namespace is missing on the target, or going there, or has
// no place in [Namespaces], say the same. All of them go on by themselves when what was
// missing is there.
//
// # How it writes, and why
//
//   - A creation is an apply that pins a resourceVersion which no object has, so
//     that the API server answers 409 if the name is taken: an apply alone would
//     join the object that is there.
//   - A target records its source in one annotation, in JSON ([OriginOf]): API
//     servers keep account of each applied field, and six annotations made an
//     apply half as expensive again. The target belongs to the source whose UID
//     it records; the cluster that it records does not count.
//   - A DELETE carries the UID and the resourceVersion of the object that was
//     seen. An answer that this object is no more is live evidence of its end, for
//     the pass in which it comes. So a deletion is two requests, and a check of the
//     clusters that many share.
//   - The finalizer is removed after a live read, where the absence of a target has to
//     be known, and only while the deletionTimestamp that was seen is still there,
//     since a backup may revive a source. The answer to that patch
//     carries the version before on real servers: to trust it costs a second
//     removal. Before a target is made or adopted for a source that only a list has
//     shown, the source is read live.
//   - API servers do not compare the UID of an apply to the status; the
//     resourceVersion keeps an old status from a new object.
//   - A target is let go by a merge patch that takes off the engine's managedFields
//     and identity. An apply of an empty object would remove the fields that the
//     engine alone owns. These fields then have no owner and stay.
//   - An apply that would empty a map or a status leaves null, which schemas
//     refuse: a patch removes it first.
//   - Statuses of one object go at once, five in a row (ten where a phase or a
//     condition turns), then every 100 ms. The engine remembers how many were written, less one for each
//     pause that has gone by, so that a pause that grows lets no new burst through.
//     A status that the source refuses is reported, retried slowly, and holds up
//     nothing else.
//   - An adopted target loses what an earlier source of its name applied. A
//     conflict clears a refusal, and a refusal clears a conflict.
//   - A target that another konnector of the same binding wrote last, from
//     something that this one does not know, has its source read live first: two
//     konnectors without a lease do not fight over what one has not seen yet.
//   - What a source is changed to while it is being deleted goes to the target, if that
//     is still there: a provider may wait for it. The status comes back as before.
//   - What others change back each time is written ever more rarely, and told with their
//     names (ReasonContested). The pause belongs to what was written: another change of
//     the source goes at once. Copies, statuses, messages and our marks on sources are paced alike.
//   - A target whose annotations others have taken off is known by the engine's field
//     manager, which has the end of the source's UID.
//   - Of the conditions of a source those stay that other controllers have added since
//     the last status. A start takes for theirs what stands beside a status that is as it
//     should be; where that changed meanwhile it forgets which they are, and a condition that
//     a target dropped meanwhile stays. Where the schema makes conditions a map by type, all
//     stay anyway.
//   - Under Drift: Report only content counts: a change that was undone is no
//     longer reported.
//   - A [Mapper] is checked object by object (the source of the target must be the
//     source): whether it is injective cannot be seen beforehand.
//   - An orphan is found in the ordinary pass over its key. A target without a
//     source for ten minutes is confirmed by live reads of both sides and both
//     clusters, then reported, or collected by policy and past the breaker. A store
//     that cannot be read does not start the grace period again.
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
// Run each Sync in one process at a time, by a lease: without one, a create in
// flight from a process that has died can leave an orphan, and an old status can
// land for a moment. A DELETE of a source that meets the patch which adds the
// finalizer can succeed together with it on a real API server. The watch shows that, and
// the target made next goes at once; a Sync that was down for minutes finds an orphan.
//
// A target that vanishes while its source lives is made anew, empty, after a pause that
// doubles from a second to an hour, as long as the target's cluster takes new objects of
// the resource: see [Options] (Lost, Offered, DeletionLimit). If no Sync ran meanwhile, the status
// that the source was given tells that there was one.
//
// The package has the name of one in the standard library; import it as
// klutchsync.
package sync
