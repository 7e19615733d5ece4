// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// A pair is one source object, its target, and the state that they are in.
type pair struct {
	state
	key    cache.ObjectName
	name   cache.ObjectName // of the target
	from   origin
	source *unstructured.Unstructured
	target *unstructured.Unstructured
	want   intent
	give   map[string]any // status for the source; nil if none
}

// A record is what a Sync remembers of one object between passes: nothing that
// it could not do without, as it has to after a restart.
type record struct {
	source, target         *unstructured.Unstructured // answers to our writes that the caches have not seen
	lookSource, lookTarget bool                       // an outcome is uncertain: read live
	looked                 time.Time                  // live, because its source is being deleted

	refusal   *refusal
	contested *contest
	accepted  string // what we held of the target when an apply was last accepted or found to be in force
	sent, got string // hashes of the last status sent, and of what became of it
	fixes     int    // corrections of drift in a row
	nextFix   time.Time
	reported  Reason
}

// A refusal is the answer of a target's API server that an intent is invalid.
type refusal struct {
	reason Reason
	hash   string
	detail string
	next   time.Time
}

// A contest is the answer that fields of an intent are someone else's.
type contest struct {
	hash    string
	version string // of the target
	detail  string
}

// observe reads both sides.
func (e *engine) observe(ctx context.Context, key cache.ObjectName, r *record) (*pair, error) {
	p := &pair{key: key, state: state{policy: e.policy}}
	var err error
	if p.source, p.state.source.seen, err = e.look(ctx, e.source, key, &r.source, &r.lookSource); err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	if p.source == nil {
		return p, nil
	}
	e.observeSource(p)
	if p.name, p.mapped = e.opts.Mapper.Target(key); !p.mapped {
		return p, nil
	}
	if p.state.source.deleting {
		r.watchOver()
	}
	if p.target, p.state.target.seen, err = e.look(ctx, e.target, p.name, &r.target, &r.lookTarget); err != nil {
		return nil, fmt.Errorf("read target %s: %w", p.name, err)
	}
	p.state.target.name = e.display(p.name)
	p.want = e.opts.newIntent(p.source, p.from, p.name)
	if p.target != nil {
		e.observeTarget(p, r)
	}
	p.remember(r)
	return p, nil
}

func (e *engine) observeSource(p *pair) {
	annotations := p.source.GetAnnotations()
	p.from = origin{cluster: e.sourceUID, uid: p.source.GetUID(), name: p.key}
	s := &p.state.source
	s.exists = true
	s.deleting = p.source.GetDeletionTimestamp() != nil
	s.finalizer = slices.Contains(p.source.GetFinalizers(), e.opts.Finalizer)
	s.mark = annotations[TargetAnnotation]
	s.message = annotations[MessageAnnotation]
	p.related = e.relatedProblem(p.key)
}

func (e *engine) observeTarget(p *pair, r *record) {
	t := &p.state.target
	generation := recordedGeneration(p.target)
	manager := e.manager(p.from.uid)
	t.exists = true
	t.ours = p.from.made(p.target)
	t.adoptable = p.target.GetAnnotations()[SourceUIDAnnotation] == "" || p.from.sameSlot(p.target)
	t.uid = string(p.target.GetUID())
	t.later = t.ours && generation > p.source.GetGeneration()
	t.settled = p.target.GetAnnotations()[SpecHashAnnotation] == p.want.hash &&
		(generation == p.source.GetGeneration() || e.plainStatus.Load())
	t.held = fieldsOf(p.target, manager) != nil
	t.owned = p.want.owns(p.target, manager)
	switch {
	case t.settled && t.owned && r.accepted == "":
		r.accepted = e.acceptance(p)
	case !t.owned && t.held:
		t.owned = r.accepted == e.acceptance(p)
	}
	t.unproven = r.accepted == ""
	if deleted := p.target.GetDeletionTimestamp(); deleted != nil {
		t.deleting = true
		t.slow = time.Since(deleted.Time) >= slowPause
		t.heldBy = waitsFor(p.target)
	}
	p.give = newStatus(p.source, p.target)
	p.status = t.ours && !p.state.source.deleting && !r.acknowledged(p)
}

// acceptance identifies what we hold of a target, for an intent that the
// target's schema prunes, so that managed fields never cover it.
func (e *engine) acceptance(p *pair) string {
	return p.want.hash + hashOf(fieldsOf(p.target, e.manager(p.from.uid)))
}

