// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The model is a source and a target as small as they can be, with all that plan tells
// apart. TestModel lets konnectors act on them by plan, against every move of users,
// providers, foreign writers, legacy konnectors, crashes, stale caches, backups and
// replaced clusters, in every order, and looks at every state that can be reached.

// A modelSource is the source as its API server has it; the zero value is none.
type modelSource struct {
	uid, gen            uint8
	deleting, finalizer bool
	status, mark        uint8
	message             uint8 // index in modelReasons
	shared              bool  // another Sync has put its finalizer on it before ours
	send                bool  // its user says that it is sent, though the target is of a later generation
}

// A modelTarget is what has the target's name; the zero value is nothing.
type modelTarget struct {
	uid               uint8
	from              uint8 // UID of the source that it records; 0 for none
	gen               uint8 // generation of the source that it records
	managed           uint8 // UID of the source whose field manager holds fields
	renamed           uint8 // the same, of the field manager that it had while the binding had another name
	other             bool  // it records a source of another name
	former            bool  // it records a source cluster that was lost
	legacy            uint8 // UID of the source that a legacy konnector made it from
	contended         bool  // a legacy konnector has written its fields since
	drift             uint8 // 1: others changed it, 2: and changed it back
	deleting, blocked bool
	status            uint8
	shared            bool  // others hold the fields too
	behind            uint8 // generation of the source, and one, that was seen to be behind gen; 0 for none
}

// made reports whether the target was made from the source with a UID, by us or by a
// legacy konnector.
func (t modelTarget) made(uid uint8) bool {
	return uid != 0 && t.uid != 0 && !t.other && (t.from == uid || t.from == 0 && (t.legacy == uid || t.managed == uid || t.renamed == uid))
}

// sent is the status as the source gets it, which tells one target's from another's.
func (t modelTarget) sent() uint8 {
	if t.status == 0 {
		return 0
	}
	return t.uid<<2 | t.status
}

// A modelKonnector is what one process sees and remembers.
type modelKonnector struct {
	source             modelSource
	target             modelTarget
	sourceAt, targetAt freshness
	proven             uint8 // UID of the source
	confirmed          bool
	accepted           uint8 // UID of the target of which an apply was accepted
	applied            uint8 // generation that the target had when it was in step
	judged             uint8 // drift that was read live
	contested          bool  // an apply to this version of the target met a conflict
	grace              grace
	graceOf            uint8 // UID of the orphan
	paused             bool
	wrote              uint8 // what the target was last made: UID and generation of the source
	again              bool  // and that for the second time
	cluster            uint8 // of the target, as it was when the process began
	suspect, held      bool
	of                 uint8 // UID of the source whose target was accepted
	coming, witnessed  uint8 // bit for each source whose deletion the watch will show, or has shown, with the finalizer on it and no deletionTimestamp
	offered            bool  // the target's cluster was seen just now to take new targets
	lost               bool  // the pause before a target that vanished comes back has begun
	never              bool  // the source was without the finalizer since it was last in step
	marked             uint8 // for which source and target a finalizer or record was last put on
	marksPaused        bool  // and that for the second time: the next one waits
}

// A modelWorld is all that the model knows.
type modelWorld struct {
	source     modelSource
	target     modelTarget
	elsewhere  modelTarget // left in the target's cluster of before
	cluster    uint8       // of the target
	konnectors [2]modelKonnector
	sources    uint8 // UIDs of sources given so far
	unreadable bool  // the target's cluster does not answer
	leaving    bool  // the target's kind is being taken away
	restored   bool  // a cluster was restored from a backup
	rolled     bool  // the source is of an earlier generation since, and no user has edited it
	released   bool  // users have released held deletions
	tombs      uint8 // bit for each source that its user has deleted
	letGo      uint8 // bit for each source whose finalizer a konnector has removed
	born       uint8 // UIDs of targets given so far
	faults     uint8 // moves of the adversary that are left
}

// A modelRun explores the states of one policy and one set of moves.
type modelRun struct {
	t                *testing.T
	policy           policy
	two              bool // konnectors
	recover          bool // the owners agree that the source is in place of one in a lost cluster
	worlds           []modelWorld
	parents          []int32
	moves            []modelEvent
	adversary        []modelMove
	seen             map[modelWorld]int32
	settled          map[modelWorld]bool // from which fair play was followed
	sources, targets uint8               // UIDs of each that are given at most
	broken           string              // what went wrong in the step that was done last
}

var modelReasons = []Reason{"", ReasonConflict, ReasonLost, ReasonStale, ReasonDrifted, ReasonTerminating, ReasonHeld, ReasonOrphaned, ReasonContested, ReasonVanished, ReasonVanished, ReasonMissing, ReasonMissing, ReasonTerminating, ReasonConflict, ReasonConflict, ReasonConflict}

// Indexes in modelReasons. The second time that it stands there the breaker holds what would come
// back, or the source is being deleted; the next times that the name is taken it is by an orphan, and from another cluster.
const (
	modelTerminating     = 5
	modelHeld            = 6
	modelVanished        = 9
	modelVanishedHeld    = 10
	modelMissing         = 11
	modelMissingDeletion = 12
	modelOrphanHeld      = 14
	modelOtherCluster    = 16
)

const (
	modelCause  = "the target cluster is another one than before"
	modelHolder = ", which is held by someone"
	modelRival  = " by someone"
)

var modelTexts = func() (texts []string) {
	s := state{held: modelCause, rivals: modelRival, target: targetState{name: "t", finalizers: modelHolder}}
	for n, why := range modelReasons {
		if s.held = modelCause; n == modelVanished {
			s.held = ""
		}
		if n >= modelMissing {
			s.answer, s.source.deleting = modelCause, n >= modelMissingDeletion
		}
		if n >= modelOrphanHeld {
			s.target.relation, s.target.managed, s.target.grace = relationOrphan, n == modelOrphanHeld, graceWaived
		}
		if n == modelOtherCluster {
			s.target.relation = relationOtherCluster
		}
		texts = append(texts, explain(s, why))
	}
	return texts
}()

func uidBit(uid uint8) uint8 { return 1 << uid }

