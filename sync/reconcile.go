// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/sync/internal/breaker"
	"github.com/klutch-go/sdk/sync/internal/fence"
	"github.com/klutch-go/sdk/sync/internal/loss"
	"github.com/klutch-go/sdk/sync/internal/refusal"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// A reconciler makes the passes over objects: observe, ask the breaker, plan, act.
type reconciler struct {
	observer observer
	actor    actor
	breaker  *breaker.Breaker
	reports  *reports
	refused  *refusal.Ledger
	records  records
}

// reconcile brings one object one or more steps further.
func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	began := time.Now()
	r := c.records.of(key)
	result := Result{Source: key}
	pause, failed := c.steps(ctx, key, r, &result)
	result.Took = time.Since(began)
	var err error
	switch {
	case passed(failed.err):
		result.Err, err = failed.err, failed.err
	case failed.err != nil:
		result.Err = failed.err
		pause = c.tell(ctx, r, &result, c.refuse(key, began, failed))
		if failed.pair != nil {
			pause = soonest(pause, failed.pair.delays)
		}
	}
	c.reports.hooks.done(ctx, result)
	if len(result.Steps) > 0 {
		logr.FromContextOrDiscard(ctx).V(4).Info("synced", "target", result.Target.String(), "steps", result.Steps)
	}
	return pause, err
}

// A failure is that of a step, or of the looks before it.
type failure struct {
	pair *pair
	step step
	err  error
}

// refuse remembers a failure, so that what failed is asked ever more rarely.
func (c *reconciler) refuse(key cache.ObjectName, began time.Time, failed failure) *refusal.Refusal {
	return c.refused.Refused(key, failed.step.ask(), refusal.Asked{Wish: c.wish(key), Began: began}, failed.err)
}

// ask is what the failure of a step, or of the looks before it, counts as that says nothing of what people
// have written.
func (s step) ask() refusal.Ask {
	if s.writesSourceMarks() {
		return refusal.SourceWrite
	}
	return refusal.Access
}

// next is the step of the plan. Marks that the source's API server did not take wait; nothing is decided after them
// that could be done without.
func (c *reconciler) next(p *pair, failed error) step {
	want := decide(p.state)
	if f, pause := c.postponed(p, failed != nil); f != nil && want.writesSourceMarks() {
		p.delays = append(p.delays, delay{refusal.SourceWrite, f, pause})
		want = stepWait
	}
	return toward(want, p.state)
}

// postponed is the answer for which the marks wait, and for how long; nil if they may be written. An edit of the source
// makes them due at once, but only the first few edits do: a program that edits all the time makes them due once a
// minute. What has failed in this pass waits for the next.
func (c *reconciler) postponed(p *pair, failed bool) (*refusal.Refusal, time.Duration) {
	f := c.refused.Of(p.key, refusal.SourceWrite)
	if f == nil {
		return nil, 0
	}
	pause := f.Delay(c.wish(p.key), nil)
	if pause <= 0 && !failed {
		return nil, 0
	}
	return f, max(pause, time.Millisecond)
}

// sightless reports whether a look waits, which is then among what does.
func (c *reconciler) sightless(p *pair, s step) bool {
	source, target := c.refused.Of(p.key, refusal.SourceRead), c.refused.Of(p.key, refusal.TargetRead)
	switch {
	case (s == stepLookSource || s == stepProve) && source.Waits(p.key.String()):
		p.delays = append(p.delays, delay{refusal.SourceRead, source, source.Wait()})
	case (s == stepLookTarget || s == stepProve) && target.Waits(p.name.String()):
		p.delays = append(p.delays, delay{refusal.TargetRead, target, target.Wait()})
	default:
		return false
	}
	return true
}

// explains reports whether an obstacle is told rather than a request that waits: it keeps the spec here, or is a
// refusal itself.
func explains(why Reason) bool { return !harmless(why) || why == ReasonStatus }

