// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	gosync "sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// vanish takes a source away by force, with no konnector holding it again in between.
func (w *world) vanish(name string) {
	w.Helper()
	sources := w.source.Resource(widgets).Namespace(w.sourceNS)
	for {
		u, err := sources.Patch(w.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{FieldManager: "someone"})
		if err != nil {
			w.Fatal(err)
		}
		version := u.GetResourceVersion()
		err = sources.Delete(w.Context(), name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
	}
}

// left are the targets, of w0 to w2, that are there.
func (w *world) left() (names []string) {
	w.Helper()
	for i := range 3 {
		if name := fmt.Sprintf("w%d", i); w.targetOf(name) != nil {
			names = append(names, name)
		}
	}
	return names
}

// A target whose source vanished is reported, or by policy deleted, when its
// source was not there for long enough, and both clusters said so themselves.
func TestOrphans(t *testing.T) {
	all := []string{"w0", "w1", "w2"}
	getless := func(_ context.Context, r fakecluster.Request, do func() error) error {
		if r.Resource == widgets && r.Verb == "get" {
			return forbidden(r)
		}
		return do()
	}
	for name, test := range map[string]struct {
		policy  OrphanPolicy
		prepare func(*world, *Sync) // while the grace lasts
		left    []string            // w0 vanished
		orphans int
	}{
		"reported": {"", func(*world, *Sync) {}, all, 1},
		"deleted":  {OrphanDelete, func(*world, *Sync) {}, []string{"w1", "w2"}, 0},
		"a new source has its name": {OrphanDelete, func(w *world, _ *Sync) {
			w.create(w.source, w.sourceNS, w.widget("w0", `{"size":"large"}`, ``))
		}, all, 0},
		"a new source has its name, by policy left": {"", func(w *world, _ *Sync) {
			w.create(w.source, w.sourceNS, w.widget("w0", `{"size":"large"}`, ``))
		}, all, 0},
		"only the watch works":                {OrphanDelete, func(w *world, _ *Sync) { w.fakeSource.Intercept(getless) }, all, 0},
		"the source's cluster is another one": {OrphanDelete, func(w *world, _ *Sync) { w.replaceIdentity(w.fakeSource) }, all, 0},
		"the target's cluster is another one": {OrphanDelete, func(w *world, _ *Sync) { w.replaceIdentity(w.fakeTarget) }, all, 1},
		"the target cannot be watched for a while": {"", func(w *world, _ *Sync) {
			w.fakeTarget.Intercept(refuse(forbidden))
			time.AfterFunc(5*orphanGrace/2, func() { w.fakeTarget.Intercept(nil) })
		}, all, 1},
		"someone else's target is in its place": {OrphanDelete, func(w *world, _ *Sync) {
			w.delete(w.target, w.targetNS, "w0")
			w.create(w.target, w.targetNS, w.widget("w0", `{}`, ``))
		}, all, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				s, stop := w.sync(Options{Orphans: test.policy})
				defer stop()
				w.createMany(3)
				w.settle()
				first := w.targetOf("w0").GetUID()
				w.vanish("w0")
				time.Sleep(orphanGrace - 90*time.Second)
				if w.targetOf("w0") == nil || s.Status().Orphans != 0 {
					t.Error("the target was judged without grace")
				}
				test.prepare(w, s)
				time.Sleep(3 * orphanGrace)
				w.fakeSource.Intercept(nil)
				if diff := cmp.Diff(test.left, w.left()); diff != "" {
					t.Errorf("targets (-want +got):\n%s", diff)
				}
				if got := s.Status().Orphans; got != test.orphans {
					t.Errorf("%d orphans, want %d", got, test.orphans)
				}
				source, now := w.get(w.source, w.sourceNS, "w0"), w.targetOf("w0")
				if source != nil && (now.GetUID() == first) != (test.policy == "") {
					t.Errorf("the new source's target has UID %s, the vanished one's had %s", now.GetUID(), first)
				}
			})
		})
	}
}

// Orphans count as deletions: too many of them are held, over outages of the
// watches too.
func TestOrphansBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, limit = 25, 10
		w := newFake(t)
		_, stop := w.sync(Options{})
		w.createMany(n)
		w.settle()
		stop()
		for i := range n {
			w.vanish(fmt.Sprintf("w%d", i))
		}
		var mu gosync.Mutex
		reports := map[Reason]int{}
		s, stop := w.sync(Options{Orphans: OrphanDelete, Hooks: Hooks{Reported: func(_ context.Context, r Report) {
			mu.Lock()
			defer mu.Unlock()
			reports[r.Reason]++
		}}})
		defer stop()
		time.Sleep(3*orphanGrace + time.Second)
		if got := w.count(w.fakeTarget, w.targetNS); got != n-limit {
			t.Errorf("%d targets are left, want %d", got, n-limit)
		}
		if st := s.Status(); st.Orphans != n-limit || st.Held != n-limit {
			t.Errorf("status = %+v", st)
		}
		s.Release()
		w.until("all are gone", func() bool { return w.count(w.fakeTarget, w.targetNS) == 0 })
		w.settle()
		if st := s.Status(); st.Orphans != 0 || st.Held != 0 {
			t.Errorf("status = %+v", st)
		}
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(map[Reason]int{ReasonOrphaned: n, "": n}, reports); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

