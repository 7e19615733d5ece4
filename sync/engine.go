// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/sync/internal/fence"
	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/namespaces"
	"github.com/klutch-go/sdk/sync/internal/pace"
	"github.com/klutch-go/sdk/sync/internal/prune"
	"github.com/klutch-go/sdk/sync/internal/refusal"
	"github.com/klutch-go/sdk/sync/internal/related"
	"github.com/klutch-go/sdk/sync/internal/slim"
	"github.com/klutch-go/sdk/sync/internal/tombstone"
	"github.com/klutch-go/sdk/sync/internal/view"
	"github.com/klutch-go/sdk/sync/internal/writer"
)

// An engine is one Run of a Sync: the views, the queue, and what follows their changes.
type engine struct {
	sync     *Sync
	opts     Options
	names    *names.Names
	statuses pace.Budget
	turns    pace.Turns
	refusals refusal.Budget
	queue    *queue.Queue
	objects  *reconciler
	source   *view.View
	target   *view.View
	counts   *namespaces.Counts
	schemas  [2]*prune.Cache // of source and target
	related  []*relatedResource
	access   *namespaces.Access // nil where related objects are watched everywhere
	guard    *fence.Guard
	deleted  *tombstone.Tombstones
	write    *writer.Writer
	reports  *reports
	refused  *refusal.Ledger
	tasks    []func(context.Context) // to run beside the queue
	watching atomic.Bool             // the views know what to watch
	cancel   context.CancelCauseFunc // ends run; nil before
}

func newEngine(s *Sync) *engine {
	e := &engine{sync: s, opts: s.opts, names: names.Of(s.opts.Domain, s.opts.Binding).With(s.opts.Finalizer)}
	e.refused = refusal.NewLedger(&e.refusals, func(key cache.ObjectName) { e.queue.Add(key, queue.Resync) })
	e.reports = newReports(s.opts.Hooks, e.refused, s.notify)
	e.guard = &fence.Guard{Breaker: s.breaker, Suspect: &s.suspect, Restart: e.restart, Notify: s.notify}
	e.write = &writer.Writer{
		Resource: s.resource, Sources: s.from.writes.Resource(s.resource), Targets: s.to.writes.Resource(s.resource), Raw: s.to.raw,
		Names: e.names, Finalizer: e.opts.Finalizer,
	}
	e.deleted = tombstone.New(e.opts.Finalizer, s.from.reads.Resource(s.resource))
	e.counts = namespaces.NewCounts(e.write.Sources, e.firstOrLast)
	e.counts.Leaves = func(source metav1.Object) bool { return leavingWith(e.opts.Finalizer)(source) != nil }
	e.counts.Space = s.from.reader(corev1.SchemeGroupVersion.WithResource("namespaces"))
	if table := e.opts.RelatedMapper; table != nil {
		e.counts.Everywhere = func(namespace string) bool { _, ok := table.Of(namespace); return ok }
	}
	e.source, e.target = e.sourceView(), e.targetView()
	e.counts.Of(e.source)
	e.schemas = [2]*prune.Cache{e.schema(e.source, s.from), e.schema(e.target, s.to)}
	e.write.Schema = e.schemas[0]
	pool := s.pool
	if pool == nil {
		pool = queue.NewPool(e.opts.Workers+e.opts.Workers/4, s.from.timing.delay()) // with room for related objects
	}
	e.objects = newReconciler(e)
	e.queue = pool.Queue(e.objects.reconcile, queue.Options{Name: "sync", Limit: e.opts.Workers, Late: e.objects.late})
	e.related = e.newRelated(pool)
	for _, r := range e.related {
		e.tasks = append(e.tasks, r.run)
	}
	if e.access = e.newAccess(pool); e.access != nil {
		e.tasks = append(e.tasks, e.access.Run)
	}
	e.tasks = append(e.tasks, e.followMapper, func(ctx context.Context) { e.reports.hourly(ctx, e.related) })
	return e
}

