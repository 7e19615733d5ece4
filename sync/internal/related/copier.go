// SPDX-License-Identifier: Apache-2.0

// Package related copies the related objects of a Sync, Secrets above all, to the same name
// on the other side.
//
// It is a second user of the engine's words: a [Copier] observes an original and its copy,
// plans one step by a table, does it, with one write as a rule, and the next event brings it
// back. It is not the engine itself, since a copy has neither a status nor a finalizer nor
// an original that knows of it: a copy is there for as long as it has a reason, which is that
// a bound object refers to the original, or that a selector names it, while its namespace has
// a source. That a reason has gone is confirmed live, and by another look at the clusters,
// before a copy goes; an absence in a store says nothing. A copy goes as well, be it to be made
// anew, where its original is of another type by now, or its content may not be changed: that counts
// as any deletion.
//
// Contents are read live, compared by a keyed hash and forgotten: watches have metadata only,
// so that neither a store nor a log nor a message ever holds a Secret. The content of what is
// not ours is not read at all: metadata come first, which costs a request more for each copy
// that is looked at. A copy is ours as a whole: what an apply leaves of it, since a backup, or the
// Sync under a former name, owns it too, a second write takes away. One Copier has all selectors of a
// resource and side, since two that disagreed would fight over one copy. Syncs that want the same copy
// each apply all of it under a field manager of their own, by which the last one to leave is known,
// and deletes it.
//
// Of the engine it knows what [Config] says: no watches and no queue, so that it can be read,
// and its plan tested, alone. That costs a hundred lines of interfaces on either side.
package related

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/refusal"
)

// A Copier copies the related objects of one resource from one side, whichever selector
// selects them. Create it with New.
type Copier struct {
	filter    *filter
	owners    ownership
	observer  observer
	verifier  verifier
	mirror    *mirror
	teller    teller
	originals Side
	engine    Engine
	refused   *refusal.Ledger
	newPace   func() Pace

	mu      sync.Mutex
	records map[cache.ObjectName]*record
	absent  map[cache.ObjectName]absence // by original
}

// An absence is why a copy is not what it should be, where it is for the Sync to tell.
type absence struct {
	taken  cache.ObjectName // the foreign object that has its name
	untold string           // what no claim can say of it
}

// New returns a Copier that selects nothing yet.
func New(c Config) *Copier {
	f := &filter{Resource: c.Resource, FromTarget: c.FromTarget, Manager: c.Manager, Marks: c.Marks, Bound: c.Bound, Sources: c.Sources, Names: c.Names}
	o := ownership{Manager: c.Manager, Former: c.Former, FromTarget: c.FromTarget, Marks: c.Marks, Names: c.Names, Sources: c.Sources}
	return &Copier{
		filter: f, owners: o, originals: c.Originals, engine: c.Engine, refused: c.Refused, newPace: c.NewPace,
		records: map[cache.ObjectName]*record{}, absent: map[cache.ObjectName]absence{},
		observer: observer{f, o, c.Originals, c.Copies}, verifier: verifier{f, o, c.Originals, c.Copies},
		mirror: &mirror{f, o, c.Copies, c.Engine, []byte(rand.Text())}, teller: teller{f, o, c.Engine},
	}
}

// Select adds a selector. It is for Copiers that reconcile nothing yet.
func (c *Copier) Select(s Selector) { c.filter.Selectors = append(c.filter.Selectors, s) }

// References are the names of the objects that a bound object refers to.
func (c *Copier) References(obj metav1.Object) []string { return c.filter.references(obj) }

// MadeBy reports whether a copy was made by this Sync, and whether by others.
func (c *Copier) MadeBy(o metav1.Object) (ours, others bool) { return c.owners.madeBy(o) }

const (
	maxSteps  = 8
	waitPause = 5 * time.Second  // between looks at what is waited for
	toldPause = 30 * time.Second // between looks at a problem that is told, for which no API server is asked
)

// Reconcile brings the copy of the original called key a step further, and says when to
// look again without an event; 0 for never.
func (c *Copier) Reconcile(ctx context.Context, key cache.ObjectName) (again time.Duration, err error) {
	r := c.record(key)
	defer c.note(key, r)
	if late := r.late; late != nil {
		r.late = nil
		defer late()
	}
	for range maxSteps {
		p, ok := c.observer.observe(key, r)
		if !ok {
			return c.forget(key, &pair{state: state{seen: true}}, r), nil
		}
		p.held = c.stillHeld(p, r)
		again, done, err := c.step(ctx, p, plan(p.state), r)
		if done || err != nil {
			return again, err
		}
	}
	return time.Second, nil
}

// Late tells the claims that refer to the original called key that its copy waits behind others that
// are not answered. Its calls do not overlap with those of Reconcile.
func (c *Copier) Late(key cache.ObjectName) {
	r := c.record(key)
	if p, ok := c.observer.observe(key, r); ok && r.late == nil && r.problem == "" && plan(p.state).asks() {
		r.late = c.teller.late(p, c.teller.claims(p), "requests for other copies, behind which waits")
	}
}