// I19: an orphan whose deletion is held is not read live for as long as that lasts, be it in the way
// of a new source or not.
func TestHeldOrphansCostNothing(t *testing.T) {
	for name, again := range map[string]bool{"its source has gone": false, "a new source has its name": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				s, stop := w.sync(Options{DeletionLimit: 1})
				defer stop()
				w.createMany(2)
				w.settle()
				w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, "w0"))
				w.settle()
				w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, "w1"))
				w.settle()
				if again {
					w.create(w.source, w.sourceNS, w.widget("w1", `{"size":"small"}`, ``))
				}
				time.Sleep(time.Hour)
				held := w.targetOf("w1").GetUID()
				var reads atomic.Int64
				count := func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "get" && r.Resource == widgets {
						reads.Add(1)
					}
					return do()
				}
				w.fakeSource.Intercept(count)
				w.fakeTarget.Intercept(count)
				time.Sleep(12 * time.Minute)
				if got := reads.Load(); got > 2 {
					t.Errorf("%d live reads in twelve minutes", got)
				}
				if s.Status().Held != 1 || w.targetOf("w0") != nil || strings.HasPrefix(w.message("w1"), string(ReasonConflict)) != again {
					t.Errorf("%d held, message %q", s.Status().Held, w.message("w1"))
				}
				if !again {
					s.Release()
				} else { // the claim says how, also after a restart
					said, writes := w.message("w1"), len(w.fakeSource.Writes())
					stop()
					_, stop = w.sync(Options{DeletionLimit: 1})
					defer stop()
					time.Sleep(time.Minute)
					if w.message("w1") != said || len(w.fakeSource.Writes()) != writes {
						t.Errorf("a restart makes %q of the message %q", w.message("w1"), said)
					}
					w.release("w1")
				}
				w.until("the held one is gone", func() bool { o := w.targetOf("w1"); return (o != nil) == again && (o == nil || o.GetUID() != held) })
			})
		})
	}
}

// Deletions that wait for hours, for a release or for a provider's finalizer, cost ever fewer live reads.
func TestLongDeletionsAreReadRarely(t *testing.T) {
	t.Parallel()
	const many = 30
	for name, c := range map[string]struct {
		opts Options
		most int64 // live reads of an object in the third hour
	}{
		"held by the breaker":  {Options{DeletionLimit: 1}, 0},
		"held by the provider": {Options{DeletionLimit: many}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				s, stop := w.sync(c.opts)
				defer stop()
				w.createMany(many)
				w.settle()
				for i := range many {
					name := fmt.Sprint("w", i)
					w.merge(w.target, w.targetNS, name, `{"metadata":{"finalizers":["example.org/provider"]}}`)
					w.delete(w.source, w.sourceNS, name)
				}
				time.Sleep(2 * time.Hour)
				var reads atomic.Int64
				w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "get" && r.Resource == widgets {
						reads.Add(1)
					}
					return do()
				})
				time.Sleep(time.Hour)
				if n := reads.Load(); n > many*c.most+10 {
					t.Errorf("%d live reads of %d targets in the third hour", n, many)
				}
				s.Release()
				time.Sleep(time.Minute)
				for i := range many {
					if u := w.targetOf(fmt.Sprint("w", i)); u == nil || u.GetDeletionTimestamp() == nil {
						t.Fatalf("released, and w%d is not being deleted", i)
					}
					w.merge(w.target, w.targetNS, fmt.Sprint("w", i), `{"metadata":{"finalizers":null}}`)
				}
				w.until("all are gone", func() bool { objects, _ := w.fakeSource.Objects(widgets); return len(objects) == 0 })
			})
		})
	}
}

// I20: only the watch shows that a source was deleted as its finalizer came. Where it has expired, what a
// list lacks has gone without letting its target go: that stays, and is told after the grace.
func TestEndThatNoWatchShows(t *testing.T) {
	for name, test := range map[string]struct{ running, expired, busy bool }{
		"while the Sync was stopped, and shown":                           {false, false, false},
		"while the Sync was stopped, and shown once there is time for it": {false, false, true},
		"while the Sync was stopped, and expired":                         {false, true, false},
		"while the Sync ran, and expired":                                 {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var told atomic.Bool
				opts := Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) { told.Store(r.Reason == ReasonOrphaned) }}}
				s, stop := w.sync(opts)
				w.createMany(1)
				w.settle()
				w.fakeSource.Lag(widgets, true) // for the watches that there are
				if !test.running {
					stop()
				}
				w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, "w0"))
				if test.expired {
					w.fakeSource.Restore(w.fakeSource.Version()) // nothing is lost but the past
				}
				if test.busy {
					var watches atomic.Int32
					w.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
						if n := watches.Load(); r.Verb == "watch" && watches.Add(1) > 1 && n < 10 { // the first is that of all sources
							return apierrors.NewTooManyRequests("busy", 1)
						}
						return do()
					})
				}
				if !test.running {
					s, stop = w.sync(opts)
				}
				defer func() { stop() }()
				w.fakeSource.Lag(widgets, false)
				time.Sleep(orphanGrace - time.Minute)
				if left := w.targetOf("w0") != nil; left != test.expired || told.Load() {
					t.Errorf("within the grace the target is there: %t, told: %t", left, told.Load())
				}
				time.Sleep(2 * time.Hour)
				if left := w.targetOf("w0") != nil; left != test.expired || told.Load() != left || (s.Status().Orphans == 1) != left {
					t.Errorf("the target is there: %t, told: %t, %d orphans", left, told.Load(), s.Status().Orphans)
				}
			})
		})
	}
}

