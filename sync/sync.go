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

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/sync/internal/breaker"
	"github.com/klutch-go/sdk/sync/internal/fence"
	"github.com/klutch-go/sdk/sync/internal/prune"
	"github.com/klutch-go/sdk/sync/internal/related"
)

// A Sync keeps the objects of one resource in step. Create it with New.
type Sync struct {
	from, to *Cluster
	resource schema.GroupVersionResource
	opts     Options

	breaker *breaker.Breaker
	suspect atomic.Bool // a cluster may have been restored from a backup, until Release

	mu      sync.Mutex
	engine  *engine // while Run runs
	changed func()
	pool    *queue.Pool // of the Set that it is in; nil if none
}

// New returns a Sync of resource from source to target, which may be the same
// Cluster if the mapper gives other names. Arguments that cannot work are
// reported as *OptionError. New does no I/O.
func New(source, target *Cluster, resource schema.GroupVersionResource, opts Options) (*Sync, error) {
	switch {
	case source == nil || source.stores == nil:
		return nil, &OptionError{"source", "is nil, or was not made by NewCluster"}
	case target == nil || target.stores == nil:
		return nil, &OptionError{"target", "is nil, or was not made by NewCluster"}
	case resource.Resource == "":
		return nil, &OptionError{"resource", "has no name"}
	case resource.Version == "":
		return nil, &OptionError{"resource", "has no version"}
	case len(opts.Related) > 0 && (source.meta == nil || target.meta == nil):
		return nil, &OptionError{"Related", "needs clusters with a metadata client"}
	}
	opts = opts.withDefaults(resource)
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if source.stores == target.stores && renamesNothing(opts.Mapper) {
		return nil, &OptionError{"Mapper", "has to give other names where source and target are one cluster"}
	}
	return &Sync{from: source, to: target, resource: resource, opts: opts, breaker: breaker.New(opts.DeletionLimit)}, nil
}

// Run keeps the objects in step until ctx is done, and then returns nil. What
// cannot be read or written, because rights, a CRD or a whole cluster are
// missing, is retried until it can: see Status.
func (s *Sync) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("binding", s.opts.Binding)
	ctx = logr.NewContext(ctx, log)
	for {
		err := s.once(ctx)
		if !errors.Is(err, errRestart) {
			return err
		}
		log.Info("sync begins again", "reason", err.Error())
	}
}

// once runs until ctx is done, or a cluster turns out not to be what it was.
func (s *Sync) once(ctx context.Context) error {
	e, err := s.begin()
	if err != nil {
		return err
	}
	defer s.end()
	return e.run(ctx)
}

// Release lets go the deletions that are held: see Options.DeletionLimit. It does
// not wait for them. Later deletions are counted anew.
func (s *Sync) Release() {
	if s.breaker == nil {
		return
	}
	s.suspect.Store(false)
	keys := s.breaker.Release()
	s.mu.Lock()
	e := s.engine
	s.mu.Unlock()
	if e == nil {
		return
	}
	for _, key := range keys {
		e.queue.Add(key, queue.User)
	}
	e.notify()
}

func (s *Sync) begin() (*engine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		return nil, &OptionError{"sync", "is nil, or was not made by New"}
	}
	if s.engine != nil {
		return nil, errors.New("sync: Run of a Sync that is running")
	}
	s.engine = newEngine(s)
	return s.engine, nil
}

func (s *Sync) end() {
	s.mu.Lock()
	s.engine = nil
	s.mu.Unlock()
	s.notify()
}

// Status is the state of s now.
func (s *Sync) Status() Status {
	s.mu.Lock()
	e := s.engine
	s.mu.Unlock()
	if e == nil {
		return Status{}
	}
	return e.status()
}

// join makes s work with the workers of a Set.
func (s *Sync) join(p *queue.Pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool = p
}

// subscribe calls changed whenever Status may have changed.
func (s *Sync) subscribe(changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = changed
}

