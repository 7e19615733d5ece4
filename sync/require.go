// SPDX-License-Identifier: Apache-2.0

package sync

// require is the evidence without which a step is not done. A cache is right most of
// the time; the steps that need more cannot be taken back, or tell users something that
// would frighten them for nothing.
func require(want step, s state) evidence {
	dst, why := s.target, obstacle(s)
	switch want {
	// The source is gone for good, and so is what it says of the target.
	case stepRemoveFinalizer, stepLetGo:
		return targetLive | clustersConfirmed
	// The server checks the version of the target. A restore may have undone the deletion of the
	// source, and what a legacy konnector made or writes may be for a later source of the name.
	case stepDelete:
		return clustersConfirmed | where(s.suspect || dst.relation != relationOurs, sourceLive)
	// That a source is not there shows only in a live read of the right cluster.
	case stepCollect:
		return sourceLive | targetLive | clustersConfirmed
	// A list from before our time may show a source that has been let go since. A target
	// that vanished may be in another cluster than the one that answers, or be taken away
	// with all of its kind.
	case stepCreate:
		return sourceProven | where(dst.relation == relationVanished, targetLive|clustersConfirmed|kindOffered)
	// What is taken over is seen as it is: fields of others are not cached.
	case stepMigrate, stepForce, stepApply, stepEmptyMap:
		return where(dst.exists() && !dst.ours(), sourceProven|targetLive) |
			where(want == stepForce && s.heldByOthers == "", targetLive) | // whose it is, is told
			where(want == stepMigrate, targetLive|where(dst.relation == relationLegacyWrote || s.source.deleting, sourceLive)) |
			where(dst.content == contentRewritten, sourceLive) // another konnector may know better what the source is
	// Fields of others are not cached.
	case stepTakeFields:
		return targetLive
	// The source that we see may be an old one.
	case stepNote:
		return sourceLive
	// A message is not taken back a moment later.
	case stepSetMessage:
		return where(why == ReasonConflict || why == ReasonLost || why == ReasonVanished || why == ReasonDrifted, targetLive) | where(why == ReasonStale, sourceLive)
	// What is left as it is stays so until an event, which may never come, and the cache may be wrong.
	case stepRest, stepWait, stepMark, stepStatus:
		return s.requireToLeave(why)
	// The finalizer comes before all that it is evidence of, and a look is how evidence is found.
	default:
		return 0
	}
}

// requireToLeave is the evidence without which an object is not left as it is.
func (s state) requireToLeave(why Reason) evidence {
	src, dst := s.source, s.target
	switch {
	case src.freshness == unknown || dst.freshness == unknown || !s.mapped:
		return 0
	// An orphan that stays is told, once live reads have proven that it is one.
	case dst.relation == relationOrphan && dst.grace == graceElapsed && (!src.exists || why == ReasonConflict):
		return sourceLive | targetLive | clustersConfirmed
	// Fields of a legacy konnector are not cached, so that its targets seem foreign. An orphan
	// says what it was made from.
	case why == ReasonConflict && dst.relation != relationOrphan:
		return targetLive
	// That a target is gone, or an orphan's, is reported also where the source says so already, or not to us.
	case s.unreported && (why == ReasonLost || why == ReasonVanished || why == ReasonConflict):
		return targetLive
	// Others may have changed the target back.
	case why == ReasonDrifted && dst.content == contentChanged && s.heldByOthers == "":
		return targetLive
	// The source that we see may be an old one.
	case why == ReasonStale:
		return sourceLive
	}
	return 0
}

func where(holds bool, needed evidence) evidence {
	if holds {
		return needed
	}
	return 0
}

// look is the step that finds the evidence that is lacking. A live read counts for one
// step, so that all that is needed is read together, also a side that was read before: the step
// was decided from that read. The look at a target that may be deleted, let go or made anew
// confirms the clusters too.
func look(needed, lacking, known evidence) step {
	const both = sourceLive | targetLive
	switch {
	case needed.has(both), lacking&both != 0 && (lacking | known).has(both):
		return stepProve
	case lacking.has(sourceProven):
		return stepLookSource
	case needed.has(targetLive):
		return stepLookTarget
	case lacking.has(clustersConfirmed):
		return stepConfirm
	default:
		return stepLookSource
	}
}
