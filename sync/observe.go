// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/sync/internal/contest"
	"github.com/klutch-go/sdk/sync/internal/fence"
	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
	"github.com/klutch-go/sdk/sync/internal/loss"
	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/pace"
	"github.com/klutch-go/sdk/sync/internal/prune"
	"github.com/klutch-go/sdk/sync/internal/refusal"
	"github.com/klutch-go/sdk/sync/internal/slim"
	"github.com/klutch-go/sdk/sync/internal/tombstone"
	"github.com/klutch-go/sdk/sync/internal/travel"
	"github.com/klutch-go/sdk/sync/internal/view"
)

// A pair is one source object, its target, and the state that they are in.
type pair struct {
	state
	key    cache.ObjectName
	name   cache.ObjectName // of the target
	from   origin
	keeper string // the field manager of this incarnation on the target
	source *unstructured.Unstructured
	target *unstructured.Unstructured
	made   Origin // of the target
	isMade bool   // by a Sync
	intent intent
	wish   string         // identifies the intent, in the generation that says so
	give   map[string]any // status for the source; nil if none
	mute   time.Duration  // until the next message may be set

	delays []delay // for what API servers refused: the other steps go on, and need no live read of a side that is uncertain

	wait       time.Duration // until a refused intent is asked again, or told
	statusWait time.Duration // until the status may be given

	sources, targets int    // how often they were listed: answers of before are of another schema
	schemas          [2]int // how often those of sources and targets have changed: what was refused before may be taken now
}

// A delay is how long a request is not made again, and for what answer.
type delay struct {
	ask     refusal.Ask
	refusal *refusal.Refusal
	pause   time.Duration
}

// soonest is when to look again at an object that would be looked at after a pause, 0 for never, and of which
// some requests wait: when the first of them is due, or should be told.
func soonest(pause time.Duration, delays []delay) time.Duration {
	for _, d := range delays {
		next := d.pause
		if passes := d.refusal.Passes(); passes > 0 {
			next = min(next, passes)
		}
		if next = max(next, time.Millisecond); pause == 0 || next < pause {
			pause = next
		}
	}
	return pause
}

// An observer reads both sides of an object, and says in which state they are.
type observer struct {
	opts         Options
	policy       policy
	names        *names.Names
	resource     schema.GroupVersionResource
	guard        *fence.Guard
	tombstones   *tombstone.Tombstones
	source       *view.View
	target       *view.View
	sourceFields *prune.Cache
	targetFields *prune.Cache
	statuses     *pace.Budget
	turns        *pace.Turns // of targets that only an apply can tell of, after a list
	refused      *refusal.Ledger
	plainStatus  func() bool
	oneCluster   bool                                          // source and target may be one, whatever their identities say
	problem      func(key cache.ObjectName) string             // of a related object
	serving      func(context.Context) (why string, err error) // reads whether the target's cluster takes new objects
}

