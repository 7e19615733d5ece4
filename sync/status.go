// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
)

// Status is the state of a Sync.
type Status struct {
	// Synced says that both sides have been read completely at least once, and
	// are readable now.
	Synced bool

	// Err is what keeps a side from being read, a *ReadError; what an API server
	// does not permit of some object, an *ObjectError; or what ended Run. Nil if
	// nothing.
	Err error

	// Unreadable are the namespaces of the source whose related objects wait for
	// access, and why: see Options.RelatedAccess. All else goes on.
	Unreadable map[string]string

	// Objects is the number of source objects known.
	Objects int

	// Held is the number of source objects whose deletion waits for Release.
	Held int

	// Orphans is the number of targets that were found to have lost their source:
	// see Options.Orphans.
	Orphans int
}

// reports are what is told of the objects of a Sync: to the embedding program as it
// changes, and in its Status.
type reports struct {
	hooks   Hooks
	notify  func()
	orphans atomic.Int64

	mu       sync.Mutex
	denials  map[cache.ObjectName]string            // what is not permitted, by source
	problems map[cache.ObjectName]map[string]string // of related objects, by source
}

func newReports(hooks Hooks, notify func()) *reports {
	return &reports{hooks: hooks, notify: notify, denials: map[cache.ObjectName]string{}, problems: map[cache.ObjectName]map[string]string{}}
}

// report tells the embedding program what stands in the way, when it changes.
func (t *reports) report(ctx context.Context, p *pair, r *record) {
	why := obstacle(p.state)
	if why == r.status.reported || !certain(p.state, why) || why == "" && r.refusals.access != "" {
		return
	}
	t.countOrphans(r.status.reported, why)
	r.status.reported = why
	text := explain(p.state, why)
	t.hooks.reported(ctx, Report{Source: p.key, Target: p.name, Reason: why, Message: text})
	log := logr.FromContextOrDiscard(ctx).WithValues("target", p.name.String())
	if why == "" {
		log.Info("nothing keeps the object from being in step any more")
		return
	}
	log.Info("object cannot be synced", "reason", string(why), "message", text)
}

// countOrphans follows a change of what is reported of one object.
func (t *reports) countOrphans(before, now Reason) {
	switch ReasonOrphaned {
	case now:
		t.orphans.Add(1)
	case before:
		t.orphans.Add(-1)
	default:
		return
	}
	t.notify()
}

// permitted follows a pass. What an API server does not permit is told and tried
// again soon, since rights come back without an event. A source that must not be
// written cannot carry the message: Status has it.
func (t *reports) permitted(ctx context.Context, r *record, result *Result, again time.Duration, err error) (time.Duration, error) {
	switch {
	case fates.Is(err, fates.Forbidden, fates.Terminating):
		t.deny(ctx, r, result, clip(err.Error()))
		result.Err = &ObjectError{ReasonDenied, err.Error()}
		return waitPause, nil
	case err == nil && r.refusals.access != "":
		t.deny(ctx, r, result, "")
	}
	return again, err
}

// deny notes what is not permitted of an object, or that all is.
func (t *reports) deny(ctx context.Context, r *record, result *Result, text string) {
	if r.refusals.access == text {
		return
	}
	r.refusals.access, r.status.reported = text, ""
	log := logr.FromContextOrDiscard(ctx).WithValues("target", result.Target.String())
	t.mu.Lock()
	if delete(t.denials, result.Source); text != "" {
		t.denials[result.Source] = text
		r.status.reported = ReasonDenied
	}
	t.mu.Unlock()
	t.hooks.reported(ctx, Report{Source: result.Source, Target: result.Target, Reason: r.status.reported, Message: text})
	log.Info("permission for an object has changed", "reason", string(r.status.reported), "message", text)
	t.notify()
}

// denial is one of what API servers do not permit; nil if there is nothing.
func (t *reports) denial() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := least(t.denials); text != "" {
		return &ObjectError{ReasonDenied, text}
	}
	return nil
}

// least is the first of some texts in their order, so that it is always the same;
// empty if there is none.
func least[K comparable](texts map[K]string) (first string) {
	for _, text := range texts {
		if first == "" || text < first {
			first = text
		}
	}
	return first
}

// problem says why related objects of a source cannot travel.
func (t *reports) problem(key cache.ObjectName) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return least(t.problems[key])
}

// setProblem notes why a related object of a source cannot travel, or that it
// can again.
func (t *reports) setProblem(source cache.ObjectName, id, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	problems := t.problems[source]
	if text == "" {
		delete(problems, id)
		if len(problems) == 0 {
			delete(t.problems, source)
		}
		return
	}
	if problems == nil {
		problems = map[string]string{}
		t.problems[source] = problems
	}
	problems[id] = text
}