// observe is what observer.observe makes of what a konnector sees.
func (r *modelRun) observe(k *modelKonnector) state {
	src, dst := k.source, k.target
	s := state{policy: r.policy, mapped: true, confirmed: k.confirmed, suspect: k.suspect, paused: k.paused && k.wrote == src.wish(), contested: k.again}
	s.source = sourceState{
		freshness: k.sourceAt, exists: src.uid != 0, deleting: src.deleting, finalizer: src.finalizer,
		proven: src.uid != 0 && k.proven == src.uid, message: modelTexts[src.message],
	}
	if src.shared {
		s.source.shared = "example.org/first"
	}
	s.source.paused = k.marksPaused && k.marked == k.marking()
	if src.uid != 0 && k.of != src.uid {
		k.of, k.accepted, k.applied, k.judged, k.paused, k.wrote, k.again, k.never = src.uid, 0, 0, 0, false, 0, false, false
	}
	k.never = k.never || src.uid != 0 && !src.finalizer
	if src.mark != 0 {
		s.source.targetRecord = string('0' + rune(src.mark))
	}
	s.target.freshness = k.targetAt
	if k.targetAt == unknown {
		s.refused, s.answer = ReasonMissing, modelCause // it has been so for long
		return s
	}
	if r.recover && dst.former {
		s.policy.conflict, s.policy.orphans = ConflictAdopt, OrphanReport
	}
	s.target = targetState{freshness: k.targetAt, relation: r.relation(k), name: "t", managed: dst.managed == src.uid, finalizers: modelHolder}
	if s.target.relation == relationOrphan {
		s.target.managed = dst.managed == dst.from
	}
	if s.target.relation != relationOrphan {
		k.grace, k.graceOf = graceRunning, 0
	} else if k.graceOf != dst.uid {
		k.grace, k.graceOf = graceRunning, dst.uid
	}
	if s.target.relation == relationOrphan {
		k.waive(r.policy)
	}
	s.target.grace = k.grace
	if src.uid != 0 && dst.uid != 0 {
		s.target.uid = string('0' + rune(dst.uid))
		if k.accepted != dst.uid {
			k.accepted, k.judged = 0, 0
		}
		if s.target.ours() {
			s.target.content = r.content(k)
		}
		if dst.deleting {
			s.target.termination = stuck
		}
		s.status = s.target.ours() && !src.shared && src.status != dst.sent()
	}
	if s.offered = k.offered; s.returns() {
		k.paused, k.lost = k.paused || !k.lost, true
		s.paused, s.refused, s.due = k.paused, ReasonVanished, !k.paused
	} else {
		k.lost = false
	}
	if k.contested {
		s.heldByOthers = modelRival
	}
	if k.grace == graceElapsed && s.evidence().has(require(stepCollect, s)) {
		k.grace, s.target.grace = graceProven, graceProven
	}
	if (k.held || src.message == modelHeld || src.message == modelOrphanHeld) && (s.target.relation == relationOrphan || s.returns() && s.due && s.evidence().has(require(stepCreate, s)) || src.deleting && src.finalizer) ||
		src.message == modelVanishedHeld && s.returns() {
		s.held = modelCause
	}
	return s
}

// waive ends the grace of an orphan whose source the watch has shown to be deleted.
func (k *modelKonnector) waive(p policy) {
	switch {
	case k.witnessed&uidBit(k.target.from) == 0 || k.grace == graceProven:
	case p.deletion == DeletionDelete:
		k.grace = graceWaived
	default:
		k.grace = graceElapsed
	}
}

// relation is what observer.observeRelation finds.
func (r *modelRun) relation(k *modelKonnector) targetRelation {
	src, dst := k.source, k.target
	inherits := src.uid != 0 && dst.uid != 0 && dst.from == 0 && dst.legacy == src.uid && src.finalizer && (!dst.deleting || src.deleting) &&
		(k.targetAt == live || dst.managed == src.uid)
	made := src.uid != 0 && !dst.other && (dst.from == src.uid || dst.from == 0 && (dst.managed == src.uid || dst.renamed == src.uid))
	switch {
	case dst.uid == 0 && (k.accepted != 0 || src.status != 0 && !k.never || src.message == modelVanished || src.message == modelVanishedHeld || r.policy.lost == LostRecreate && src.mark != 0):
		return relationVanished
	case dst.uid == 0:
		return relationAbsent
	case dst.from != 0 && !dst.other && (!dst.former || r.recover && src.uid == 0) && !dst.deleting && dst.from != src.uid && (dst.managed == dst.from || src.uid == 0 && dst.renamed == 0):
		return relationOrphan
	case src.uid == 0:
		return relationForeign
	case inherits && !made:
		return relationLegacy
	case (inherits || made) && dst.contended:
		return relationLegacyWrote
	case inherits || made:
		return relationOurs
	case dst.other:
		return relationOtherSource
	case dst.former && !r.recover:
		return relationOtherCluster
	case dst.managed != 0 && dst.managed != src.uid, dst.renamed != 0:
		return relationPredecessor
	default:
		return relationForeign
	}
}

// content is what engine.compare finds.
func (r *modelRun) content(k *modelKonnector) content {
	src, dst := k.source, k.target
	settled := dst.from == src.uid && dst.gen == src.gen
	owned := dst.drift == 0 && dst.managed == src.uid
	if settled {
		k.applied, k.never = dst.gen, false
	}
	if settled && owned {
		k.accepted = dst.uid
	}
	switch {
	case dst.gen > src.gen && dst.behind == 0 && !src.send:
		return contentSourceOlder
	case dst.gen > src.gen && src.gen < dst.behind && !src.send:
		return contentSourceOlderNoted
	case (r.policy.drift == DriftReport && dst.from == src.uid || dst.renamed != 0) && dst.managed != src.uid:
		return contentShared
	case dst.gen > src.gen && k.sourceAt != live:
		return contentRewritten
	case !settled && k.applied != 0 && dst.gen != k.applied && k.sourceAt != live:
		return contentRewritten
	case (settled && owned || !settled && dst.managed == src.uid) && dst.shared:
		return contentShared
	case settled && owned:
		return contentInSync
	case settled && r.policy.drift == DriftReport && k.accepted != 0:
		if k.targetAt == live {
			if dst.drift == 2 {
				return contentUnverified
			}
			k.judged = dst.drift
		}
		if k.judged != dst.drift {
			return contentChanged
		}
		return contentDrifted
	case !settled:
		return contentStale
	case k.accepted == 0:
		return contentUnverified
	default:
		return contentDrifted
	}
}