// observe reads both sides.
func (o *observer) observe(ctx context.Context, key cache.ObjectName, r *record) (*pair, error) {
	p := &pair{key: key, state: state{policy: o.policy, names: o.names, suspect: o.guard.Suspect.Load()}}
	p.schemas = [2]int{o.sourceFields.Changes(), o.targetFields.Changes()}
	p.sources = o.source.Listed(key.Namespace)
	r.answers.lookSource = r.answers.lookSource || over(r.answers.source) && r.answers.listed != p.sources // the list may be of a backup that brings it back
	var err error
	if p.source, p.state.source.freshness, err = o.look(ctx, p, sight{o.source, refusal.SourceRead, key, &r.answers.source, &r.answers.lookSource}); err != nil {
		return nil, err
	}
	p.from = origin{cluster: o.guard.SourceUID, name: key}
	if p.source != nil {
		o.observeSource(p, r)
	}
	p.name, p.mapped = targetName(o.opts.Mapper, key, p.source != nil)
	copied := p.source != nil && o.isCopy(p.source)
	if p.mapped = p.mapped && !copied; !p.mapped || p.state.source.freshness == unknown {
		if !copied {
			observeBlind(p, r, ReasonMissing, "it has no place there for "+display(o.resource, key))
		}
		return p, nil
	}
	if p.misnamed = contradiction(o.opts.Mapper, key, p.name); p.misnamed != "" {
		return p, nil
	}
	p.state.target.name = display(o.resource, p.name)
	if saidOfLoss(p.state) != "" {
		r.losses.Hear()
	}
	switch {
	case p.state.source.deleting && r.ending.isDue():
		r.answers.lookTarget = true
	case p.source == nil && r.proofs.orphan == nil:
		r.answers.lookTarget = false // its outcome matters no more
	}
	looks := r.answers.lookTarget
	p.targets = o.target.Listed(p.name.Namespace)
	if p.target, p.state.target.freshness, err = o.look(ctx, p, sight{o.target, refusal.TargetRead, p.name, &r.answers.target, &r.answers.lookTarget}); err != nil && !fates.Is(err, fates.Unserved) {
		return nil, err
	}
	looks = looks && p.state.target.freshness == live
	if p.state.target.freshness == unknown {
		if err == nil {
			err = o.target.Err(p.name.Namespace)
		}
		why, said := unreadable(p, &r.drift, o.target.Name, o.resource, err)
		observeBlind(p, r, why, said)
		return p, nil
	}
	r.blind = time.Time{}
	if f := p.state.target.freshness; r.answers.gone != "" && f != unknown && (p.target == nil || p.target.GetUID() == r.answers.gone) {
		p.target, p.state.target.freshness = nil, live
	}
	if looks || r.proofs.since == 0 {
		r.proofs.since, r.proofs.confirmed = o.guard.Now(), false
	}
	if p.target != nil {
		p.made, p.isMade = originIn(o.names.Source, p.target)
	}
	if p.source != nil {
		pruned := o.targetFields.Prune(p.source)
		o.observeLeftOut(p, pruned)
		p.intent = o.opts.newIntent(o.names, pruned, p.from.since(p.made, p.source.GetResourceVersion()), p.name, o.composed)
		if p.wish = p.intent.hash; !o.plainStatus() {
			p.wish += strconv.FormatInt(edits(p.source), 10)
		}
	}
	o.observeRelation(ctx, p, r)
	if p.source != nil && p.target != nil {
		o.observeTarget(p, r)
	}
	if looks && (p.state.source.deleting || p.state.target.relation == relationVanished || p.state.target.grace != graceRunning) {
		if err = r.proofs.confirm(ctx, o.guard, ""); err != nil {
			return nil, err
		}
	}
	if p.returns() {
		if err = o.observeLoss(ctx, p, r, looks); err != nil {
			return nil, err
		}
	}
	o.remember(p, r)
	p.prove(r)
	return p, nil
}

// unreadable is why err keeps the target from being looked at. That its cluster does not answer is
// told for the Sync as a whole, and on the sources that surely wait for it: what was in step when
// it could last be read, and was not changed since, does not.
func unreadable(p *pair, d *drift, target string, resource schema.GroupVersionResource, err error) (why Reason, said string) {
	why = reasons[fates.Of(err).Word()]
	if why == ReasonUnavailable && p.source != nil && !p.state.source.deleting && d.settled == edits(p.source) {
		return "", ""
	}
	if fates.Is(err, fates.Absent, fates.Unserved) {
		err = &ReadError{target, resource, err}
	}
	return why, cannotBeRead(err)
}

// observeBlind notes that the target cannot be looked at, which is told if it lasts.
func observeBlind(p *pair, r *record, why Reason, said string) {
	if p.source == nil || p.state.source.freshness == unknown || why == "" {
		return
	}
	if r.blind.IsZero() {
		r.blind = time.Now()
	}
	p.refused, p.answer = why, clip(said)
	if left := time.Until(r.blind.Add(blindPause)); left > 0 {
		p.passing, p.wait = true, left
	}
}

// blindWait is when to look again at what cannot be looked at: ever more rarely where its API server says no, and
// soon after an outage. A list brings us back at once, and the reason may change until it is told.
func (r *record) blindWait(why Reason) time.Duration {
	if r.blind.IsZero() || why == ReasonUnavailable {
		return livePause
	}
	return rarelySince(r.blind)
}

// rarelySince is the pause between looks at what lasts: ever longer.
func rarelySince(began time.Time) time.Duration {
	return max(livePause, min(time.Since(began)/4, fates.Forbidden.Longest()))
}

func (o *observer) observeSource(p *pair, r *record) {
	annotations := p.source.GetAnnotations()
	p.from.uid = p.source.GetUID()
	p.keeper = o.names.Incarnation(p.from.uid)
	if r.drift.source != p.from.uid {
		r.drift, r.losses, r.marks = drift{source: p.from.uid}, loss.History{}, contest.Contest{} // another source has lost nothing yet
	}
	s := &p.state.source
	s.exists = true
	s.deleting = p.source.GetDeletionTimestamp() != nil
	s.finalizer = slices.Contains(p.source.GetFinalizers(), o.opts.Finalizer)
	if !s.finalizer {
		r.drift.settled = notApplied
	} else if r.drift.settled == 0 {
		r.drift.settled = edits(p.source) // as of a start, for all that is known
	}
	if s.targetRecord = recorded(annotations[o.names.TargetRecord], p.from.uid); isAdopted(o.names, p.source) {
		s.targetRecord = cmp.Or(s.targetRecord, recorded(annotations[o.names.Target], p.from.uid))
	}
	if s.shared = o.firstOther(p.source); s.shared == "" { // else it speaks of the other Sync's target
		s.message = annotations[o.names.Message]
	}
	p.related = o.problem(p.key)
	if s.freshness == live {
		r.proofs.source = p.from.uid
	}
	s.proven = r.proofs.source == p.from.uid
}

