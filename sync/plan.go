// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"strings"
	"time"
)

// A state is all that plan may look at: what is known of one source object and
// its target.
type state struct {
	policy policy
	source sourceState
	target targetState

	mapped    bool   // the source has a name on the target
	misnamed  string // how the mapper contradicts itself about that, if it does
	refused   Reason // why the target's API server does not do what is asked now, if it does not
	answer    string // what it said
	due       bool   // a refused intent has changed or waited for long enough
	contested string // who holds fields of the intent, as an apply without force was told
	paused    bool   // corrections of this target have to wait
	status    bool   // the status of the source is not what it should be
	unfit     string // why the source's API server does not take the status, if it does not
	folded    bool   // it will be, but the latest statuses came so fast that the next one waits
	related   string // why a related object cannot travel
	hushed    bool   // users were told so much lately that what is new waits
	confirmed bool   // the clusters were confirmed live to be the known ones, after all that the step builds on
	suspect   bool   // a cluster may have been restored from a backup: deletions have to be seen live
	held      string // why the breaker holds the deletion, if it does
}

type policy struct {
	conflict ConflictPolicy
	drift    DriftPolicy
	lost     LostPolicy
	deletion DeletionPolicy
	orphans  OrphanPolicy
}

type sourceState struct {
	seen      sight
	exists    bool
	deleting  bool
	finalizer bool   // ours is on it
	proven    bool   // this incarnation was read live, or held by us, since we run
	mark      string // UID of its target, as recorded under LostReport
	message   string // as it stands on it
}

type targetState struct {
	seen      sight
	exists    bool
	deleting  bool
	slow      bool   // deleting for so long that users should know
	heldBy    string // the finalizers that keep it from going
	ours      bool   // made from this very source
	inherited bool   // made by a peer that records no source, and still its
	contended bool   // ours, and a peer has written fields of it since
	former    bool   // not ours, and an earlier source of the name owns fields of it
	adoptable bool   // not made from the source of another name or cluster
	uid       string
	name      string
	later     bool // made from a later generation of the source than we see
	rewritten bool // by another one of us, from something else than we want or wanted
	settled   bool // last applied with what we want now
	owned     bool // and nobody has changed it since
	same      bool // or it was read live, and is what we want again, whoever holds it
	hollow    bool // an apply would leave nothing where an empty map should be
	touched   bool // it may have changed since it was read live
	unproven  bool // nothing that we hold of it has been accepted or seen to be right since we run
	held      bool // at least some of its fields are ours
	lost      bool // it does not exist, but did while we run
	orphan    bool // this binding made it from a source of this name that is not there
	ripe      bool // and has seen that for long enough
	proven    bool // and has made sure of it
}

// takes reports whether the deletion of the source takes the target away.
func (t targetState) takes(p policy) bool {
	return t.exists && t.ours && !t.deleting && p.deletion == DeletionDelete
}

// A sight says how something has been read.
type sight int

const (
	unknown sight = iota // it could not be; nothing follows from that
	cached               // from a watch: right a moment ago
	live                 // from the API server, just now
)

// A step is what to do next.
type step string

const (
	stepRest       step = ""            // nothing: the next event brings us back
	stepWait       step = "wait"        // nothing, but look again soon without an event
	stepLookSource step = "look-source" // read the source from its API server
	stepLookTarget step = "look-target" // read the target from its API server
	stepSay        step = "say"         // put the message on the source
	stepConfirm    step = "confirm"     // make sure that the clusters are those that we know
	stepHold       step = "hold"        // put the finalizer on the source
	stepCreate     step = "create"      // apply a target where none may be
	stepApply      step = "apply"       // apply the target, yielding to others
	stepEmpty      step = "empty"       // take away the last parts of maps that should be empty
	stepForce      step = "force"       // apply this version of the target, taking fields from others
	stepMigrate    step = "migrate"     // make what a peer applied to the target ours
	stepMark       step = "mark"        // record the target's UID on the source
	stepStatus     step = "status"      // apply the status to the source
	stepDelete     step = "delete"      // delete this version of the target
	stepProve      step = "prove"       // read both, and who the clusters are, from their API servers
	stepBury       step = "bury"        // delete this version of a target that has lost its source
	stepDisown     step = "disown"      // give up all fields of the target
	stepRelease    step = "release"     // take the finalizer off the source
)

