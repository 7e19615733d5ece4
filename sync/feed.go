// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// A feedKey tells the watches of a cluster apart.
type feedKey struct {
	resource  schema.GroupVersionResource
	namespace string // empty for all
	form      string // of what is kept of an object
}

// feeds are the watches of one cluster, each shared by all who want the same.
type feeds struct {
	words   *words
	silence time.Duration // how long a watch may say nothing
	timing  timing
	budget  *kubeconfig.Budget // of what may be kept; nil without bounds

	mu  sync.Mutex
	all map[feedKey]*feed
}

func newFeeds() *feeds {
	return &feeds{words: newWords(), silence: silence, all: map[feedKey]*feed{}}
}

// A feed is one watch, and the objects that it has seen. It implements
// cache.ReflectorStore.
type feed struct {
	key   feedKey
	list  lister
	words *words
	share *kubeconfig.Share // of what may be kept; nil without bounds
	quiet time.Duration     // how long a watch may say nothing
	timing
	users int // under feeds.mu
	stop  context.CancelFunc
	done  chan struct{}
	calls sync.WaitGroup // requests and watches that have not ended

	delivery sync.Mutex // held while followers are told, so that each is told all in order
	follower map[follower]struct{}

	mu      sync.RWMutex
	objects map[cache.ObjectName]metav1.ObjectMetaAccessor // changed with delivery held too
	version string                                         // of the latest event or bookmark
	lists   int                                            // how often all objects were listed
	schema  string                                         // as of which schema they are to be listed
	current *guarded
	expired bool  // they are to be listed anew
	away    bool  // the API server may have been restored from a backup since they were listed or watched
	synced  bool  // the objects have been listed completely
	err     error // why the objects may have changed unseen
	ended   bool  // no calls begin any more
}

// A follower is told what a feed sees.
type follower interface {
	// changed follows a change of an object; nil for none.
	changed(name cache.ObjectName, before, after metav1.ObjectMetaAccessor, initial bool)
	// turned follows the feed becoming known or unknown.
	turned(known bool)
	// renewed follows the begin of a watch.
	renewed()
	// shrank precedes the changes of a list that lacks so much of what was there
	// that it may be of a cluster that was restored from a backup.
	shrank()
}

// acquire returns the feed of key, which runs until everyone has released it.
func (s *feeds) acquire(ctx context.Context, key feedKey, list lister) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[key]
	if f == nil {
		f = &feed{
			key: key, list: list, words: s.words, share: s.budget.Share(key.resource.Resource), quiet: s.silence, timing: s.timing, done: make(chan struct{}),
			follower: map[follower]struct{}{}, objects: map[cache.ObjectName]metav1.ObjectMetaAccessor{},
		}
		s.all[key] = f
		ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
		go f.run(ctx)
	}
	f.users++
	return f
}

// release ends the feed if nobody else uses it, and waits until it has ended.
func (s *feeds) release(f *feed) {
	s.mu.Lock()
	f.users--
	last := f.users == 0
	if last {
		delete(s.all, f.key)
	}
	s.mu.Unlock()
	if last {
		f.stop()
		<-f.done
	}
}

// follow tells w of everything from now on. What has been seen already is told
// at once.
func (f *feed) follow(w follower) {
	f.delivery.Lock()
	defer f.delivery.Unlock()
	f.follower[w] = struct{}{}
	for _, name := range inOrder(f.objects) {
		w.changed(name, nil, f.objects[name], true)
	}
	if f.known() {
		w.turned(true)
	}
}

// unfollow returns when w is told nothing more.
func (f *feed) unfollow(w follower) {
	f.delivery.Lock()
	defer f.delivery.Unlock()
	delete(f.follower, w)
}

func (f *feed) names() []cache.ObjectName {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return inOrder(f.objects)
}

func (f *feed) count() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.objects)
}

// get returns an object, and the version of the feed before the look; false if
// the feed is not known to be right.
func (f *feed) get(name cache.ObjectName) (o metav1.ObjectMetaAccessor, version string, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.objects[name], f.version, f.synced && f.err == nil
}