// observeLeftOut finds out which fields of a source its target cannot have.
func (o *observer) observeLeftOut(p *pair, pruned *unstructured.Unstructured) {
	if pruned == p.source {
		return
	}
	p.unknownFields = strings.Join(prune.LeftOut(travel.Body(p.source.Object, o.composed), travel.Body(pruned.Object, o.composed)), ", ")
	p.unsure = p.unknownFields != "" && !o.targetFields.Sure()
}

// composed reports whether Crossplane keeps the names of what it has composed at a path: it
// does beside a field of its own. As long as no schema is known it may.
func (o *observer) composed(path ...string) bool {
	path = append(slices.Clone(path), "compositionRef")
	for _, schema := range []*prune.Cache{o.targetFields, o.sourceFields} {
		if has, known := schema.Has(path); known {
			return has
		}
	}
	return true
}

// observeRelation finds out whose the object is that has the target's name.
func (o *observer) observeRelation(ctx context.Context, p *pair, r *record) {
	t := &p.state.target
	if t.freshness == unknown {
		return
	}
	if o.recovers(p) {
		p.policy.conflict, p.policy.orphans = ConflictAdopt, OrphanReport
	}
	o.observeAdoption(p)
	o.observeOrphan(ctx, p, r)
	switch {
	case p.vanished(r):
		t.relation = relationVanished
	case p.target == nil:
		t.relation = relationAbsent
	case p.source == nil && r.proofs.orphan == nil:
		t.relation = relationForeign
	case r.proofs.orphan != nil:
		t.relation = relationOrphan
	default:
		t.relation = o.relation(p)
	}
}

// relation is that of a target to its source, both of which exist.
func (o *observer) relation(p *pair) targetRelation {
	made := madeFrom(o.names, p.made, p.target, p.from.uid)
	switch {
	case !made && o.inherits(p):
		return relationLegacy
	case made && o.opts.hasLegacy() && legacy.Writer(p.target) != "":
		return relationLegacyWrote
	case made:
		return relationOurs
	case p.isMade && !p.from.sameName(p.made):
		return relationOtherSource
	case p.isMade && !p.from.sameCluster(p.made) && !o.recovers(p):
		return relationOtherCluster
	case fields.By(p.target, o.names.Earlier(p.keeper)) != nil:
		return relationPredecessor
	default:
		return relationForeign
	}
}

// inherits reports whether the target was made from this very source by a legacy
// konnector. It takes a live read to see, since what that owns is not cached. A target that
// says of itself what TargetMeta does not is another Sync's: with names that begin with a
// tenant, that of tenant a for b-x is that of tenant a-b for x.
func (o *observer) inherits(p *pair) bool {
	a := p.target.GetAnnotations()
	if o.opts.TargetMeta != nil {
		for key, value := range o.opts.TargetMeta(p.key).Annotations {
			if said, ok := a[key]; ok && said != value {
				return false
			}
		}
	}
	return o.opts.hasLegacy() && a[o.names.Source] == "" && a[o.names.Orphaned] == "" &&
		legacy.MadeFrom(p.source, p.target) && fields.By(p.target, legacy.Wrote) != nil
}

// observeOrphan finds out whether this binding made the target from a source of
// this name that is not there, and for how long already. What cannot be seen says
// nothing: the time goes on.
func (o *observer) observeOrphan(ctx context.Context, p *pair, r *record) {
	if !o.isOrphan(p) {
		r.proofs.orphan = nil
		return
	}
	if r.proofs.orphan == nil || r.proofs.orphan.uid != p.target.GetUID() {
		r.proofs.orphan = &orphan{uid: p.target.GetUID(), since: time.Now()}
	}
	r.proofs.orphan.trace.ask(func() error { return o.tombstones.Find(ctx, p.key, p.made.UID, p.made.version()) })
	deleted := o.tombstones.Of(p.made.UID)
	switch {
	case deleted && p.policy.deletion == DeletionDelete:
		p.state.target.grace = graceWaived
	case r.proofs.orphan.proven:
		p.state.target.grace = graceProven
	case deleted, time.Since(r.proofs.orphan.since) >= orphanGrace:
		p.state.target.grace = graceElapsed
	}
}

