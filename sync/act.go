// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/breaker"
	"github.com/klutch-go/sdk/sync/internal/contest"
	"github.com/klutch-go/sdk/sync/internal/fence"
	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
	"github.com/klutch-go/sdk/sync/internal/pace"
	"github.com/klutch-go/sdk/sync/internal/prune"
	"github.com/klutch-go/sdk/sync/internal/refusal"
	"github.com/klutch-go/sdk/sync/internal/travel"
	"github.com/klutch-go/sdk/sync/internal/view"
	"github.com/klutch-go/sdk/sync/internal/writer"
)

// An actor does the steps of the plan: at most one write each. What an answer means goes to
// the record.
type actor struct {
	write        *writer.Writer
	guard        *fence.Guard
	breaker      *breaker.Breaker
	journal      *breaker.Journal
	source       *view.View
	target       *view.View
	sourceFields *prune.Cache
	targetFields *prune.Cache
	statuses     *pace.Budget
	refused      *refusal.Ledger
	hooks        Hooks
}

// do does one step of plan: at most one write. What it learns goes to r.
func (a *actor) do(ctx context.Context, p *pair, s step, r *record) error {
	if s == stepDelete || s == stepCollect || s == stepCreate && p.returns() || s == stepSetMessage && p.held != "" {
		if err := a.journal.Write(ctx); err != nil {
			return fmt.Errorf("%w: %w", errUncounted, err)
		}
	}
	switch s {
	case stepLookSource:
		r.answers.lookSource = true
		return nil
	case stepLookTarget:
		r.answers.lookTarget = true
		return nil
	case stepProve:
		r.answers.lookSource, r.answers.lookTarget = true, true
		return nil
	case stepConfirm:
		return r.proofs.confirm(ctx, a.guard, p.source.GetResourceVersion())
	case stepSetMessage, stepAddFinalizer, stepMark, stepRemoveFinalizer, stepStatus:
		return a.doSource(ctx, p, s, r)
	default:
		return a.doTarget(ctx, p, s, r)
	}
}

// doSource does a step that writes to the source.
func (a *actor) doSource(ctx context.Context, p *pair, s step, r *record) error {
	began := time.Now()
	var obj *unstructured.Unstructured
	var err error
	switch s {
	case stepSetMessage:
		obj, err = a.setMessage(ctx, p, r)
	case stepAddFinalizer:
		if obj, err = a.write.AddFinalizer(ctx, p.source); err == nil {
			r.proofs.source = p.from.uid
		}
	case stepMark:
		obj, err = a.write.Annotate(ctx, p.source, a.write.Names.TargetRecord, p.state.target.uid+"/"+string(p.from.uid))
	case stepRemoveFinalizer:
		obj, err = a.write.RemoveFinalizer(ctx, p.source)
	default:
		obj, err = a.giveStatus(ctx, p, r, began)
	}
	if err == nil && s.writesSourceMarks() {
		r.marks.Wrote(marking(p))
		a.refused.Accepted(p.key, refusal.SourceWrite)
	}
	a.hooks.wrote(ctx, Write{Side: SourceSide, Step: string(s), Object: p.key, Took: time.Since(began), Err: err})
	switch {
	case err == nil:
		r.answers.source, r.answers.listed = a.source.Slimmed(obj), p.sources
	case absent(err) && s != stepStatus:
		err = fmt.Errorf("%w: %w", errAgain, err) // the source has gone meanwhile, or is there all the same: a webhook may say so too
		r.answers.source, r.answers.lookSource = nil, true
	default:
		r.answers.lookSource = true
	}
	return err
}

