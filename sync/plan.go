// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"time"

	"github.com/klutch-go/sdk/sync/internal/refusal"
)

// A step is what to do next. Hooks and metrics see its text, which stays as it is for dashboards.
type step string

const (
	stepRest            step = ""                 // nothing: the next event brings us back
	stepWait            step = "wait"             // nothing, but look again soon without an event
	stepLookSource      step = "look-source"      // read the source from its API server
	stepLookTarget      step = "look-target"      // read the target from its API server
	stepProve           step = "prove"            // read both, and who the clusters are, from their API servers
	stepConfirm         step = "confirm"          // make sure that the clusters are the known ones
	stepSetMessage      step = "set-message"      // put the message on the source, or take it off
	stepAddFinalizer    step = "add-finalizer"    // put the finalizer on the source
	stepRemoveFinalizer step = "remove-finalizer" // take the finalizer off the source
	stepMark            step = "mark"             // record the target's UID on the source
	stepStatus          step = "status"           // apply the status to the source
	stepCreate          step = "create"           // apply a target where none may be
	stepApply           step = "apply"            // apply the target, yielding to others
	stepEmptyMap        step = "empty"            // take away the last parts of maps that should be empty
	stepForce           step = "force"            // apply this version of the target, taking fields from others
	stepMigrate         step = "migrate"          // make what a legacy konnector or a predecessor applied to the target ours
	stepTakeFields      step = "own"              // end the ownership that other writers have of the fields that we applied
	stepNote            step = "note"             // record on the target which generation of the source is behind it
	stepDelete          step = "delete"           // delete this version of the target
	stepCollect         step = "collect"          // delete this version of an orphan
	stepLetGo           step = "orphan"           // give up all fields of the target, its identity too: it stays, and is never collected
)

// writesSourceMarks reports whether a step writes to the source what only we read.
func (s step) writesSourceMarks() bool {
	return s == stepAddFinalizer || s == stepRemoveFinalizer || s == stepMark
}

// writesTarget reports whether a step writes to the target.
func (s step) writesTarget() bool {
	switch s {
	case stepCreate, stepApply, stepEmptyMap, stepForce, stepMigrate, stepTakeFields, stepNote, stepDelete, stepCollect, stepLetGo:
		return true
	default:
		return false
	}
}

// asksOf is under which Ask the answer to a step that writes to the target is kept. Each write to an orphan that may be
// deleted counts as its deletion, also the one that takes it over instead.
func (s step) asksOf(of state) refusal.Ask {
	if s == stepDelete || s == stepCollect || s == stepLetGo || of.collectable() {
		return refusal.Deletion
	}
	return refusal.Spec
}

// plan is the specification of a Sync: the one step that follows from a state. It is
// what should happen, or the look at what must be known first.
func plan(s state) step { return toward(decide(s), s) }

// toward is the step that is wanted, or the look at what must be known for it.
func toward(want step, s state) step {
	needed := require(want, s)
	if lacking := needed &^ s.evidence(); lacking != 0 {
		return look(needed, lacking, s.evidence())
	}
	return want
}

// decide is what should happen, if things are as they seem.
func decide(s state) step {
	src, dst, why := s.source, s.target, obstacle(s)
	switch {
	// What cannot be read justifies nothing.
	case src.freshness == unknown:
		return stepWait
	// Without a name there is no target to look at; the mapper's change brings us back.
	case !src.exists && (!s.mapped || s.misnamed != ""):
		return stepRest
	// A source that has gone was let go before, by us or by force.
	case !src.exists:
		return decideOrphan(s)
	// A source without our finalizer that is being deleted was never ours, or is not any more.
	case src.deleting && !src.finalizer:
		return stepRest
	// Users learn that their target cannot be looked at. Nothing else follows from that. Without
	// a name it is only reported: the source may be another Sync's, with the same finalizer.
	case s.mapped && blind(s) && why != "" && !told(s, why):
		return stepSetMessage
	case !s.mapped:
		return stepRest
	case blind(s):
		return stepWait
	// The target of a source that was deleted makes room for the next one of the name.
	case dst.relation == relationOrphan && dst.grace == graceWaived && s.held == "" && !s.refusing():
		return decideOrphan(s)
	// Users learn what stands in the way, and that it no longer does.
	case !told(s, why) && (why != "" || s.solved()):
		return stepSetMessage
	// Nothing is done under a name that may be another source's too.
	case s.misnamed != "":
		return stepRest
	case src.deleting:
		return decideDeletion(s)

	// The name is taken by what an earlier source of this name left behind.
	case why == ReasonConflict && dst.relation == relationOrphan:
		return decideOrphan(s)
	// The name is taken, or by policy the target must not come back.
	case why == ReasonConflict || why == ReasonLost:
		return stepRest
	// From now on a target may exist. What others take off again is put on ever more slowly.
	case !src.finalizer && src.paused:
		return stepWait
	case !src.finalizer:
		return stepAddFinalizer
	// A refused intent is not sent again until it changes, or for a while.
	// What vanished comes back after a pause, and not with too many others.
	case !dst.ours() && s.refusing(), !dst.exists() && s.held != "":
		return stepWait
	case !dst.exists():
		return stepCreate
	// A target that a legacy konnector made from this source is ours, with all fields that it applied; by
	// policy, so is one that an earlier source of the name applied.
	case dst.relation == relationLegacy && !s.refusing(), dst.relation == relationPredecessor, dst.relation == relationOrphan:
		return stepMigrate
	// By policy what has the target's name becomes the target.
	case !dst.ours() && dst.content == contentEmptyMap && s.heldByOthers == "":
		return stepEmptyMap
	case !dst.ours():
		return stepForce
	// A target that someone else deleted still has a status; once it has gone it is made anew.
	case dst.termination != alive && s.status:
		return stepStatus
	case dst.termination != alive:
		return stepWait
	// A source that was restored from a backup has an earlier generation than its target was made from. The target records
	// that generation, so that only an edit after the restore, which raises it, is sent.
	case dst.content == contentSourceOlder && !s.refusing() && !s.paused:
		return stepNote
	// A legacy konnector wrote our target: take ownership so that removals propagate.
	case dst.relation == relationLegacyWrote && s.corrects(why):
		return stepMigrate
	// The target should be something else than was last applied, or may be what it should be again.
	case dst.content == contentEmptyMap && s.sends(why):
		return stepEmptyMap
	case dst.content.needsApply() && s.sends(why):
		return stepApply
	case s.status:
		return stepStatus
	// What the source removes has to go, be it that someone else made the target, or has changed another field.
	case dst.content == contentShared && (s.free(why) || why == ReasonDrifted && !s.paused):
		return stepTakeFields
	// Someone else changed what the source owns, and by policy it is put right.
	case (s.heldByOthers != "" || dst.content != contentInSync) && s.corrects(why):
		return stepForce
	// By policy a lost target is reported, so that it is recorded that there is one. That may be refused.
	case s.policy.lost == LostReport && src.targetRecord != dst.uid && !src.paused:
		return stepMark
	case s.paused, s.contested, src.paused, src.contested, s.statusDelayed, s.refused != "", s.statusRefused != "":
		return stepWait
	// Both sides are in step, or nothing can be done about it.
	default:
		return stepRest
	}
}