// I20: a target whose source was deleted as its finalizer came, and that its API server does not delete, is told
// with what that answers, and deleted once it may be.
func TestRefusedOrphanIsTold(t *testing.T) {
	for name, err := range map[string]error{"rights": forbidden(fakecluster.Request{}), "webhook": apierrors.NewInternalError(errors.New("failed calling webhook"))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var refuses atomic.Bool
				refuses.Store(true)
				w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "delete" && refuses.Load() {
						return err
					}
					return do()
				})
				var told atomic.Pointer[Report]
				s, stop := w.sync(Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) { told.Store(&r) }}})
				defer stop()
				w.createMany(1)
				w.settle()
				w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, "w0"))
				time.Sleep(time.Minute)
				if r := told.Load(); r == nil || r.Reason != ReasonOrphaned || !strings.Contains(r.Message, err.Error()) || s.Status().Orphans != 1 {
					t.Errorf("told %+v, %d orphans", r, s.Status().Orphans)
				}
				refuses.Store(false)
				time.Sleep(time.Hour)
				if w.targetOf("w0") != nil || s.Status().Orphans != 0 {
					t.Errorf("the target is there: %t, %d orphans", w.targetOf("w0") != nil, s.Status().Orphans)
				}
			})
		})
	}
}

// I19: an orphan whose deletion is refused is asked for ever more rarely also where a new claim has its name, which
// is told why it waits and gets its own target once the orphan may be deleted.
func TestRefusedOrphanOfANewClaim(t *testing.T) {
	for name, test := range map[string]struct {
		waived bool
		answer func(fakecluster.Request) error
	}{
		"its end was shown":            {true, forbidden},
		"its end is proven":            {false, forbidden},
		"it is another one each time":  {true, conflicts},
		"another one, after the grace": {false, conflicts},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var asked atomic.Int32
				var allowed atomic.Bool
				w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "delete" && r.Resource == widgets && !allowed.Load() {
						asked.Add(1)
						return test.answer(r)
					}
					return do()
				})
				defer w.run(Options{Orphans: OrphanDelete})()
				w.createMany(1)
				w.settle()
				before := w.targetOf("w0").GetUID()
				if test.waived {
					w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, "w0"))
				} else {
					w.vanish("w0")
				}
				time.Sleep(time.Second)
				w.create(w.source, w.sourceNS, w.widget("w0", `{"size":"large"}`, ``))
				time.Sleep(time.Hour)
				if n, said := asked.Load(), w.message("w0"); n == 0 || n > 20 || !strings.HasPrefix(said, string(ReasonConflict)) || !strings.Contains(said, "is not deleted: ") {
					t.Errorf("asked %d times in an hour, message %q", n, said)
				}
				allowed.Store(true)
				time.Sleep(time.Hour)
				if u := w.targetOf("w0"); u == nil || u.GetUID() == before || w.message("w0") != "" {
					t.Errorf("afterwards the target is %v, message %q", u, w.message("w0"))
				}
			})
		})
	}
}

// conflicts answers that an object is not in the version that was seen.
func conflicts(r fakecluster.Request) error {
	return apierrors.NewConflict(r.Resource.GroupResource(), r.Object.Name, errors.New("the object has been modified"))
}

// I18: where a source takes no record of its target, and where each write to a target meets another state than was
// seen, the rest goes on: a status is given when it is due, also one that met an edit, and each side is
// asked rarely.
func TestRefusedWritesAreInNoWay(t *testing.T) {
	for name, test := range map[string]struct {
		source, target func(fakecluster.Request) error
		plain          bool // each status counts as a generation, too
	}{
		"record":            {source: forbidden},
		"target":            {target: conflicts},
		"record and target": {source: forbidden, target: conflicts},
		"record, plain":     {source: forbidden, plain: true},
		"target, plain":     {target: conflicts, plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				sub := w.statusAt(test.plain)
				var refuses, outdated atomic.Bool
				var asked atomic.Int32
				w.from = w.faulty(w.fakeSource, func(_ context.Context, r fakecluster.Request, do func() error) error {
					switch isStatus := r.Verb == "apply"; { // marks are patched
					case isStatus && outdated.Swap(false):
						return conflicts(r)
					case !isStatus && isWrite(r) && test.source != nil && refuses.Load() && r.Resource == widgets:
						asked.Add(1)
						return test.source(r)
					}
					return do()
				})
				w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
					if isWrite(r) && test.target != nil && refuses.Load() && r.Resource == widgets {
						asked.Add(1)
						return test.target(r)
					}
					return do()
				})
				defer w.run(Options{Lost: LostReport})()
				w.createMany(1)
				w.settle()
				if test.source != nil { // so that the record is to be written again
					refuses.Store(true)
					w.merge(w.source, w.sourceNS, "w0", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, TargetAnnotation))
				}
				time.Sleep(time.Hour)
				refuses.Store(true)
				outdated.Store(true)
				w.merge(w.target, w.targetNS, "w0", `{"status":{"phase":"Ready"}}`, sub...)
				w.merge(w.source, w.sourceNS, "w0", `{"spec":{"color":"red"}}`)
				time.Sleep(time.Second)
				if got := field(w.get(w.source, w.sourceNS, "w0"), "status", "phase"); got != "Ready" || test.target == nil && field(w.targetOf("w0"), "spec", "color") != "red" {
					t.Errorf("status %v, spec %v", got, w.targetOf("w0").Object["spec"])
				}
				asked.Store(0)
				for i := range 60 {
					w.merge(w.target, w.targetNS, "w0", fmt.Sprintf(`{"status":{"phase":"Ready %d"}}`, i), sub...)
					time.Sleep(time.Minute)
					if want, got := fmt.Sprint("Ready ", i), field(w.get(w.source, w.sourceNS, "w0"), "status", "phase"); got != want {
						t.Fatalf("a minute later the status is %v, want %v", got, want)
					}
				}
				if n := asked.Load(); n == 0 || n > 60+40 { // of the target in each of its versions
					t.Errorf("asked %d times in an hour of 60 statuses", n)
				}
				refuses.Store(false)
				time.Sleep(time.Hour)
				if u := w.get(w.source, w.sourceNS, "w0"); field(w.targetOf("w0"), "spec", "color") != "red" || test.source != nil && u.GetAnnotations()[TargetAnnotation] == "" {
					t.Errorf("afterwards spec %v, annotations %v", w.targetOf("w0").Object["spec"], u.GetAnnotations())
				}
			})
		})
	}
}