// step has konnector i do what plan says, and reports what that was.
func (r *modelRun) step(w *modelWorld, i int) step {
	k := &w.konnectors[i]
	s := r.observe(k)
	do := plan(s)
	if k.sourceAt == unknown || k.targetAt == unknown {
		tells := do == stepSetMessage && k.sourceAt != unknown
		r.check(do == stepRest || do == stepWait || tells, "I11: %s although a side cannot be read", do)
	}
	if do == stepRest || do == stepWait {
		blind := k.sourceAt != unknown && k.targetAt == unknown && k.source.uid != 0 && !k.source.shared && (!k.source.deleting || k.source.finalizer)
		r.check(!blind || modelReasons[k.source.message] == ReasonMissing, "I18: the target cannot be looked at, and nothing says so")
		r.check(!r.delays(k, s), "I1: what the user changed waits")
		k.endPass()
		return do
	}
	before := *w
	sourceAt, targetAt := k.sourceAt, k.targetAt
	k.sourceAt, k.targetAt, k.offered = min(sourceAt, cached), min(targetAt, cached), false
	switch do {
	case stepLookSource:
		k.lookSource(w)
	case stepLookTarget:
		r.lookTarget(w, i)
	case stepProve:
		k.lookSource(w)
		r.lookTarget(w, i)
	case stepConfirm:
		k.confirm(w)
	case stepSetMessage, stepAddFinalizer, stepRemoveFinalizer, stepMark, stepStatus:
		r.writeSource(w, i, do, s)
	default:
		r.writeTarget(w, i, do, s, before)
	}
	return do
}

// delays reports whether a change of the source that was never sent is not sent now.
func (r *modelRun) delays(k *modelKonnector, s state) bool {
	free := harmless(obstacle(s)) && r.policy.drift == DriftCorrect && s.target.freshness != unknown && s.source.freshness != unknown
	return free && s.source.finalizer && s.target.ours() && s.target.termination == alive && s.target.content.edited() && k.wrote != k.source.wish()
}

// wish is what the target of the source should be.
func (s modelSource) wish() uint8 { return s.uid<<4 | s.gen }

// endPass forgets what holds for one pass, and with the source what is known of it.
func (k *modelKonnector) endPass() {
	k.confirmed, k.offered, k.sourceAt, k.targetAt = false, false, min(k.sourceAt, cached), min(k.targetAt, cached)
	if k.source.uid == 0 && k.graceOf == 0 {
		k.proven, k.accepted, k.applied, k.judged, k.contested, k.paused, k.wrote, k.again, k.never = 0, 0, 0, 0, false, false, 0, false, false
		k.marked, k.marksPaused = 0, false
	}
}

func (k *modelKonnector) lookSource(w *modelWorld) {
	k.source, k.sourceAt, k.proven = w.source, live, w.source.uid
}

// lookTarget reads the target live, and confirms the clusters where engine.observe does.
func (r *modelRun) lookTarget(w *modelWorld, i int) {
	k := &w.konnectors[i]
	k.confirmed = false
	if w.unreadable {
		k.endPass()
		return
	}
	if k.target != w.target {
		k.contested = false
	}
	k.target, k.targetAt = w.target, live
	relation := r.relation(k)
	waived := k.witnessed&uidBit(w.target.from) != 0 || k.graceOf == w.target.uid && k.grace != graceRunning
	if k.source.deleting || relation == relationVanished || relation == relationOrphan && waived {
		k.confirm(w)
	}
	if k.offered = relation == relationVanished && k.targetAt == live && !w.leaving; relation == relationVanished && w.leaving {
		k.paused, k.lost = true, true
	}
}

// confirm makes sure that the cluster is the known one; if not, the konnector begins
// anew, with deletions held.
func (k *modelKonnector) confirm(w *modelWorld) {
	if w.unreadable {
		k.endPass()
		return
	}
	if k.confirmed = k.cluster == w.cluster; !k.confirmed {
		*k = modelKonnector{source: w.source, target: w.target, sourceAt: cached, targetAt: cached, cluster: w.cluster, held: true, suspect: k.suspect}
	}
}

func (r *modelRun) check(holds bool, format string, args ...any) {
	if !holds && r.broken == "" {
		r.broken = fmt.Sprintf(format, args...)
	}
}

// writeSource does a step that writes to the source, with the preconditions of act.go.
func (r *modelRun) writeSource(w *modelWorld, i int, do step, s state) {
	k := &w.konnectors[i]
	src := &w.source
	same, version := src.uid != 0 && k.source.uid == src.uid, k.source == *src
	r.check(!k.source.shared || do != stepSetMessage && do != stepStatus, "I9: the status or the message of another Sync is written")
	switch {
	case do == stepSetMessage && same:
		src.message = 0
		for n, why := range modelReasons {
			if why == obstacle(s) && (why != ReasonConflict && why != ReasonVanished && why != ReasonMissing && why != ReasonTerminating || modelTexts[n] == explain(s, why)) {
				src.message = uint8(n) //nolint:gosec // a few
			}
		}
	case do == stepMark && same:
		r.mark(k)
		src.mark = k.target.uid
	case do == stepAddFinalizer && version:
		r.mark(k)
		src.finalizer = true
		k.proven = src.uid
	case do == stepRemoveFinalizer && same && src.deleting && src.finalizer:
		// Another konnector may make it between a live look and what follows: that is told as an orphan.
		r.check(r.policy.deletion == DeletionOrphan || r.two || !w.target.made(src.uid), "I3: the finalizer is removed while the target is there")
		r.check(r.policy.deletion == DeletionOrphan || w.released || !w.elsewhere.made(src.uid), "I3: the finalizer is removed while the target is in the cluster of before")
		w.letGo |= uidBit(src.uid)
		*src = modelSource{}
	case do == stepStatus && version:
		r.check(k.target.made(src.uid), "I5: the source gets the status of another one's target")
		r.check(k.target.sent() >= src.status || src.status>>2 != k.target.uid || r.two, "I7: an old status comes after a new one")
		src.status = k.target.sent()
	default:
		k.lookSource(w)
		return
	}
	k.source = w.source
}