func newReconciler(e *engine) *reconciler {
	return &reconciler{
		breaker: e.sync.breaker, reports: e.reports, refused: e.refused,
		observer: observer{
			opts: e.opts, names: e.names, resource: e.sync.resource, guard: e.guard, tombstones: e.deleted, source: e.source, target: e.target,
			sourceFields: e.schemas[0], targetFields: e.schemas[1], statuses: &e.statuses, turns: &e.turns, plainStatus: e.write.Plain, refused: e.refused, problem: e.reports.problem,
			oneCluster: e.sync.from.stores == e.sync.to.stores || e.sync.from.identity != e.sync.to.identity,
			serving:    fence.Serving(e.sync.to.raw, e.sync.resource),
			policy:     policy{conflict: e.opts.Conflict, drift: e.opts.Drift, lost: e.opts.Lost, deletion: e.opts.Deletion, orphans: e.opts.Orphans},
		},
		actor: actor{
			write: e.write, guard: e.guard, breaker: e.sync.breaker, journal: e.sync.journal, source: e.source, target: e.target,
			sourceFields: e.schemas[0], targetFields: e.schemas[1], statuses: &e.statuses, refused: e.refused, hooks: e.opts.Hooks,
		},
	}
}

// schema follows what the cluster of v knows of the resource.
func (e *engine) schema(v *view.View, c *Cluster) *prune.Cache {
	share := c.stores.Budget.Share("the schema of " + e.sync.resource.Resource)
	fields := prune.NewCache(c.raw, e.sync.resource, share, func(version string) { v.Relist(version); e.remapped() })
	v.Watched = fields.Doubt
	e.tasks = append(e.tasks, fields.Run)
	return fields
}

// newAccess returns nil where related objects are watched in all namespaces.
func (e *engine) newAccess(p *queue.Pool) *namespaces.Access {
	if e.opts.RelatedAccess == nil || len(e.opts.Related) == 0 {
		return nil
	}
	c := namespaces.Config{Grant: e.opts.RelatedAccess, Allowed: e.opts.travels, Sources: e.counts, Mapped: e.mapped, Notify: e.sync.notify}
	c.Refused = refusal.NewLedger(&e.refusals, func(namespace cache.ObjectName) { e.access.Look(namespace.Name) })
	for _, r := range e.related {
		c.Resources = append(c.Resources, r)
	}
	return namespaces.NewAccess(c, p)
}

// run works until ctx is done.
func (e *engine) run(ctx context.Context) error {
	defer e.close()
	// The clusters are identified before anything of them is listed, so that a cluster that
	// takes the place of one in between is seen to be another one.
	if e.identify(ctx) != nil {
		return nil // ctx is done
	}
	// Schemas are read before objects are listed: an object that was listed under an older
	// schema lacks fields, and is listed anew when another schema is read.
	for _, schema := range e.schemas {
		schema.Load(ctx)
	}
	e.watch(ctx)
	ctx, e.cancel = context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer e.cancel(nil)
	for _, task := range e.tasks {
		wg.Go(func() { task(ctx) })
	}
	e.queue.Run(ctx)
	if why := context.Cause(ctx); errors.Is(why, fence.ErrRestart) {
		return why
	}
	return nil
}

// restart makes Run begin again.
func (e *engine) restart(why error) {
	if e.cancel != nil {
		e.cancel(why)
	}
}

// close ends what newEngine and watch began.
func (e *engine) close() {
	e.queue.Close()
	if e.access != nil {
		e.access.Close()
	}
	e.source.Close()
	e.target.Close()
	for _, r := range e.related {
		r.close()
	}
}

// identify reads who the clusters are. An identity that may not be read is left
// out of what targets say of their source, until it may; one that cannot be read now is
// waited for.
func (e *engine) identify(ctx context.Context) error {
	from, to := e.sync.from, e.sync.to
	var err error
	if e.guard.SourceUID, err = from.uid(ctx, e.guard.Note); err == nil {
		e.guard.TargetUID, err = to.uid(ctx, e.guard.Note)
	}
	e.guard.Note(nil)
	if e.guard.SourceUID == "" {
		e.tasks = append(e.tasks, func(ctx context.Context) { identifyLater(ctx, from, e.restart) })
	}
	if e.guard.TargetUID == "" {
		e.tasks = append(e.tasks, func(ctx context.Context) { identifyLater(ctx, to, e.restart) })
	}
	latest := func() string {
		_, version, _ := e.source.Get(cache.ObjectName{})
		return version
	}
	e.guard.Fence = fence.New(
		fence.Cluster{Name: "source", UID: e.guard.SourceUID, Read: from.readUID},
		fence.Cluster{Name: "target", UID: e.guard.TargetUID, Read: to.readUID},
		fence.Vanishing(from.meta, e.sync.resource), latest)
	return err
}