// listed counts how often all objects were listed.
func (f *feed) listed() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.lists
}

func (f *feed) known() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.synced && f.err == nil
}

func (f *feed) problem() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.err
}

// Retries after a failure come soon, since users wait for the end of an outage,
// and spread out, since others wait too.
const (
	retryFirst = 100 * time.Millisecond
	retryLast  = 2500 * time.Millisecond
)

func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	// The reflector logs each attempt; Status tells the same once.
	quiet := logr.Discard()
	r := cache.NewReflectorWithOptions(f.listWatch(), f.list.example, f, cache.ReflectorOptions{
		Name: f.key.resource.String(), Logger: &quiet,
		Backoff: &wait.Backoff{Duration: f.jitter(retryFirst, f.key, 0), Cap: retryLast, Factor: 2, Steps: 6},
	})
	r.RunWithContext(logr.NewContext(ctx, quiet))
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.calls.Wait() // a reflector does not wait for its lists
	f.share.Close()
}

// begin counts a call; false if there may be none any more.
func (f *feed) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.calls.Add(1)
	}
	return !f.ended
}

// listWatch notes whether the API server lets f read: after an error what has
// been seen is not known to be true any more. It retries by itself what a
// reflector would give ever more time.
func (f *feed) listWatch() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return persist(ctx, f, func() (runtime.Object, error) {
				return f.share.List(ctx, o, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return f.list.list(ctx, f.key.namespace, o)
				})
			})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents == nil && f.stale() {
				return nil, errEnded
			}
			w, err := persist(ctx, f, func() (watch.Interface, error) {
				if err := f.share.Begin(o); err != nil {
					return nil, err
				}
				if err := f.abreast(ctx, o.ResourceVersion); err != nil {
					return nil, err
				}
				return f.list.watch(ctx, f.key.namespace, o)
			})
			if err != nil {
				return nil, err
			}
			if o.SendInitialEvents == nil {
				f.note(nil)
			}
			return f.guard(ctx, w, dueAt(o))
		},
	}, f.list.client)
}

// errEnded is what a reflector hears after its end. Of other errors it would make
// something: log them, and sleep for as long as a clock of the whole process says.
var errEnded error = apierrors.NewResourceExpired("the feed has ended")

// persist tries until it gets an answer that a reflector has to see.
func persist[T any](ctx context.Context, f *feed, try func() (T, error)) (out T, err error) {
	if !f.begin() {
		return out, errEnded
	}
	defer f.calls.Done()
	for pause, attempt := retryFirst, 1; ; pause, attempt = min(2*pause, retryLast), attempt+1 {
		out, err = try()
		switch {
		case err != nil && ctx.Err() != nil:
			return out, errEnded
		case err == nil, isAnswer(err):
			return out, err
		}
		f.note(err)
		select {
		case <-ctx.Done():
			return out, errEnded
		case <-time.After(f.jitter(pause, f.key, attempt)):
		}
	}
}