func (k *modelKonnector) marking() uint8 { return k.source.uid<<4 | k.target.uid }

// mark notes that a finalizer or a record was put on the source.
func (r *modelRun) mark(k *modelKonnector) {
	again := k.marked == k.marking()
	r.check(!again || !k.marksPaused, "I19: what others take off the source is put on again without a pause")
	k.marked, k.marksPaused = k.marking(), again
}

// writeTarget does a step that writes to the target, with the preconditions of act.go.
func (r *modelRun) writeTarget(w *modelWorld, i int, do step, s state, before modelWorld) {
	k := &w.konnectors[i]
	src, dst := k.source, &w.target
	confirmed := k.confirmed
	k.confirmed = false
	foreign := k.target.uid != 0 && !k.target.made(src.uid) && do != stepCollect
	switch {
	case w.unreadable:
		k.endPass()
		return
	case (do == stepCreate) != (dst.uid == 0) || do != stepCreate && k.target != *dst:
		r.lookTarget(w, i)
		return
	case do == stepApply && dst.drift == 1:
		k.contested = true
		return
	}
	if foreign {
		consent := r.policy.conflict == ConflictAdopt && !dst.former || r.recover && dst.former
		r.check(consent && !dst.other && !dst.deleting, "I9: %s of what someone else made", do)
	}
	switch do {
	case stepCreate:
		r.check(r.two || w.letGo&uidBit(src.uid) == 0, "I3: a target is made for a source that was let go")
		r.check(w.source.uid != src.uid || w.source.finalizer || k.source != w.source, "I3: a target is made without the finalizer")
		r.check(!src.deleting, "I3: a target is made for a source that is being deleted")
		k.wrote, k.again = 0, false
		lost := s.target.relation == relationVanished || w.source.uid == src.uid && w.source.status != 0 && !k.never // only a target gives a status
		r.check(!lost || k.cluster == w.cluster, "I4: a second target is made in another cluster")
		r.check(!lost || !w.leaving, "a target is made anew although its kind is being taken away")
		r.check(!lost || modelReasons[src.message] == ReasonVanished, "I18: a target is made anew, and nothing says so")
		r.check(!lost || !k.paused, "a target is made anew without a pause")
		r.check(!lost || s.held == "", "I15: what is held comes back")
		r.check(r.policy.lost == LostRecreate || src.mark == 0, "a lost target is made anew against the policy")
		w.born++
		*dst = modelTarget{uid: w.born}
		r.apply(k, dst)
	case stepApply, stepForce:
		r.check(!dst.made(src.uid) || dst.gen <= src.gen || !w.rolled && before.konnectors[i].sourceAt == live, "I6: the target goes back to an earlier generation")
		r.check(do == stepApply || dst.drift != 1 || foreign || r.policy.drift == DriftCorrect, "I9: what others changed is taken against the policy")
		r.apply(k, dst)
	case stepTakeFields:
		switch {
		case dst.renamed != 0:
			dst.managed, dst.renamed = src.uid, 0
		case dst.managed != src.uid:
			dst.managed, dst.drift = src.uid, 2 // the marks alone: what the fields are an apply tells
			if before.target.drift == 1 {
				dst.drift = 1
			}
		default:
			dst.shared = false
		}
	case stepNote:
		if w.source.uid != src.uid || w.source.gen != src.gen {
			k.lookSource(w)
			return
		}
		dst.behind = src.gen + 1
	case stepMigrate:
		dst.managed, dst.renamed, dst.contended = src.uid, 0, false
		if dst.from == 0 {
			dst.legacy = src.uid
		}
	case stepLetGo:
		r.check(r.policy.deletion == DeletionOrphan, "a target is orphaned against the policy")
		*dst = modelTarget{uid: dst.uid, status: dst.status, blocked: dst.blocked}
	case stepDelete:
		r.check(dst.made(src.uid) && w.tombs&uidBit(src.uid) != 0, "I2: the target of a source is deleted that its user has not deleted")
		r.check(r.policy.deletion == DeletionDelete, "a target is deleted against the policy")
		r.check(s.held == "", "I15: a held deletion is done")
		dst.deleting = true
	case stepCollect:
		r.check(!dst.former, "I2: a target of a lost cluster is collected")
		r.check(dst.managed == dst.from, "I2: what someone else made is collected")
		deleted := r.policy.deletion == DeletionDelete && k.witnessed&w.tombs&uidBit(dst.from) != 0
		r.check(r.policy.deletesOrphans() || deleted, "an orphan is deleted against the policy")
		r.check(w.source.uid != dst.from, "I2: a target is collected while its source is there")
		r.check(s.held == "", "I15: a held deletion is done")
		dst.deleting = true
	default:
		r.check(false, "%s is no step of the model", do)
	}
	if dst.deleting && !dst.blocked && (do == stepDelete || do == stepCollect) {
		*dst = modelTarget{}
		k.confirmed, k.targetAt = confirmed, live
	}
	k.target, k.contested = *dst, false
}

// apply makes dst what the konnector sees of its source.
func (r *modelRun) apply(k *modelKonnector, dst *modelTarget) {
	dst.from, dst.gen, dst.managed, dst.drift, dst.other, dst.former = k.source.uid, k.source.gen, k.source.uid, 0, false, false
	dst.behind = 0
	k.accepted, k.applied = dst.uid, dst.gen
	k.again = k.again || k.wrote == k.source.wish()
	k.paused, k.wrote = k.again, k.source.wish()
}

// A modelMove is one thing that may happen; it reports whether it can.
type modelMove struct {
	name string
	do   func(w *modelWorld) bool
	cost uint8 // in faults
}

// modelMoves are those of everyone but konnectors: users first.
func modelMoves() []modelMove { return append(userMoves(), otherMoves()...) }