// leave says why an object stays as it is, of which a write of the marks may have failed in this pass. A request that has
// waited for long is told, unless what stands in the object's way was, and explains that.
func (c *reconciler) leave(ctx context.Context, p *pair, r *record, result *Result, failed error) {
	result.Err = nil
	if delayed(p, refusal.SourceWrite) { // else a look has shown that it was done
		result.Err = failed
	}
	why := obstacle(p.state)
	if why != "" && (!blind(p.state) || !p.passing) {
		result.Err = &ObjectError{Reason: why, Message: explain(p.state, why)}
	}
	lasts := slices.IndexFunc(p.delays, func(d delay) bool { return d.refusal.Lasts() })
	if lasts >= 0 && !gone(p, r) && (!explains(why) || !r.status.told(why, p.from.uid)) {
		c.tell(ctx, r, result, p.delays[lasts].refusal)
	}
}

// delayed reports whether a request waits.
func delayed(p *pair, ask refusal.Ask) bool {
	return slices.ContainsFunc(p.delays, func(d delay) bool { return d.ask == ask })
}

// asks reports whether something may be asked again of an object that was left as it is: the rest is
// not wanted any more.
func asks(p *pair, ask refusal.Ask) bool {
	s, why := p.state, obstacle(p.state)
	s.muted = false
	switch ask {
	case refusal.Spec:
		return s.source.exists && s.mapped && s.misnamed == "" && why != ReasonLost && why != ReasonConflict
	case refusal.Deletion:
		return p.target != nil && (s.source.deleting || s.collectable())
	case refusal.Status: // what a legacy konnector made seems foreign until it is read live
		return s.status || s.statusDelayed || s.target.exists() && !s.target.ours() && s.target.freshness != live
	case refusal.SourceRead, refusal.TargetRead, refusal.SourceWrite:
		return delayed(p, ask)
	case refusal.Message:
		return s.source.exists && (s.passes(why) || !told(s, why))
	default:
		return false
	}
}

// await has it be told, by Hooks alone, that what a pass asks is not answered, until the returned
// function is called.
func (c *reconciler) await(ctx context.Context, r *record, result *Result, what string) (answered func()) {
	return refusal.Await(func() { c.reports.unanswered(ctx, r, result, c.uid(result.Source), what) })
}

// late tells, by Hooks alone, of an object that waits for its turn behind others that are not
// answered. One that nothing has happened to is told only if it surely is not in step.
func (c *reconciler) late(ctx context.Context, key cache.ObjectName, p queue.Priority) {
	obj, _, _ := c.observer.source.Get(key)
	source, ok := obj.(*unstructured.Unstructured)
	if !ok || c.observer.isCopy(source) {
		return
	}
	r := c.records.of(key)
	deleting, taken := source.GetDeletionTimestamp() != nil, slices.Contains(source.GetFinalizers(), c.observer.opts.Finalizer)
	same := r.drift.settled == 0 || r.drift.settled == edits(source)
	if deleting && !taken || p >= queue.Initial && !deleting && taken && same {
		return
	}
	result := Result{Source: key}
	result.Target, _ = targetName(c.observer.opts.Mapper, key, false)
	c.reports.unanswered(ctx, r, &result, source.GetUID(), "requests for other objects, behind which this one waits")
}

// tell says that what was refused lasts, if it does, and answers when to look again.
func (c *reconciler) tell(ctx context.Context, r *record, result *Result, f *refusal.Refusal) time.Duration {
	if passes := f.Passes(); passes > 0 {
		return min(f.Wait(), passes)
	}
	c.reports.denied(ctx, r, result, c.uid(result.Source), f)
	result.Err = &ObjectError{reasonOfAccess(f.Kind), f.Detail}
	return f.Wait()
}

// wish identifies what people wrote of a source, as far as it is known: when that changes, so
// may what an API server says to us. What we annotate it with ourselves is no such thing.
func (c *reconciler) wish(key cache.ObjectName) string {
	obj, _, _ := c.observer.source.Get(key)
	if obj == nil {
		return refusal.Unknown
	}
	theirs := map[string]string{}
	maps.Copy(theirs, obj.GetAnnotations())
	maps.DeleteFunc(theirs, func(key, _ string) bool { return strings.HasPrefix(key, c.observer.names.Domain) })
	asked := any(obj.GetGeneration())
	if source, ok := obj.(*unstructured.Unstructured); ok && c.observer.plainStatus() { // which counts each status, too
		asked = travel.Body(source.Object, c.observer.composed)
	}
	return travel.Hash([]any{obj.GetUID(), asked, obj.GetLabels(), theirs, obj.GetDeletionTimestamp() != nil})
}