func waitsFor(target *unstructured.Unstructured) string {
	if f := target.GetFinalizers(); len(f) > 0 {
		slices.Sort(f)
		return ", which is held by " + strings.Join(f, ", ")
	}
	return ""
}

// acknowledged reports whether the source's status needs no write: it is what it
// should be, or it is what became of it when we last wrote it.
func (r *record) acknowledged(p *pair) bool {
	have, _ := p.source.Object["status"].(map[string]any)
	if len(have) == 0 && len(p.give) == 0 {
		return true
	}
	want, is := hashOf(p.give), hashOf(have)
	return want == is || r.sent == want && r.got == is
}

// watchOver makes a target that is being deleted be read live now and then, in
// case the event of its end got lost.
func (r *record) watchOver() {
	if !r.looked.IsZero() && time.Since(r.looked) < livePause {
		return
	}
	r.lookTarget = r.lookTarget || !r.looked.IsZero()
	r.looked = time.Now()
}

// remember adds to the state what earlier answers said.
func (p *pair) remember(r *record) {
	if f := r.refusal; f != nil {
		p.refused, p.answer = f.reason, f.detail
		p.due = f.hash != p.want.hash || !time.Now().Before(f.next)
	}
	p.paused = time.Now().Before(r.nextFix)
	if c := r.contested; c != nil && p.target != nil && c.hash == p.want.hash && c.version == p.target.GetResourceVersion() {
		p.contested = c.detail
	}
}

// again is when to look again without an event; 0 for never.
func (p *pair) again(s step, r *record) time.Duration {
	switch {
	case s != stepWait:
		return 0
	case p.refused != "":
		return max(time.Until(r.refusal.next), time.Second)
	case p.paused:
		return max(time.Until(r.nextFix), time.Millisecond)
	default:
		return waitPause
	}
}

// look returns the latest that is known of an object: from its API server if an
// outcome is uncertain, else the newer of the watch's and the last answer to a
// write of ours.
func (e *engine) look(ctx context.Context, v *view, name cache.ObjectName, answer **unstructured.Unstructured, uncertain *bool) (*unstructured.Unstructured, sight, error) {
	if *uncertain {
		obj, err := v.live(ctx, name)
		if err != nil {
			return nil, unknown, err
		}
		*uncertain, *answer = false, nil
		if obj != nil {
			*answer = obj
		}
		return obj, live, nil
	}
	obj, version, ok := v.get(name)
	if !ok {
		return nil, unknown, nil
	}
	var known *unstructured.Unstructured
	if obj != nil {
		known, _ = obj.(*unstructured.Unstructured)
		version = known.GetResourceVersion()
	}
	if *answer != nil && newer((*answer).GetResourceVersion(), version) {
		return *answer, cached, nil
	}
	*answer = nil
	return known, cached, nil
}

// newer reports whether resourceVersion a is later than b; false if that cannot
// be told.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// A view is what is known of one resource of one cluster: one watch of all
// namespaces, or one for each that has been added.
type view struct {
	name    string
	list    lister
	live    func(context.Context, cache.ObjectName) (*unstructured.Unstructured, error)
	slim    cache.TransformFunc
	index   cache.Indexers
	changed func(metav1.Object) // called for each object that came, changed or went
	moved   func(string)        // called when a namespace, or all, became known or unknown

	mu    sync.RWMutex
	parts map[string]*part // by namespace; "" is all
}

// A lister lists and watches the objects of one namespace, or of all.
type lister struct {
	list    func(context.Context, string, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, string, metav1.ListOptions) (watch.Interface, error)
	example runtime.Object
	client  any
}

// A part of a view is one watch.
type part struct {
	namespace string
	informer  cache.SharedIndexInformer
	synced    cache.DoneChecker
	stop      context.CancelFunc
	done      chan struct{}

	mu  sync.Mutex
	err error
}

// get returns the object called name, and the version of the view if there is
// none; false if that is not known.
func (v *view) get(name cache.ObjectName) (obj any, version string, ok bool) {
	p := v.part(name.Namespace)
	if p == nil || !p.known() {
		return nil, "", false
	}
	store := p.informer.GetStore()
	version = store.LastStoreSyncResourceVersion() // before the read, so that it is not too new
	obj, exists, err := store.GetByKey(name.String())
	if err != nil || !exists {
		return nil, version, err == nil
	}
	return obj, version, true
}