func userMoves() []modelMove {
	return []modelMove{
		{"the user creates the source", func(w *modelWorld) bool {
			ok := w.source.uid == 0
			w.sources++
			w.source = modelSource{uid: w.sources, gen: 1}
			return ok
		}, 0},
		{"the user edits the source", func(w *modelWorld) bool {
			ok := w.source.uid != 0 && w.source.gen < 2
			w.source.gen++
			w.rolled, w.source.send = false, false
			return ok
		}, 0},
		{"the user has the source sent as it stands", func(w *modelWorld) bool {
			ok := w.source.uid != 0 && w.rolled
			w.rolled, w.source.send = false, true
			return ok
		}, 0},
		{"the user deletes the source", func(w *modelWorld) bool {
			ok := w.source.uid != 0 && !w.source.deleting
			w.tombs |= uidBit(w.source.uid)
			if w.source.deleting = true; !w.source.finalizer {
				w.source = modelSource{}
			}
			return ok
		}, 0},
		{"the user deletes the source while the finalizer is put on it, and both succeed", func(w *modelWorld) bool {
			ok := w.source.finalizer && !w.source.deleting
			w.tombs |= uidBit(w.source.uid)
			for i := range w.konnectors {
				w.konnectors[i].coming |= uidBit(w.source.uid)
			}
			w.source = modelSource{}
			return ok
		}, 1},
		{"the user removes the finalizer", func(w *modelWorld) bool {
			ok := w.source.finalizer
			if w.source.finalizer = false; w.source.deleting {
				w.source = modelSource{}
			}
			return ok
		}, 1},
	}
}

func otherMoves() []modelMove {
	return []modelMove{
		{"the provider gives the target a status", func(w *modelWorld) bool {
			ok := w.target.uid != 0 && w.target.status < 1
			w.target.status++
			return ok
		}, 0},
		{"the provider puts a finalizer on the target", func(w *modelWorld) bool {
			ok := w.target.uid != 0 && !w.target.deleting && !w.target.blocked
			w.target.blocked = true
			return ok
		}, 0},
		{"the provider removes its finalizer", func(w *modelWorld) bool {
			ok := w.target.blocked
			if w.target.blocked = false; w.target.deleting {
				w.target = modelTarget{}
			}
			return ok
		}, 0},
		{"someone creates an object of the target's name", func(w *modelWorld) bool {
			ok := w.target.uid == 0
			w.born++
			w.target = modelTarget{uid: w.born}
			return ok
		}, 1},
		{"someone creates what the source asks for", func(w *modelWorld) bool {
			ok := w.target.uid == 0
			w.born++
			w.target = modelTarget{uid: w.born, shared: true}
			return ok
		}, 1},
		{"the binding has another name, with which a konnector starts", func(w *modelWorld) bool {
			ok := !w.target.other && w.target.managed != 0
			w.target.managed, w.target.renamed = 0, w.target.managed
			w.start(0, false)
			return ok
		}, 1},
		{"someone makes the target anew from its manifest", func(w *modelWorld) bool {
			was := w.target
			w.born++
			w.target = modelTarget{uid: w.born, from: was.from, gen: was.gen, other: was.other, former: was.former, shared: true}
			return was.from != 0 && !was.deleting && !was.blocked
		}, 1},
		{"another source's target takes the name", func(w *modelWorld) bool {
			ok := w.target.uid == 0
			w.born++
			w.target = modelTarget{uid: w.born, from: 3, managed: 3, other: true}
			return ok
		}, 1},
		{"a list takes the place of what the watch would have shown", func(w *modelWorld) bool {
			k := &w.konnectors[0]
			ok := k.coming != 0
			k.source, k.coming = w.source, 0
			return ok
		}, 0},
		{"the source is restored to before the deletion that met its finalizer", func(w *modelWorld) bool {
			k := &w.konnectors[0]
			ok := w.source.uid == 0 && w.sources == 1 && (k.coming|k.witnessed)&uidBit(1) != 0
			w.source = modelSource{uid: 1, gen: 1, finalizer: true}
			w.tombs &^= uidBit(1)
			w.restore()
			return ok
		}, 0},
		{"someone changes the target", func(w *modelWorld) bool {
			ok := w.target.from != 0 && w.target.drift != 1
			w.target.drift = 1
			return ok
		}, 1},
		{"someone changes the target back", func(w *modelWorld) bool {
			ok := w.target.drift == 1
			w.target.drift = 2
			return ok
		}, 0},
		{"someone removes our annotation", func(w *modelWorld) bool {
			ok := w.target.from != 0 && w.target.managed == w.target.from
			w.target.from, w.target.gen, w.target.behind = 0, 0, 0
			return ok
		}, 1},
		{"another Sync comes first", func(w *modelWorld) bool {
			ok := w.source.uid != 0 && !w.source.shared && !w.source.deleting
			w.source.shared = true
			return ok
		}, 1},
		{"another Sync lets the source go", func(w *modelWorld) bool {
			ok := w.source.shared
			w.source.shared = false
			return ok
		}, 0},
		{"someone deletes the target", func(w *modelWorld) bool {
			ok := w.target.uid != 0 && !w.target.deleting
			if w.target.deleting = true; !w.target.blocked {
				w.target = modelTarget{}
			}
			return ok
		}, 1},
		{"someone deletes the target while no konnector runs, and one starts", func(w *modelWorld) bool {
			ok := w.target.uid != 0 && !w.target.blocked
			w.target = modelTarget{}
			w.start(0, false)
			return ok
		}, 1},
		{"the breaker has counted so many that it holds what follows", func(w *modelWorld) bool {
			ok := !w.konnectors[0].held
			w.konnectors[0].held = true
			return ok
		}, 1},
		{"the konnector starts anew, with the breaker's count of so many", func(w *modelWorld) bool {
			ok := !w.konnectors[0].held
			w.start(0, false)
			w.konnectors[0].held = true
			return ok
		}, 1},
		{"a legacy konnector makes the target", func(w *modelWorld) bool {
			ok := w.target.uid == 0 && w.source.uid != 0 && !w.source.deleting
			w.source.finalizer = true
			w.born++
			w.target = modelTarget{uid: w.born, legacy: w.source.uid}
			return ok
		}, 1},
		{"a legacy konnector writes the target", func(w *modelWorld) bool {
			ok := w.target.made(w.source.uid) && w.target.managed != 0 && !w.target.contended
			w.target.contended = true
			return ok
		}, 1},
		{"the target's kind is being taken away, and all of it", func(w *modelWorld) bool {
			ok := w.target.uid != 0 && !w.leaving
			if w.leaving, w.target.deleting = true, true; !w.target.blocked {
				w.target = modelTarget{}
			}
			return ok
		}, 1},
		{"the target's kind is offered again", func(w *modelWorld) bool {
			ok := w.leaving
			w.leaving = false
			return ok
		}, 0},
		{"the target's cluster does not answer", func(w *modelWorld) bool {
			ok := !w.unreadable
			w.unreadable = true
			for i := range w.konnectors {
				w.konnectors[i].targetAt = unknown
			}
			return ok
		}, 1},
		{"the target's cluster answers again", func(w *modelWorld) bool {
			ok := w.unreadable
			w.unreadable = false
			for i := range w.konnectors {
				w.konnectors[i].targetAt = cached
			}
			return ok
		}, 0},
		{"the source is restored to before its deletion", func(w *modelWorld) bool {
			ok := w.source.deleting
			w.source.deleting = false
			w.tombs &^= uidBit(w.source.uid)
			w.restore()
			return ok
		}, 1},
		{"the source is restored to an earlier generation", func(w *modelWorld) bool {
			ok := w.source.gen == 2
			w.source.gen, w.source.send, w.rolled = 1, false, true
			w.restore()
			return ok
		}, 1},
		{"the source is restored to a generation of long ago", func(w *modelWorld) bool {
			ok := w.source.gen == 2
			w.source.gen, w.source.send, w.rolled = 0, false, true
			w.restore()
			return ok
		}, 1},
		{"the source is restored to before its creation", func(w *modelWorld) bool {
			ok := w.source.uid != 0
			w.source = modelSource{}
			w.restore()
			return ok
		}, 1},
		{"the source's cluster is lost and set up again", func(w *modelWorld) bool {
			ok := w.source.uid != 0 && w.target.from == w.source.uid && !w.target.deleting
			w.source, w.target.former = modelSource{}, true
			for i := range w.konnectors {
				w.start(i, false)
			}
			return ok
		}, 1},
		{"the source is restored to before its finalizer was removed", func(w *modelWorld) bool {
			ok := w.source.uid == 0 && w.letGo&uidBit(1) != 0
			w.source = modelSource{uid: 1, gen: 1, finalizer: true}
			w.letGo, w.tombs = 0, w.tombs&^uidBit(1)
			w.restore()
			return ok
		}, 1},
		{"the target is restored to before its creation", func(w *modelWorld) bool {
			ok := w.target.uid != 0
			w.target = modelTarget{}
			w.restore()
			return ok
		}, 1},
		{"the target is restored to an earlier generation", func(w *modelWorld) bool {
			ok := w.target.gen == 2
			w.target.gen, w.target.behind = 1, 0
			w.restore()
			return ok
		}, 1},
		{"the target's cluster is replaced", func(w *modelWorld) bool {
			ok := w.cluster == 1
			w.elsewhere, w.target, w.cluster, w.released = w.target, modelTarget{}, 2, false
			w.disconnect()
			return ok
		}, 1},
		{"users release held deletions", func(w *modelWorld) bool {
			ok := false
			for i := range w.konnectors {
				k := &w.konnectors[i]
				ok = ok || k.held
				k.held = false
			}
			ok = w.release() || ok
			return ok
		}, 0},
	}
}