// identifyLater calls restart once a cluster may be identified: rights come without an event.
func identifyLater(ctx context.Context, c *Cluster, restart func(why error)) {
	for failures := 1; ; failures++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(fates.Forbidden.Pause(failures)):
		}
		if _, err := c.readUID(ctx); err == nil {
			restart(fmt.Errorf("%w: it may be identified", fence.ErrRestart))
			return
		}
	}
}

// watch begins to watch both sides. What access watches is left to that.
func (e *engine) watch(ctx context.Context) {
	e.source.Add(ctx, metav1.NamespaceAll)
	e.scope(ctx, e.target)
	for _, r := range e.related {
		e.relatedScope(ctx, r.onTarget())
		if e.access == nil {
			r.OnSource().Add(ctx, metav1.NamespaceAll)
		}
	}
	e.watching.Store(true)
}

// scope watches the namespaces of the target that it should, now and from now on.
func (e *engine) scope(ctx context.Context, v *view.View) {
	table, ok := e.opts.Mapper.(*Namespaces)
	if e.opts.TargetScope == ScopeAll || !ok { // New takes no other mapper for another scope
		v.Add(ctx, metav1.NamespaceAll)
		return
	}
	e.tasks = append(e.tasks, func(ctx context.Context) { table.watch(ctx, v, true) })
}

// relatedScope is scope for related objects, of which nothing is looked for where a namespace is only
// recalled.
func (e *engine) relatedScope(ctx context.Context, v *view.View) {
	table, ok := e.opts.relatedMapper().(*Namespaces)
	if e.opts.RelatedMapper == nil && (e.opts.TargetScope == ScopeAll || !ok) {
		e.scope(ctx, v)
		return
	}
	e.tasks = append(e.tasks, func(ctx context.Context) { table.watch(ctx, v, false) })
}

// mapped calls look with each source namespace that is mapped, now and from now on, but for those
// that are only recalled: the target's cluster says which these are, and opens none.
func (e *engine) mapped(look func(namespace string)) (cancel func()) {
	table, ok := e.opts.relatedMapper().(*Namespaces)
	if !ok {
		return func() {}
	}
	cancel = table.subscribe(func(namespace string) {
		if !table.isRecalled(namespace) {
			look(namespace)
		}
	})
	for namespace := range table.mapped(false) {
		look(namespace)
	}
	return cancel
}

// followMapper queues what a change of the mapper concerns.
func (e *engine) followMapper(ctx context.Context) {
	if table, ok := e.opts.Mapper.(*Namespaces); ok {
		defer table.subscribe(func(namespace string) { e.remapped(namespace) })()
		e.remapped()
	}
	if table := e.opts.RelatedMapper; table != nil {
		defer table.subscribe(func(string) { e.remappedRelated() })()
		e.remappedRelated()
	}
	<-ctx.Done()
}

// remapped queues the source objects of some namespaces, or of all if none is given, and all
// related objects.
func (e *engine) remapped(of ...string) {
	e.requeue(of...)
	e.remappedRelated()
}

// requeue queues the objects of some namespaces of the source, or all if none is given: sources, and
// targets whose sources have gone.
func (e *engine) requeue(of ...string) {
	isIn := func(key cache.ObjectName) bool { return len(of) == 0 || slices.Contains(of, key.Namespace) }
	for _, name := range e.source.Within(isIn) {
		e.queue.Add(name, queue.Resync)
	}
	for _, name := range e.target.Within(func(name cache.ObjectName) bool {
		key, ok := e.opts.Mapper.Source(name)
		return ok && isIn(key)
	}) {
		if key, ok := e.opts.Mapper.Source(name); ok {
			e.queue.Add(key, queue.Resync)
		}
	}
}

func (e *engine) remappedRelated() {
	for _, r := range e.related {
		r.remapped()
	}
}