// step does one step; done says that the pass is over.
func (c *Copier) step(ctx context.Context, p *pair, s Step, r *record) (again time.Duration, done bool, err error) {
	rests := s == StepRest && p.ours && r.contest.Told()
	if !s.asks() && s != StepWait {
		c.refused.Drop(p.from.Name, refusal.Copy) // what was refused is not wanted any more
	}
	refused := c.refused.Of(p.from.Name, refusal.Copy)
	if !s.tells() && !rests && refused == nil {
		c.teller.tell(r, nil, "")
	}
	switch wait := max(r.pace.Wait(), r.contest.Pause(p.wish())); {
	case rests:
		c.teller.tell(r, p, c.teller.contested(p, r))
		return r.contest.Peace(), true, nil
	case s == StepStay || s == StepHold:
		c.teller.tell(r, p, r.problem) // to claims that refer to the original since then
		return 0, true, nil
	case s == StepRest || s == StepWait && !p.taken && p.original == nil: // what is not there is no reason to wait
		return c.forget(p.from.Name, p, r), true, nil
	case s == StepWait:
		return waitPause, true, nil
	case s == StepCopy && wait > 0:
		return wait, true, nil
	case s.asks() && refused != nil && refused.Delay(p.ask(), nil) > 0:
		return c.wait(p, r, refused), true, nil
	}
	began := time.Now()
	defer c.teller.await(p)()
	done, err = c.do(ctx, p, s, r)
	switch {
	case fates.Is(err, fates.Ended):
		return 0, true, err
	case err != nil:
		return c.deny(p, r, began, err), true, nil
	case s.asks() && s != StepVerify && done: // the reads before a deletion are not what was refused
		c.refused.Accepted(p.from.Name, refusal.Copy)
	}
	if refused != nil && !s.tells() {
		c.teller.tell(r, nil, "")
	}
	if done && r.problem != "" && !r.stays {
		return toldPause, true, nil
	}
	return 0, done, nil
}

// deny notes that an API server does not take what it was asked.
func (c *Copier) deny(p *pair, r *record, began time.Time, err error) (again time.Duration) {
	if fates.Is(err, fates.Forbidden, fates.Terminating) {
		c.engine.Denied(c.filter.sourceNamespace(p.from.Name, p.name))
	}
	return c.wait(p, r, c.refused.Refused(p.from.Name, refusal.Copy, refusal.Asked{Wish: p.ask(), Began: began}, fates.Silent(err)))
}

// wait is for how long what was refused is not asked again, or not told yet.
func (c *Copier) wait(p *pair, r *record, f *refusal.Refusal) time.Duration {
	if passes := f.Passes(); passes > 0 {
		return max(min(f.Wait(), passes), time.Millisecond)
	}
	c.teller.tell(r, p, c.teller.denied(p.name, f.Kind))
	return max(f.Wait(), time.Millisecond)
}

// Absent are the names of objects that are not ours, stand where copies should, and stay as they
// are; and what is to be told of copies that an API server does not take, or that others change,
// where no claim refers to the original, since a selector names it.
func (c *Copier) Absent() (taken []cache.ObjectName, untold []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.absent {
		if a.untold == "" {
			taken = append(taken, a.taken)
		} else {
			untold = append(untold, a.untold)
		}
	}
	return taken, untold
}

// note keeps why a copy is not what it should be, and has the Sync tell when that changes.
func (c *Copier) note(key cache.ObjectName, r *record) {
	var why absence
	name, _ := c.filter.Names.Copy(key)
	switch {
	case r.problem == "":
	case r.problem == c.teller.conflict(name):
		why.taken = name
	case len(r.claims) == 0 && !r.stays && !r.held:
		why.untold = r.problem
	}
	c.mu.Lock()
	before := c.absent[key]
	if delete(c.absent, key); why != (absence{}) {
		c.absent[key] = why
	}
	c.mu.Unlock()
	if why != before {
		c.engine.Notify()
	}
}

func (c *Copier) record(key cache.ObjectName) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[key]
	if r == nil {
		r = &record{pace: c.newPace()}
		c.records[key] = r
	}
	return r
}

// Records is the number of originals that something is remembered of.
func (c *Copier) Records() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.records)
}

// forget drops what is remembered of an object that is not there, once it is not the
// latest of many. What was told stays while nothing can be seen.
func (c *Copier) forget(key cache.ObjectName, p *pair, r *record) (again time.Duration) {
	if p.travels || p.taken || !p.seen && r.problem != "" {
		return 0
	}
	c.teller.tell(r, nil, "")
	if rest := r.pace.Rest(); rest > 0 {
		return rest
	}
	c.engine.Forget(key)
	c.refused.Forget(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.records, key)
	return 0
}

// do does one step; done says that the next event brings us back.
func (c *Copier) do(ctx context.Context, p *pair, s Step, r *record) (done bool, err error) {
	switch s {
	case StepConflict:
		c.taken(ctx, p, r)
		return true, nil
	case StepExcepted:
		c.teller.tell(r, p, c.teller.excepted(p))
		return true, nil
	case StepVerify:
		if r.verified, r.shared, err = c.verifier.verify(ctx, p); r.verified {
			r.read, err = c.verifier.read(ctx, p)
		}
		if r.verified && err == nil {
			err = c.engine.Confirm(ctx) // what is gone there may be where it was
		}
		r.verified = r.verified && err == nil
		return !r.verified, err
	case StepLeave:
		r.begin()
		return true, c.mirror.leave(ctx, p)
	case StepDelete:
		return true, c.collect(ctx, p, r)
	default:
		return c.transfer(ctx, p, r)
	}
}

