// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// A key tells the watches of an API server apart.
type key struct {
	resource  schema.GroupVersionResource
	namespace string // empty for all
	form      string // of what is kept of an object
}

// Stores are the watches of one API server, each shared by all who want the same. The zero
// value is ready to use; its fields must not be changed once a store has been acquired.
type Stores struct {
	Budget *kubeconfig.Budget // of what may be kept; nil without bounds
	Jitter Jitter             // of the pauses between retries; nil means a random one

	dictionary dictionary

	mu  sync.Mutex
	all map[key]*Store
}

// A Source is how to list and watch the objects of a resource.
type Source struct {
	Resource  schema.GroupVersionResource
	Form      string        // names Transform: sources of the same form share watches
	Transform func(any) any // drops what nobody looks at
	List      func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error)
	Watch     func(ctx context.Context, namespace string, o metav1.ListOptions) (watch.Interface, error)
	Example   runtime.Object
	Client    any // what client-go asks for its abilities
}

// A Store is one watch, and the objects that it has seen.
type Store struct {
	key        key
	source     Source
	dictionary *dictionary
	share      *kubeconfig.Share // of what may be kept; nil without bounds
	jitter     Jitter
	users      int // under Stores.mu
	stop       context.CancelFunc
	done       chan struct{}
	calls      sync.WaitGroup // requests and watches that have not ended

	delivery sync.Mutex // held while followers are told, so that each is told all in order
	follower map[Follower]struct{}

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

// A Follower is told what a Store sees.
type Follower interface {
	// Changed follows a change of an object; nil for none.
	Changed(name cache.ObjectName, before, after metav1.ObjectMetaAccessor, initial bool)
	// Turned follows the store becoming known or unknown.
	Turned(known bool)
	// Renewed follows the begin of a watch.
	Renewed()
	// Shrank precedes the changes of a list that lacks so much of what was there
	// that it may be of a cluster that was restored from a backup.
	Shrank()
}

// Acquire returns the Store of a source and a namespace, empty for all, which runs until
// everyone has released it.
func (s *Stores) Acquire(ctx context.Context, from Source, namespace string) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{from.Resource, namespace, from.Form}
	f := s.all[k]
	if f == nil {
		f = &Store{
			key: k, source: from, dictionary: &s.dictionary, share: s.Budget.Share(k.resource.Resource), jitter: s.Jitter, done: make(chan struct{}),
			follower: map[Follower]struct{}{}, objects: map[cache.ObjectName]metav1.ObjectMetaAccessor{},
		}
		if s.all == nil {
			s.all = map[key]*Store{}
		}
		s.all[k] = f
		ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
		go f.run(ctx)
	}
	f.users++
	return f
}

// All are the stores that somebody has acquired.
func (s *Stores) All() []*Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}

// Release ends a Store if nobody else uses it, and waits until it has ended.
func (s *Stores) Release(f *Store) {
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

// Follow tells w of everything from now on. What has been seen already is told
// at once.
func (f *Store) Follow(w Follower) {
	f.delivery.Lock()
	defer f.delivery.Unlock()
	f.follower[w] = struct{}{}
	for _, name := range inOrder(f.objects) {
		w.Changed(name, nil, f.objects[name], true)
	}
	if f.Known() {
		w.Turned(true)
	}
}

// Unfollow returns when w is told nothing more.
func (f *Store) Unfollow(w Follower) {
	f.delivery.Lock()
	defer f.delivery.Unlock()
	delete(f.follower, w)
}

// Names are those of all objects, in order.
func (f *Store) Names() []cache.ObjectName {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return inOrder(f.objects)
}

// Within are the names of the objects of which belongs is true.
func (f *Store) Within(belongs func(cache.ObjectName) bool) (out []cache.ObjectName) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for name := range f.objects {
		if belongs(name) {
			out = append(out, name)
		}
	}
	return out
}

// Namespace is that of the objects, empty for all.
func (f *Store) Namespace() string { return f.key.namespace }

// Len is the number of objects.
func (f *Store) Len() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.objects)
}

// Get returns an object, and the version of the store before the look; false if
// the store is not known to be right.
func (f *Store) Get(name cache.ObjectName) (o metav1.ObjectMetaAccessor, version string, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.objects[name], f.version, f.synced && f.err == nil
}

// Lists counts how often all objects were listed.
func (f *Store) Lists() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.lists
}

