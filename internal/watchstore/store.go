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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// A key tells the watches of an API server apart.
type key struct {
	resource  schema.GroupVersionResource
	namespace string // empty for all
	form      string // of what is kept of an object
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
	answered   func() // has others asked that were refused too
	dictionary *dictionary
	share      *kubeconfig.Share // of what may be kept; nil without bounds
	pauses     Pauses
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
	changed time.Time                                      // when that was learned
	current watch.Interface                                // nil before the first
	expired bool                                           // they are to be listed anew
	away    bool                                           // the API server may have been restored from a backup since they were listed or watched
	synced  bool                                           // the objects have been listed completely
	err     error                                          // why the objects may have changed unseen
	ended   bool                                           // no calls begin any more
}

// A Follower is told what a Store sees.
type Follower interface {
	// Changed follows a change of an object; nil for none.
	Changed(name cache.ObjectName, before, after metav1.ObjectMetaAccessor, initial bool)
	// Ended precedes the change of an object that the watch has shown to be deleted, with
	// the state in which it was. A list that lacks an object shows no such thing.
	Ended(last metav1.Object)
	// Turned follows the store becoming known, or unknown, or unknown for a reason of another kind.
	Turned(known bool)
	// Renewed follows the begin of a watch.
	Renewed()
	// Shrank precedes the changes of a list that lacks so much of what was there
	// that it may be of a cluster that was restored from a backup.
	Shrank()
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

// Names returns the names of all objects, in order.
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

// begin counts a call; false if there may be none any more.
func (s *Store) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.calls.Add(1)
	}
	return !s.ended
}

// errEnded is what a reflector hears after its end. Of other errors it would make
// something: log them, and sleep for as long as a clock of the whole process says.
var errEnded error = apierrors.NewResourceExpired("the store has ended")

// note records that the store can be trusted, or why it cannot.
func (s *Store) note(err error) {
	s.mu.Lock()
	before := s.err
	s.err = err
	wasRefused := s.pauses.refused.Load()
	s.pauses.count(err != nil && isRefusal(err))
	synced := s.synced
	s.mu.Unlock()
	if wasRefused && err == nil {
		s.answered()
	}
	if (before == nil) != (err == nil) || fates.Of(before).Word() != fates.Of(err).Word() {
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

// Wake has what was refused be asked again at once, as when rights have come back.
func (s *Store) Wake() { s.pauses.Wake() }

// Relist lists all objects anew, once for each schema: another one fills in and drops
// fields of objects that have not been written.
func (s *Store) Relist(schema string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.schema == schema {
		return
	}
	s.schema, s.changed, s.expired = schema, time.Now(), true
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

// settling is how long after it has published the document of a schema an API server may begin to serve that,
// and end the watches that go on under the former one: for these it waits up to two minutes.
const settling = 5 * time.Minute

// cut notes that a watch ended before its time, as when its API server stops. An API server that is busy serves a
// schema later than its document says so. Until it ends the watch, that shows what is written without the new
// fields, and a watch that goes on from there does not show it again.
func (s *Store) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = true
	s.expired = s.expired || time.Since(s.changed) < settling
}

// ByName is an order in which objects are gone through, so that the same things happen in
// the same order.
func ByName(a, b cache.ObjectName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func inOrder[T any](objects map[cache.ObjectName]T) []cache.ObjectName {
	return slices.SortedFunc(maps.Keys(objects), ByName)
}