func (v *view) part(namespace string) *part {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if p := v.parts[""]; p != nil {
		return p
	}
	return v.parts[namespace]
}

// all returns the parts of the view.
func (v *view) all() []*part {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]*part, 0, len(v.parts))
	for _, p := range v.parts {
		out = append(out, p)
	}
	return out
}

// by returns the objects with an indexed value.
func (v *view) by(index, value string) []any {
	var out []any
	for _, p := range v.all() {
		found, err := p.informer.GetIndexer().ByIndex(index, value)
		if err == nil {
			out = append(out, found...)
		}
	}
	return out
}

// state reports whether every part is known, and why not.
func (v *view) state() (bool, error) {
	known := true
	for _, p := range v.all() {
		p.mu.Lock()
		err := p.err
		p.mu.Unlock()
		if err != nil {
			return false, err
		}
		known = known && p.known()
	}
	return known, nil
}

func (p *part) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err == nil && cache.IsDone(p.synced)
}

// add begins to watch namespace, if it is not watched yet.
func (v *view) add(ctx context.Context, namespace string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.parts[namespace] != nil {
		return nil
	}
	p := &part{namespace: namespace, done: make(chan struct{})}
	p.informer = cache.NewSharedIndexInformerWithOptions(v.listWatch(p, namespace), v.list.example, cache.SharedIndexInformerOptions{Indexers: v.index})
	if err := errors.Join(p.informer.SetTransform(v.slim), p.informer.SetWatchErrorHandlerWithContext(p.failed)); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	registration, err := p.informer.AddEventHandler(v.handler())
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	p.synced = registration.HasSyncedChecker()
	ctx, p.stop = context.WithCancel(ctx)
	v.parts[namespace] = p
	go func() {
		defer close(p.done)
		var wg sync.WaitGroup
		wg.Go(func() { v.announce(ctx, p) })
		p.informer.RunWithContext(ctx)
		wg.Wait()
	}()
	return nil
}

// announce tells that p has become known.
func (v *view) announce(ctx context.Context, p *part) {
	select {
	case <-ctx.Done():
	case <-p.synced.Done():
		v.moved(p.namespace)
	}
}

// remove ends the watch of namespace.
func (v *view) remove(namespace string) {
	v.mu.Lock()
	p := v.parts[namespace]
	delete(v.parts, namespace)
	v.mu.Unlock()
	if p != nil {
		p.stop()
		<-p.done
	}
}

// close ends all watches.
func (v *view) close() {
	for namespace := range v.namespaces() {
		v.remove(namespace)
	}
}

// namespaces are those that are watched.
func (v *view) namespaces() map[string]bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := map[string]bool{}
	for namespace := range v.parts {
		out[namespace] = true
	}
	return out
}

// listWatch notes whether the API server lets p read: after an error what is in
// the store is not known to be true any more.
func (v *view) listWatch(p *part, namespace string) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := v.list.list(ctx, namespace, o)
			v.note(ctx, p, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := v.list.watch(ctx, namespace, o)
			v.note(ctx, p, err)
			return w, err
		},
	}, v.list.client)
}

// note records the outcome of a list or watch. An expired resourceVersion is no
// failure: a list follows.
func (v *view) note(ctx context.Context, p *part, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	p.mu.Lock()
	before := p.err
	p.err = err
	p.mu.Unlock()
	if (before == nil) != (err == nil) {
		v.moved(p.namespace)
	}
}

// failed replaces client-go's handler, which would log each attempt.
func (p *part) failed(context.Context, *cache.Reflector, error) {}

func (v *view) handler() cache.ResourceEventHandler {
	changed := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, err := meta.Accessor(obj); err == nil {
			v.changed(o)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(before, after any) {
			changed(before) // a reference may have moved, so both ends need a look
			changed(after)
		},
		DeleteFunc: changed,
	}
}

// gone turns the answer that there is no object called name into no object. That
// the resource itself is not served says nothing about its objects.
func gone(obj *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
	if err == nil {
		return obj, nil
	}
	if absent(err) {
		return nil, nil //nolint:nilnil // no object is an answer
	}
	return nil, err
}

// absent reports whether err says that an object is not there, rather than that
// its resource is not served.
func absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