// errTaken says that what has the name of a copy is none. It is not watched, so that it is looked at
// again at the pace of refusals.
var errTaken = fmt.Errorf("the name of the copy is taken: %w", fates.ErrTerminal)

// taken tells that the name of a copy is taken: the claims that refer to the original, and
// where none does, since a selector names it, the embedding program.
func (c *Copier) taken(ctx context.Context, p *pair, r *record) {
	why := c.teller.conflict(p.name)
	if r.problem != why && len(p.referrers) == 0 {
		c.engine.Refused(ctx, p.from.Name, why)
	}
	c.teller.tell(r, p, why)
}

// stillHeld reports whether the copy waits for a release. What was let pass, or held, was one loss of
// it: that is over once the copy has its reason again, or is gone.
func (c *Copier) stillHeld(p *pair, r *record) bool {
	switch {
	case p.selected && p.travels && !p.goes || !p.taken && p.seen:
		c.engine.Forget(p.from.Name)
		r.held = false
	case r.held:
		r.held = c.engine.Blocks(p.from.Name) != ""
	}
	return r.held
}

// collect deletes a copy that has lost its reason, or has to go although it has one, unless the breaker holds it: too many
// at once. Copies for claims that are being deleted, or have gone, are not counted: the deletions of their targets were.
func (c *Copier) collect(ctx context.Context, p *pair, r *record) error {
	asked := c.owners.isAsked(p, c.filter.sourceNamespace(p.from.Name, p.name))
	why, err := c.engine.Hold(ctx, p.from.Name, p.copy.GetUID(), !asked)
	if err != nil {
		return err
	}
	goes := r.goes
	if r.begin(); p.goes {
		r.wish, r.goes = p.wish(), goes
	}
	if r.held = why != ""; r.held {
		c.teller.tell(r, p, c.teller.kept(p.name, r.goes.why, why))
		return nil
	}
	err = c.mirror.delete(ctx, p, p.copy.GetUID())
	if err == nil && p.goes {
		r.contest.Wrote(p.wish()) // others may make such a copy again and again
	}
	return err
}

// transfer reads the original and, if there is one, the copy, and writes the copy
// if it is not what it should be. It is not done if the copy has to go first.
func (c *Copier) transfer(ctx context.Context, p *pair, r *record) (done bool, err error) {
	r.pace.Count()
	have, taken, err := c.mirror.existing(ctx, p)
	if err != nil {
		return true, err
	}
	if taken {
		c.taken(ctx, p, r)
		return true, errTaken
	}
	original, err := c.originals.read(ctx, p.from.Name)
	if err != nil {
		return true, fmt.Errorf("read original: %w", err)
	}
	r.stays, r.goes = false, departure{} // what was let pass is, until both are read
	if original != nil && !c.filter.chosen(original, p.name) {
		return true, nil // it is not what was seen, as the watch is about to show
	}
	if kind := c.filter.wrongType(original); kind != "" {
		return c.stay(ctx, p, r, kind, have)
	}
	if original != nil {
		p.from.UID = original.GetUID()
		anew, err := c.mirror.write(ctx, p, r, original, have)
		switch {
		case err != nil:
			return true, err
		case anew:
			return c.giveWay(ctx, p, r, departure{have.GetUID(), c.teller.anew()})
		}
		c.teller.tell(r, p, c.teller.contested(p, r))
		return true, nil
	}
	c.teller.tell(r, p, "")
	*r = record{pace: r.pace, contest: r.contest, wish: p.wish(), copy: r.copy}
	return true, nil
}

// stay leaves an original of that type where it is, and no copy of ours of what it was before.
func (c *Copier) stay(ctx context.Context, p *pair, r *record, kind string, have *unstructured.Unstructured) (done bool, err error) {
	if have != nil {
		ours, others := c.owners.madeBy(have)
		if r.shared = others; ours || !others { // else a legacy konnector's
			return c.giveWay(ctx, p, r, departure{have.GetUID(), c.teller.strays(kind)})
		}
	}
	why := c.teller.wrong(p.name, kind)
	c.teller.tell(r, p, why)
	c.engine.Refused(ctx, p.from.Name, why)
	r.wish, r.stays = p.wish(), true
	return true, nil
}

// giveWay has the copy go although its original is there, as has just been read live.
func (c *Copier) giveWay(ctx context.Context, p *pair, r *record, goes departure) (done bool, err error) {
	if p.copy == nil || p.copy.GetUID() != goes.copy {
		return true, nil // as is the copy, which the watch is about to show
	}
	if err := c.engine.Confirm(ctx); err != nil {
		return true, err
	}
	r.wish, r.goes, r.verified = p.wish(), goes, true
	return false, nil
}
