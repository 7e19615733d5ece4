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
	Transform func(any) any // drops what no watcher reads
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
	// Ended precedes the change of an object that the watch has shown to be deleted, with
	// the state in which it was. A list that lacks an object shows no such thing.
	Ended(last metav1.Object)
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

// All are the stores that are acquired.
func (s *Stores) All() []*Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}

// Release ends a Store if it has no other user, and waits until it has ended.
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
func (s *Store) Follow(w Follower) {
	s.delivery.Lock()
	defer s.delivery.Unlock()
	s.follower[w] = struct{}{}
	for _, name := range inOrder(s.objects) {
		w.Changed(name, nil, s.objects[name], true)
	}
	if s.Known() {
		w.Turned(true)
	}
}

// Unfollow returns when w is told nothing more.
func (s *Store) Unfollow(w Follower) {
	s.delivery.Lock()
	defer s.delivery.Unlock()
	delete(s.follower, w)
}

// Names are those of all objects, in order.
func (s *Store) Names() []cache.ObjectName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return inOrder(s.objects)
}

// Within are the names of the objects of which belongs is true.
func (s *Store) Within(belongs func(cache.ObjectName) bool) (out []cache.ObjectName) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name := range s.objects {
		if belongs(name) {
			out = append(out, name)
		}
	}
	return out
}

// Namespace is that of the objects, empty for all.
func (s *Store) Namespace() string { return s.key.namespace }

// Len is the number of objects.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.objects)
}

// Get returns an object, and the version of the store before the look; false if
// the store is not known to be right.
func (s *Store) Get(name cache.ObjectName) (o metav1.ObjectMetaAccessor, version string, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[name], s.version, s.synced && s.err == nil
}

// Lists counts how often all objects were listed.
func (s *Store) Lists() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lists
}

// Known reports whether the store holds what the API server has.
func (s *Store) Known() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.synced && s.err == nil
}

// Err is why the store may not hold what the API server has.
func (s *Store) Err() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.err
}

func (s *Store) run(ctx context.Context) {
	defer close(s.done)
	// The reflector logs each attempt; Status tells the same once.
	quiet := logr.Discard()
	r := cache.NewReflectorWithOptions(s.listWatch(), s.source.Example, s, cache.ReflectorOptions{
		Name: s.key.resource.String(), Logger: &quiet,
		Backoff: &wait.Backoff{Duration: s.jitter.of(First, s.key, 0), Cap: Last, Factor: 2, Steps: 6},
	})
	r.RunWithContext(logr.NewContext(ctx, quiet))
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.calls.Wait() // a reflector does not wait for its lists
	s.share.Close()
}

// begin counts a call; false if there may be none any more.
func (s *Store) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.calls.Add(1)
	}
	return !s.ended
}

// listWatch notes whether the API server lets f read: after an error what has
// been seen is not known to be true any more. It retries by itself what a
// reflector would give ever more time.
func (s *Store) listWatch() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return persist(ctx, s, func() (runtime.Object, error) {
				return s.share.List(ctx, o, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return s.source.List(ctx, s.key.namespace, o)
				})
			})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if s.stale() && o.SendInitialEvents == nil {
				return nil, errEnded
			}
			w, err := persist(ctx, s, func() (watch.Interface, error) {
				if err := s.share.Begin(o); err != nil {
					return nil, err
				}
				if err := s.abreast(ctx, o.ResourceVersion); err != nil {
					return nil, err
				}
				return s.source.Watch(ctx, s.key.namespace, o)
			})
			if err != nil {
				return nil, err
			}
			if o.SendInitialEvents == nil {
				s.note(nil)
			}
			return s.guard(ctx, w, dueAt(o))
		},
	}, s.source.Client)
}

// errEnded is what a reflector hears after its end. Of other errors it would make
// something: log them, and sleep for as long as a clock of the whole process says.
var errEnded error = apierrors.NewResourceExpired("the store has ended")

// persist tries until it gets an answer that a reflector has to see.
func persist[T any](ctx context.Context, s *Store, try func() (T, error)) (out T, err error) {
	if !s.begin() {
		return out, errEnded
	}
	defer s.calls.Done()
	wait := func(pause time.Duration, attempt int) time.Duration { return s.jitter.of(pause, s.key, attempt) }
	out, err = Retry(ctx, wait, s.note, try)
	if err != nil && ctx.Err() != nil {
		err = errEnded
	}
	return out, err
}