// uid is that of a source, if it is known.
func (c *reconciler) uid(key cache.ObjectName) types.UID {
	if obj, _, _ := c.observer.source.Get(key); obj != nil {
		return obj.GetUID()
	}
	return ""
}

// reasonOfAccess is what a refusal of access is called. That others hold fields, where none are
// seen to, is no matter of rights.
func reasonOfAccess(kind fates.Kind) Reason {
	if kind.Fate() == fates.Refused && kind != fates.Contested {
		return ReasonDenied
	}
	return ReasonUnavailable
}

// maxSteps bounds a pass: the longest without interference is finalizer, apply,
// mark and status.
const maxSteps = 8

// steps observes, plans and does until there is nothing left to do. The answer
// to a write tells its effect, so that the next step need not wait for the event.
func (c *reconciler) steps(ctx context.Context, key cache.ObjectName, r *record, result *Result) (time.Duration, failure) {
	var err error
	var missing failure // the step that an API server answered with an absence
	var marks error     // why they were not written in this pass
	looksAgain := 1     // how many writes of this pass may meet another state than was seen before they count as refused
	if c.outdated(key) {
		looksAgain = 0 // since the last one did
	}
	r.proofs.since, r.answers.gone = 0, "" // the clusters are confirmed for each pass
	for range maxSteps {
		answered := c.await(ctx, r, result, "a read of this object, or of what stands for it")
		p, unread := c.observer.observe(ctx, key, r)
		answered()
		if unread != nil {
			return 0, failure{err: unread}
		}
		p.held, p.word = c.askBreaker(p, r)
		r.hush(p, c.refused.Of(key, refusal.Message))
		result.Target = p.name
		c.reports.report(ctx, p, r)
		if p.held != "" && p.source == nil { // no message tells of it after a restart
			if err := c.actor.journal.Write(ctx); err != nil {
				return 0, failure{err: fmt.Errorf("keep what is held: %w", err)}
			}
		}
		if hook := c.reports.hooks.Unclaimed; hook != nil && c.observer.unclaimed(p) {
			hook(ctx, p.key, p.name)
		}
		s := c.next(p, marks)
		if s == stepRest || s == stepWait {
			if p.known() {
				c.refused.Accepted(key, refusal.Access)
				c.refused.Keep(key, func(ask refusal.Ask) bool { return asks(p, ask) })
			}
			if p.known() && len(p.delays) == 0 {
				c.reports.admitted(ctx, p, r)
			}
			c.leave(ctx, p, r, result, marks)
			c.forgetIfGone(p, r)
			return soonest(p.nextLook(s, r), p.delays), failure{}
		}
		if c.sightless(p, s) {
			c.leave(ctx, p, r, result, marks)
			return soonest(p.nextLook(stepRest, r), p.delays), failure{}
		}
		began := time.Now()
		if s == missing.step {
			err = missing.err // what it is about was read since, and is there
		} else {
			result.Steps = append(result.Steps, string(s))
			answered = c.await(ctx, r, result, "a write to this object, or to what stands for it")
			err = c.actor.do(ctx, p, s, r)
			answered()
		}
		failed := failure{p, s, err}
		switch {
		case err == nil, errors.Is(err, errNoted):
		case s != missing.step && looksAgain > 0 && outdated(err):
			looksAgain--
			if absent(err) {
				missing = failed
			}
		case passed(err):
			return 0, failed
		case s.writesTarget() && !errors.Is(err, errUncounted): // it waits and is told as what is refused does, and the rest goes on
			err = c.actor.refuseTarget(p, s, began, err)
		case s.writesSourceMarks(): // these wait, and a status that does has its own time
			c.refuse(key, began, failed)
			marks, result.Err, err = err, err, nil
		default:
			return 0, failed
		}
	}
	if err == nil {
		err = errAgain
	}
	return 0, failure{err: err}
}

// outdated reports whether the last write to a target met another state than had been seen, also at a second look.
func (c *reconciler) outdated(key cache.ObjectName) bool {
	return raced(c.refused.Of(key, refusal.Spec)) || raced(c.refused.Of(key, refusal.Deletion))
}