// plan is the specification of a Sync: the one step that follows from a state.
func plan(s state) step {
	src, dst := s.source, s.target
	why := obstacle(s)
	switch {
	// What cannot be read justifies nothing.
	case src.seen == unknown:
		return stepWait
	// A source that has gone was released before, by us or by force.
	case !src.exists && s.mapped && s.misnamed == "":
		return planOrphan(s)
	case !src.exists:
		return stepRest
	// A source without our finalizer that is being deleted was never ours, or is not any more.
	case src.deleting && !src.finalizer:
		return stepRest
	// Without a name there is no target to look at; the mapper's change brings us back.
	case !s.mapped:
		return stepRest
	case dst.seen == unknown && s.misnamed == "":
		return stepWait
	// Users learn what stands in the way, and that it no longer does.
	case !told(s, why) && certain(s, why):
		return stepSay
	// Nothing is done under a name that may be another source's too.
	case s.misnamed != "":
		return stepRest

	// Too many deletions at once wait for somebody to release them.
	case src.deleting && s.held != "":
		return stepWait
	// After a restore from a backup a cached deletion may have been undone.
	case src.deleting && dst.takes(s.policy) && s.suspect && src.seen != live:
		return stepLookSource
	// What may not be deleted, or released, is tried again when it is due.
	case src.deleting && s.refused != "" && !s.due:
		return stepWait
	// Nothing is taken away unless the clusters are those that we know.
	case src.deleting && dst.takes(s.policy) && !s.confirmed:
		return stepConfirm
	// A target that is seen to be ours is deleted, in just the version that we saw.
	case src.deleting && dst.takes(s.policy):
		return stepDelete
	// A target that is seen to be going is waited for.
	case src.deleting && dst.exists && dst.ours && dst.deleting:
		return stepWait
	// For anything else on the way out a cache is no evidence.
	case src.deleting && (dst.seen != live || !s.confirmed):
		return stepLookTarget
	// The target has gone, or never was.
	case src.deleting && !dst.exists:
		return stepRelease
	// What has the target's name now is not ours.
	case src.deleting && !dst.ours:
		return stepRelease
	// By policy the target stays, as nobody's.
	case src.deleting && dst.held:
		return stepDisown
	case src.deleting:
		return stepRelease

	// Before a target is called someone else's, or made ours, it is read live.
	case dst.exists && !dst.ours && dst.seen != live:
		return stepLookTarget
	// The target's name is taken by what an earlier source of this name left behind.
	case why == ReasonConflict && dst.orphan:
		return planOrphan(s)
	// Before a target is called lost or changed, it is looked at live.
	case (why == ReasonLost || why == ReasonDrifted) && !told(s, why), why == ReasonDrifted && dst.touched && dst.seen != live && s.contested == "":
		return stepLookTarget
	// The target's name is taken, or by policy the target must not come back.
	case why == ReasonConflict || why == ReasonLost:
		return stepRest
	// From now on a target may exist.
	case !src.finalizer:
		return stepHold
	// A view from before our time may show a source that has been let go since.
	case (!dst.exists || !dst.ours) && !src.proven && src.seen != live && (s.refused == "" || s.due):
		return stepLookSource
	// What a peer made from this source is ours, with all that it applied.
	case dst.exists && dst.inherited && !dst.deleting:
		return stepMigrate
	// What an earlier source of the name applied is taken over with what it made.
	case dst.exists && !dst.ours && dst.former:
		return stepMigrate
	// By policy what has the target's name becomes the target.
	case dst.exists && !dst.ours:
		return stepForce
	// A refused intent is not sent again until it changes, or for a while.
	case !dst.exists && s.refused != "" && !s.due:
		return stepWait
	// A target that was there is not made anew because another cluster answers.
	case dst.lost && !s.confirmed:
		return stepLookTarget
	case !dst.exists:
		return stepCreate
	// A target that someone else deleted still has a status; once it has gone it is made anew.
	case dst.deleting && s.status:
		return stepStatus
	case dst.deleting:
		return stepWait
	// The target knows a later generation of the source than we do: our view is old.
	case dst.later && src.seen != live:
		return stepLookSource
	// Another one of us may know better what the source is.
	case dst.rewritten && src.seen != live && (s.refused == "" || s.due):
		return stepLookSource
	// What a peer writes on what is ours would outlive what users take back.
	case dst.contended && s.policy.drift == DriftCorrect && harmless(why) && !s.paused && dst.seen != live:
		return stepProve
	case dst.contended && s.policy.drift == DriftCorrect && harmless(why) && !s.paused:
		return stepMigrate
	// What an apply would make nothing of is emptied first.
	case dst.hollow && s.contested == "" && (harmless(why) || why == s.refused && s.due):
		return stepEmpty
	// The target should be something else than was last applied, or is again what it should be.
	case (!dst.settled || !dst.owned && (dst.unproven || dst.same)) && s.contested == "" && (harmless(why) || why == s.refused && s.due):
		return stepApply
	// By policy a lost target is reported, so that it is recorded that there is one.
	case s.policy.lost == LostReport && src.mark != dst.uid:
		return stepMark
	case s.status:
		return stepStatus
	// Someone else changed what the source owns, and by policy it is put right.
	case (s.contested != "" || !dst.owned) && harmless(why) && !s.paused:
		return stepForce
	case s.paused, s.folded, s.refused != "", s.unfit != "":
		return stepWait
	// Both sides are in step, or nothing can be done about it.
	default:
		return stepRest
	}
}

