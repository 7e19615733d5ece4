// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/hourly"
	"github.com/klutch-go/sdk/sync/internal/pace"
	"github.com/klutch-go/sdk/sync/internal/refusal"
)

// Status is the state of a Sync.
type Status struct {
	// Synced says that both sides have been read completely at least once, and
	// are readable now.
	Synced bool

	// Err is what keeps a side from being read, a *ReadError, or who the clusters are;
	// what an API server does not permit of some object, an *ObjectError; or what ended
	// Run. Nil if nothing.
	Err error

	// Unreadable are the namespaces of the source whose related objects wait for
	// access, or cannot be read with it, and why: see Options.RelatedAccess. All else goes on.
	Unreadable map[string]string

	// Objects is the number of source objects known.
	Objects int

	// Held is the number of source objects whose deletion waits for Release.
	Held int

	// HeldCopies is the number of copies of related objects that have lost their
	// originals, or have to be made anew or go since these are of another type, so many
	// at once that they wait for Release.
	HeldCopies int

	// Taken are the objects that stand where copies of related objects should, are no
	// copies, and stay as they are, such as "secrets team/creds".
	Taken []string

	// Untold says why copies of related objects are not what they should be, where no
	// source refers to the original, so that none can say so.
	Untold []string

	// Orphans is the number of targets that were found to have lost their source:
	// see Options.Orphans.
	Orphans int
}

// reports are what is told of the objects of a Sync: to the embedding program as it
// changes, and in its Status.
type reports struct {
	hooks   Hooks
	notify  func()
	refused *refusal.Ledger

	mu       sync.Mutex
	counts   map[Reason]int                         // of what is reported of the objects now
	problems map[cache.ObjectName]map[string]string // of related objects, by source
}

func newReports(hooks Hooks, refused *refusal.Ledger, notify func()) *reports {
	return &reports{hooks: hooks, notify: notify, refused: refused, counts: map[Reason]int{}, problems: map[cache.ObjectName]map[string]string{}}
}

// report tells the embedding program what stands in the way, when it changes. Where the reason is
// the same, and the words are others, these are paced like messages, and not logged.
func (t *reports) report(ctx context.Context, p *pair, r *record) {
	why := obstacle(p.state)
	told, text := r.status.told(why, p.from.uid), explain(p.state, why)
	rewords := told && text != r.status.words && r.status.reports.Wait(pace.Burst, messagePause) <= 0
	denied := r.status.denied != "" && (!explains(why) || t.refused.Of(p.key, refusal.Access) != nil) // which ends each pass, and is told then
	if told && !rewords || !certain(p.state, why) || denied {
		return
	}
	r.status.words = text
	r.status.reports.Count(1, messagePause)
	t.tell(ctx, r, Report{Source: p.key, Target: p.name, UID: p.from.uid, Reason: why, Message: text, Told: text != "" && text == p.state.source.message})
	log := logr.FromContextOrDiscard(ctx).WithValues("target", p.name.String())
	if rewords {
		return
	}
	if why == "" {
		log.Info("nothing keeps the object from being in step any more")
		return
	}
	log.Info("object cannot be synced", "reason", string(why), "message", text)
}

// tell reports what stands in the way of one object.
func (t *reports) tell(ctx context.Context, r *record, report Report) {
	t.count(r, report.Reason)
	r.status.uid = report.UID
	t.hooks.reported(ctx, report)
}

// takeBack follows the end of a run that begins again: what was reported is found out anew.
func (t *reports) takeBack(ctx context.Context, all *records) {
	for key, r := range all.byKey {
		if r.status.reported != "" {
			t.tell(ctx, r, Report{Source: key, UID: r.status.uid})
		}
	}
}

// count follows a change of what is reported of one object.
func (t *reports) count(r *record, now Reason) {
	before := r.status.reported
	r.status.reported = now
	t.mu.Lock()
	if t.counts[before]--; t.counts[before] <= 0 {
		delete(t.counts, before)
	}
	if now != "" {
		t.counts[now]++
	}
	t.mu.Unlock()
	if before == ReasonOrphaned || now == ReasonOrphaned {
		t.notify()
	}
}

// counted is the number of objects of which a reason is reported.
func (t *reports) counted(reason Reason) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[reason]
}

// hourly logs once an hour how many objects are not in step, and why: sources, and copies of
// which no source can say so.
func (t *reports) hourly(ctx context.Context, related []*relatedResource) {
	hourly.Log(ctx, "objects are not in step", func() map[Reason]int {
		t.mu.Lock()
		counts := maps.Clone(t.counts)
		t.mu.Unlock()
		for _, r := range related {
			if _, untold := r.copier.Absent(); len(untold) > 0 {
				counts[ReasonRelated] += len(untold)
			}
		}
		return counts
	})
}

// denied tells what keeps an object from being read, or its source from being written, when it
// changes; other words for it are paced like messages, and not logged.
func (t *reports) denied(ctx context.Context, r *record, result *Result, uid types.UID, f *refusal.Refusal) {
	reason := reasonOfAccess(f.Kind)
	rewords := r.status.denied != "" && r.status.speaksOf(uid) && reason == r.status.reported
	if rewords && (r.status.denied == f.Detail || r.status.reports.Wait(pace.Burst, messagePause) > 0) {
		return
	}
	r.status.denied = f.Detail
	r.status.reports.Count(1, messagePause)
	t.tell(ctx, r, Report{Source: result.Source, Target: result.Target, UID: uid, Reason: reason, Message: f.Detail})
	t.notify()
	if !rewords {
		logr.FromContextOrDiscard(ctx).Info("access to an object is denied", "target", result.Target.String(), "reason", string(reason), "message", f.Detail)
	}
}

// unanswered tells that what is asked for an object is not answered, if nothing else is told of it.
// What comes of it takes the place of that.
func (t *reports) unanswered(ctx context.Context, r *record, result *Result, uid types.UID, what string) {
	if r.status.reported != "" && r.status.speaksOf(uid) || uid == "" {
		return
	}
	r.status.words = fmt.Sprintf("%s: no answer has come for %s to %s", ReasonUnavailable, refusal.Slow, what)
	t.tell(ctx, r, Report{Source: result.Source, Target: result.Target, UID: uid, Reason: ReasonUnavailable, Message: r.status.words})
	logr.FromContextOrDiscard(ctx).Info("an API server does not answer", "target", result.Target.String(), "message", r.status.words)
}

// admitted follows that an object can be read, and its source be written: it tells what else
// stands in the way, or that nothing does.
func (t *reports) admitted(ctx context.Context, p *pair, r *record) {
	if r.status.denied == "" {
		return
	}
	r.status.denied = ""
	t.report(ctx, p, r)
	t.notify()
}

// denial is one of what API servers do not permit; nil if there is nothing.
func (t *reports) denial() error {
	isDenied := func(f *refusal.Refusal) bool { return reasonOfAccess(f.Kind) == ReasonDenied }
	if f := t.refused.First(isDenied); f != nil {
		return &ObjectError{ReasonDenied, f.Detail}
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