// Known reports whether the store holds what the API server has.
func (f *Store) Known() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.synced && f.err == nil
}

// Err is why the store may not hold what the API server has.
func (f *Store) Err() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.err
}

func (f *Store) run(ctx context.Context) {
	defer close(f.done)
	// The reflector logs each attempt; Status tells the same once.
	quiet := logr.Discard()
	r := cache.NewReflectorWithOptions(f.listWatch(), f.source.Example, f, cache.ReflectorOptions{
		Name: f.key.resource.String(), Logger: &quiet,
		Backoff: &wait.Backoff{Duration: f.jitter.of(First, f.key, 0), Cap: Last, Factor: 2, Steps: 6},
	})
	r.RunWithContext(logr.NewContext(ctx, quiet))
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.calls.Wait() // a reflector does not wait for its lists
	f.share.Close()
}

// begin counts a call; false if there may be none any more.
func (f *Store) begin() bool {
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
func (f *Store) listWatch() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return persist(ctx, f, func() (runtime.Object, error) {
				return f.share.List(ctx, o, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return f.source.List(ctx, f.key.namespace, o)
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
				return f.source.Watch(ctx, f.key.namespace, o)
			})
			if err != nil {
				return nil, err
			}
			if o.SendInitialEvents == nil {
				f.note(nil)
			}
			return f.guard(ctx, w, dueAt(o))
		},
	}, f.source.Client)
}

// errEnded is what a reflector hears after its end. Of other errors it would make
// something: log them, and sleep for as long as a clock of the whole process says.
var errEnded error = apierrors.NewResourceExpired("the store has ended")

// persist tries until it gets an answer that a reflector has to see.
func persist[T any](ctx context.Context, f *Store, try func() (T, error)) (out T, err error) {
	if !f.begin() {
		return out, errEnded
	}
	defer f.calls.Done()
	wait := func(pause time.Duration, attempt int) time.Duration { return f.jitter.of(pause, f.key, attempt) }
	out, err = Retry(ctx, wait, f.note, try)
	if err != nil && ctx.Err() != nil {
		err = errEnded
	}
	return out, err
}

// abreast makes sure that an API server that was away has come as far as version.
// One that was restored from a backup would feed no watch from there for long.
func (f *Store) abreast(ctx context.Context, version string) error {
	f.mu.RLock()
	away := f.away
	f.mu.RUnlock()
	if !away {
		return nil
	}
	list, err := f.source.List(ctx, f.key.namespace, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if l, err := meta.ListAccessor(list); err == nil && behind(l.GetResourceVersion(), version) {
		f.note(errBehind)
		return errBehind
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = false
	return nil
}

// behind reports whether the version have is older than want, as far as they can be compared.
func behind(have, want string) bool {
	order, err := resourceversion.CompareResourceVersion(have, want)
	return err == nil && order < 0
}

// errBehind makes a reflector list anew.
var errBehind error = apierrors.NewResourceExpired("the API server is behind what was seen of it")

// note records that the store can be trusted, or why it cannot.
func (f *Store) note(err error) {
	f.mu.Lock()
	before := f.err
	f.err = err
	synced := f.synced
	f.mu.Unlock()
	if (before == nil) != (err == nil) {
		f.tell(synced && err == nil)
	}
}

func (f *Store) tell(known bool) { f.each(func(w Follower) { w.Turned(known) }) }

func (f *Store) each(call func(Follower)) {
	f.delivery.Lock()
	defer f.delivery.Unlock()
	for w := range f.follower {
		call(w)
	}
}

// Relist lists all objects anew, once for each schema: another one fills in and drops
// fields of objects that have not been written.
func (f *Store) Relist(schema string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.schema == schema || f.current == nil {
		return
	}
	f.schema, f.expired = schema, true
	f.current.Stop()
}

// stale reports whether the objects have to be listed instead of being watched on.
func (f *Store) stale() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	stale := f.expired
	f.expired = false
	return stale
}

// silent ends the trust in a watch on which nothing has come for too long: its API
// server has lost it, or went back to a backup and has not come to its version yet.
func (f *Store) silent() {
	f.note(errSilent)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expired = true
}

// errSilent is the end of a watch on which nothing has come for too long.
var errSilent = errors.New("watch has been silent for too long")

// Silence is how long a watch may say nothing; API servers send a bookmark each
// minute.
const Silence = 3 * time.Minute

// cut notes that a watch ended before its time, as when its API server stops.
func (f *Store) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = true
}

