// SPDX-License-Identifier: Apache-2.0

// Package namespaces follows the namespaces of the source side: which of them hold sources
// ([Counts]), and in which of them related objects may be read ([Access]).
//
// A Sync has a business with the related objects of a namespace only while that holds a
// source, so that copies go with the last one. Credentials that may not read Secrets
// everywhere are given access one namespace at a time, by a function of the embedding
// program; it is asked for where a source is met, or copies of one may be left, and given back
// minutes after the last source and copy have gone, since a namespace that is emptied is often
// filled again.
package namespaces

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/sync/internal/refusal"
	"github.com/klutch-go/sdk/sync/internal/view"
)

// A Config is what an Access needs of the Sync that it belongs to.
type Config struct {
	// Grant is Options.RelatedAccess.
	Grant func(ctx context.Context, namespace string, wanted bool) (bool, error)
	// Allowed reports whether related objects of a namespace may travel at all.
	Allowed func(namespace string) bool
	Sources *Counts
	// Mapped calls look with each namespace that is mapped, now and from now on, until
	// it is cancelled.
	Mapped func(look func(namespace string)) (cancel func())
	// Resources are the related objects, by resource and side.
	Resources []Resource
	// Notify says that Problems has changed.
	Notify func()
	// Refused says when access that was refused is asked for again; namespaces are objects in it.
	Refused *refusal.Ledger
}

// A Resource is the related objects of one resource and side.
type Resource interface {
	// OnSource is what is watched of them on the source.
	OnSource() *view.View
	// CopiesOf reports whether there are copies, on either side, that only a reader of the
	// namespace can take back, and whether that is known.
	CopiesOf(namespace string) (some, known bool)
}

// An Access watches related objects on the source where Options.RelatedAccess gives
// access to them: in the namespaces that hold bound objects or copies. What it cannot
// read holds up the related objects of that namespace and nothing else. Create it with
// NewAccess.
type Access struct {
	Config
	queue *queue.Queue // of namespaces, as names of objects

	mu         sync.Mutex
	namespaces map[string]*state
}

// A state is what is known of one namespace of the source.
type state struct {
	open    bool
	tried   int       // in vain, in a row
	problem string    // why there is no access; empty if there is, or none is needed
	idle    time.Time // since when it holds neither bound objects nor copies; zero if it does
	leaving bool      // access was to be given back, and could not
}

// Idle is how long a namespace stays open that has neither bound objects nor copies.
const Idle = 5 * time.Minute

// What access is asked for.
const (
	forSources = "sources"
	forCopies  = "copies" // of sources that have gone
)

const waitPause = 5 * time.Second // between looks at what is waited for

// NewAccess returns an Access whose work p does.
func NewAccess(c Config, p *queue.Pool) *Access {
	a := &Access{Config: c, namespaces: map[string]*state{}}
	a.queue = p.Queue(a.reconcile, queue.Options{Name: "access", Limit: 4})
	return a
}

// entry needs mu.
func (a *Access) entry(namespace string) *state {
	s := a.namespaces[namespace]
	if s == nil {
		s = &state{}
		a.namespaces[namespace] = s
	}
	return s
}

// Look looks at a namespace.
func (a *Access) Look(namespace string) {
	a.queue.Add(cache.NewObjectName("", namespace), queue.Related)
}

// Doubt looks at the namespaces whose related objects cannot be read any more.
func (a *Access) Doubt() {
	for _, v := range a.views() {
		for _, p := range v.Parts() {
			if p.Err() != nil && !a.told(p.Namespace()) {
				a.Look(p.Namespace())
			}
		}
	}
}

// Regain looks at a namespace whose related objects can be read again.
func (a *Access) Regain(namespace string) {
	if a.told(namespace) {
		a.Look(namespace)
	}
}

// told reports whether a namespace is known to be without access, which is asked for at its pace.
func (a *Access) told(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.namespaces[namespace]
	return s != nil && s.problem != ""
}

// Lose asks for access anew where an API server has refused a request.
func (a *Access) Lose(namespace string) {
	if a.told(namespace) {
		return
	}
	a.note(namespace, func(s *state) { s.open = false })
	a.Look(namespace)
}

// Run looks once at each namespace that is mapped: before a restart it may have held
// bound objects whose copies are still there.
func (a *Access) Run(ctx context.Context) {
	defer a.Mapped(a.Look)()
	a.queue.Run(ctx)
}

// Close ends what NewAccess began.
func (a *Access) Close() { a.queue.Close() }

// views are the views of related objects on the source.
func (a *Access) views() []*view.View {
	views := make([]*view.View, 0, len(a.Resources))
	for _, r := range a.Resources {
		views = append(views, r.OnSource())
	}
	return views
}

// reconcile opens or closes a namespace.
func (a *Access) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	namespace := key.Name
	s, used := a.of(namespace), a.Sources.In(namespace)
	why, lost := a.unreadable(namespace)
	switch {
	case !used && s.leaving:
		return a.leave(ctx, namespace)
	case !a.Allowed(namespace):
		a.forget(namespace)
		return 0, nil
	case !s.open:
		return a.enter(ctx, namespace, nil)
	case lost:
		return a.enter(ctx, namespace, why)
	}
	copies, known := true, true
	if !used {
		copies, known = a.copies(namespace)
	}
	a.note(namespace, func(s *state) {
		s.tried, s.problem = 0, ""
		switch {
		case copies:
			s.idle = time.Time{}
		case s.idle.IsZero() && known:
			s.idle = time.Now()
		}
	})
	a.Refused.Accepted(key, refusal.Access)
	if !known {
		return waitPause, nil
	}
	return a.leave(ctx, namespace)
}