// isOrphan reports whether the target was made from a source of this name that is not there. It may
// be collected if the field manager of that source owns fields of it. If that owns none, as where
// the target was made from a manifest, or the source went while it took the target over, the orphan
// is only told, and only while there is no source of the name. If others took our annotations off,
// the field manager alone names the source, and the watch has to have shown the end of that.
func (o *observer) isOrphan(p *pair) bool {
	if p.target == nil || p.target.GetDeletionTimestamp() != nil || o.guard.SourceUID == "" {
		return false
	}
	if p.source == nil && !p.isMade {
		p.made = o.maker(p)
	}
	left := p.made.Cluster == o.guard.SourceUID || p.source == nil && o.recovers(p)
	managed := fields.Of(p.target, o.names.Incarnation(p.made.UID)) != nil
	p.state.target.managed = managed && (p.isMade || o.tombstones.Of(p.made.UID))
	return left && p.from.sameName(p.made) && p.made.UID != p.from.uid && (managed || p.source == nil && (fields.By(p.target, o.names.Applied) == nil || o.names.Maker(p.target) != ""))
}

// maker is the origin of a target whose annotations others have taken off, if a Sync of this
// binding owns fields of it.
func (o *observer) maker(p *pair) Origin {
	end := o.names.Maker(p.target)
	if end == "" {
		return Origin{}
	}
	return Origin{UID: o.tombstones.UIDWithSuffix(end), Cluster: o.guard.SourceUID, Namespace: p.key.Namespace, Name: p.key.Name}
}

// recovers reports whether the target is of the cluster in whose place the source cluster
// is, and of a source of the same name there.
func (o *observer) recovers(p *pair) bool {
	former := o.opts.FormerSource
	return former != "" && former != o.guard.SourceUID && p.isMade && p.made.Cluster == former && p.from.sameName(p.made)
}

// prove notes that an orphan is one, once both sides and the clusters have been
// read live for it.
func (p *pair) prove(r *record) {
	if t := &p.state.target; t.grace == graceElapsed && p.evidence().has(require(stepCollect, p.state)) {
		t.grace, r.proofs.orphan.proven = graceProven, true
	}
}

func (o *observer) observeTarget(p *pair, r *record) {
	t := &p.state.target
	t.uid = string(p.target.GetUID())
	if t.relation != relationOrphan {
		t.managed = fields.Of(p.target, p.keeper) != nil
	}
	if t.ours() {
		if uid := p.target.GetUID(); r.drift.target != uid {
			r.drift.target, r.drift.accepted = uid, "" // another target has accepted nothing yet
		}
		t.content = o.compare(p, r)
	} else if len(fields.Of(p.target, p.keeper).Emptied(p.intent.object, nil)) > 0 {
		t.content = contentEmptyMap // of a target that is taken over
	}
	if deleted := p.target.GetDeletionTimestamp(); deleted != nil {
		t.termination = terminating
		if r.ending.uid != p.target.GetUID() {
			r.ending = ending{p.target.GetUID(), time.Now(), time.Now()}
		}
		if max(time.Since(deleted.Time), time.Since(r.ending.since)) >= slowPause { // the other cluster's clock may be ahead
			t.termination = stuck
		}
		t.finalizers = waitsFor(p.target)
	}
	if t.freshness == live && (t.content.edited() || t.content.drifted()) {
		r.drift.contest.Rivals = contest.Rivals(p.target, p.keeper, p.intent.object)
	}
	p.give = r.status.withOthers(travel.Status(p.source, o.sourceFields.Prune(p.target), p.made.Generation), p.source)
	p.status = t.ours() && p.state.source.shared == "" && !r.status.acknowledged(p)
}

// compare finds out how a target that is ours differs from what it should be.
func (o *observer) compare(p *pair, r *record) content {
	from, now := p.made, edits(p.source)
	counted := from.Generation == now || from.Generation == p.source.GetGeneration() // with the deletion, as a Sync of before did
	settled := from.Hash == p.intent.hash && (counted || o.plainStatus())
	if settled {
		r.drift.applied, r.drift.settled = from.Hash, now
	}
	owned, unverified := o.fieldsIntact(p, r, settled)
	ours := fields.Of(p.target, p.keeper)
	judged := contentUnverified
	// A start goes on with a change that the source tells of: an apply would undo it.
	said := strings.HasPrefix(p.state.source.message, string(ReasonDrifted)+": ")
	if settled && !owned && (!unverified || said) && p.policy.drift == DriftReport {
		judged = p.judge(&r.drift, ours)
		unverified = judged == contentUnverified
	}
	annotations := p.target.GetAnnotations()
	seen, noted := seenBehind(annotations[o.names.Behind], annotations[o.names.Source])
	older := from.Generation > now && !settled
	if older {
		p.state.source.older = strconv.FormatInt(p.source.GetGeneration(), 10)
		if send := p.source.GetAnnotations()[o.names.Send]; send == p.state.source.older || send == strconv.FormatInt(now, 10) {
			seen, noted = notApplied, true
		}
	}
	switch {
	case older && !noted:
		return contentSourceOlder
	case older && now <= seen:
		return contentSourceOlderNoted
	case !p.state.target.managed && (p.isMade && p.policy.drift == DriftReport || fields.By(p.target, o.names.Earlier(p.keeper)) != nil):
		return contentShared // an apply that yields would meet others' claims to our marks, or leave what another one applied
	case older && p.state.source.freshness != live:
		return contentRewritten
	case !settled && p.isMade && r.drift.applied != "" && from.Hash != r.drift.applied && p.state.source.freshness != live:
		return contentRewritten
	case o.takesFieldsNow(p, settled && owned) && slim.Shared(p.target, p.keeper):
		return contentShared
	case settled && owned:
		return contentInSync
	case judged != contentUnverified:
		return judged
	case len(ours.Emptied(p.intent.object, nil)) > 0:
		return contentEmptyMap
	case !settled:
		return contentStale
	case unverified:
		return contentUnverified
	default:
		return contentDrifted
	}
}

