// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/sync/internal/related"
)

// An access watches related objects on the source where Options.RelatedAccess gives
// access to them: in the namespaces that hold bound objects or copies. What it cannot
// read holds up the related objects of that namespace and nothing else.
type access struct {
	engine *engine
	queue  *queue.Queue // of namespaces, as names of objects
	rest   time.Duration

	mu         sync.Mutex
	namespaces map[string]*namespaceAccess
}

// A namespaceAccess is what is known of one namespace of the source.
type namespaceAccess struct {
	open    bool
	tried   int       // in vain, in a row
	problem string    // why there is no access; empty if there is, or none is needed
	idle    time.Time // since when it holds neither bound objects nor copies; zero if it does
}

// restPause is how long a namespace stays open that has neither bound objects nor copies.
const restPause = 5 * time.Minute

// newAccess returns nil where related objects are watched in all namespaces.
func newAccess(e *engine, p *queue.Pool) *access {
	if e.opts.RelatedAccess == nil || len(e.opts.Related) == 0 {
		return nil
	}
	a := &access{engine: e, rest: restPause, namespaces: map[string]*namespaceAccess{}}
	a.queue = p.Queue(a.reconcile, queue.Options{Name: "access", Limit: 4})
	return a
}

// namespace needs mu.
func (a *access) namespace(namespace string) *namespaceAccess {
	s := a.namespaces[namespace]
	if s == nil {
		s = &namespaceAccess{}
		a.namespaces[namespace] = s
	}
	return s
}

func (a *access) look(namespace string) {
	a.queue.Add(cache.NewObjectName("", namespace), queue.Related)
}

// doubt looks at the namespaces whose related objects cannot be read any more.
func (a *access) doubt() {
	for _, v := range a.views() {
		for _, p := range v.all() {
			if p.Err() != nil {
				a.look(p.Namespace())
			}
		}
	}
}

// lose asks for access anew where an API server has refused a request.
func (a *access) lose(namespace string) {
	a.note(namespace, func(s *namespaceAccess) { s.open = false })
	a.look(namespace)
}

// run looks once at each namespace that is mapped: before a restart it may have held
// bound objects whose copies are still there.
func (a *access) run(ctx context.Context) {
	if table, ok := a.engine.opts.Mapper.(*Namespaces); ok {
		defer table.subscribe(a.look)()
		for _, namespace := range table.list(SourceSide) {
			a.look(namespace)
		}
	}
	a.queue.Run(ctx)
}

// views are those of related objects on the source.
func (a *access) views() []*view {
	views := make([]*view, 0, len(a.engine.related))
	for _, r := range a.engine.related {
		views = append(views, r.onSource())
	}
	return views
}

// reconcile opens or closes a namespace.
func (a *access) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	namespace := key.Name
	s, used := a.of(namespace), a.engine.sourceCounts.In(namespace)
	switch {
	case !a.selected(namespace), !used && !s.open && s.tried > 0:
		a.forget(namespace)
		return 0, nil
	case !s.open:
		return a.enter(ctx, namespace, nil)
	case a.unreadable(namespace) != nil:
		return a.enter(ctx, namespace, a.unreadable(namespace))
	}
	copies, known := true, true
	if !used {
		copies, known = a.copies(namespace)
	}
	a.note(namespace, func(s *namespaceAccess) {
		s.tried, s.problem = 0, ""
		switch {
		case copies:
			s.idle = time.Time{}
		case s.idle.IsZero() && known:
			s.idle = time.Now()
		}
	})
	if !known {
		return waitPause, nil
	}
	return a.leave(ctx, namespace)
}

func (a *access) of(namespace string) namespaceAccess {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *a.namespace(namespace)
}

// note changes what is known of a namespace, and tells if a problem came or went.
func (a *access) note(namespace string, change func(*namespaceAccess)) namespaceAccess {
	a.mu.Lock()
	s := a.namespace(namespace)
	before := s.problem
	change(s)
	after := *s
	a.mu.Unlock()
	if after.problem != before {
		a.engine.notify()
	}
	return after
}

// enter asks for access, also if it is lost, and again after a while if there is none.
// A namespace without bound objects is not owed any. Rights that were just given may
// take a moment, which is not told.
func (a *access) enter(ctx context.Context, namespace string, lost error) (time.Duration, error) {
	granted, err := a.engine.opts.RelatedAccess(ctx, namespace, true)
	used := a.engine.sourceCounts.In(namespace)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if granted && err == nil {
		for _, v := range a.views() {
			v.add(ctx, namespace)
		}
	}
	s := a.note(namespace, func(s *namespaceAccess) {
		s.open, s.problem, s.tried = granted && err == nil, "", s.tried+1
		switch {
		case used && err != nil:
			s.problem = err.Error()
		case lost != nil && s.tried > 1:
			s.problem = lost.Error()
		}
	})
	if s.open || s.problem != "" {
		return min(watchstore.First<<min(s.tried, 10), waitPause), nil
	}
	return 0, nil
}

// leave closes a namespace once it has not been used for long enough.
func (a *access) leave(ctx context.Context, namespace string) (time.Duration, error) {
	s := a.of(namespace)
	if s.idle.IsZero() {
		return a.rest, nil
	}
	if left := a.rest - time.Since(s.idle); left > 0 {
		return left, nil
	}
	for _, v := range a.views() {
		v.remove(namespace)
	}
	if _, err := a.engine.opts.RelatedAccess(ctx, namespace, false); err != nil {
		return 0, err
	}
	a.note(namespace, func(s *namespaceAccess) { *s = namespaceAccess{} })
	a.forget(namespace)
	return 0, nil
}

// forget drops what is known of a namespace, unless bound objects have come meanwhile.
func (a *access) forget(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.engine.sourceCounts.In(namespace) {
		delete(a.namespaces, namespace)
	}
}

// selected reports whether related objects of a namespace may travel at all.
func (a *access) selected(namespace string) bool {
	return slices.ContainsFunc(a.engine.opts.Related, func(r Related) bool { return related.Allows(r.Namespaces, namespace) })
}

// copies reports whether there are copies, on either side, that only who may read the
// namespace can take back, and whether that is known.
func (a *access) copies(namespace string) (some, known bool) {
	known = true
	for _, r := range a.engine.related {
		found, sure := r.copiesOf(namespace)
		some, known = some || found, known && sure
	}
	return some, known
}

// unreadable is why the API server does not let related objects be read.
func (a *access) unreadable(namespace string) error {
	for _, v := range a.views() {
		if p := v.part(namespace); p != nil && isDenied(p.Err()) {
			return p.Err()
		}
	}
	return nil
}

// problems are the namespaces whose related objects cannot be read, and why.
func (a *access) problems() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]string{}
	for namespace, s := range a.namespaces {
		if s.problem != "" {
			out[namespace] = s.problem
		}
	}
	return out
}