// doTarget does a step that writes to the target.
func (a *actor) doTarget(ctx context.Context, p *pair, s step, r *record) error {
	began := time.Now()
	obj, err := a.writeTarget(ctx, p, s, r)
	a.hooks.wrote(ctx, Write{Side: TargetSide, Step: string(s), Object: p.name, Took: time.Since(began), Err: err})
	r.answers.lookTarget = obj == nil && r.answers.gone == ""
	r.proofs.confirmed = r.proofs.confirmed && r.answers.gone != "" // it was for this one
	if r.drift.tried = ""; err != nil {
		if s.asksOf(p.state) == refusal.Spec {
			r.drift.tried = p.wish
		}
		return a.classify(p, s, r, began, err)
	}
	if !p.state.source.deleting || s.asksOf(p.state) == refusal.Deletion { // else the edit makes it due, by its wish
		a.refused.Accepted(p.key, refusal.Deletion)
	}
	if obj != nil {
		r.answers.target = a.target.Slimmed(obj)
		if s == stepNote { // which others may take off
			r.drift.contest.Wrote(p.wish)
		}
		if s == stepMigrate || s == stepNote || s == stepEmptyMap || s == stepDelete || s == stepCollect {
			return nil
		}
		a.refused.Accepted(p.key, refusal.Spec)
		if r.othersFields != nil && p.policy.drift == DriftReport {
			r.drift.contest = contest.Contest{} // the other managers have let go of the fields
		}
		r.othersFields = nil
		r.losses.End()
		r.drift.wrote(p, s)
		p.target = r.answers.target
		r.drift.accepted, r.drift.listed, r.drift.target = p.acceptance(), p.targets, p.target.GetUID()
		if s == stepTakeFields && !p.state.target.managed {
			r.drift.accepted = "" // the marks alone: an apply follows
		}
	}
	return nil
}

// wrote notes that the target was written. Objects that were listed anew are written again
// because their schema may be another one.
func (d *drift) wrote(p *pair, s step) {
	switch {
	case s == stepCreate:
		d.contest.Made(p.wish)
	case p.state.target.content == contentUnverified && (d.listed != p.targets || d.accepted == ""):
		d.contest.Renewed(p.wish)
	case s == stepTakeFields:
		d.contest.Took(p.wish)
	default:
		d.contest.Wrote(p.wish)
	}
}

// writeTarget sends what a step writes to the target.
func (a *actor) writeTarget(ctx context.Context, p *pair, s step, r *record) (*unstructured.Unstructured, error) {
	t := writer.Target{Name: p.name, Seen: p.target, Want: p.intent.object, Manager: p.keeper}
	switch s {
	case stepCreate:
		return a.write.Create(ctx, t)
	case stepApply:
		return a.write.Apply(ctx, t)
	case stepEmptyMap:
		return a.write.Empty(ctx, t)
	case stepForce:
		return a.write.Force(ctx, t)
	case stepMigrate:
		earlier, rel := a.write.Names.Earlier(p.keeper), p.state.target.relation
		switch succeeds := rel == relationPredecessor || rel == relationOrphan; {
		case succeeds && fields.Of(p.target, p.keeper) == nil:
			return a.write.Own(ctx, t)
		case succeeds:
			return a.write.Migrate(ctx, t, earlier)
		}
		return a.write.Migrate(ctx, t, func(e fields.Entry) bool { return legacy.Wrote(e) || earlier(e) })
	case stepTakeFields:
		return a.write.Own(ctx, t)
	case stepNote:
		return a.note(ctx, p, t)
	case stepLetGo:
		return a.write.LetGo(ctx, t, display(a.write.Resource, p.key))
	case stepDelete, stepCollect:
		return a.remove(ctx, t, r)
	default:
		return nil, fmt.Errorf("step %q does not write a target", s)
	}
}

// note records on the target that its source is behind it: read once more, after the target
// was, which is pinned, so that no other Sync has made the one from a later state of the other
// in between.
func (a *actor) note(ctx context.Context, p *pair, t writer.Target) (*unstructured.Unstructured, error) {
	source, err := a.source.Live(ctx, p.key)
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	if source == nil || source.GetUID() != p.from.uid || edits(source) != edits(p.source) {
		return nil, errAgain
	}
	return a.write.Note(ctx, t, a.write.Names.Behind, behind(edits(p.source), p.target.GetAnnotations()[a.write.Names.Source]))
}