// fieldsIntact reports whether others have left our fields of the target alone: owned says that our manager owns all of
// the intent. A field that the API server prunes never shows in managed fields, so that what was owned when an apply was
// last accepted counts as all, until targets are listed anew. Unverified says that neither is known since we run.
func (o *observer) fieldsIntact(p *pair, r *record, settled bool) (owned, unverified bool) {
	owned = p.intent.owns(p.target, p.keeper, o.targetFields)
	switch {
	case settled && owned && r.drift.accepted == "":
		r.drift.accepted = p.acceptance()
	case !owned && p.state.target.managed && r.drift.accepted == p.acceptance():
		owned = r.drift.listed == p.targets // else what was pruned then may be known now
		unverified = !owned
	}
	return owned, unverified || r.drift.accepted == ""
}

// judge finds out whether a target that others have changed differs from what it
// should be: they may have changed it back. Of a target that is not read live it
// is known whether it may have changed since it was.
func (p *pair) judge(d *drift, ours map[string]any) content {
	now := travel.Hash([]any{p.target.GetUID(), p.target.GetGeneration(), p.target.GetLabels(), p.target.GetAnnotations(), ours})
	if p.state.target.freshness == live {
		if within(p.intent.object, p.target.Object) {
			return contentUnverified
		}
		d.judged = now
	}
	if d.judged != now {
		return contentChanged
	}
	return contentDrifted
}

// acceptance identifies what we own of a target, for an intent that the
// target's schema prunes, so that managed fields never cover it.
func (p *pair) acceptance() string {
	return p.intent.hash + travel.Hash(fields.Of(p.target, p.keeper))
}

func waitsFor(target *unstructured.Unstructured) string {
	if f := target.GetFinalizers(); len(f) > 0 {
		slices.Sort(f)
		return ", which is held by " + strings.Join(f, ", ")
	}
	return ""
}

// acknowledged reports whether the source's status needs no write: it equals the wanted status, or
// what the API server made of that when the Sync last wrote it.
func (s *sourceStatus) acknowledged(p *pair) bool {
	have, _ := p.source.Object["status"].(map[string]any)
	if len(have) == 0 && len(p.give) == 0 {
		return true
	}
	want, is := travel.Hash(p.give), travel.Hash(have)
	return want == is || s.sent == want && s.got == is && s.listed == p.sources
}

// isDue reports whether the target is to be read live, in case the event of its end got lost.
func (e *ending) isDue() bool {
	if e.uid == "" || time.Since(e.looked) < rarelySince(e.since) {
		return false
	}
	e.looked = time.Now()
	return true
}

// remember adds to the state what earlier answers said.
func (o *observer) remember(p *pair, r *record) {
	o.rememberSpec(p, r)
	o.rememberStatus(p, r)
	if p.state.target.content == contentUnverified && r.drift.turn != p.targets {
		r.drift.contest.Await(p.wish, o.turns.Take())
		r.drift.turn = p.targets
	}
	if p.state.target.content == contentSourceOlder {
		p.wish += " is older" // than the target, as is recorded there
	}
	if p.source != nil {
		p.state.source.paused, p.state.source.contested = r.marks.Pause(marking(p)) > 0, r.marks.Told()
	}
	p.paused = r.drift.contest.Pause(p.wish) > 0
	p.contested, p.rivals = r.drift.contest.Told(), r.drift.contest.Rivals
	p.confirmed = r.proofs.confirmed
	if c := r.othersFields; c != nil && p.target != nil && c.hash == p.intent.hash && (p.paused || c.version == p.target.GetResourceVersion()) {
		p.heldByOthers = c.detail
	}
}