// sourceView watches the sources. Each is a key of its own.
func (e *engine) sourceView() *view.View {
	from := e.sync.from
	v := e.newView("source", from, from.dynamicLister(e.sync.resource, "source for "+e.names.Domain, slim.Source(e.names)))
	v.Ended = e.deleted.Ended
	read := v.Live
	v.Live = func(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error) {
		obj, err := read(ctx, name)
		if obj != nil {
			slim.NoteSource(obj, e.names)
		}
		return obj, err
	}
	v.Changed = func(c view.Change) {
		e.counts.Follow(c)
		e.queue.Add(c.Name, c.Class(queue.User))
	}
	return v
}

// targetView watches the targets. They lead to the keys of their sources.
func (e *engine) targetView() *view.View {
	keep := e.opts.kept()
	form := "target of " + e.names.Domain + " with " + strings.Join(slices.Sorted(maps.Keys(keep)), " ")
	v := e.newView("target", e.sync.to, e.sync.to.dynamicLister(e.sync.resource, form, slim.Target(e.names, keep)))
	read := v.Live
	v.Live = func(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error) {
		obj, err := read(ctx, name)
		if obj != nil {
			slim.Note(obj, e.names)
		}
		return obj, err
	}
	v.Changed = func(c view.Change) {
		if key, ok := e.opts.Mapper.Source(c.Name); ok {
			e.queue.Add(key, c.OfTarget())
		}
	}
	v.Lost = func() {
		if _, err := v.State(); fates.Of(err).Word() != fates.CannotTake {
			e.requeue() // users learn that their targets cannot be looked at; an outage is told for the Sync
		}
		e.sync.notify()
	}
	return v
}

func (e *engine) newView(name string, c *Cluster, l watchstore.Source) *view.View {
	back := func() {
		e.guard.Recovered()
		e.refused.Recovered()
		if e.access != nil {
			e.access.Refused.Recovered()
		}
	}
	return view.New(view.Config{
		Name: name, List: l, Stores: c.stores, Live: c.reader(e.sync.resource),
		Back: back, Moved: func(string) { e.remapped(); e.sync.notify() }, Lost: e.sync.notify, Doubt: e.guard.Doubt,
	})
}

// newRelated returns the related objects of e.
func (e *engine) newRelated(p *queue.Pool) []*relatedResource {
	var out []*relatedResource
	for _, spec := range e.opts.Related {
		f := family{spec.Resource, spec.From}
		at := slices.IndexFunc(out, func(r *relatedResource) bool { return r.family == f })
		if at < 0 {
			at, out = len(out), append(out, e.newRelatedResource(p, f))
		}
		out[at].copier.Select(newSelector(spec))
	}
	return out
}

func (e *engine) newRelatedResource(p *queue.Pool, f family) *relatedResource {
	r := &relatedResource{family: f, mapper: opened(e.opts.relatedMapper())}
	r.refused = refusal.NewLedger(&e.refusals, func(original cache.ObjectName) { r.queue.Add(original, queue.Resync) })
	itself := func(n cache.ObjectName) (cache.ObjectName, bool) { return n, true }
	owner, other, referrers := e.sync.from, e.sync.to, e.source
	if f.From == TargetSide {
		owner, other, referrers = other, owner, e.target
	}
	called := relatedNames{mapper: r.mapper, guard: e.guard, annotation: e.names.Source, fromTarget: f.From == TargetSide}
	r.original = e.relatedView(r, "original", owner, "", itself)
	r.copy = e.relatedView(r, "copy", other, e.names.Bound+"=true", called.original)
	index := "references to " + f.Resource.String() + " of " + string(f.From)
	r.copier = related.New(related.Config{
		Former:   e.opts.FormerSource,
		Resource: f.Resource, FromTarget: f.From == TargetSide, Manager: e.names.RelatedManager(related.Managers), Names: called, Sources: e.counts,
		Marks:     related.Marks{Bound: e.names.Bound, Source: e.names.Source, Owner: e.names.Owner, Referrer: e.names.Referrer, Adopted: e.names.Adopted, Own: e.names.Own},
		Originals: relatedSide(r.original, owner, f.Resource), Copies: relatedSide(r.copy, other, f.Resource),
		Bound: relatedBound{index: index, referrers: referrers, sources: e.source, names: e.names, finalizer: e.opts.Finalizer},
		Engine: relatedEngine{
			family: f, index: index, guard: e.guard, write: e.write, reports: e.reports, sources: e.queue, denied: e.denied,
			heldCopies: heldCopies{resource: string(f.From) + " " + f.Resource.GroupResource().String(), sync: e.sync, count: r.copy.Count},
		},
		Refused: r.refused,
		NewPace: func() related.Pace { return &pace.Copy{Budget: &e.statuses, OnSource: f.From == TargetSide} },
	})
	referrers.Index(index, view.NewIndex(r.copier.References, r.referred))
	if f.From == SourceSide {
		e.source.Index(leaving, view.NewIndex(leavingWith(e.opts.Finalizer), func(string) {})) // a copy that is read still is looked at again by itself
	}
	r.queue = p.Queue(r.reconcile, queue.Options{Name: "related", Limit: max(e.opts.Workers/4, 1), Late: r.late})
	return r
}