// isAnswer reports whether err tells a reflector to ask for something else.
func isAnswer(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// abreast makes sure that an API server that was away has come as far as version.
// One that was restored from a backup would feed no watch from there for long.
func (f *feed) abreast(ctx context.Context, version string) error {
	f.mu.RLock()
	away := f.away
	f.mu.RUnlock()
	if !away {
		return nil
	}
	list, err := f.list.list(ctx, f.key.namespace, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if l, err := meta.ListAccessor(list); err == nil && newer(version, l.GetResourceVersion()) {
		f.note(errBehind)
		return errBehind
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = false
	return nil
}

// errBehind makes a reflector list anew.
var errBehind error = apierrors.NewResourceExpired("the API server is behind what was seen of it")

// note records that the feed can be trusted, or why it cannot.
func (f *feed) note(err error) {
	f.mu.Lock()
	before := f.err
	f.err = err
	synced := f.synced
	f.mu.Unlock()
	if (before == nil) != (err == nil) {
		f.tell(synced && err == nil)
	}
}

func (f *feed) tell(known bool) { f.each(func(w follower) { w.turned(known) }) }

func (f *feed) each(call func(follower)) {
	f.delivery.Lock()
	defer f.delivery.Unlock()
	for w := range f.follower {
		call(w)
	}
}

// relist lists all objects anew, once for each schema: another one fills in and drops
// fields of objects that have not been written.
func (f *feed) relist(schema string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.schema == schema || f.current == nil {
		return
	}
	f.schema, f.expired = schema, true
	f.current.Stop()
}

// stale reports whether the objects have to be listed instead of being watched on.
func (f *feed) stale() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	stale := f.expired
	f.expired = false
	return stale
}

// silent ends the trust in a watch on which nothing has come for too long: its API
// server has lost it, or went back to a backup and has not come to its version yet.
func (f *feed) silent() {
	f.note(errSilent)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expired = true
}

// errSilent is the end of a watch on which nothing has come for too long.
var errSilent = errors.New("watch has been silent for too long")

// silence is how long a watch may say nothing; API servers send a bookmark each
// minute.
const silence = 3 * time.Minute

// cut notes that a watch ended before its time, as when its API server stops.
func (f *feed) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = true
}

// A guarded watch ends itself when it is silent for too long.
type guarded struct {
	watch.Interface
	feed *feed
	due  time.Time // when its API server ends it
	out  chan watch.Event
	quit chan struct{}
	once sync.Once
}

// dueAt is when a watch that begins now is ended by its API server.
func dueAt(o metav1.ListOptions) time.Time {
	if o.TimeoutSeconds == nil {
		return time.Now()
	}
	return time.Now().Add(time.Duration(*o.TimeoutSeconds) * time.Second)
}

// guard guards w, which should last until due, for as long as the feed runs.
func (f *feed) guard(ctx context.Context, w watch.Interface, due time.Time) (watch.Interface, error) {
	if !f.begin() {
		w.Stop()
		return nil, errEnded
	}
	g := &guarded{Interface: w, feed: f, due: due, out: make(chan watch.Event, 16), quit: make(chan struct{})}
	f.mu.Lock()
	f.current = g
	f.mu.Unlock()
	f.each(follower.renewed)
	go func() {
		defer f.calls.Done()
		g.forward(ctx)
	}()
	return g, nil
}

func (g *guarded) forward(ctx context.Context) {
	defer close(g.out)
	defer g.Interface.Stop()
	timer := time.NewTimer(g.feed.quiet)
	defer timer.Stop()
	for {
		select {
		case e, ok := <-g.Interface.ResultChan():
			if !ok && time.Now().Before(g.due) {
				g.feed.cut()
			}
			if !ok || !g.pass(ctx, g.feed.share.Pass(e)) {
				return
			}
			timer.Reset(g.feed.quiet)
		case <-timer.C:
			g.feed.silent()
			return
		case <-g.quit:
			return
		case <-ctx.Done():
			return
		}
	}
}

// pass hands e on, and reports whether anybody still wants events.
func (g *guarded) pass(ctx context.Context, e watch.Event) bool {
	select {
	case g.out <- e:
		return true
	case <-g.quit:
		return false
	case <-ctx.Done():
		return false
	}
}

// Stop implements watch.Interface.
func (g *guarded) Stop() { g.once.Do(func() { close(g.quit) }) }

// ResultChan implements watch.Interface.
func (g *guarded) ResultChan() <-chan watch.Event { return g.out }

// Transformer implements cache.TransformingStore, so that a list never is in
// memory as a whole.
func (f *feed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return f.keep(obj), nil }
}

// keep turns an object into what is kept of it.
func (f *feed) keep(obj any) any {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if _, ok := obj.(*compact); ok {
		return obj
	}
	obj = f.list.slim(obj)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if c, ok := f.words.compact(u); ok {
			return c
		}
	}
	return obj
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(obj any) error { return f.Update(obj) }