// rememberSpec adds what the target's API server does not take.
func (o *observer) rememberSpec(p *pair, r *record) {
	deleting := p.state.source.deleting
	if c := p.state.target.content; c == contentInSync || c.drifted() && p.policy.drift == DriftReport {
		if c == contentInSync && r.drift.tried == p.wish {
			r.drift.contest.Wrote(p.wish) // it was done, whatever the answer said
		}
		r.drift.tried = ""
		o.refused.Accepted(p.key, refusal.Spec) // what was refused then is in force now, or not asked any more
		r.losses.End()
	}
	if p.state.target.content == contentSourceOlderNoted {
		o.refused.Drop(p.key, refusal.Spec) // nothing is asked until the source is edited
	}
	if p.target != nil && p.state.target.freshness == live {
		r.losses.End() // it is there, and not in an old cache only
	}
	if l := &r.losses; l.Lost() && !deleting {
		p.refused, p.answer, p.due, p.wait, p.returnTime = ReasonVanished, l.Why(), l.Due(p.targets), l.Wait(p.targets), l.Until()
		if !p.due {
			return
		}
	}
	if f := o.refused.Of(p.key, stepMigrate.asksOf(p.state)); f != nil {
		p.refuse(f, f.Delay(p.intent.hash, grounds(p, f.Kind)))
		if p.returns() { // the loss is told with it, as after a start
			p.refused, p.answer = ReasonVanished, loss.Refused+p.asked(f.Kind.Word())
		}
	}
	if p.target == nil && p.state.target.freshness != unknown {
		o.refused.Drop(p.key, refusal.Deletion) // there is nothing to delete any more
	}
	if deleting {
		p.rememberDeletion(o.refused.Of(p.key, refusal.Deletion))
	}
}

// grounds is what an answer of a kind to a write of the target depends on beside what was asked: the version of
// the target, where that was not the one that was seen, else its schema.
func grounds(p *pair, kind fates.Kind) any {
	if kind.Fate() == fates.Again && p.target != nil {
		return string(p.target.GetUID()) + "/" + p.target.GetResourceVersion()
	}
	return p.schemas[1]
}

// refuse adds a refusal, and when it is asked again or told.
func (p *pair) refuse(f *refusal.Refusal, wait time.Duration) {
	p.refused, p.answer, p.due = reasons[f.Kind.Word()], f.Detail, wait <= 0
	if p.passing, p.wait = !f.Lasts(), wait; p.passing {
		p.wait = min(p.wait, f.Passes())
	}
}

// rememberDeletion adds what was answered to a deletion, which waits for a change that was refused no longer
// than that may pass by itself.
func (p *pair) rememberDeletion(f *refusal.Refusal) {
	t := &p.state.target
	change := t.ours() && (t.content.needsApply() || t.content == contentShared || t.content == contentSourceOlder)
	switch {
	case p.refused == "" || p.due || !change:
		p.refused, p.answer, p.passing = "", "", false
	case p.passing:
		t.content = contentRefused
		return
	default:
		t.content, p.due = contentRefused, true
	}
	if f != nil && (t.ours() || p.collectable()) {
		p.refuse(f, f.Delay(p.intent.hash, grounds(p, f.Kind)))
	}
}

// rememberStatus adds what the source's API server does not take, and when the next status
// may come.
func (o *observer) rememberStatus(p *pair, r *record) {
	// What a legacy konnector made seems foreign until it is read live, and wants no status as little.
	if ours := p.state.target.ours(); !p.status && p.state.target.freshness != unknown && (ours || p.target == nil) {
		if give := travel.Hash(p.give); ours {
			if f := o.refused.Of(p.key, refusal.Status); f != nil && f.Of(give) {
				r.status.contest.Wrote(give) // it was done, whatever the answer said
			}
		}
		o.refused.Drop(p.key, refusal.Status) // what was refused is not wanted any more
	}
	var refusedFor time.Duration
	if f := o.refused.Of(p.key, refusal.Status); f != nil {
		if f.Lasts() {
			p.statusRefused = f.Detail
		}
		refusedFor = f.Delay(travel.Hash(p.give), p.schemas[0])
		if passes := f.Passes(); passes > 0 {
			refusedFor = min(refusedFor, passes) // to tell it then
		}
	}
	if p.statusRefused == "" && r.status.contest.Told() {
		p.statusRefused = "each time that it is written it is changed back" + cmp.Or(statusRivals(p, r, o.plainStatus()), " by others")
	}
	if p.status {
		p.statusWait = max(0, refusedFor, r.status.pace.Delay(p.give, o.statuses.Pause()), r.status.contest.Pause(travel.Hash(p.give)))
		p.status, p.statusDelayed = p.statusWait == 0, p.statusWait > 0
	}
}