func (s *Sync) notify() {
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// An engine is one Run of a Sync.
type engine struct {
	*Sync
	policy       policy
	fieldManager string      // without the incarnation
	pool         *queue.Pool // nil if another one's
	queue        *queue.Queue
	source       *view
	target       *view
	related      []*relation
	sourceCounts *sourceCounts
	access       *access // nil where related objects are watched everywhere
	sourceFields *prune.Cache
	targetFields *prune.Cache
	tasks        []func(context.Context) // to run beside the queue

	sourceUID, targetUID types.UID
	plainStatus          atomic.Bool // the source has no status subresource
	orphans              atomic.Int64
	fence                *fence.Fence // nil until the clusters are identified
	statuses             statusBudget
	cancel               context.CancelCauseFunc // ends run

	recordsMu sync.Mutex
	records   map[cache.ObjectName]*record
	denials   map[cache.ObjectName]string            // what is not permitted, by source
	problems  map[cache.ObjectName]map[string]string // of related objects, by source
}

func newEngine(s *Sync) *engine {
	e := &engine{
		Sync: s,
		policy: policy{
			conflict: s.opts.Conflict, drift: s.opts.Drift, lost: s.opts.Lost, deletion: s.opts.Deletion, orphans: s.opts.Orphans,
		},
		fieldManager: fieldManager(s.opts.Binding),
		records:      map[cache.ObjectName]*record{},
		denials:      map[cache.ObjectName]string{},
		problems:     map[cache.ObjectName]map[string]string{},
	}
	pool := s.pool
	if pool == nil {
		e.pool = queue.NewPool(s.opts.Workers+s.opts.Workers/4, s.from.timing.delay()) // with room for related objects
		pool = e.pool
	}
	e.queue = pool.Queue(e.reconcile, queue.Options{Name: "sync", Limit: s.opts.Workers})
	e.sourceCounts = &sourceCounts{engine: e, counts: map[string]int{}, firstOrLast: e.firstOrLast}
	e.source = e.sourceView()
	e.target = e.targetView()
	e.sourceFields, e.targetFields = e.knows(e.source, e.from), e.knows(e.target, e.to)
	e.related = newRelations(e, pool)
	for _, r := range e.related {
		e.tasks = append(e.tasks, r.run)
	}
	if e.access = newAccess(e, pool); e.access != nil {
		e.tasks = append(e.tasks, e.access.run)
	}
	e.tasks = append(e.tasks, e.followMapper)
	return e
}

// knows follows what the cluster of v knows of the resource.
func (e *engine) knows(v *view, c *Cluster) *prune.Cache {
	share := c.stores.Budget.Share("the schema of " + e.resource.Resource)
	fields := prune.NewCache(c.raw, e.resource, share, func(version string) { v.relist(version); e.remappedAll() })
	v.watched = fields.Doubt
	e.tasks = append(e.tasks, fields.Run)
	return fields
}

func (e *engine) sources(namespace string) dynamic.ResourceInterface {
	return e.from.writes.Resource(e.resource).Namespace(namespace)
}

func (e *engine) targets(namespace string) dynamic.ResourceInterface {
	return e.to.writes.Resource(e.resource).Namespace(namespace)
}

// run works until ctx is done.
func (e *engine) run(ctx context.Context) error {
	defer e.close()
	e.watch(ctx)
	if e.identify(ctx) != nil {
		return nil // ctx is done
	}
	e.sourceFields.Load(ctx)
	e.targetFields.Load(ctx)
	ctx, e.cancel = context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer e.cancel(nil)
	for _, task := range e.tasks {
		wg.Go(func() { task(ctx) })
	}
	if e.pool != nil {
		wg.Go(func() { e.pool.Run(ctx) })
	}
	e.queue.Run(ctx)
	if why := context.Cause(ctx); errors.Is(why, errRestart) {
		return why
	}
	return nil
}

// close ends what newEngine and watch began.
func (e *engine) close() {
	e.queue.Close()
	if e.access != nil {
		e.access.queue.Close()
	}
	e.source.close()
	e.target.close()
	for _, r := range e.related {
		r.close()
	}
}

// watch begins to watch both sides.
func (e *engine) watch(ctx context.Context) {
	e.source.add(ctx, metav1.NamespaceAll)
	e.scope(ctx, e.target)
	for _, r := range e.related {
		r.watch(ctx)
	}
}

// scope watches the namespaces of the target that it should, now and from now on.
func (e *engine) scope(ctx context.Context, v *view) {
	table, ok := e.opts.Mapper.(*Namespaces)
	if e.opts.TargetScope == ScopeAll || !ok { // New takes no other mapper for another scope
		v.add(ctx, metav1.NamespaceAll)
		return
	}
	e.tasks = append(e.tasks, func(ctx context.Context) { follow(ctx, v, table) })
}

// follow watches in v just the namespaces of the target that table knows.
func follow(ctx context.Context, v *view, table *Namespaces) {
	changed := make(chan struct{}, 1)
	defer table.subscribe(func(string) { signal(changed) })()
	for {
		gone := v.namespaces()
		for _, namespace := range table.list(TargetSide) {
			delete(gone, namespace)
			v.add(ctx, namespace)
		}
		for namespace := range gone {
			v.remove(namespace)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// followMapper queues what a change of the mapper concerns.
func (e *engine) followMapper(ctx context.Context) {
	if table, ok := e.opts.Mapper.(*Namespaces); ok {
		defer table.subscribe(e.remapped)()
		e.remappedAll()
	}
	<-ctx.Done()
}

// remapped queues the objects of a source namespace whose mapping changed.
func (e *engine) remapped(namespace string) {
	for _, name := range e.source.keys() {
		if name.Namespace == namespace {
			e.queue.Add(name, queue.Resync)
		}
	}
	for _, r := range e.related {
		r.remapped()
	}
}

// remappedAll queues all source objects.
func (e *engine) remappedAll() {
	for _, name := range e.source.keys() {
		e.queue.Add(name, queue.Resync)
	}
	for _, r := range e.related {
		r.remapped()
	}
}

// sourceView watches the sources. Each is a key of its own.
func (e *engine) sourceView() *view {
	v := e.newView("source", e.from, e.from.dynamicLister(e.resource, "source", slimSource))
	read := v.live
	v.live = func(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error) {
		obj, err := read(ctx, name)
		if obj != nil {
			noteFinalizers(obj)
		}
		return obj, err
	}
	v.changed = func(c change) {
		e.sourceCounts.follow(c)
		e.queue.Add(c.name, c.class(queue.User))
	}
	return v
}

// firstOrLast follows a source namespace that got its first source, or lost its last one:
// its related objects are looked at, and whether they may be. Those of a first list
// are looked at anyway.
func (e *engine) firstOrLast(namespace string, initial bool) {
	if e.access != nil {
		e.access.look(namespace)
	}
	if initial {
		return
	}
	for _, r := range e.related {
		r.queue.Add(allOf(namespace), queue.Related)
	}
}

// targetView watches the targets. They lead to the keys of their sources.
func (e *engine) targetView() *view {
	keep := e.kept()
	form := "target with " + strings.Join(slices.Sorted(maps.Keys(keep)), " ")
	v := e.newView("target", e.to, e.to.dynamicLister(e.resource, form, slimTarget(domain, keep)))
	read := v.live
	v.live = func(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error) {
		obj, err := read(ctx, name)
		if obj != nil {
			noteLost(obj, domain)
		}
		return obj, err
	}
	v.changed = func(c change) {
		if key, ok := e.opts.Mapper.Source(c.name); ok {
			e.queue.Add(key, c.ofTarget())
		}
	}
	return v
}

func (e *engine) newView(name string, c *Cluster, l watchstore.Source) *view {
	return &view{
		name: name, list: l, stores: c.stores, live: c.reader(e.resource), indexes: map[string]*index{}, parts: map[string]*part{},
		moved: func(string) { e.remappedAll(); e.notify() }, lost: e.notify, doubt: e.doubt,
	}
}

// kept are the top-level fields of targets that have to be cached.
func (e *engine) kept() map[string]bool {
	keep := map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "status": true}
	for _, r := range e.opts.Related {
		for _, path := range r.References {
			if fields, err := related.Path(path); err == nil && r.From == TargetSide {
				keep[fields[0]] = true
			}
		}
	}
	return keep
}

// identify reads who the clusters are. An identity that may not be read is left
// out of what targets say of their source; one that cannot be read now is
// waited for.
func (e *engine) identify(ctx context.Context) error {
	var err error
	if e.sourceUID, err = e.from.uid(ctx); err == nil {
		e.targetUID, err = e.to.uid(ctx)
	}
	e.fence = e.newFence()
	return err
}

// reconcile brings one object one or more steps further.
func (e *engine) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	began := time.Now()
	r := e.record(key)
	result := Result{Source: key}
	pause, err := e.steps(ctx, key, r, &result)
	if err != nil {
		result.Err = err
	}
	pause, err = e.permitted(ctx, r, &result, pause, err)
	result.Took = time.Since(began)
	e.opts.Hooks.done(ctx, result)
	if len(result.Steps) > 0 {
		logr.FromContextOrDiscard(ctx).V(4).Info("synced", "target", result.Target.String(), "steps", result.Steps)
	}
	return pause, err
}

// maxSteps bounds a pass: the longest without interference is finalizer, apply,
// mark and status.
const maxSteps = 8

// steps observes, plans and does until there is nothing left to do. The answer
// to a write tells its effect, so that the next step need not wait for the event.
func (e *engine) steps(ctx context.Context, key cache.ObjectName, r *record, result *Result) (time.Duration, error) {
	var err error
	r.proofs.since, r.answers.gone = 0, "" // the clusters are confirmed for each pass
	for range maxSteps {
		p, failed := e.observe(ctx, key, r)
		if failed != nil {
			return 0, failed
		}
		result.Target = p.name
		e.report(ctx, p, r)
		s := plan(p.state)
		if s == stepRest || s == stepWait {
			e.settle(p, r)
			if why := obstacle(p.state); why != "" {
				result.Err = &ObjectError{Reason: why, Message: explain(p.state, why)}
			}
			return p.again(s, r), nil
		}
		result.Steps = append(result.Steps, string(s))
		if err = e.do(ctx, p, s, r); err != nil && !errors.Is(err, errAgain) {
			return 0, err
		}
	}
	if err == nil {
		err = errAgain
	}
	return 0, err
}

// report tells the embedding program what stands in the way, when it changes.
func (e *engine) report(ctx context.Context, p *pair, r *record) {
	why := obstacle(p.state)
	if why == r.status.reported || !certain(p.state, why) || why == "" && r.refusals.access != "" {
		return
	}
	e.countOrphans(r.status.reported, why)
	r.status.reported = why
	text := explain(p.state, why)
	e.opts.Hooks.reported(ctx, Report{Source: p.key, Target: p.name, Reason: why, Message: text})
	log := logr.FromContextOrDiscard(ctx).WithValues("target", p.name.String())
	if why == "" {
		log.Info("nothing keeps the object from being in step any more")
		return
	}
	log.Info("object cannot be synced", "reason", string(why), "message", text)
}

// settle forgets what need not be remembered.
func (e *engine) settle(p *pair, r *record) {
	if p.source != nil || p.state.source.freshness == unknown || r.proofs.orphan != nil {
		return
	}
	e.recordsMu.Lock()
	defer e.recordsMu.Unlock()
	delete(e.records, p.key)
	e.breaker.Forget(p.key)
}

func (e *engine) record(key cache.ObjectName) *record {
	e.recordsMu.Lock()
	defer e.recordsMu.Unlock()
	r := e.records[key]
	if r == nil {
		r = &record{}
		e.records[key] = r
	}
	return r
}

// relatedProblem says why related objects of a source cannot travel.
func (e *engine) relatedProblem(key cache.ObjectName) string {
	e.recordsMu.Lock()
	defer e.recordsMu.Unlock()
	return least(e.problems[key])
}

// status reports whether both sides are known.
func (e *engine) status() Status {
	st := Status{Synced: true, Held: e.breaker.Held(), Orphans: int(e.orphans.Load())}
	for _, v := range e.views() {
		known, err := v.state()
		st.Synced = st.Synced && known
		if st.Err == nil && err != nil {
			st.Err = &ReadError{v.name, v.list.Resource, err}
		}
	}
	if st.Err == nil {
		st.Err = e.denial()
	}
	if e.access != nil {
		st.Unreadable = e.access.problems()
	}
	st.Objects = e.source.count()
	return st
}

// views are those that have to be known: not those that wait for access.
func (e *engine) views() []*view {
	views := []*view{e.source, e.target}
	for _, r := range e.related {
		for _, v := range []*view{r.original, r.copy} {
			if e.access == nil || v != r.onSource() {
				views = append(views, v)
			}
		}
	}
	return views
}

// display names an object for people.
func (e *engine) display(name cache.ObjectName) string {
	return fmt.Sprintf("%s %s", e.resource.GroupResource(), name)
}

// maxManager is the longest field manager that API servers take.
const maxManager = 128

// fieldManager names the pair of clusters and resource to the API servers.
func fieldManager(binding string) string {
	const room = maxManager - len(domain) - 1 - shortUID
	if len(binding) > room {
		binding = binding[:room-33] + "-" + hashOf(binding)
	}
	return domain + binding
}

const shortUID = 12

// manager is the field manager of one incarnation of a source: the next one of
// the same name meets a conflict, rather than take over what this one left.
func (e *engine) manager(uid types.UID) string {
	return e.fieldManager + "/" + string(uid[max(0, len(uid)-shortUID):])
}

// isDenied reports whether err will not go away by waiting for a cluster.
func isDenied(err error) bool {
	return fates.Is(err, fates.Forbidden, fates.Terminating, fates.Absent, fates.Unserved)
}
