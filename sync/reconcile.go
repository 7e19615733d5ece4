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
	"github.com/klutch-go/sdk/sync/internal/pace"
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
		pause = c.tell(ctx, r, &result, c.refuse(key, r, began, failed))
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
func (c *reconciler) refuse(key cache.ObjectName, r *record, began time.Time, failed failure) *refusal.Refusal {
	ask := failed.step.ask()
	asked := refusal.Asked{Wish: c.wish(key), Seen: versionFor(failed.pair, failed.step), Began: began}
	if before := c.refused.Of(key, ask); before != nil && !before.Of(asked.Wish) {
		r.wishes.Count(1, messagePause)
	}
	return c.refused.Refused(key, ask, asked, failed.err)
}

// ask is what an answer to a step counts as that says nothing of what was asked: that something is
// in another state, or may not be written at all.
func (s step) ask() refusal.Ask {
	switch {
	case s.writesSourceMarks():
		return refusal.SourceWrite
	case s.writesTarget():
		return refusal.TargetWrite
	default:
		return refusal.Access
	}
}

// versionFor is the version of the target that a step writes to: another one may take what this did
// not. It is empty for what is no write to a target.
func versionFor(p *pair, s step) string {
	if !s.writesTarget() || p.target == nil {
		return ""
	}
	return string(p.target.GetUID()) + p.target.GetResourceVersion()
}

// next is the step of the plan. What API servers refused waits, and the other steps go on.
func (c *reconciler) next(p *pair, r *record, failed []failure) step {
	for range 2 { // the source's marks, and the target
		want := decide(p.state)
		f, pause := c.postponed(p, r, want, slices.ContainsFunc(failed, func(x failure) bool { return x.step.ask() == want.ask() }))
		if f == nil {
			break
		}
		p.delays = append(p.delays, delay{want.ask(), f, pause})
		if want.writesTarget() {
			p.state.target.postponed = true
		} else {
			p.state.source.postponed = true
		}
	}
	return plan(p.state)
}

// postponed is the answer for which a step waits, and for how long; nil if it may be done. What people
// write makes it due at once, and what a program writes all the time not each time. What has failed in this
// pass waits for the next.
func (c *reconciler) postponed(p *pair, r *record, want step, failed bool) (*refusal.Refusal, time.Duration) {
	f := c.refused.Of(p.key, want.ask())
	if f == nil || want.ask() == refusal.Access {
		return nil, 0
	}
	wish, pause := c.wish(p.key), f.Wait()
	switch {
	case !f.Of(wish):
		pause = r.wishes.Wait(pace.Burst, messagePause)
	case f.Due(wish, versionFor(p, want)) && !failed:
		return nil, 0
	}
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

// leave says why an object stays as it is, of which some steps have failed in this pass. A request that has
// waited for long is told, unless what stands in the object's way was, and explains that.
func (c *reconciler) leave(ctx context.Context, p *pair, r *record, result *Result, failed []failure) {
	result.Err = nil
	for _, f := range failed { // unless a look has shown that it was done
		if delayed(p, f.step.ask()) {
			result.Err = f.err
		}
	}
	why := obstacle(p.state)
	if why != "" && (!blind(p.state) || !p.passing) {
		result.Err = &ObjectError{Reason: why, Message: explain(p.state, why)}
	}
	lasts := slices.IndexFunc(p.delays, func(d delay) bool { return d.refusal.Lasts() })
	if lasts >= 0 && (!explains(why) || !r.status.told(why, p.from.uid)) {
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
		return s.mapped && s.misnamed == "" && why != ReasonLost && (why != ReasonConflict || s.collectable())
	case refusal.Deletion:
		return p.target != nil && (s.source.deleting || !s.source.exists)
	case refusal.Status: // what a legacy konnector made seems foreign until it is read live
		return s.status || s.statusDelayed || s.target.exists() && !s.target.ours() && s.target.freshness != live
	case refusal.SourceRead, refusal.TargetRead, refusal.SourceWrite, refusal.TargetWrite:
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
	var waits []failure // steps that failed in this pass
	looksAgain := 1     // what was another state than it had seemed may be so for long
	if c.refused.Of(key, refusal.TargetWrite) != nil {
		looksAgain = 0 // and has been
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
		s := c.next(p, r, waits)
		if s == stepRest || s == stepWait {
			if p.known() {
				c.refused.Accepted(key, refusal.Access)
				c.refused.Keep(key, func(ask refusal.Ask) bool { return asks(p, ask) })
			}
			if p.known() && len(p.delays) == 0 {
				c.reports.admitted(ctx, p, r)
			}
			c.forgetIfGone(p, r)
			c.leave(ctx, p, r, result, waits)
			return soonest(p.nextLook(s, r), p.delays), failure{}
		}
		if c.sightless(p, s) {
			c.leave(ctx, p, r, result, waits)
			return soonest(0, p.delays), failure{}
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
		case s != missing.step && looksAgain > 0 && errors.Is(err, errAgain):
			looksAgain--
			if absent(err) {
				missing = failed
			}
		case s.ask() == refusal.Access || passed(err):
			return 0, failed
		default: // it waits, and the rest goes on
			c.refuse(key, r, began, failed)
			waits, result.Err, err = append(waits, failed), err, nil
		}
	}
	if err == nil {
		err = errAgain
	}
	return 0, failure{err: err}
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

// takesAwayNow reports whether all that the step needs is known, so that the breaker counts it.
func takesAwayNow(s state, confirmed bool) bool {
	known := func(does step) bool { return s.evidence().has(require(does, s)) }
	return s.source.deleting && s.target.deletable(s.policy) && confirmed ||
		s.collectable() && known(stepCollect) || s.returns() && s.due && known(stepCreate)
}

// instance identifies the instance that goes: a deletion, and each orphan, is that of a source; a target
// that comes back is that of its loss.
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

// heldBefore is why the message on a source says that its deletion is held, or that its target
// is not made anew, and the word that releases it; zero if it says something else.
func (p *pair) heldBefore() (h breaker.Hold) {
	said, lead := "", string(ReasonHeld)+": " // by the first of two Syncs, too: it is the deletion of one source
	switch {
	case p.returns():
		said, lead = saidOfLoss(p.state), loss.Held
	case p.source != nil:
		said = p.source.GetAnnotations()[p.words().Message]
	}
	if about, held := strings.CutPrefix(said, lead); held {
		h.Why, h.Word, _ = strings.Cut(about, heldAdvice(p.words()))
	}
	return h
}

// forgetIfGone forgets an object whose source is gone and has left no orphan.
func (c *reconciler) forgetIfGone(p *pair, r *record) {
	if p.source != nil || p.state.source.freshness == unknown || r.proofs.orphan != nil {
		return
	}
	c.reports.count(r, "")
	c.records.forget(p.key)
	c.refused.Forget(p.key)
	c.breaker.Forget(p.key)
}