// statusRivals names who changes the status back, once the source was read live: whose its fields
// are is not cached.
func statusRivals(p *pair, r *record, plain bool) string {
	switch c := &r.status.contest; {
	case c.Rivals != "" || !p.status:
	case p.state.source.freshness != live:
		r.answers.lookSource = true
	case plain:
		c.Rivals = contest.StatusRivals(p.source, p.names.StatusManager(), "", p.give)
	default:
		c.Rivals = contest.StatusRivals(p.source, p.names.StatusManager(), "status", p.give)
	}
	return r.status.contest.Rivals
}

// reasons are what a refusal by the target's API server is called.
var reasons = map[fates.Word]Reason{
	fates.CannotTake: ReasonUnavailable, fates.Lacks: ReasonMissing, fates.Refuses: ReasonRefused, fates.DoesNotPermit: ReasonForbidden,
}

// untold reports whether the message on the source is out of date.
func (p *pair) untold() bool {
	p.muted = false
	defer func() { p.muted = true }()
	why := obstacle(p.state)
	return p.source != nil && !told(p.state, why) && (why != "" || certain(p.state, why)) // what is not certain is looked at then
}

// nextLook is when to look again without an event; 0 for never.
func (p *pair) nextLook(s step, r *record) time.Duration {
	switch {
	case p.muted && p.untold() && p.refusing() && p.wait > 0: // a message delays nothing
		return min(p.mute, p.wait)
	case p.muted && p.untold():
		return p.mute
	case blind(p.state) && p.passing:
		return p.wait
	case s == stepRest && p.unsure && !p.state.source.deleting:
		return prune.Pause
	case p.statusDelayed && (p.state.target.termination != terminating || p.statusWait < waitPause):
		if p.refusing() {
			return max(min(p.statusWait, p.wait), time.Millisecond)
		}
		return max(p.statusWait, time.Millisecond)
	case s != stepWait:
		return 0
	case blind(p.state):
		return r.blindWait(p.refused)
	case p.held != "" && !p.passing:
		return heldPause
	case p.refusing():
		return max(p.wait, time.Millisecond)
	case p.state.target.relation == relationOrphan && p.state.target.grace == graceRunning:
		return r.proofs.orphan.wait()
	case p.state.target.termination == terminating: // that it lasts is told, whatever else waits
		return waitPause
	case delayed(p, refusal.SourceWrite): // which has its own time
		return r.truce(p)
	case p.statusRefused != "":
		return r.status.contest.Peace()
	case p.paused, p.contested, p.state.source.paused, p.state.source.contested:
		return max(r.truce(p), time.Millisecond)
	default:
		return waitPause
	}
}

// truce is when to look again at an object of which others change something back each time; 0 if none do.
func (r *record) truce(p *pair) time.Duration {
	next := r.drift.contest.Next(p.wish)
	if src := p.state.source; src.paused || src.contested {
		if marks := r.marks.Next(marking(p)); marks > 0 && (next == 0 || marks < next) {
			next = marks
		}
	}
	return max(next, 0)
}

// marking identifies for what the finalizer and its record are put on the source.
func marking(p *pair) string {
	return fmt.Sprintf("%s/%s/%d", p.from.uid, p.state.target.uid, edits(p.source))
}

// A sight is one side of an object.
type sight struct {
	view      *view.View
	ask       refusal.Ask // of a live read
	name      cache.ObjectName
	answer    **unstructured.Unstructured
	uncertain *bool
}

// look returns the latest that is known of an object: from its API server if an
// outcome is uncertain, else the newer of the watch's and the last answer to a
// write of ours. A kind that is not served is unknown, and its API server is not asked.
// A read that fails leaves the outcome uncertain: what needs no live read goes on meanwhile.
func (o *observer) look(ctx context.Context, p *pair, s sight) (*unstructured.Unstructured, freshness, error) {
	v, name, answer := s.view, s.name, s.answer
	if fates.Is(v.Err(name.Namespace), fates.Unserved) {
		return nil, unknown, nil
	}
	if f := o.refused.Of(p.key, s.ask); *s.uncertain && f.Waits(name.String()) {
		p.delays = append(p.delays, delay{s.ask, f, f.Wait()})
	} else if *s.uncertain {
		began := time.Now()
		obj, err := v.Live(ctx, name)
		switch {
		case err == nil:
			o.refused.Accepted(p.key, s.ask)
			*s.uncertain, *answer = false, nil
			if obj != nil {
				*answer = obj
			}
			return obj, live, nil
		case fates.Is(err, fates.Ended, fates.Unserved):
			return nil, unknown, fmt.Errorf("%s %s: %w", s.ask, name, err)
		}
		f := o.refused.Refused(p.key, s.ask, refusal.Asked{Wish: name.String(), Began: began}, fmt.Errorf("%s %s: %w", s.ask, name, err))
		p.delays = append(p.delays, delay{s.ask, f, f.Wait()})
	}
	obj, version, ok := o.guard.Get(ctx, v, name)
	if !ok {
		return nil, unknown, nil
	}
	known, _ := obj.(*unstructured.Unstructured)
	// The view has the last word once it has come past the answer, also if what it
	// shows is older: the API server may have been restored from a backup.
	if *answer != nil && (ended(*answer, known) || watchstore.Newer((*answer).GetResourceVersion(), version) &&
		(known == nil || watchstore.Newer((*answer).GetResourceVersion(), known.GetResourceVersion()))) {
		return *answer, cached, nil
	}
	*answer = nil
	return known, cached, nil
}