// abreast makes sure that an API server that was away has come as far as version.
// One that was restored from a backup would feed no watch from there for long.
func (s *Store) abreast(ctx context.Context, version string) error {
	s.mu.RLock()
	away := s.away
	s.mu.RUnlock()
	if !away {
		return nil
	}
	list, err := s.source.List(ctx, s.key.namespace, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if l, err := meta.ListAccessor(list); err == nil && behind(l.GetResourceVersion(), version) {
		s.note(errBehind)
		return errBehind
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = false
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
func (s *Store) note(err error) {
	s.mu.Lock()
	before := s.err
	s.err = err
	synced := s.synced
	s.mu.Unlock()
	if (before == nil) != (err == nil) {
		s.tell(synced && err == nil)
	}
}

func (s *Store) tell(known bool) { s.each(func(w Follower) { w.Turned(known) }) }

func (s *Store) each(call func(Follower)) {
	s.delivery.Lock()
	defer s.delivery.Unlock()
	for w := range s.follower {
		call(w)
	}
}

// Relist lists all objects anew, once for each schema: another one fills in and drops
// fields of objects that have not been written.
func (s *Store) Relist(schema string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.schema == schema {
		return
	}
	s.schema, s.expired = schema, true
	if s.current != nil {
		s.current.Stop()
	}
}

// stale reports whether the objects have to be listed instead of being watched on.
func (s *Store) stale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	stale := s.expired
	s.expired = false
	return stale
}

// silent ends the trust in a watch on which nothing has come for too long: its API
// server has lost it, or went back to a backup and has not come to its version yet.
func (s *Store) silent() {
	s.note(errSilent)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = true
}

// errSilent is the end of a watch on which nothing has come for too long.
var errSilent = errors.New("watch has been silent for too long")

// Silence is how long a watch may say nothing; API servers send a bookmark each
// minute.
const Silence = 3 * time.Minute

// cut notes that a watch ended before its time, as when its API server stops.
func (s *Store) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = true
}

// Transformer implements cache.TransformingStore, so that a list never is in
// memory as a whole.
func (s *Store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.keep(obj), nil }
}

// keep turns an object into what is kept of it.
func (s *Store) keep(obj any) any {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if _, ok := obj.(*Record); ok {
		return obj
	}
	obj = s.source.Transform(obj)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if c, ok := s.dictionary.record(u); ok {
			return c
		}
	}
	return obj
}

// Add implements cache.ReflectorStore.
func (s *Store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *Store) Update(obj any) error {
	after, err := s.take(obj)
	if err != nil {
		return err
	}
	s.delivery.Lock()
	defer s.delivery.Unlock()
	s.put(after)
	return nil
}

func (s *Store) take(obj any) (metav1.ObjectMetaAccessor, error) {
	kept := s.keep(obj)
	c, isRecord := kept.(*Record)
	if u, ok := obj.(*unstructured.Unstructured); ok && isRecord {
		s.dictionary.heat(c, u) // it is about to be looked at
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
func (s *Store) put(after metav1.ObjectMetaAccessor) {
	o := after.GetObjectMeta()
	name := cache.MetaObjectToName(o)
	s.mu.Lock()
	before := s.objects[name]
	s.objects[name] = after
	s.version = o.GetResourceVersion()
	initial := !s.synced
	s.mu.Unlock()
	for w := range s.follower {
		w.Changed(name, before, after, initial)
	}
}

// Delete implements cache.ReflectorStore.
func (s *Store) Delete(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	name := cache.MetaObjectToName(o)
	s.delivery.Lock()
	defer s.delivery.Unlock()
	for w := range s.follower {
		w.Ended(o)
	}
	s.mu.Lock()
	before, ok := s.objects[name]
	delete(s.objects, name)
	s.version = o.GetResourceVersion()
	s.mu.Unlock()
	if !ok {
		return nil
	}
	for w := range s.follower {
		w.Changed(name, before, nil, false)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *Store) Replace(list []any, version string) error {
	kept := make(map[cache.ObjectName]metav1.ObjectMetaAccessor, len(list))
	for _, obj := range list {
		a, err := accessor(s.keep(obj))
		if err != nil {
			return err
		}
		kept[cache.MetaObjectToName(a.GetObjectMeta())] = a
	}
	s.exchange(kept, version)
	s.tell(true)
	return nil
}

// exchange makes the store hold what has been listed, all at once. An object of the
// same version may be another one: API servers list anew when a schema changes,
// which fills in and drops fields.
func (s *Store) exchange(listed map[cache.ObjectName]metav1.ObjectMetaAccessor, version string) {
	s.delivery.Lock()
	defer s.delivery.Unlock()
	s.mu.Lock()
	past, initial := s.objects, !s.synced
	s.objects, s.version, s.synced, s.err, s.away = listed, version, true, nil, false
	s.lists++
	s.mu.Unlock()
	shrank := lacks(past, listed)*shrinkShare > len(past)
	for w := range s.follower {
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
func (s *Store) UpdateResourceVersion(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// Resync implements cache.ReflectorStore.
func (s *Store) Resync() error { return nil }