// harmless reports whether an obstacle leaves the spec free to travel.
func harmless(why Reason) bool { return why == "" || why == ReasonRelated || why == ReasonStatus }

// told reports whether users know what stands in the way. Who changed a target is
// not always known, and no reason to say it again.
func told(s state, why Reason) bool {
	if s.hushed {
		return true
	}
	if why == ReasonDrifted {
		s.contested = ""
		return strings.HasPrefix(s.source.message, explain(s, why))
	}
	return explain(s, why) == s.source.message
}

// certain reports whether an obstacle has been seen well enough to tell users.
func certain(s state, why Reason) bool {
	if !s.source.exists {
		return s.target.seen != unknown || !s.mapped
	}
	switch why {
	case "":
		// After a start only the acceptance of target and status shows that a message is out of date.
		return s.source.deleting || s.target.settled && !s.target.unproven && !s.target.same && !s.status
	case ReasonConflict, ReasonLost, ReasonDrifted:
		return s.target.seen == live
	case ReasonStale:
		return s.source.seen == live
	default:
		return true
	}
}

// obstacle is what keeps the object from being in step, if anything does.
func obstacle(s state) Reason {
	src, dst := s.source, s.target
	switch {
	case !src.exists && dst.orphan && dst.proven:
		return ReasonOrphaned
	case !src.exists:
		return ""
	case s.misnamed != "":
		return ReasonMapper
	case src.deleting && dst.exists && dst.ours && dst.deleting && dst.slow:
		return ReasonTerminating
	case src.deleting && src.finalizer && s.held != "":
		return ReasonHeld
	case src.deleting:
		return s.refused
	case dst.exists && !dst.ours && (s.policy.conflict == ConflictFail || !dst.adoptable || dst.deleting):
		return ReasonConflict
	case !dst.exists && s.policy.lost == LostReport && src.mark != "":
		return ReasonLost
	case dst.exists && dst.ours && dst.later:
		return ReasonStale
	case s.refused != "":
		return s.refused
	case dst.exists && dst.ours && (s.contested != "" || dst.settled && !dst.owned && !dst.unproven && !dst.same) && s.policy.drift == DriftReport:
		return ReasonDrifted
	case s.unfit != "":
		return ReasonStatus
	case s.related != "":
		return ReasonRelated
	default:
		return ""
	}
}

// explain is the message for the user of a source object.
func explain(s state, why Reason) string {
	var text string
	switch why {
	case "":
		return ""
	case ReasonMapper:
		text = s.misnamed
	case ReasonConflict:
		text = fmt.Sprintf("%s exists in the target cluster and belongs to someone else; it is left untouched", s.target.name)
	case ReasonLost:
		text = fmt.Sprintf("%s has vanished from the target cluster; remove the annotation %s to create it anew", s.target.name, TargetAnnotation)
	case ReasonStale:
		text = fmt.Sprintf("%s was made from a later generation of this object, which may have been restored from a backup; nothing is rolled back", s.target.name)
	case ReasonRefused:
		text = "the target cluster refuses this object: " + s.answer
	case ReasonForbidden:
		text = "the target cluster does not permit this object: " + s.answer
	case ReasonDrifted:
		text = fmt.Sprintf("%s was changed in the target cluster%s", s.target.name, s.contested)
	case ReasonTerminating:
		text = fmt.Sprintf("waiting for %s to be gone from the target cluster%s", s.target.name, s.target.heldBy)
	case ReasonStatus:
		text = "this cluster refuses the status of " + s.target.name + ": " + s.unfit
	case ReasonHeld:
		text = s.held + heldAdvice
	case ReasonRelated:
		text = s.related
	case ReasonDenied: // follows from what was tried, not from a state
	case ReasonOrphaned:
		text = s.target.name + " was made from an object that has gone without letting it go"
	}
	return clip(string(why) + ": " + text)
}

// maxMessage keeps what other clusters say from filling our objects, and our memory.
const maxMessage = 1 << 10

func clip(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "…"
}

// heldAdvice ends the message of a held deletion.
const heldAdvice = "; if it is meant, annotate this object with " + ReleaseAnnotation + "=true"

const (
	waitPause    = 5 * time.Second  // between looks at what is waited for
	slowPause    = 10 * time.Second // from which on a deletion is called slow
	refusedPause = time.Minute      // before a refused intent is sent again
	livePause    = 30 * time.Second // between live reads of a target that is being deleted
)