// decideDeletion is what should happen to the target of a source that is being deleted.
func decideDeletion(s state) step {
	dst := s.target
	changed := dst.ours() && dst.content.edited() && !s.paused
	switch {
	// What users changed before the deletion or since may decide how it goes, or whether.
	case dst.ours() && dst.content == contentShared && !s.refusing() && !s.paused:
		return stepTakeFields
	case changed && dst.relation == relationLegacy:
		return stepMigrate
	case changed && s.heldByOthers == "" && dst.content == contentEmptyMap:
		return stepEmptyMap
	case changed && s.heldByOthers == "":
		return stepApply
	case changed && s.policy.drift == DriftCorrect:
		return stepForce
	// Of a source that was restored from a backup, what users change from now on.
	case s.waits() && dst.ours() && dst.content == contentSourceOlder && !s.paused:
		return stepNote
	case s.waits() && dst.ours() && s.status:
		return stepStatus
	case s.waits():
		return stepWait
	case dst.deletable(s.policy):
		return stepDelete
	// By policy the target stays, and belongs to no Sync any more.
	case dst.ours():
		return stepLetGo
	// The target has gone, never was, is not ours any more, or belongs to someone else.
	default:
		return stepRemoveFinalizer
	}
}

// decideOrphan is what should happen to a target whose source is not there.
func decideOrphan(s state) step {
	dst := s.target
	switch {
	case dst.freshness == unknown:
		return stepWait
	case dst.relation != relationOrphan:
		return stepRest
	// What is seen once may be the shadow of something else. Too many deletions at once
	// wait until they are released, and a refused one until it is due.
	case dst.grace == graceRunning, dst.grace >= graceProven && (s.held != "" || s.refusing()):
		return stepWait
	case s.collectable():
		return stepCollect
	// By policy it stays; whether it is an orphan is found out in any case.
	default:
		return stepRest
	}
}

// waits reports whether a deletion waits: while the breaker holds it, while it was refused and is not due again,
// or while the target is going.
func (s state) waits() bool {
	return s.held != "" || s.refusing() || s.target.ours() && s.target.termination != alive
}

// refusing reports whether what was refused must not be asked again yet.
func (s state) refusing() bool { return s.refused != "" && !s.due }

// deletable reports whether the deletion of the source takes the target away.
func (t targetState) deletable(p policy) bool {
	return t.ours() && t.termination == alive && p.deletion == DeletionDelete
}

// sends reports whether the spec may travel now, yielding to others.
func (s state) sends(why Reason) bool { return s.heldByOthers == "" && s.free(why) }

// corrects reports whether what others wrote on the target is put right now.
func (s state) corrects(why Reason) bool { return s.policy.drift == DriftCorrect && s.free(why) }

// free reports whether nothing stands in the way of a write to the target but a refusal of
// an earlier one, or of long ago, and whether the target was not written just now.
func (s state) free(why Reason) bool {
	return !s.paused && (harmless(why) || why == s.refused && s.due)
}

const (
	waitPause    = 5 * time.Second  // between looks at what is waited for
	blindPause   = 10 * time.Second // after which users learn that a target cannot be looked at
	slowPause    = 10 * time.Second // from which on a deletion is called slow
	heldPause    = time.Minute      // between looks at a held deletion
	livePause    = 30 * time.Second // at first, between live reads of a target that is being deleted, and between looks at one that cannot be read
	messagePause = time.Minute      // between the messages on one object, after the first few
)