// I18: writes to a target that fail for long are told beside fields that stay behind, which do not explain that an
// edit does, and taken back when they end.
func TestRefusedWritesAreToldBesideFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		known := fakecluster.Schema{"spec": {"size"}, "status": {"phase"}}
		w.to.ReadSchemas(w.fakeTarget.View(nil).Schemas())
		w.fakeTarget.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Schema: known})
		var refuses atomic.Bool
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if isWrite(r) && r.Resource == widgets && refuses.Load() {
				return conflicts(r)
			}
			return do()
		})
		var mu gosync.Mutex
		var told []Reason
		defer w.run(Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, r.Reason)
		}}})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","extra":"x"}`, ``))
		time.Sleep(time.Hour)
		refuses.Store(true)
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		time.Sleep(time.Hour)
		refuses.Store(false)
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if want := []Reason{ReasonFields, ReasonUnavailable, ReasonFields}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// An orphan that makes room for a new claim, and whose deletion meets another state of it twice, is
// nothing that the user hears of.
func TestMovingOrphanOfANewClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var met, told atomic.Int32
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "delete" && r.Resource == widgets && met.Add(1) <= 2 {
				return conflicts(r)
			}
			return do()
		})
		defer w.run(Options{Orphans: OrphanDelete, Hooks: Hooks{Reported: func(context.Context, Report) { told.Add(1) }}})()
		w.createMany(1)
		w.settle()
		before, writes := w.targetOf("w0").GetUID(), len(w.fakeSource.Writes())
		w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, "w0"))
		w.create(w.source, w.sourceNS, w.widget("w0", `{"size":"large"}`, ``))
		time.Sleep(time.Minute)
		if u := w.targetOf("w0"); u == nil || u.GetUID() == before || met.Load() < 3 {
			t.Errorf("%d deletions, the target is %v", met.Load(), u)
		}
		if n := len(w.fakeSource.Writes()) - writes; n != 2 { // itself, and the finalizer
			t.Errorf("%d writes: %v", n, w.fakeSource.Writes()[writes:])
		}
		if told.Load() > 0 {
			t.Errorf("told %d times", told.Load())
		}
	})
}

// I20: what was left while no Sync ran, in a namespace without any source, is found where the namespace is
// recalled, or mapped after its targets were listed. Recalling opens nothing: what the target's side made
// becomes no source until a source of the namespace asks for it.
func TestLeftInNamespaceWithoutSources(t *testing.T) {
	for name, test := range map[string]struct {
		scope Scope
		begin func(w *world, table *Namespaces)
		found bool
	}{
		"not mapped":                    {ScopeMapped, func(*world, *Namespaces) {}, false},
		"recalled":                      {ScopeMapped, func(w *world, table *Namespaces) { table.Recall(w.sourceNS, w.targetNS) }, true},
		"recalled, all are watched":     {ScopeAll, func(w *world, table *Namespaces) { table.Recall(w.sourceNS, w.targetNS) }, true},
		"mapped later, all are watched": {ScopeAll, func(w *world, table *Namespaces) { w.settle(); table.Set(w.sourceNS, w.targetNS) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				_, stop := w.sync(Options{})
				w.createMany(1)
				w.settle()
				stop()
				w.vanish("w0")
				w.create(w.target, w.targetNS, w.widget("made", `{}`, ``))
				var told, unclaimed atomic.Int32
				var table *Namespaces
				table = NewNamespaces(func(source string) { table.Set(source, w.targetNS) })
				defer w.run(Options{Mapper: table, TargetScope: test.scope, Adopt: true, Hooks: Hooks{
					Reported: func(_ context.Context, r Report) {
						if r.Reason == ReasonOrphaned {
							told.Add(1)
						}
					},
					Unclaimed: func(context.Context, cache.ObjectName, cache.ObjectName) { unclaimed.Add(1) },
				}})()
				test.begin(w, table)
				_, open := table.Of(w.sourceNS)
				time.Sleep(2 * orphanGrace)
				if found := told.Load() > 0; found != test.found {
					t.Errorf("an orphan is told: %t", found)
				}
				if offered := unclaimed.Load() > 0; offered != open {
					t.Errorf("what the target's side made is offered: %t, and the namespace is open: %t", offered, open)
				}
				w.create(w.source, w.sourceNS, w.widget("w1", `{"size":"small"}`, ``))
				w.settle()
				if w.targetOf("w1") == nil || unclaimed.Load() == 0 {
					t.Errorf("a source opens the namespace, its target: %v, what the target's side made was offered %d times", w.targetOf("w1"), unclaimed.Load())
				}
			})
		})
	}
}

// I20: a source whose finalizer someone takes off while its deletion waits has not been deleted as the
// finalizer came: the watch shows its end with a deletionTimestamp. Its target stays, and is told
// after the grace.
func TestFinalizerTakenOff(t *testing.T) {
	for name, running := range map[string]bool{"while the Sync runs": true, "while none runs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var told atomic.Bool
				opts := Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) { told.Store(r.Reason == ReasonOrphaned) }}}
				s, stop := w.sync(opts)
				w.createMany(1)
				w.settle()
				w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "delete" {
						return forbidden(r)
					}
					return do()
				})
				w.delete(w.source, w.sourceNS, "w0")
				w.settle()
				if !running {
					stop()
				}
				w.merge(w.source, w.sourceNS, "w0", `{"metadata":{"finalizers":null}}`)
				w.fakeTarget.Intercept(nil)
				if !running {
					s, stop = w.sync(opts)
				}
				defer func() { stop() }()
				time.Sleep(orphanGrace - time.Minute)
				if w.get(w.source, w.sourceNS, "w0") != nil || w.targetOf("w0") == nil || told.Load() {
					t.Errorf("within the grace the target is there: %t, told: %t", w.targetOf("w0") != nil, told.Load())
				}
				time.Sleep(2 * time.Hour)
				if w.targetOf("w0") == nil || !told.Load() || s.Status().Orphans != 1 {
					t.Errorf("the target is there: %t, told: %t, %d orphans", w.targetOf("w0") != nil, told.Load(), s.Status().Orphans)
				}
			})
		})
	}
}