// raced reports whether a write was refused since others had written, or hold what was to be written.
func raced(f *refusal.Refusal) bool {
	return f != nil && (f.Kind.Fate() == fates.Again || f.Kind == fates.Contested)
}

// askBreaker asks the breaker whether a deletion may go on, has it counted, and answers why it may
// not, with the word that releases it. The clusters are confirmed again before a deletion that had to
// wait goes on.
func (c *reconciler) askBreaker(p *pair, r *record) (why, word string) {
	switch {
	case !p.mapped || p.misnamed != "":
		return "", ""
	case !takesAway(p.state):
		if p.known() {
			c.breaker.Forget(p.key) // what goes next is counted for itself
		}
		return "", ""
	}
	ask := breaker.Request{
		Source: p.key, Going: instance(p), Word: releases(p), Before: p.heldBefore(), Objects: c.observer.source.Count,
		Deletes: takesAwayNow(p.state, r.proofs.confirmed) && (!p.returns() || !r.losses.Counted()),
	}
	if p.suspect && p.state.target.grace == graceProven && p.policy.deletesOrphans() {
		ask.Suspect = fence.DoubtCause
	}
	hold := c.breaker.Ask(ask)
	if hold.Why != "" {
		r.proofs.confirmed, r.proofs.since = false, c.observer.guard.Now()
		c.reports.notify()
	}
	return hold.Why, hold.Word
}

// takesAway reports whether an instance may end by what is asked: its claim is being deleted or has
// gone, or an empty instance is to come in its place.
func takesAway(s state) bool {
	return s.source.deleting && s.source.finalizer || s.target.relation == relationOrphan || s.returns()
}

// takesAwayNow reports whether the step may follow in this pass, so that the breaker counts it: of a source that is being
// deleted once the clusters are confirmed, else once all that the step needs is known.
func takesAwayNow(s state, confirmed bool) bool {
	known := func(does step) bool { return s.evidence().has(require(does, s)) }
	return s.source.deleting && s.target.deletable(s.policy) && confirmed ||
		s.collectable() && known(stepCollect) || s.returns() && s.due && known(stepCreate)
}

// instance identifies what the breaker is asked about, so that its answer is void for another instance of the name: an
// orphan by the source that it was made from, a target that comes back by its loss, all else by the source.
func instance(p *pair) string {
	switch {
	case p.state.target.relation == relationOrphan:
		return string(p.made.UID)
	case p.returns():
		return string(p.from.uid) + " anew" + p.returnTime
	default:
		return string(p.from.uid)
	}
}

// releases is the word by which people let the deletion of the source pass; empty if none do.
func releases(p *pair) string {
	if p.source == nil {
		return ""
	}
	return p.source.GetAnnotations()[p.words().Release]
}

// heldBefore is why the message on a source says that its deletion is held, its target not made anew, or the
// orphan in its way not deleted, and the word that releases it; zero if it says something else.
func (p *pair) heldBefore() breaker.Hold {
	said, lead := "", string(ReasonHeld)+": " // by the first of two Syncs, too: it is the deletion of one source
	switch {
	case p.returns():
		said, lead = saidOfLoss(p.state), loss.Held
	case p.source != nil && !p.state.source.deleting && p.state.target.relation == relationOrphan:
		said, lead = p.state.source.message, string(ReasonConflict)+": "+leftBehind(p.state)+leftHeld
	case p.source != nil:
		said = p.source.GetAnnotations()[p.words().Message]
	}
	about, held := strings.CutPrefix(said, lead)
	if why, word, advised := strings.Cut(about, heldAdvice(p.words())); held && advised {
		return breaker.Hold{Why: why, Word: word}
	}
	return breaker.Hold{}
}

// gone reports whether the source of an object is, and has left no orphan.
func gone(p *pair, r *record) bool {
	return p.source == nil && p.state.source.freshness != unknown && r.proofs.orphan == nil
}

// forgetIfGone forgets an object that is gone.
func (c *reconciler) forgetIfGone(p *pair, r *record) {
	if !gone(p, r) {
		return
	}
	c.reports.count(r, "")
	c.records.forget(p.key)
	c.refused.Forget(p.key)
	c.breaker.Forget(p.key)
}