// release has users release what the messages say is held.
func (w *modelWorld) release() (held bool) {
	switch w.released = true; w.source.message {
	case modelHeld, modelOrphanHeld:
		w.source.message = 0
	case modelVanishedHeld:
		w.source.message = modelVanished
	default:
		return false
	}
	return true
}

// restore ends the connections to a cluster that comes back with less than it had, and
// has that noticed.
func (w *modelWorld) restore() {
	w.restored = true
	w.disconnect()
	for i := range w.konnectors {
		w.konnectors[i].suspect, w.konnectors[i].coming = true, 0
	}
}

// disconnect ends what was read live: requests that are on their way fail.
func (w *modelWorld) disconnect() {
	for i := range w.konnectors {
		w.konnectors[i].endPass()
		w.konnectors[i].judged = 0
	}
}

// start is what a process that begins sees first: what there is, or, as caches of API
// servers may be old, what it saw before.
func (w *modelWorld) start(i int, old bool) {
	k := &w.konnectors[i]
	next := modelKonnector{source: w.source, target: w.target, sourceAt: cached, targetAt: cached, cluster: w.cluster}
	if old {
		next.source, next.target = k.source, k.target
	}
	if w.unreadable {
		next.targetAt = unknown
	}
	*k = next
}

// pass lets time go by for konnector i.
func (w *modelWorld) wait(i int) bool {
	k := &w.konnectors[i]
	before := *k
	if k.again = k.again && k.paused; k.paused {
		k.paused = false
	}
	if k.marksPaused {
		k.marked, k.marksPaused = 0, false
	}
	if k.graceOf != 0 && k.graceOf == k.target.uid && k.grace == graceRunning {
		k.grace = graceElapsed
	}
	return *k != before
}

// deliver has the watches of konnector i show what there is.
func (w *modelWorld) deliver(i int, source, target bool) bool {
	k := &w.konnectors[i]
	before := *k
	if k.sourceAt == live || k.targetAt == live {
		return false // what follows a live read is decided already
	}
	if source {
		k.source, k.witnessed, k.coming = w.source, k.witnessed|k.coming, 0
	}
	if target && !w.unreadable && k.target != w.target {
		k.target, k.contested = w.target, false
	}
	return *k != before
}

// next calls visit with each world that can follow w, and by what move.
func (r *modelRun) next(w modelWorld, visit func(m modelEvent, next modelWorld)) {
	for i := range r.count() {
		next := w
		do := r.step(&next, i)
		if next != w || r.broken != "" {
			visit(modelEvent{who: i, does: string(do)}, next)
		}
		r.broken = ""
		if r.crashes(w, next) {
			next.faults--
			next.start(i, !next.restored)
			visit(modelEvent{who: i, does: string(do), and: " and crashes before it knows the outcome; it starts"}, next)
		}
		if next = w; next.deliver(i, true, false) {
			visit(modelEvent{who: i, does: "sees the source"}, next)
		}
		if next = w; next.deliver(i, false, true) {
			visit(modelEvent{who: i, does: "sees the target"}, next)
		}
		if next = w; next.wait(i) {
			visit(modelEvent{who: i, does: "waits"}, next)
		}
		if next = w; w.faults > 0 {
			next.faults--
			next.start(i, !w.restored)
			visit(modelEvent{who: i, does: "starts anew, with lists of before"}, next)
		}
		if next = w; w.faults > 0 && w.letGo&uidBit(1) != 0 {
			next.faults--
			next.start(i, false)
			next.konnectors[i].source = modelSource{uid: 1, gen: 1, finalizer: true}
			visit(modelEvent{who: i, does: "starts anew, with a list from before the source was let go"}, next)
		}
	}
	for _, m := range r.adversary {
		next := w
		if w.faults >= m.cost && m.do(&next) && next.born <= r.targets && next.sources <= r.sources {
			next.faults = w.faults - m.cost
			visit(modelEvent{who: -1, does: m.name}, next)
		}
	}
}