// A list that lacks more than a tenth of what was there makes a restore from a
// backup likely: what has lost its source stays until people say that it is meant.
func TestShrunkenList(t *testing.T) {
	for name, test := range map[string]struct{ gone, held int }{"a tenth": {2, 0}, "more than a tenth": {3, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 20
				w := newFake(t)
				s, stop := w.sync(Options{Orphans: OrphanDelete})
				defer stop()
				w.createMany(n)
				w.settle()
				w.fakeSource.Lag(widgets, true) // for the watches that there are
				for i := range test.gone {
					w.vanish(fmt.Sprintf("w%d", i))
				}
				w.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "watch" && r.Resource == widgets {
						w.fakeSource.Intercept(nil)
						return apierrors.NewResourceExpired("too old resource version")
					}
					return do()
				})
				time.Sleep(watchstore.Silence + time.Minute)
				w.fakeSource.Lag(widgets, false)
				if got := s.suspect.Load(); got != (test.held > 0) {
					t.Errorf("suspect: %t", got)
				}
				time.Sleep(2 * orphanGrace)
				if got := s.Status().Held; got != test.held || w.count(w.fakeTarget, w.targetNS) != n-test.gone+test.held {
					t.Errorf("%d are held, and %d targets left", got, w.count(w.fakeTarget, w.targetNS))
				}
				s.Release()
				w.until("orphans are gone", func() bool { return w.count(w.fakeTarget, w.targetNS) == n-test.gone })
				if s.suspect.Load() {
					t.Error("a release leaves the doubt")
				}
			})
		})
	}
}

// What another binding made is never this one's orphan.
func TestOrphanOfAnotherBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		_, stop := w.sync(Options{Binding: "one"})
		w.createMany(1)
		stop()
		w.vanish("w0")
		s, stop := w.sync(Options{Binding: "another", Orphans: OrphanDelete})
		defer stop()
		time.Sleep(3 * orphanGrace)
		if w.targetOf("w0") == nil || s.Status().Orphans != 0 {
			t.Error("a binding judged what another one had made")
		}
	})
}