// Update implements cache.ReflectorStore.
func (f *feed) Update(obj any) error {
	after, err := f.take(obj)
	if err != nil {
		return err
	}
	f.delivery.Lock()
	defer f.delivery.Unlock()
	f.put(after)
	return nil
}

func (f *feed) take(obj any) (metav1.ObjectMetaAccessor, error) {
	kept := f.keep(obj)
	c, isCompact := kept.(*compact)
	if u, ok := obj.(*unstructured.Unstructured); ok && isCompact {
		f.words.heat(c, u) // it is about to be looked at
	}
	return accessor(kept)
}

func accessor(obj any) (metav1.ObjectMetaAccessor, error) {
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		return a, nil
	}
	o, err := meta.Accessor(obj)
	return whole{o}, err
}

// whole is an object that has no compact form.
type whole struct{ metav1.Object }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (w whole) GetObjectMeta() metav1.Object { return w.Object }

// put stores an object and tells the followers. It needs delivery.
func (f *feed) put(after metav1.ObjectMetaAccessor) {
	o := after.GetObjectMeta()
	name := cache.MetaObjectToName(o)
	f.mu.Lock()
	before := f.objects[name]
	f.objects[name] = after
	f.version = o.GetResourceVersion()
	initial := !f.synced
	f.mu.Unlock()
	for w := range f.follower {
		w.changed(name, before, after, initial)
	}
}

// Delete implements cache.ReflectorStore.
func (f *feed) Delete(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	name := cache.MetaObjectToName(o)
	f.delivery.Lock()
	defer f.delivery.Unlock()
	f.mu.Lock()
	before, ok := f.objects[name]
	delete(f.objects, name)
	f.version = o.GetResourceVersion()
	f.mu.Unlock()
	if !ok {
		return nil
	}
	for w := range f.follower {
		w.changed(name, before, nil, false)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *feed) Replace(list []any, version string) error {
	kept := make(map[cache.ObjectName]metav1.ObjectMetaAccessor, len(list))
	for _, obj := range list {
		a, err := accessor(f.keep(obj))
		if err != nil {
			return err
		}
		kept[cache.MetaObjectToName(a.GetObjectMeta())] = a
	}
	f.exchange(kept, version)
	f.tell(true)
	return nil
}

// exchange makes the feed hold what has been listed, all at once. An object of the
// same version may be another one: API servers list anew when a schema changes,
// which fills in and drops fields.
func (f *feed) exchange(listed map[cache.ObjectName]metav1.ObjectMetaAccessor, version string) {
	f.delivery.Lock()
	defer f.delivery.Unlock()
	f.mu.Lock()
	past, initial := f.objects, !f.synced
	f.objects, f.version, f.synced, f.err, f.away = listed, version, true, nil, false
	f.lists++
	f.mu.Unlock()
	shrank := lacks(past, listed)*shrinkShare > len(past)
	for w := range f.follower {
		if shrank {
			w.shrank()
		}
		for _, name := range inOrder(past) {
			if listed[name] == nil {
				w.changed(name, past[name], nil, false)
			}
		}
		for _, name := range inOrder(listed) {
			before, after := past[name], listed[name]
			w.changed(name, before, after, initial || before != nil && before.GetObjectMeta().GetResourceVersion() == after.GetObjectMeta().GetResourceVersion())
		}
	}
}

func inOrder[T any](objects map[cache.ObjectName]T) []cache.ObjectName {
	return slices.SortedFunc(maps.Keys(objects), byName)
}

// shrinkShare is the share of objects that a list may lack: one in so many.
const shrinkShare = 10

// lacks is how many objects of past are not listed.
func lacks(past, listed map[cache.ObjectName]metav1.ObjectMetaAccessor) (n int) {
	for name := range past {
		if listed[name] == nil {
			n++
		}
	}
	return n
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater.
func (f *feed) UpdateResourceVersion(version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = version
}

// Resync implements cache.ReflectorStore.
func (f *feed) Resync() error { return nil }
