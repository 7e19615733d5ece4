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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// vanish takes a source away by force, with nobody holding it again in between.
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
				s.Release()
				w.until("the held one is gone", func() bool { o := w.targetOf("w1"); return (o != nil) == again && (o == nil || o.GetUID() != held) })
			})
		})
	}
}

// Deletions that wait for hours, for a release or for a provider's finalizer, cost ever fewer live reads.
func TestLongDeletionsAreReadRarely(t *testing.T) {
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
	for name, waived := range map[string]bool{"its end was shown": true, "its end is proven": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var asked atomic.Int32
				var allowed atomic.Bool
				w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "delete" && r.Resource == widgets && !allowed.Load() {
						asked.Add(1)
						return forbidden(r)
					}
					return do()
				})
				defer w.run(Options{Orphans: OrphanDelete})()
				w.createMany(1)
				w.settle()
				before := w.targetOf("w0").GetUID()
				if waived {
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

// I18: where a source takes no record of its target, and where each write to a target meets another state than was
// seen, the rest goes on: a status is given when it is due, also one that met an edit, and each side is
// asked rarely.
func TestRefusedWritesAreInNoWay(t *testing.T) {
	conflict := func(r fakecluster.Request) error {
		return apierrors.NewConflict(r.Resource.GroupResource(), r.Object.Name, errors.New("the object has been modified"))
	}
	for name, test := range map[string]struct {
		source, target func(fakecluster.Request) error
		plain          bool // each status counts as a generation, too
	}{
		"record":            {source: forbidden},
		"target":            {target: conflict},
		"record and target": {source: forbidden, target: conflict},
		"record, plain":     {source: forbidden, plain: true},
		"target, plain":     {target: conflict, plain: true},
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
						return conflict(r)
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
				if n := asked.Load(); n == 0 || n > 80 {
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
				return apierrors.NewConflict(r.Resource.GroupResource(), r.Object.Name, errors.New("the object has been modified"))
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
		var conflicts atomic.Int32
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "delete" && r.Resource == widgets && conflicts.Add(1) <= 2 {
				return apierrors.NewConflict(r.Resource.GroupResource(), r.Object.Name, errors.New("the object has been modified"))
			}
			return do()
		})
		defer w.run(Options{Orphans: OrphanDelete})()
		w.createMany(1)
		w.settle()
		before, writes := w.targetOf("w0").GetUID(), len(w.fakeSource.Writes())
		w.fakeSource.Collide(widgets, cache.NewObjectName(w.sourceNS, "w0"))
		w.create(w.source, w.sourceNS, w.widget("w0", `{"size":"large"}`, ``))
		time.Sleep(time.Minute)
		if u := w.targetOf("w0"); u == nil || u.GetUID() == before || conflicts.Load() < 3 {
			t.Errorf("%d deletions, the target is %v", conflicts.Load(), u)
		}
		if n := len(w.fakeSource.Writes()) - writes; n != 2 { // itself, and the finalizer
			t.Errorf("%d writes: %v", n, w.fakeSource.Writes()[writes:])
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