// I20: a target whose annotations a policy takes off is known by its field manager when its source
// is gone. It goes at once if the watch has shown the end of that source, which was deleted as its
// finalizer came; else it is told, and never collected.
func TestStrippedOrphans(t *testing.T) {
	for name, fleeting := range map[string]bool{"deleted as the finalizer came": true, "taken away by force": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					err := do()
					if r.Verb != "apply" || err != nil {
						return err
					}
					if u := w.targetOf(r.Object.Name); u != nil && u.GetAnnotations()[SourceAnnotation] != "" { //nolint:contextcheck // the world has one
						w.merge(w.target, w.targetNS, r.Object.Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:null,%q:null}}}`, SourceAnnotation, BoundAnnotation)) //nolint:contextcheck // the world has one
						if fleeting {
							w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, r.Object.Name))
						}
					}
					return err
				})
				var mu gosync.Mutex
				var reasons []Reason
				s, stop := w.sync(Options{Orphans: OrphanDelete, Hooks: Hooks{Reported: func(_ context.Context, r Report) {
					mu.Lock()
					defer mu.Unlock()
					reasons = append(reasons, r.Reason)
				}}})
				defer stop()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
				w.settle()
				if !fleeting {
					w.vanish("a")
				}
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				left, told := w.targetOf("a") != nil, slices.Contains(reasons, ReasonOrphaned)
				if w.get(w.source, w.sourceNS, "a") != nil || left == fleeting || told == fleeting || (s.Status().Orphans > 0) == fleeting {
					t.Errorf("the target is left: %t, %d orphans, told %q", left, s.Status().Orphans, reasons)
				}
			})
		})
	}
}

// I20: a target that someone else makes from the manifest of one of ours, as a restore of objects does,
// is told as an orphan if its source is not there, and never collected: no field of it is a Sync's.
func TestOrphanFromAManifest(t *testing.T) {
	for name, running := range map[string]bool{"while a Sync runs": true, "while none runs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				s, stop := w.sync(Options{Orphans: OrphanDelete})
				w.createMany(1)
				w.settle()
				manifest := w.targetOf("w0")
				if !running {
					stop()
				}
				w.vanish("w0")
				w.delete(w.target, w.targetNS, "w0")
				w.settle()
				manifest.SetUID("")
				manifest.SetResourceVersion("")
				manifest.SetManagedFields(nil)
				w.create(w.target, w.targetNS, manifest)
				if !running {
					s, stop = w.sync(Options{Orphans: OrphanDelete})
				}
				defer stop()
				time.Sleep(6 * orphanGrace)
				if w.targetOf("w0") == nil || s.Status().Orphans != 1 {
					t.Errorf("target %v, %d orphans", w.targetOf("w0"), s.Status().Orphans)
				}
			})
		})
	}
}

// I20: a target that says that it was made from a source which has gone, and whose fields are those of
// the next one, which went while it took the target over, is told, and never collected.
func TestHalfTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		_, stop := w.sync(Options{})
		w.createMany(1)
		w.settle()
		stop()
		made, _ := OriginOf(w.targetOf("w0"))
		before := origin{cluster: made.Cluster, uid: "gone", name: cache.NewObjectName(w.sourceNS, "w0")}
		w.merge(w.target, w.targetNS, "w0", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, SourceAnnotation, before.record(1, "")))
		w.vanish("w0")
		s, stop := w.sync(Options{Orphans: OrphanDelete})
		defer stop()
		time.Sleep(2 * time.Hour)
		if w.targetOf("w0") == nil || s.Status().Orphans != 1 {
			t.Errorf("target %v, %d orphans", w.targetOf("w0"), s.Status().Orphans)
		}
	})
}

// A target that is taken over from a source that had more is emptied where the new one has nothing.
func TestTakenOverAndEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		_, stop := w.sync(Options{})
		w.createMany(1)
		w.settle()
		stop()
		w.vanish("w0")
		next := w.create(w.source, w.sourceNS, w.widget("w0", `{}`, ``))
		defer w.run(Options{Conflict: ConflictAdopt})()
		time.Sleep(time.Minute)
		made, _ := OriginOf(w.targetOf("w0"))
		spec, _ := field(w.targetOf("w0"), "spec").(map[string]any)
		if made.UID != next.GetUID() || spec == nil || len(spec) > 0 || w.message("w0") != "" {
			t.Errorf("made from %s, spec %v, message %q", made.UID, field(w.targetOf("w0"), "spec"), w.message("w0"))
		}
	})
}

// I19: an orphan that a claim is to take over, and whose deletion is held, is asked for ever more rarely where its API
// server refuses that, and the claim says what it answers.
func TestRefusedTakeoverOfAnOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		opts := Options{Conflict: ConflictAdopt, DeletionLimit: 1}
		var refuses atomic.Bool
		var asked atomic.Int32
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if refuses.Load() && r.Resource == widgets && slices.Contains([]string{"apply", "patch", "update", "delete"}, r.Verb) {
				asked.Add(1)
				return forbidden(r)
			}
			return do()
		})
		defer w.run(opts)()
		w.createMany(2)
		w.settle()
		refuses.Store(true)
		for _, name := range []string{"w0", "w1"} {
			w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, name))
			w.settle()
		}
		w.create(w.source, w.sourceNS, w.widget("w1", `{"size":"small"}`, ``))
		time.Sleep(time.Hour)
		if n, said := asked.Load(), w.message("w1"); n > 40 || !strings.HasPrefix(said, string(ReasonForbidden)) {
			t.Errorf("asked %d times, message %q", n, said)
		}
		refuses.Store(false)
		time.Sleep(fates.Forbidden.Longest())
		if made, _ := OriginOf(w.targetOf("w1")); made.UID != w.get(w.source, w.sourceNS, "w1").GetUID() {
			t.Errorf("taken over from %s once that is permitted, message %q", made.UID, w.message("w1"))
		}
	})
}

// I18: a deletion waits ten seconds for an edit that an API server does not take now, and no longer, whatever
// happens meanwhile: a program goes on to edit the claim, or the target is another one each second, and others hold
// what is edited. The claim says so.
func TestDeletionsWaitForEditsAMoment(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(fakecluster.Request) error
		held   bool // by others, on the target
	}{
		"a webhook fails": {answer: func(fakecluster.Request) error {
			return apierrors.NewInternalError(errors.New("failed calling webhook"))
		}},
		"it is another one": {answer: conflicts},
		"others hold it":    {conflicts, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var refuses atomic.Bool
				var seen atomic.Value // the version of the target at which an apply was last told who holds the field
				w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource != widgets || r.Verb != "apply" || !refuses.Load() {
						return do()
					}
					if at := w.targetOf("w0").GetResourceVersion(); test.held && seen.Swap(at) != at { //nolint:contextcheck // the world has one
						return do()
					}
					return test.answer(r)
				})
				var told atomic.Int32
				hooks := Hooks{Reported: func(_ context.Context, r Report) {
					if r.Reason == ReasonUnavailable {
						told.Add(1)
					}
				}}
				stop := w.run(Options{})
				w.createMany(1)
				w.settle()
				stop()
				if test.held {
					w.merge(w.target, w.targetNS, "w0", `{"spec":{"size":"medium"}}`)
				}
				w.merge(w.source, w.sourceNS, "w0", `{"spec":{"size":"tiny"}}`)
				w.delete(w.source, w.sourceNS, "w0")
				refuses.Store(true)
				defer w.run(Options{Hooks: hooks})()
				time.Sleep(333 * time.Millisecond) // so that nothing of what follows happens at the instant of a pass
				for i := range 120 {
					if w.targetOf("w0") == nil {
						break
					}
					if test.held {
						w.merge(w.target, w.targetNS, "w0", fmt.Sprintf(`{"status":{"phase":"%d"}}`, i), "status")
					} else if i%5 == 0 {
						w.merge(w.source, w.sourceNS, "w0", fmt.Sprintf(`{"spec":{"color":"%d"}}`, i))
					}
					time.Sleep(time.Second)
				}
				if w.targetOf("w0") != nil || told.Load() == 0 {
					t.Errorf("after two minutes the target is there: %t; told %d times", w.targetOf("w0") != nil, told.Load())
				}
			})
		})
	}
}

// A deletion, or a return, whose number cannot be kept says nothing of the target's cluster to those who use the
// claim: Hooks alone hear of it, once.
func TestUncountedDeletions(t *testing.T) {
	for name, vanish := range map[string]func(*world){
		"deletion": func(w *world) { w.delete(w.source, w.sourceNS, "w0") },
		"return":   func(w *world) { w.delete(w.target, w.targetNS, "w0") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var fails atomic.Bool
				var told atomic.Int32
				defer w.run(Options{
					DeletionLog: DeletionLog{Save: func(context.Context, string) error {
						if fails.Load() {
							return errors.New("dial tcp 10.1.2.3:443: connection refused")
						}
						return nil
					}},
					Hooks: Hooks{Reported: func(_ context.Context, r Report) {
						if strings.Contains(r.Message, "keep the number of deletions") {
							told.Add(1)
						}
					}},
				})()
				w.createMany(1)
				w.settle()
				fails.Store(true)
				vanish(w)
				time.Sleep(time.Hour)
				if said := w.message("w0"); told.Load() != 1 || strings.Contains(said, "keep the number") {
					t.Errorf("told %d times, message %q", told.Load(), said)
				}
				fails.Store(false)
				time.Sleep(time.Hour)
				if gone := w.get(w.source, w.sourceNS, "w0") == nil; gone == (name == "return") || gone != (w.targetOf("w0") == nil) {
					t.Errorf("afterwards the claim has gone: %t", gone)
				}
			})
		})
	}
}

// I15: what is held stays, without a log of deletions too: no other message takes the place of the one that a start
// reads it from, be it that an edit is refused or that the target cannot be read.
func TestHeldDeletionKeepsItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var refuses atomic.Bool
		w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && refuses.Load() && (isWrite(r) || r.Verb == "list") {
				return forbidden(r)
			}
			return do()
		})
		stop := w.run(Options{DeletionLimit: 1})
		w.createMany(2)
		w.settle()
		w.delete(w.source, w.sourceNS, "w0")
		w.settle()
		w.delete(w.source, w.sourceNS, "w1")
		w.settle()
		said := w.message("w1")
		refuses.Store(true)
		w.merge(w.source, w.sourceNS, "w1", `{"spec":{"color":"red"}}`)
		time.Sleep(time.Hour)
		stop()
		stop = w.run(Options{DeletionLimit: 1}) // which cannot read the target
		time.Sleep(time.Hour)
		stop()
		refuses.Store(false)
		defer w.run(Options{DeletionLimit: 1})()
		time.Sleep(time.Hour)
		if got := w.message("w1"); w.targetOf("w1") == nil || got != said || !strings.HasPrefix(said, string(ReasonHeld)) {
			t.Errorf("the target is there: %t; message %q, was %q", w.targetOf("w1") != nil, got, said)
		}
	})
}

// I8: a restart leaves what a claim says of its deletion that is refused, be it rights or what may pass by itself.
func TestRefusedDeletionKeepsItsMessage(t *testing.T) {
	for name, answer := range map[string]func(fakecluster.Request) error{
		"rights":    forbidden,
		"conflicts": conflicts,
		"a webhook fails": func(fakecluster.Request) error {
			return apierrors.NewInternalError(errors.New("failed calling webhook"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var refuses atomic.Bool
				w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource == widgets && refuses.Load() && r.Verb == "delete" {
						return answer(r)
					}
					return do()
				})
				stop := w.run(Options{})
				w.createMany(1)
				w.settle()
				refuses.Store(true)
				w.delete(w.source, w.sourceNS, "w0")
				time.Sleep(time.Hour)
				stop()
				said, writes := w.message("w0"), len(w.fakeSource.Writes())
				stop = w.run(Options{})
				defer func() { stop() }()
				time.Sleep(time.Hour)
				if got := w.message("w0"); said == "" || got != said || len(w.fakeSource.Writes()) != writes {
					t.Errorf("after a restart and %d writes message %q, was %q", len(w.fakeSource.Writes())-writes, got, said)
				}
				stop()
				refuses.Store(false)
				stop = w.run(Options{})
				w.settle()
				if w.targetOf("w0") != nil || w.get(w.source, w.sourceNS, "w0") != nil {
					t.Errorf("target %v, message %q", w.targetOf("w0"), w.message("w0"))
				}
			})
		})
	}
}

// What has the name of a claim and is going is not told as what will stay: the claim gets its own target then, unless
// it has lost one already, which by policy is told.
func TestNameOfWhatIsGoing(t *testing.T) {
	going := "TargetConflict: widgets.example.org svc-team/w0 exists in the target cluster, was not made from this object, and is being deleted there, which is held by provider.example.org/deprovision"
	for name, test := range map[string]struct {
		lost LostPolicy
		take func(*world)
		want string
	}{
		"an orphan's": {LostRecreate, func(w *world) {
			w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":["provider.example.org/deprovision"]}}`)
			w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, "w0"))
			w.settle()
			w.create(w.source, w.sourceNS, w.widget("w0", `{"size":"large"}`, ``))
		}, going + "; this object gets its own once that has gone"},
		"a lost target's": {LostReport, func(w *world) {
			w.delete(w.target, w.targetNS, "w0")
			theirs := w.widget("w0", `{}`, ``)
			theirs.SetFinalizers([]string{"provider.example.org/deprovision"})
			w.create(w.target, w.targetNS, theirs)
			w.settle()
			w.delete(w.target, w.targetNS, "w0")
		}, going},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				defer w.run(Options{Lost: test.lost})()
				w.createMany(1)
				w.settle()
				test.take(w)
				time.Sleep(time.Hour)
				if said := w.message("w0"); said != test.want {
					t.Errorf("message %q, want %q", said, test.want)
				}
				w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":null}}`)
				w.settle()
				if u, said := w.targetOf("w0"), w.message("w0"); (u == nil) != (test.lost == LostReport) || (said == "") != (u != nil) {
					t.Errorf("afterwards the target is %v, message %q", u, said)
				}
			})
		})
	}
}