// A modelEvent is one line of a counterexample.
type modelEvent struct {
	who       int // konnector; -1 for others
	does, and string
}

func (m modelEvent) String() string {
	if m.who < 0 {
		return m.does
	}
	return []string{"the konnector: ", "the second konnector: "}[m.who] + m.does + m.and
}

// canonical is w without what nothing can depend on any more, so that worlds which
// differ in that are one state.
func (w modelWorld) canonical() modelWorld {
	var known uint8 // sources that a target may be of
	known = uidBit(w.source.uid) | uidBit(w.target.from) | uidBit(w.target.legacy)
	for i := range w.konnectors {
		k := &w.konnectors[i]
		known |= uidBit(k.source.uid) | uidBit(k.target.from) | uidBit(k.target.legacy)
	}
	w.tombs &= known
	if w.elsewhere.from != w.source.uid && w.elsewhere.legacy != w.source.uid {
		w.elsewhere = modelTarget{}
	}
	if w.faults > 0 {
		return w
	}
	w.restored = false
	w.letGo &= known
	if w.elsewhere.uid == 0 {
		w.released = false
	} else {
		w.elsewhere = modelTarget{uid: w.elsewhere.uid, from: w.elsewhere.from, legacy: w.elsewhere.legacy}
	}
	return w
}

func (r *modelRun) crashes(before, after modelWorld) bool {
	return before.faults > 0 && (before.source != after.source || before.target != after.target)
}

func (r *modelRun) count() int {
	if r.two {
		return 2
	}
	return 1
}

// explore visits every state that can be reached, in breadth-first order, and counts them.
func (r *modelRun) explore(faults uint8) (states int) {
	w := modelWorld{cluster: 1, faults: faults}
	for i := range r.count() {
		w.start(i, false)
	}
	r.seen, r.settled = map[modelWorld]int32{w: 0}, map[modelWorld]bool{}
	r.worlds, r.parents, r.moves = []modelWorld{w}, []int32{-1}, []modelEvent{{who: -1, does: "nothing is there"}}
	for at := 0; at < len(r.worlds); at++ {
		from := r.worlds[at]
		r.next(from, func(m modelEvent, next modelWorld) {
			next = next.canonical()
			if _, known := r.seen[next]; known && r.broken == "" {
				return
			}
			r.seen[next] = int32(len(r.worlds))                                                                     //nolint:gosec // far less
			r.worlds, r.parents, r.moves = append(r.worlds, next), append(r.parents, int32(at)), append(r.moves, m) //nolint:gosec // far less
			if r.broken != "" {
				r.fail(len(r.worlds)-1, r.broken)
			}
		})
		if broken := r.settles(from); broken != "" {
			r.fail(at, broken)
		}
	}
	return len(r.worlds)
}

// fail prints the moves that lead to a state.
func (r *modelRun) fail(at int, broken string) {
	r.t.Helper()
	var moves []string
	for i := at; i >= 0; i = int(r.parents[i]) {
		moves = append([]string{r.moves[i].String()}, moves...)
	}
	r.t.Fatalf("%s\n%d states, policy %+v\nafter\n  %s\nin %+v", broken, len(r.worlds), r.policy, strings.Join(moves, "\n  "), r.worlds[at].konnectors[:r.count()])
}

// settles plays fair from w: no adversary, all is delivered, and what was held or
// blocked is let go. It reports what is wrong with where that ends.
func (r *modelRun) settles(w modelWorld) string {
	w.faults, w.leaving = 0, false
	if w.unreadable {
		w.unreadable = false
		for i := range w.konnectors {
			w.konnectors[i].targetAt = cached
		}
	}
	for i := range r.count() {
		for range 12 {
			if w.deliver(i, true, true); r.observes(w, i) {
				break
			}
			r.step(&w, i) // what was decided by what was read live
		}
	}
	if r.settled[w] {
		return ""
	}
	r.settled[w] = true
	if broken := r.stands(w); broken != "" {
		return broken
	}
	writes, trace := r.play(&w, false)
	broken := r.broken
	switch {
	case broken != "":
	case writes < 0:
		broken = "I1: does not come to rest"
	default:
		if broken = r.wrong(w); broken == "" {
			broken = excessive(trace)
		}
	}
	if broken != "" {
		return fmt.Sprintf("%s\nin fair play: %q", broken, trace)
	}
	for i := range r.count() {
		w.start(i, false)
	}
	if writes, trace = r.play(&w, false); writes != 0 {
		return fmt.Sprintf("I8: a restart writes: %q", trace)
	}
	return ""
}

// observes reports whether konnector i looks at its caches next.
func (r *modelRun) observes(w modelWorld, i int) bool {
	return w.konnectors[i].sourceAt != live && w.konnectors[i].targetAt != live
}

// excessive finds a step that is done more often than it can be needed.
func excessive(trace []step) string {
	var statuses, messages, owns int
	for i, do := range trace {
		switch do {
		case stepStatus:
			statuses++
		case stepSetMessage:
			messages++
		case stepTakeFields: // the marks, and what was applied then
			owns++
		default:
			if slices.Contains(trace[:i], do) {
				return fmt.Sprintf("I8: %s is done twice", do)
			}
		}
	}
	if statuses > 2 || messages > 2 || owns > 2 {
		return "I8: too many statuses, messages or takings"
	}
	return ""
}