// remove deletes the target. The answer that this very object is no more is as good as a
// live look: no other cluster had it.
func (a *actor) remove(ctx context.Context, t writer.Target, r *record) (*unstructured.Unstructured, error) {
	o, err := a.write.Delete(ctx, t)
	if err == nil && o.Gone == t.Seen.GetUID() {
		r.answers.gone = t.Seen.GetUID()
	}
	return o.Left, err
}

// classify turns an error of a target's API server into what follows from it.
func (a *actor) classify(p *pair, s step, r *record, began time.Time, err error) error {
	managers := fates.Holders(err)
	switch {
	case len(managers) > 0 && p.target != nil:
		r.answers.lookTarget = false
		r.othersFields = &heldFields{
			hash:    p.intent.hash,
			version: p.target.GetResourceVersion(),
			detail:  clip(" by " + strings.Join(managers, ", ")),
		}
		if p.policy.drift == DriftReport { // else it is, once it is asked by force
			r.drift.contest.Wrote(p.wish)
		}
		r.drift.contest.Rivals = r.othersFields.detail
		if p.heldByOthers != "" { // which others had, and were to be ours by force
			return a.refuseTarget(p, s, began, err)
		}
		if p.policy.drift != DriftCorrect || !raced(a.refused.Of(p.key, refusal.Spec)) { // else it is asked by force now, again
			a.refused.Drop(p.key, refusal.Spec) // an API server asks first who owns what
		}
		return errNoted
	case passed(err):
		return err
	case outdated(err):
		return err // not the object, or not the version, that we saw
	}
	switch fates.Of(err).Fate() { //nolint:exhaustive // what came of the others is not known, and looked at
	case fates.Refused:
		a.targetFields.Doubt()
		r.answers.lookTarget = false
	case fates.Waits:
		r.answers.lookTarget = p.target != nil // it may have gone; where it would be made nothing has
	}
	return a.refuseTarget(p, s, began, err)
}

// refuseTarget notes that a write to the target was not done.
func (a *actor) refuseTarget(p *pair, s step, began time.Time, err error) error {
	a.refused.Refused(p.key, s.asksOf(p.state), refusal.Asked{Wish: p.intent.hash, Seen: grounds(p, fates.Of(err)), Began: began}, err)
	return errNoted
}

// setMessage puts the message on the source, or takes it off. One that is refused stands
// in the way of nothing.
func (a *actor) setMessage(ctx context.Context, p *pair, r *record) (*unstructured.Unstructured, error) {
	began, text := time.Now(), explain(p.state, obstacle(p.state))
	r.status.messages.Count(1, messagePause)
	obj, err := a.write.Annotate(ctx, p.source, a.write.Names.Message, text)
	switch {
	case err == nil:
		r.status.said.Wrote(travel.Hash(text))
		a.refused.Accepted(p.key, refusal.Message)
	case !passed(err):
		a.refused.Refused(p.key, refusal.Message, refusal.Asked{Wish: travel.Hash(text), Began: began}, err)
		return nil, errNoted
	}
	return obj, err
}