// An edit that was refused is no word on the deletion of the orphan that its source leaves behind.
func TestOrphanOfARefusedEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var refuses, told atomic.Bool
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if refuses.Load() && r.Resource == widgets && r.Verb == "apply" {
				return forbidden(r)
			}
			return do()
		})
		defer w.run(Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) { told.Store(told.Load() || r.Reason == ReasonOrphaned) }}})()
		w.createMany(1)
		w.settle()
		refuses.Store(true)
		w.merge(w.source, w.sourceNS, "w0", `{"spec":{"size":"large"}}`)
		time.Sleep(time.Minute)
		w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, "w0"))
		time.Sleep(time.Minute)
		if w.targetOf("w0") != nil || told.Load() {
			t.Errorf("target %v, told: %t", w.targetOf("w0"), told.Load())
		}
	})
}

// A claim that is being deleted says nothing of its target once that has gone, be it that it may not be let go.
func TestMessageOfWhatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var refuses atomic.Bool
		w.fakeSource.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Check: func(o *unstructured.Unstructured) error {
			if refuses.Load() && len(o.GetFinalizers()) == 0 {
				return errors.New("finalizers stay")
			}
			return nil
		}})
		defer w.run(Options{})()
		w.createMany(1)
		w.settle()
		w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":["provider.example.org/deprovision"]}}`)
		w.delete(w.source, w.sourceNS, "w0")
		time.Sleep(time.Minute)
		before := w.message("w0")
		refuses.Store(true)
		w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":null}}`)
		time.Sleep(time.Hour)
		if said := w.message("w0"); !strings.HasPrefix(before, string(ReasonTerminating)) || said != "" {
			t.Errorf("message %q, and %q an hour after the target has gone", before, said)
		}
	})
}