// A guarded watch ends itself when it is silent for too long.
type guarded struct {
	watch.Interface
	store *Store
	due   time.Time // when its API server ends it
	out   chan watch.Event
	quit  chan struct{}
	once  sync.Once
}

// dueAt is when a watch that begins now is ended by its API server.
func dueAt(o metav1.ListOptions) time.Time {
	if o.TimeoutSeconds == nil {
		return time.Now()
	}
	return time.Now().Add(time.Duration(*o.TimeoutSeconds) * time.Second)
}

// guard guards w, which should last until due, for as long as the store runs.
func (f *Store) guard(ctx context.Context, w watch.Interface, due time.Time) (watch.Interface, error) {
	if !f.begin() {
		w.Stop()
		return nil, errEnded
	}
	g := &guarded{Interface: w, store: f, due: due, out: make(chan watch.Event, 16), quit: make(chan struct{})}
	f.mu.Lock()
	f.current = g
	f.mu.Unlock()
	f.each(Follower.Renewed)
	go func() {
		defer f.calls.Done()
		g.forward(ctx)
	}()
	return g, nil
}

func (g *guarded) forward(ctx context.Context) {
	defer close(g.out)
	defer g.Interface.Stop()
	timer := time.NewTimer(Silence)
	defer timer.Stop()
	for {
		select {
		case e, ok := <-g.Interface.ResultChan():
			if !ok && time.Now().Before(g.due) {
				g.store.cut()
			}
			if !ok || !g.pass(ctx, g.store.share.Pass(e)) {
				return
			}
			timer.Reset(Silence)
		case <-timer.C:
			g.store.silent()
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
func (f *Store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return f.keep(obj), nil }
}

// keep turns an object into what is kept of it.
func (f *Store) keep(obj any) any {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if _, ok := obj.(*Record); ok {
		return obj
	}
	obj = f.source.Transform(obj)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if c, ok := f.dictionary.record(u); ok {
			return c
		}
	}
	return obj
}

// Add implements cache.ReflectorStore.
func (f *Store) Add(obj any) error { return f.Update(obj) }

// Update implements cache.ReflectorStore.
func (f *Store) Update(obj any) error {
	after, err := f.take(obj)
	if err != nil {
		return err
	}
	f.delivery.Lock()
	defer f.delivery.Unlock()
	f.put(after)
	return nil
}

func (f *Store) take(obj any) (metav1.ObjectMetaAccessor, error) {
	kept := f.keep(obj)
	c, isRecord := kept.(*Record)
	if u, ok := obj.(*unstructured.Unstructured); ok && isRecord {
		f.dictionary.heat(c, u) // it is about to be looked at
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
func (f *Store) put(after metav1.ObjectMetaAccessor) {
	o := after.GetObjectMeta()
	name := cache.MetaObjectToName(o)
	f.mu.Lock()
	before := f.objects[name]
	f.objects[name] = after
	f.version = o.GetResourceVersion()
	initial := !f.synced
	f.mu.Unlock()
	for w := range f.follower {
		w.Changed(name, before, after, initial)
	}
}

// Delete implements cache.ReflectorStore.
func (f *Store) Delete(obj any) error {
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
		w.Changed(name, before, nil, false)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *Store) Replace(list []any, version string) error {
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

// exchange makes the store hold what has been listed, all at once. An object of the
// same version may be another one: API servers list anew when a schema changes,
// which fills in and drops fields.
func (f *Store) exchange(listed map[cache.ObjectName]metav1.ObjectMetaAccessor, version string) {
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
			w.Shrank()
		}
		for _, name := range inOrder(past) {
			if listed[name] == nil {
				w.Changed(name, past[name], nil, false)
			}
		}
		for _, name := range inOrder(listed) {
			before, after := past[name], listed[name]
			w.Changed(name, before, after, initial || before != nil && before.GetObjectMeta().GetResourceVersion() == after.GetObjectMeta().GetResourceVersion())
		}
	}
}

// ByName is an order in which objects are gone through, so that the same things happen in
// the same order.
func ByName(a, b cache.ObjectName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func inOrder[T any](objects map[cache.ObjectName]T) []cache.ObjectName {
	return slices.SortedFunc(maps.Keys(objects), ByName)
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
func (f *Store) UpdateResourceVersion(version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = version
}

// Resync implements cache.ReflectorStore.
func (f *Store) Resync() error { return nil }