// stands has a provider keep a target that is being deleted, or whose source is, and reports
// what is not in step then, or not told.
func (r *modelRun) stands(w modelWorld) string {
	src, dst := &w.source, &w.target
	if !src.finalizer || !dst.blocked || !dst.made(src.uid) || !src.deleting && !dst.deleting || src.deleting && r.policy.deletion != DeletionDelete {
		return ""
	}
	_, trace := r.play(&w, true)
	var broken string
	switch {
	case r.broken != "":
		broken = r.broken
	case !src.deleting && (src.message == modelTerminating || src.shared):
		return ""
	case !src.deleting:
		broken = "I18: the target is going, and nothing says so"
	case dst.gen != src.gen && dst.gen <= src.gen && (dst.drift != 1 || r.policy.drift == DriftCorrect):
		broken = "I1: what the user changed after the deletion does not go up"
	case src.deleting && dst.gen > src.gen && dst.behind == 0 && !src.send:
		broken = "I1: nothing records what is behind, so that no edit after the deletion goes up"
	case src.status != dst.sent() && !src.shared:
		broken = "I1: the status does not come down after the deletion"
	default:
		return ""
	}
	return fmt.Sprintf("%s\nwhile the provider keeps the target: %q", broken, trace)
}

func (r *modelRun) play(w *modelWorld, keep bool) (writes int, trace []step) {
	for round := 0; ; round++ {
		if round > 20 {
			return -1, trace
		}
		start := *w
		w.target.blocked = w.target.blocked && keep
		if w.target.deleting && !keep {
			w.target = modelTarget{}
		}
		for i := range r.count() {
			k := &w.konnectors[i]
			if (k.held || w.source.message == modelHeld || w.source.message == modelOrphanHeld || w.source.message == modelVanishedHeld) && !keep {
				k.held = false
				w.release()
			}
			w.deliver(i, true, true)
			for range 12 {
				before := *w
				do := r.step(w, i)
				if before.source != w.source || before.target != w.target {
					writes++
					trace = append(trace, do)
				}
				if do == stepRest || do == stepWait {
					break
				}
			}
			w.wait(i)
		}
		if *w == start {
			return writes, trace
		}
	}
}

// wrong checks that what fair play leads to is what it should be.
func (r *modelRun) wrong(w modelWorld) string {
	k := w.konnectors[0]
	s := r.observe(&k)
	src, dst, why := w.source, w.target, obstacle(s)
	switch {
	case src.uid == 0 && s.target.relation == relationOrphan && s.target.managed && s.policy.deletesOrphans():
		return "I1: an orphan is not collected"
	case s.target.relation == relationOrphan && s.target.managed && s.target.grace == graceWaived:
		return "I20: the target of a source that was deleted is left"
	case src.uid == 0 && s.target.relation == relationOrphan && s.target.grace < graceProven:
		return "I20: an orphan is not told"
	case src.uid == 0:
		return ""
	case src.deleting && src.finalizer:
		return "I1: the source stays"
	case src.deleting:
		return ""
	case modelReasons[src.message] != why && !src.shared:
		return fmt.Sprintf("I1: the message is %q, the obstacle %q", modelReasons[src.message], why)
	case why == ReasonConflict && (dst.made(src.uid) || dst.uid == 0), why == ReasonLost && dst.uid != 0,
		why == ReasonDrifted && dst.drift != 1, why == ReasonStale && dst.gen <= src.gen:
		return "I1: the message is wrong: " + string(why)
	case why == ReasonConflict && s.target.relation == relationOrphan && s.target.managed && r.policy.deletesOrphans():
		return "I1: an orphan keeps the name"
	case why == ReasonStale && s.target.content == contentSourceOlder:
		return "I1: nothing records what is behind, so that no edit goes up"
	case !harmless(why) && why != ReasonDrifted:
		return ""
	case !src.finalizer:
		return "I3: no finalizer"
	case !dst.made(src.uid) || dst.gen != src.gen && harmless(why) || dst.managed != src.uid || dst.contended && r.policy.drift == DriftCorrect:
		return "I1: the target is not what it should be"
	case (dst.shared || dst.renamed != 0) && harmless(why):
		return "I1: others own what the source should be able to take away, or a Sync under another name does"
	case dst.drift != 0 && harmless(why):
		return "I1: the target stays changed"
	case dst.sent() != src.status && !src.shared:
		return "I1: the status does not travel"
	}
	return ""
}

// modelPolicies are all that New takes.
func modelPolicies() (all []policy) {
	for _, conflict := range []ConflictPolicy{ConflictFail, ConflictAdopt} {
		for _, drift := range []DriftPolicy{DriftCorrect, DriftReport} {
			for _, lost := range []LostPolicy{LostRecreate, LostReport} {
				for _, end := range []policy{{deletion: DeletionDelete, orphans: OrphanReport}, {deletion: DeletionDelete, orphans: OrphanDelete}, {deletion: DeletionOrphan, orphans: OrphanReport}} {
					all = append(all, policy{conflict, drift, lost, end.deletion, end.orphans})
				}
			}
		}
	}
	return all
}

// pairedPolicies are so few policies that each value of one meets each value of each other.
func pairedPolicies() []policy {
	all := modelPolicies()
	return []policy{all[0], all[5], all[7], all[10], all[13], all[17], all[20], all[21]}
}

var modelLong = flag.Bool("model", false, "TestModel takes all policies, and two sources for two konnectors")

// TestModel visits every state that one object can be in, with all that can happen and
// one fault, for one konnector, and with all that users do for two of them.
func TestModel(t *testing.T) {
	t.Parallel()
	began := time.Now()
	of, sources := pairedPolicies(), uint8(1)
	if *modelLong {
		of, sources = modelPolicies(), 2
	}
	states := 0
	for i, p := range of {
		one := modelRun{t: t, policy: p, sources: 2, targets: 2, adversary: modelMoves()}
		states += one.explore(1)
		if one.recover = true; i == 0 || *modelLong {
			states += one.explore(1)
		}
		if two := (modelRun{t: t, policy: p, sources: sources, targets: 2, adversary: userMoves(), two: true}); i == 0 || *modelLong {
			for m := range two.adversary {
				two.adversary[m].cost = 0 // users need no faults
			}
			states += two.explore(0)
		}
	}
	t.Logf("%d states in %s", states, time.Since(began).Round(time.Millisecond))
}