// I15: without a log of deletions a start knows what is held by its message, so that no other takes the place of that:
// neither that the target cannot be read, nor that its name is another source's, nor one that was written just before.
func TestHeldKeepsItsMessage(t *testing.T) {
	var refuses, contradicts atomic.Bool
	deleted := func(w *world, name string) { w.delete(w.source, w.sourceNS, name) }
	for name, test := range map[string]struct {
		goes   func(*world, string)
		before func(*world)
		fault  *atomic.Bool // of the second of three runs
	}{
		"an orphan in a claim's way, which cannot be read": {func(w *world, name string) {
			w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, name))
		}, nil, &refuses},
		"a return, which cannot be read":          {func(w *world, name string) { w.delete(w.target, w.targetNS, name) }, nil, &refuses},
		"a deletion, of a name that is another's": {deleted, nil, &contradicts},
		"a deletion, after many messages": {deleted, func(w *world) {
			for i := range 6 {
				w.merge(w.source, w.sourceNS, "w1", fmt.Sprintf(`{"spec":{"size":%q}}`, []string{"huge", "small"}[i%2]))
				time.Sleep(2 * time.Second)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				table := NewNamespaces(nil)
				table.Set(w.sourceNS, w.targetNS)
				opts := Options{DeletionLimit: 1, Mapper: contradictory{table, &contradicts}}
				w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource == widgets && refuses.Load() {
						return forbidden(r)
					}
					return do()
				})
				stop := w.run(opts)
				w.createMany(2)
				w.settle()
				if test.before != nil {
					test.before(w)
				}
				state := func() string {
					var said strings.Builder
					for _, name := range []string{"w0", "w1"} {
						u := w.targetOf(name)
						fmt.Fprintf(&said, "%s: %v %t; ", name, u != nil && u.GetUID() != "", strings.Contains(w.message(name), "annotate this object"))
					}
					return said.String()
				}
				for _, name := range []string{"w0", "w1"} {
					test.goes(w, name)
					w.settle()
				}
				if strings.HasPrefix(name, "an orphan") {
					w.create(w.source, w.sourceNS, w.widget("w1", `{"size":"small"}`, ``))
				}
				time.Sleep(20 * time.Second)
				held := state()
				for _, faulty := range []bool{true, false} {
					stop()
					if test.fault != nil {
						test.fault.Store(faulty)
					}
					stop = w.run(opts)
					time.Sleep(2 * time.Minute)
				}
				if stop(); state() != held || strings.Count(held, "true; ") != 1 {
					t.Errorf("held was %s and is %s, message %q", held, state(), w.message("w1"))
				}
			})
		})
	}
}

// A contradictory mapper has targets of another source for a while.
type contradictory struct {
	*Namespaces
	contradicts *atomic.Bool
}

func (m contradictory) Source(target cache.ObjectName) (cache.ObjectName, bool) {
	source, ok := m.Namespaces.Source(target)
	if m.contradicts.Load() {
		source.Name = "another"
	}
	return source, ok
}

// I8: a restart leaves the message of what is going, also where the clock of the target's cluster is ahead.
func TestTerminatingKeepsItsMessage(t *testing.T) {
	for name, ends := range map[string]func(*world){
		"claim":  func(w *world) { w.delete(w.source, w.sourceNS, "w0") },
		"target": func(w *world) { w.delete(w.target, w.targetNS, "w0") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				w.fakeTarget.Skew(5 * time.Hour)
				stop := w.run(Options{})
				w.createMany(1)
				w.settle()
				w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":["provider.example.org/deprovision"]}}`)
				ends(w)
				time.Sleep(time.Hour)
				stop()
				said, writes := w.message("w0"), len(w.fakeSource.Writes())
				defer w.run(Options{})()
				time.Sleep(time.Minute)
				if n := len(w.fakeSource.Writes()) - writes; !strings.HasPrefix(said, string(ReasonTerminating)) || n > 0 {
					t.Errorf("%d writes, message %q, was %q", n, w.message("w0"), said)
				}
			})
		})
	}
}