func (a *Access) of(namespace string) state {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *a.entry(namespace)
}

// note changes what is known of a namespace, and tells if a problem came or went.
func (a *Access) note(namespace string, change func(*state)) state {
	a.mu.Lock()
	s := a.entry(namespace)
	before := s.problem
	change(s)
	after := *s
	a.mu.Unlock()
	if after.problem != before {
		a.Notify()
	}
	return after
}

// enter asks for access, also if it is lost, and ever more rarely as long as there is none.
// A namespace without bound objects is not owed any, so that it is not told; it is asked for there
// while copies may be left. Rights that were just given may take a moment, which is not told either.
func (a *Access) enter(ctx context.Context, namespace string, lost error) (time.Duration, error) {
	began := time.Now()
	granted, err := a.Grant(ctx, namespace, true)
	used := a.Sources.In(namespace)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if granted && err == nil {
		for _, v := range a.views() {
			v.Add(ctx, namespace)
		}
	}
	s := a.note(namespace, func(s *state) {
		s.open, s.problem, s.tried, s.leaving = granted && err == nil, "", s.tried+1, false
		switch {
		case used && err != nil:
			s.problem = said(err)
		case lost != nil && s.tried > 2:
			s.problem = said(lost)
		}
	})
	switch why := cmp.Or(err, lost); {
	case !s.open && s.problem == "" && (err == nil || !a.mayHaveLeft(namespace, err)):
		a.forget(namespace)
		return 0, nil
	case why == nil:
		return 2 * watchstore.First, nil
	default:
		wish := forCopies
		if used {
			wish = forSources
		}
		r := a.Refused.Refused(cache.NewObjectName("", namespace), refusal.Access, refusal.Asked{Wish: wish, Began: began}, why)
		wait := r.Wait()
		// An admission policy knows a kind half a minute after its CRD was made, which nothing tells of: where
		// no more than a few namespaces wait for access, pauses grow with what has passed, and not by doubling.
		if a.Refused.Count(refusal.Access, wish) <= fates.Few {
			wait = max(min(wait, max(waitPause, time.Since(r.Since)/3)), fates.Asked(why))
		}
		return wait, nil
	}
}

// leave closes a namespace once it has not been used for long enough.
func (a *Access) leave(ctx context.Context, namespace string) (time.Duration, error) {
	s := a.of(namespace)
	if s.idle.IsZero() {
		return Idle, nil
	}
	if left := Idle - time.Since(s.idle); left > 0 {
		return left, nil
	}
	for _, v := range a.views() {
		v.Remove(namespace)
	}
	began := time.Now()
	if _, err := a.Grant(ctx, namespace, false); err != nil {
		a.note(namespace, func(s *state) { s.open, s.leaving = false, true })
		return a.Refused.Refused(cache.NewObjectName("", namespace), refusal.Access, refusal.Asked{Began: began}, err).Wait(), ctx.Err()
	}
	a.note(namespace, func(s *state) { *s = state{} })
	a.forget(namespace)
	return 0, nil
}

// forget drops what is known of a namespace, unless bound objects have come meanwhile.
func (a *Access) forget(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.Sources.In(namespace) {
		delete(a.namespaces, namespace)
		a.Refused.Forget(cache.NewObjectName("", namespace))
	}
}

// copies reports whether there are copies, on either side, that only who may read the
// namespace can take back, and whether that is known.
func (a *Access) copies(namespace string) (some, known bool) {
	known = true
	for _, r := range a.Resources {
		found, sure := r.CopiesOf(namespace)
		some, known = some || found, known && sure
	}
	return some, known
}

// mayHaveLeft reports whether copies may be left in a namespace without sources, to which access was
// refused. An admission policy that looks there for sources, and finds none as this Sync does, says the
// same until one comes.
func (a *Access) mayHaveLeft(namespace string, refused error) bool {
	copies, known := a.copies(namespace)
	_, denial := fates.WhyDenied(refused)
	return copies || !known && denial != fates.ParamsMissing
}

// unreadable is why related objects of a namespace are not read, and whether access may be lost.
func (a *Access) unreadable(namespace string) (why error, lost bool) {
	for _, v := range a.views() {
		if p := v.Part(namespace); p != nil && p.Err() != nil && !lost {
			why, lost = p.Err(), fates.Is(p.Err(), fates.Forbidden, fates.Terminating, fates.Absent, fates.Unserved)
		}
	}
	return why, lost
}

// said is what an error says, of a bounded length: an API server may quote anything.
func said(err error) string { return text.Clip(err.Error(), 1<<10) }

// Problems are the namespaces whose related objects cannot be read, and why. That access is lost is
// none before it was asked for anew.
func (a *Access) Problems() map[string]string {
	out := map[string]string{}
	a.mu.Lock()
	for namespace, s := range a.namespaces {
		out[namespace] = s.problem
	}
	a.mu.Unlock()
	for namespace, problem := range out {
		if why, lost := a.unreadable(namespace); problem == "" && why != nil && !lost {
			out[namespace] = said(why)
		}
	}
	maps.DeleteFunc(out, func(_, problem string) bool { return problem == "" })
	return out
}