// relatedView watches originals or copies. Both lead to the names of originals.
func (e *engine) relatedView(r *relatedResource, what string, c *Cluster, selector string, original func(cache.ObjectName) (cache.ObjectName, bool)) *view.View {
	moved := func(namespace string) {
		r.remapped()
		if e.access != nil {
			e.access.Regain(namespace)
		}
		e.sync.notify()
	}
	return view.New(view.Config{
		Name: "related " + what + " " + r.Resource.Resource, List: c.metadataLister(r.Resource, selector, "metadata of "+e.names.Domain+" by "+selector, slim.Related(e.names, related.Managers)), Stores: c.stores,
		Back: r.refused.Recovered, Moved: moved, Lost: e.lost, Doubt: e.guard.Doubt,
		Changed: func(o view.Change) {
			if k, ok := original(o.Name); ok {
				r.queue.Add(k, o.Class(queue.Related))
			}
		},
	})
}

// firstOrLast follows a source namespace that got its first source, or lost its last one:
// its related objects are looked at, and whether they may be. Those of a first list
// are looked at anyway.
func (e *engine) firstOrLast(namespace string, initial bool) {
	all := []string{namespace}
	if table := e.opts.RelatedMapper; table != nil {
		all = slices.Sorted(maps.Keys(table.mapped(false)))
	}
	for _, namespace := range all {
		if e.access != nil {
			e.access.Look(namespace)
		}
		for _, r := range e.related {
			if !initial {
				r.queue.Add(allOf(namespace), queue.Related)
			}
		}
	}
}

// lost follows related objects that cannot be read any more.
func (e *engine) lost() {
	if e.access != nil {
		e.access.Doubt()
	}
	e.sync.notify()
}

// denied follows an answer that related objects of a source namespace may not be accessed.
func (e *engine) denied(namespace string) {
	if e.access != nil {
		e.access.Lose(namespace)
	}
}

// views are the views that have to be known. A view that waits for access is none of them.
func (e *engine) views() []*view.View {
	views := []*view.View{e.source, e.target}
	for _, r := range e.related {
		for _, v := range []*view.View{r.original, r.copy} {
			if e.access == nil || v != r.OnSource() {
				views = append(views, v)
			}
		}
	}
	return views
}

// status is the state of the Run now.
func (e *engine) status() Status {
	st := Status{Synced: e.watching.Load(), Held: e.sync.breaker.Held(), HeldCopies: e.sync.copies.Held(), Orphans: e.reports.counted(ReasonOrphaned), Objects: e.source.Count()}
	for _, v := range e.views() {
		known, err := v.State()
		st.Synced = st.Synced && known
		if st.Err == nil && err != nil {
			st.Err = &ReadError{v.Name, v.List.Resource, err}
		}
	}
	if err := e.guard.Err(); st.Err == nil && err != nil {
		st.Err = fmt.Errorf("who the clusters are cannot be read: %w", err)
	}
	if st.Err == nil {
		st.Err = e.reports.denial()
	}
	if e.access != nil {
		st.Unreadable = e.access.Problems()
	}
	for _, r := range e.related {
		taken, untold := r.copier.Absent()
		st.Untold = append(st.Untold, untold...)
		for _, name := range taken {
			st.Taken = append(st.Taken, r.Resource.GroupResource().String()+" "+name.String())
		}
	}
	slices.Sort(st.Taken)
	slices.Sort(st.Untold)
	return st
}