// giveStatus applies the status to the source, of just the incarnation that the
// target was made from, and in just the version that we saw: what an earlier
// request says that arrives only now is out of date.
func (a *actor) giveStatus(ctx context.Context, p *pair, r *record, began time.Time) (*unstructured.Unstructured, error) {
	give := p.give
	if give == nil {
		give = map[string]any{}
	}
	obj, taken, err := a.write.EmptyStatus(ctx, p.source, give)
	if err == nil {
		r.status.pace.Gave(give, a.statuses)
	}
	if err == nil && !taken {
		obj, err = a.write.ApplyStatus(ctx, p.source, give, r.status.unclaimed)
	}
	switch {
	case err == nil && a.write.Plain() && leftOut(p.source, obj, give, a.write.Names.StatusManager()):
		a.write.LearnPlain(false)
		a.sourceFields.Doubt()
		r.status.unclaimed = true // the API server has taken it that we gave nothing
		return nil, a.refuseStatus(p, began, errLeftOut)
	case taken:
		return obj, nil
	case err == nil:
		got, _ := obj.Object["status"].(map[string]any)
		r.status.unclaimed = false
		r.status.wrote(p, got)
		r.status.sent, r.status.got, r.status.listed = travel.Hash(p.give), travel.Hash(got), p.sources
		a.refused.Accepted(p.key, refusal.Status)
	case fates.Is(err, fates.Absent, fates.Unserved) && !a.write.Plain():
		return nil, a.missingStatus(ctx, p, began, err)
	case passed(err):
	default:
		if !outdated(err) && !absent(err) { // else it is another incarnation, or none any more
			a.sourceFields.Doubt()
		}
		return nil, a.refuseStatus(p, began, err)
	}
	return obj, err
}

// errLeftOut is a status that was written with its object, and that the API server has left as it was: the
// kind may have got a status subresource.
var errLeftOut = fmt.Errorf("the object was taken, and its status left as it was: %w", fates.ErrTerminal)

// leftOut reports whether a write that gave a status to an object has left that of before, and taken it that
// nothing was given. One that changes nothing, beside what others have or a default is, keeps our claim.
func leftOut(before, after *unstructured.Unstructured, give map[string]any, manager string) bool {
	had, has := before.Object["status"], after.Object["status"]
	_, claimed := fields.Of(after, manager)["f:status"]
	return !claimed && len(give) > 0 && equality.Semantic.DeepEqual(had, has) && !equality.Semantic.DeepEqual(has, any(give))
}

// missingStatus finds out whether it is the source that is not there or its
// status subresource. A schema that has that still may be out of date.
func (a *actor) missingStatus(ctx context.Context, p *pair, began time.Time, answer error) error {
	obj, err := a.source.Live(ctx, p.key)
	if err != nil {
		return fmt.Errorf("read source: %w", err)
	}
	if obj == nil || obj.GetUID() != p.source.GetUID() {
		return errAgain
	}
	if a.write.LearnPlain(true); a.write.Plain() {
		return errAgain
	}
	a.sourceFields.Doubt()
	return a.refuseStatus(p, began, answer)
}

// refuseStatus notes that a status is not taken, as of the schema that is known.
func (a *actor) refuseStatus(p *pair, began time.Time, answer error) error {
	a.refused.Refused(p.key, refusal.Status, refusal.Asked{Wish: travel.Hash(p.give), Seen: p.schemas[0], Began: began}, answer)
	return errNoted
}

// errAgain is a step that met a state other than it had seen: look again.
var errAgain = fates.ErrAgain

// errUncounted is a step that was not done since the number of deletions could not be kept, wherever that is.
var errUncounted = errors.New("keep the number of deletions")

// errNoted is a step that was refused, which the ledger or the record knows: what it says is seen at the
// next look.
var errNoted = fmt.Errorf("%w: refused", errAgain)

// outdated reports whether err says that the object is not the one, or not in the version,
// that was seen. A deletion log that answers so speaks of itself.
func outdated(err error) bool {
	return !errors.Is(err, errUncounted) && (errors.Is(err, errAgain) || fates.Of(err).Fate() == fates.Again || fates.Is(err, fates.Contested))
}

// passed reports whether err only says that the Run has ended.
func passed(err error) bool { return fates.Is(err, fates.Ended) }

// absent reports whether err says that an object is not there, rather than that
// its resource is not served.
func absent(err error) bool { return fates.Is(err, fates.Absent) }

// wrote notes what was sent as a status, and what became of it.
func (s *sourceStatus) wrote(p *pair, got map[string]any) {
	if s.listed == p.sources {
		s.contest.Wrote(travel.Hash(p.give))
	} else {
		s.contest.Renewed(travel.Hash(p.give))
	}
	s.gave(got)
}