// ended reports whether answer is that to the write that ended the object which the
// view still has: it carries the version before.
func ended(answer, known *unstructured.Unstructured) bool {
	return known != nil && known.GetUID() == answer.GetUID() && over(answer) && !watchstore.Newer(known.GetResourceVersion(), answer.GetResourceVersion())
}

// over reports whether the write that was answered with obj was its last.
func over(obj *unstructured.Unstructured) bool {
	return obj != nil && obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0
}

// display names an object for people.
func display(resource schema.GroupVersionResource, name cache.ObjectName) string {
	return fmt.Sprintf("%s %s", resource.GroupResource(), name)
}

// takesFieldsNow reports whether the fields of ours that others own as well are taken away from them
// now: when all else is in step, and before an edit, since what the edit removes would stay theirs.
func (o *observer) takesFieldsNow(p *pair, inStep bool) bool {
	return inStep || p.made.Hash != p.intent.hash && p.state.target.managed
}

// vanished reports whether there is no target, and there was one: this Sync has seen it, or the source
// shows it by a message on the loss; by a status, if our finalizer is on the source and the message does
// not say that the first target is refused; or, under LostRecreate, by the record of a target that an
// earlier Sync made under LostReport. Under LostReport itself obstacle reads the record.
func (p *pair) vanished(r *record) bool {
	refused := func(why Reason, said fates.Word) bool {
		return strings.HasPrefix(p.state.source.message, string(why)+": "+fmt.Sprintf(madeNone, said))
	}
	return p.target == nil && (r.drift.target != "" || r.losses.Known() ||
		p.source != nil && r.drift.settled != notApplied && slim.Served(p.source) && !refused(ReasonRefused, fates.Refuses) && !refused(ReasonForbidden, fates.DoesNotPermit) ||
		p.policy.lost == LostRecreate && p.state.source.targetRecord != "")
}

// observeLoss makes a target that has vanished come back after a pause, and only while the
// target's cluster takes new ones: a platform that takes a kind away, or the same object again and
// again, would otherwise be given empty databases for ever.
func (o *observer) observeLoss(ctx context.Context, p *pair, r *record, looks bool) error {
	l, said := &r.losses, saidOfLoss(p.state)
	if r.drift.target != "" {
		said = "" // of a target before the one that was seen since
	}
	if !l.Lost() {
		l.Begin(p.source, said, p.targets)
	}
	if !looks {
		return nil
	}
	why, err := o.offer(ctx)
	if p.offered = why == ""; err != nil || p.offered {
		return err
	}
	if l.Over() {
		l.Begin(p.source, said, p.targets)
	}
	l.Withhold(clip(why), p.targets)
	return nil
}

// offer asks whether the target's cluster takes new objects, and answers why not.
func (o *observer) offer(ctx context.Context) (why string, err error) {
	if why, err = o.serving(ctx); why != "" || err != nil || o.opts.Offered == nil {
		return why, err
	}
	return o.opts.Offered(ctx)
}

// firstOther is the finalizer of the Sync that came before this one, and writes the status
// and the messages of the source; empty if this one does.
func (o *observer) firstOther(source *unstructured.Unstructured) string {
	if first := slim.FirstFinalizer(source, o.names); first != o.opts.Finalizer {
		return first
	}
	return ""
}

// isCopy reports whether a source was made from an object of the target's cluster, by any Sync, or, where source
// and target are one cluster, from any: copies of copies would have no end. So it is there with one that was let go
// under DeletionOrphan. One that has our finalizer is let go as any source.
func (o *observer) isCopy(source *unstructured.Unstructured) bool {
	if renamesNothing(o.opts.Mapper) || slices.Contains(source.GetFinalizers(), o.opts.Finalizer) {
		return false
	}
	one, said := o.oneCluster || o.guard.SourceUID == o.guard.TargetUID, false
	for key := range source.GetAnnotations() {
		if from, ok := originIn(key, source); ok && names.IsSource(key) {
			if said = true; from.Cluster == o.guard.TargetUID || one && from.Cluster == o.guard.SourceUID {
				return true
			}
		}
	}
	return one && (source.GetAnnotations()[o.names.Orphaned] != "" || !said && slim.Applied(source))
}
