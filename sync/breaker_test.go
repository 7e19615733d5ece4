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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/fence"
)

func (w *world) createMany(n int) {
	w.Helper()
	for i := range n {
		w.create(w.source, w.sourceNS, w.widget(fmt.Sprintf("w%d", i), `{"size":"small"}`, ``))
	}
	w.until("all targets exist", func() bool { return w.count(w.fakeTarget, w.targetNS) == n })
}

func (w *world) count(c *fakecluster.Cluster, ns string) int {
	w.Helper()
	list, err := c.Client().Resource(widgets).Namespace(ns).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return len(list.Items)
}

// sync runs a Sync that the test can ask and release.
func (w *world) sync(opts Options) (s *Sync, stop func()) {
	w.Helper()
	table := NewNamespaces(nil)
	table.Set(w.sourceNS, w.targetNS)
	opts.Mapper = table
	s, err := New(w.from, w.to, widgets, opts)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := start(func() error { return s.Run(ctx) })
	return s, gosync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
}

// release annotates a source as its message says.
func (w *world) release(name string) {
	w.Helper()
	_, word, spelled := strings.Cut(w.message(name), ReleaseAnnotation+"=")
	if !spelled {
		w.Fatalf("%s says %q", name, w.message(name))
	}
	w.merge(w.source, w.sourceNS, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, ReleaseAnnotation, word))
}

// I15: the word that releases one deletion, or one return, is of no use to the next, so that a claim that
// people released once, or whose manifest has some word, is held as any other. A restart spells the same
// word, and writes nothing.
func TestReleaseIsForOneHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		opts := Options{DeletionLimit: 1}
		_, stop := w.sync(opts)
		w.createMany(2)
		for i := range 2 {
			w.merge(w.source, w.sourceNS, fmt.Sprint("w", i), `{"metadata":{"annotations":{"`+ReleaseAnnotation+`":"true"}}}`)
		}
		lose := func(what string) (held string) {
			for i := range 2 {
				w.delete(w.target, w.targetNS, fmt.Sprint("w", i))
			}
			time.Sleep(time.Hour)
			for i := range 2 {
				if name := fmt.Sprint("w", i); w.targetOf(name) == nil {
					held += name
				}
			}
			if len(held) != len("w0") {
				t.Fatalf("%s: %q are held", what, held)
			}
			return held
		}
		first := lose("a word that no message has spelled")
		said := w.message(first)
		stop()
		s, stop := w.sync(opts)
		defer stop()
		time.Sleep(time.Hour)
		if w.message(first) != said {
			t.Errorf("before a restart %q, after it %q", said, w.message(first))
		}
		w.release(first)
		time.Sleep(time.Minute)
		if w.targetOf(first) == nil || w.message(first) != "" {
			t.Fatalf("released, and it says %q", w.message(first))
		}
		s.Release() // of the breaker, for the next one to be counted
		for i := range 2 {
			w.merge(w.source, w.sourceNS, fmt.Sprint("w", i), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, ReleaseAnnotation, said[strings.LastIndex(said, "=")+1:]))
		}
		lose("the word of before")
	})
}

// I15: a mass deletion stops, also over a restart, says so on each object, and
// goes on when it is released.
func TestMassDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, limit = 30, 10
		w := newFake(t)
		_, stop := w.sync(Options{})
		w.createMany(n)
		for i := range n {
			w.delete(w.source, w.sourceNS, fmt.Sprintf("w%d", i))
		}
		time.Sleep(time.Hour)
		if got := w.count(w.fakeTarget, w.targetNS); got != n-limit {
			t.Errorf("%d targets are left, want %d", got, n-limit)
		}
		stop()
		s, stop := w.sync(Options{})
		defer stop()
		time.Sleep(time.Hour)
		if got := w.count(w.fakeTarget, w.targetNS); got != n-limit {
			t.Errorf("%d targets are left after a restart, want %d", got, n-limit)
		}
		if st := s.Status(); st.Held != n-limit {
			t.Errorf("status = %+v", st)
		}
		held := 0
		for i := range n {
			if strings.HasPrefix(w.message(fmt.Sprintf("w%d", i)), string(ReasonHeld)+": more than 10 objects were deleted within 5 minutes;") {
				held++
			}
		}
		if held != n-limit {
			t.Errorf("%d sources say that they are held", held)
		}
		for i := range n {
			if name := fmt.Sprintf("w%d", i); w.message(name) != "" {
				w.release(name)
				break
			}
		}
		w.until("the one that was released is gone", func() bool { return w.count(w.fakeSource, w.sourceNS) == n-limit-1 })
		s.Release()
		w.until("all are gone", func() bool {
			return w.count(w.fakeTarget, w.targetNS) == 0 && w.count(w.fakeSource, w.sourceNS) == 0
		})
		w.settle()
		if st := s.Status(); st.Held != 0 {
			t.Errorf("status = %+v", st)
		}
	})
}

// What a Sync held before a restart is let go by a release that comes before the next one has
// looked at each of it.
func TestReleaseAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, limit = 30, 10
		w := newFake(t)
		_, stop := w.sync(Options{})
		w.createMany(n)
		for i := range n {
			w.delete(w.source, w.sourceNS, fmt.Sprintf("w%d", i))
		}
		time.Sleep(time.Hour)
		stop()
		slow := func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb != "list" && r.Verb != "watch" {
				time.Sleep(time.Second) // each look at an object takes its time
			}
			return do()
		}
		w.fakeSource.Intercept(slow)
		w.fakeTarget.Intercept(slow)
		s, stop := w.sync(Options{Workers: 1})
		defer stop()
		w.until("all is read", func() bool { return s.Status().Synced })
		if held := s.Status().Held; held == n-limit {
			t.Fatalf("all %d have been looked at", held)
		}
		s.Release()
		w.until("all are gone", func() bool { return w.count(w.fakeTarget, w.targetNS) == 0 && w.count(w.fakeSource, w.sourceNS) == 0 })
	})
}

// A deletion is two writes, also when the watches are late to tell what has gone.
func TestDeletionRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.createMany(1)
		w.settle()
		var mu gosync.Mutex
		var sent []string
		looks := 0 // at the clusters as such
		count := func(side Side) interceptor {
			return func(_ context.Context, r fakecluster.Request, do func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if r.Resource == widgets {
					sent = append(sent, string(side)+" "+r.Verb)
				}
				if side == TargetSide && r.Resource.Resource == "namespaces" {
					looks++
				}
				if side == SourceSide && r.Verb == "patch" {
					w.fakeSource.Lag(widgets, true)
				}
				if side == TargetSide && r.Verb == "delete" {
					w.fakeTarget.Lag(widgets, true)
				}
				return do()
			}
		}
		w.fakeSource.Intercept(count(SourceSide))
		w.fakeTarget.Intercept(count(TargetSide))
		w.delete(w.source, w.sourceNS, "w0")
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff([]string{"Source delete", "Target delete", "Source patch"}, sent); diff != "" || looks != 1 {
			t.Errorf("%d looks, requests (-want +got):\n%s", looks, diff)
		}
	})
}

// Deletions one by one are none of the breaker's business.
func TestSlowDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		w := newFake(t)
		defer w.run(Options{})()
		w.createMany(n)
		for i := range n {
			w.delete(w.source, w.sourceNS, fmt.Sprintf("w%d", i))
			time.Sleep(time.Minute)
		}
		w.until("all are gone", func() bool { return w.count(w.fakeTarget, w.targetNS) == 0 && w.count(w.fakeSource, w.sourceNS) == 0 })
	})
}

// A resource that goes away as a whole takes no target along, not even the first.
func TestResourceVanishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		w.fakeSource.Serve(fakecluster.Resource{GroupVersionResource: crds, Kind: "CustomResourceDefinition", Cluster: true})
		definitions := w.source.Resource(crds)
		crd := object(t, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.org","finalizers":["customresourcecleanup.apiextensions.k8s.io"]}}`)
		if _, err := definitions.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s, stop := w.sync(Options{})
		defer stop()
		w.createMany(4)
		w.delete(w.source, w.sourceNS, "w3")
		w.until("the resource was looked at", func() bool { return w.get(w.source, w.sourceNS, "w3") == nil })
		if err := definitions.Delete(t.Context(), "widgets.example.org", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			w.delete(w.source, w.sourceNS, fmt.Sprintf("w%d", i))
		}
		time.Sleep(time.Hour)
		if got := w.count(w.fakeTarget, w.targetNS); got != 3 || s.Status().Held != 3 {
			t.Errorf("%d targets are left, status %+v", got, s.Status())
		}
		s.Release()
		w.until("all are gone", func() bool { return w.count(w.fakeSource, w.sourceNS) == 0 && w.count(w.fakeTarget, w.targetNS) == 0 })
	})
}

// An endpoint behind which another cluster answers loses no target: what is
// not found there may be where it was.
func TestAnotherCluster(t *testing.T) {
	for _, side := range []Side{SourceSide, TargetSide} {
		t.Run(string(side), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				s, stop := w.sync(Options{})
				defer stop()
				w.createMany(3)
				w.delete(w.source, w.sourceNS, "w2")
				w.until("the clusters were looked at", func() bool { return w.get(w.source, w.sourceNS, "w2") == nil })
				moved := w.fakeTarget
				if side == SourceSide {
					moved = w.fakeSource
				}
				w.replaceIdentity(moved)
				if side == TargetSide {
					w.fakeTarget.Withdraw(widgets)
					w.fakeTarget.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
				}
				w.delete(w.source, w.sourceNS, "w0")
				time.Sleep(time.Hour)
				if w.get(w.source, w.sourceNS, "w0") == nil {
					t.Error("the source was let go")
				}
				if side == SourceSide && w.targetOf("w0") == nil {
					t.Error("the target was deleted")
				}
				// What was w1's is missing too: it is held if that was told before the cluster was found to be another.
				if st := s.Status(); side == TargetSide && st.Held != 1 && st.Held != 2 {
					t.Errorf("status = %+v", st)
				}
				s.Release()
				if side == TargetSide {
					w.until("released", func() bool { return w.get(w.source, w.sourceNS, "w0") == nil })
				}
			})
		})
	}
}

// A deletion that was admitted, and not done when another cluster took the target's place, is
// asked for anew.
func TestAdmittedInAnotherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		s, stop := w.sync(Options{})
		defer stop()
		w.createMany(1)
		w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":["example.org/slow"]}}`)
		w.delete(w.source, w.sourceNS, "w0")
		w.until("the target is going", func() bool { return w.targetOf("w0").GetDeletionTimestamp() != nil })
		w.replaceIdentity(w.fakeTarget)
		w.fakeTarget.Withdraw(widgets)
		w.fakeTarget.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
		time.Sleep(time.Hour)
		if st := s.Status(); st.Held != 1 || w.get(w.source, w.sourceNS, "w0") == nil {
			t.Errorf("the source was let go, status = %+v", st)
		}
		s.Release()
		w.until("released", func() bool { return w.get(w.source, w.sourceNS, "w0") == nil })
	})
}

// A copy stays when another cluster answers in the place of that of its original.
func TestCopyOfAnotherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.sync(widgets, Related{Resource: secrets, From: TargetSide, Names: []string{"creds"}})()
		b.resident(b.sourceNS)
		b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
		b.until("copied", func() bool { return b.copied("creds") != nil })
		b.replaceIdentity(b.fakeTarget)
		if err := b.target.Resource(secrets).Namespace(b.targetNS).Delete(t.Context(), "creds", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if b.copied("creds") == nil {
			t.Error("the copy went although its original may be where it was")
		}
	})
}

// replaceIdentity makes c another cluster.
func (w *world) replaceIdentity(c *fakecluster.Cluster) {
	w.Helper()
	namespaces := c.Client().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if err := namespaces.Delete(w.Context(), metav1.NamespaceSystem, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName(metav1.NamespaceSystem)
	if _, err := namespaces.Create(w.Context(), ns, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// A cluster that is restored from a backup takes nothing along that the backup
// has, and everything goes on.
func TestRestore(t *testing.T) {
	for _, side := range []Side{SourceSide, TargetSide} {
		t.Run(string(side), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				defer w.run(Options{})()
				w.createMany(3)
				w.settle()
				restored := w.fakeTarget
				if side == SourceSide {
					restored = w.fakeSource
				}
				backup := restored.Version()
				for i := range 20 {
					w.merge(restored.Client(), map[Side]string{SourceSide: w.sourceNS, TargetSide: w.targetNS}[side], "w0",
						fmt.Sprintf(`{"metadata":{"annotations":{"later":"%d"}}}`, i))
				}
				w.delete(w.source, w.sourceNS, "w1")
				w.until("w1 is gone", func() bool { return w.targetOf("w1") == nil && w.get(w.source, w.sourceNS, "w1") == nil })
				restored.Restore(backup)
				time.Sleep(10 * time.Minute)
				w.merge(w.source, w.sourceNS, "w2", `{"spec":{"size":"large"}}`)
				w.until("a change goes up", func() bool { return field(w.targetOf("w2"), "spec", "size") == "large" })
				if w.targetOf("w0") == nil {
					t.Error("a target was lost")
				}
				if side == SourceSide {
					w.until("what the backup brought back has a target", func() bool { return w.targetOf("w1") != nil })
				}
			})
		})
	}
}

// A view that goes back in time makes everything begin again, and deletions be
// seen live from then on.
func TestBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		s, stop := w.sync(Options{})
		defer stop()
		w.createMany(2)
		w.settle()
		s.mu.Lock()
		e := s.engine
		s.mu.Unlock()
		e.guard.Read(fence.Store{View: e.source, Namespace: w.sourceNS}, func() string { return "1000000" })
		w.delete(w.source, w.sourceNS, "w0")
		w.until("the deletion is carried out", func() bool { return w.targetOf("w0") == nil && w.get(w.source, w.sourceNS, "w0") == nil })
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.suspect.Load() || s.engine == e {
			t.Error("nothing began again")
		}
	})
}

// What was reported of an object is taken back when all begins again, unless it is so still.
func TestReportedBeforeItBeganAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var mu gosync.Mutex
		reported := map[string]Reason{}
		s, stop := w.sync(Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) {
			mu.Lock()
			defer mu.Unlock()
			reported[r.Source.Name] = r.Reason
		}}})
		defer stop()
		is := func(name string) Reason {
			mu.Lock()
			defer mu.Unlock()
			return reported[name]
		}
		denying := func(names ...string) {
			w.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				if r.Verb == "patch" && slices.Contains(names, r.Object.Name) {
					return forbidden(r)
				}
				return do()
			})
		}
		denying("w0", "w1")
		for _, name := range []string{"w0", "w1"} {
			w.create(w.source, w.sourceNS, w.widget(name, `{"size":"small"}`, ``))
		}
		w.until("denied", func() bool { return is("w0") == ReasonDenied && is("w1") == ReasonDenied })
		denying("w1")
		s.mu.Lock()
		e := s.engine
		s.mu.Unlock()
		e.guard.Read(fence.Store{View: e.source, Namespace: w.sourceNS}, func() string { return "1000000" })
		w.create(w.source, w.sourceNS, w.widget("news", `{"size":"small"}`, ``))
		w.until("found out anew", func() bool { return is("w0") == "" && is("w1") == ReasonDenied })
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.engine == e {
			t.Error("nothing began again")
		}
	})
}

// I15: 60 deletions with a restart after each ten are a mass deletion.
func TestMassDeletionOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, limit = 60, 10
		w := newFake(t)
		log, saves := "", 0
		opts := func() Options {
			return Options{DeletionLog: DeletionLog{Text: log, Save: func(_ context.Context, text string) error {
				log, saves = text, saves+1
				return nil
			}}}
		}
		_, stop := w.sync(opts())
		w.createMany(n)
		for i := range n {
			w.delete(w.source, w.sourceNS, fmt.Sprintf("w%d", i))
			if i%10 == 9 {
				time.Sleep(20 * time.Second)
				stop()
				_, stop = w.sync(opts())
			}
		}
		time.Sleep(time.Hour)
		if got := w.count(w.fakeTarget, w.targetNS); got != n-limit {
			t.Errorf("%d targets are left, want %d", got, n-limit)
		}
		if saves == 0 || saves > 2*limit || len(log) > 200 {
			t.Errorf("%d writes of %q", saves, log)
		}
		stop()
		s, stop := w.sync(opts())
		defer stop()
		time.Sleep(time.Minute)
		s.Release()
		w.until("released", func() bool { return w.count(w.fakeTarget, w.targetNS) == 0 })
	})
}

// A deletion waits until it is counted for the time after a restart. I19: that is tried ever more rarely, however many
// deletions wait for it, also where the log answers as if it were about the target.
func TestDeletionIsCountedFirst(t *testing.T) {
	for name, err := range map[string]error{
		"no room":        errors.New("no room"),
		"another writer": apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "log", errors.New("the object has been modified")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 5
				w := newFake(t)
				var tries atomic.Int32
				var broken atomic.Bool
				broken.Store(true)
				_, stop := w.sync(Options{DeletionLog: DeletionLog{Save: func(context.Context, string) error {
					if broken.Load() {
						tries.Add(1)
						return err
					}
					return nil
				}}})
				defer stop()
				w.createMany(n)
				for i := range n {
					w.delete(w.source, w.sourceNS, fmt.Sprintf("w%d", i))
				}
				time.Sleep(time.Hour)
				if got := w.count(w.fakeTarget, w.targetNS); got != n {
					t.Errorf("%d of %d deleted before they were counted", n-got, n)
				}
				if got := tries.Load(); got > 66 { // six in the first minute, and then one a minute
					t.Errorf("tried %d times in an hour", got)
				}
				broken.Store(false)
				w.until("deleted", func() bool { return w.count(w.fakeTarget, w.targetNS) == 0 })
			})
		})
	}
}

// Copies of which the originals go at once, while what they were ordered for stays, are
// held: a control plane may have been restored from before they were made. So they are
// after a restart, and those that get their originals again are let alone.
func TestMassDeletionOfCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, limit = 30, 10
		b := newBench(t)
		log := ""
		related := []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}}
		run := func() (*Sync, func()) {
			return b.world.sync(Options{Related: related, DeletionLog: DeletionLog{Text: log, Save: func(_ context.Context, text string) error {
				log = text
				return nil
			}}})
		}
		s, stop := run()
		name, left := b.createCopied(n)
		b.settle()
		for i := range n {
			b.deleteSecret(b.target, b.targetNS, name(i))
		}
		time.Sleep(time.Hour)
		if got := left(); got != n-limit || s.Status().HeldCopies != n-limit {
			t.Errorf("%d copies are left, %d held, want %d", got, s.Status().HeldCopies, n-limit)
		}
		told := 0
		for i := range n {
			if strings.Contains(b.message(name(i)), "and is kept") {
				told++
			}
		}
		if told != n-limit {
			t.Errorf("%d are told", told)
		}
		stop()
		s, stop = run()
		defer stop()
		time.Sleep(time.Hour)
		if got := left(); got != n-limit {
			t.Fatalf("%d copies are left after a restart, want %d", got, n-limit)
		}
		back := 0
		for i := range n {
			if b.copied(name(i)) != nil {
				back = i
			}
		}
		b.secret(b.target, b.targetNS, name(back), "bmV3")
		b.until("its original is back", func() bool { return s.Status().HeldCopies == n-limit-1 && b.message(name(back)) == "" })
		s.Release()
		b.until("released", func() bool { return left() == 1 && s.Status().HeldCopies == 0 })
	})
}

// createCopied makes n sources with a Secret each, waits until all of these are copied, and returns how
// the Secrets are called and how many copies are left.
func (b *bench) createCopied(n int) (name func(int) string, left func() int) {
	b.Helper()
	b.createMany(n)
	name = func(i int) string { return fmt.Sprintf("w%d", i) }
	for i := range n {
		b.secret(b.target, b.targetNS, name(i), "cGFzcw==")
		b.merge(b.target, b.targetNS, name(i), `{"status":{"secret":"`+name(i)+`"}}`, "status")
	}
	left = func() (left int) {
		for i := range n {
			if b.copied(name(i)) != nil {
				left++
			}
		}
		return left
	}
	b.until("copied", func() bool { return left() == n })
	return name, left
}

// A copy that another konnector makes again as it goes, since that still sees its original, is counted again.
func TestCopiesOfTwoKonnectorsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, stop := b.world.sync(Options{DeletionLimit: 2, Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}}})
		defer stop()
		name, left := b.createCopied(1)
		copied := b.copied(name(0))
		manager := copied.GetManagedFields()[0].Manager
		copied.SetUID("")
		copied.SetResourceVersion("")
		copied.SetManagedFields(nil)
		var deleted atomic.Int32
		b.fakeSource.Intercept(func(ctx context.Context, r fakecluster.Request, do func() error) error {
			err := do()
			if r.Resource == secrets && r.Verb == "delete" && err == nil {
				deleted.Add(1)
				if _, err := b.source.Resource(secrets).Namespace(b.sourceNS).Apply(ctx, name(0), copied, metav1.ApplyOptions{FieldManager: manager}); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second) // so that no pass sees it gone
			}
			return err
		})
		b.deleteSecret(b.target, b.targetNS, name(0))
		time.Sleep(time.Minute)
		if deleted.Load() != 2 || left() != 1 || s.Status().HeldCopies != 1 {
			t.Errorf("%d copies were deleted, %d are left, %d held: want 2, 1 and 1", deleted.Load(), left(), s.Status().HeldCopies)
		}
	})
}

// A copy that has gone with its original, or was not let go, and has it back at once, is counted when it
// goes again: what was let pass then is no word for later.
func TestCopiesAreCountedEachTime(t *testing.T) {
	t.Parallel()
	const n, limit = 30, 10
	for restored, want := range map[bool]int{false: n - limit, true: n} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			s, stop := b.world.sync(Options{Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}}})
			defer stop()
			name, left := b.createCopied(n)
			var deleted atomic.Int32
			b.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				if r.Resource == secrets && r.Verb == "delete" {
					b.secret(b.target, b.targetNS, r.Object.Name, "bmV3") //nolint:contextcheck // the world has one
					time.Sleep(time.Second)                               // which is seen before the copy goes
					if deleted.Add(1)%2 == 0 {
						return apierrors.NewInternalError(errors.New("not now"))
					}
				}
				return do()
			})
			for i := range limit {
				b.deleteSecret(b.target, b.targetNS, name(i))
				b.until("back", func() bool {
					u := b.copied(name(i))
					return int(deleted.Load()) > i && u != nil && field(u, "data", "password") == "bmV3"
				})
			}
			b.fakeSource.Intercept(nil)
			time.Sleep(time.Hour + time.Minute) // not as a watch ends that was silent for three: what goes would be missing from a list
			s.suspect.Store(restored)           // from before the Secrets were made
			for i := range n {
				b.deleteSecret(b.target, b.targetNS, name(i))
			}
			time.Sleep(time.Hour)
			if got := left(); got != want || s.Status().HeldCopies != want {
				t.Errorf("restored %t: %d copies are left, %d held, want %d", restored, got, s.Status().HeldCopies, want)
			}
		})
	}
}

// Copies that go since their originals are of another type by now, be it that they are made anew, are counted, and
// held past the limit, over a restart too, and each is told. One whose original is what it was is let alone. Originals
// change their type between two looks: API servers have them deleted and made anew for it.
func TestCopiesOfAnotherTypeAreCounted(t *testing.T) {
	const n, limit = 30, 10
	for kind, travels := range map[string]bool{"example.org/private": false, "kubernetes.io/basic-auth": true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			log := ""
			run := func() (*Sync, func()) {
				return b.world.sync(Options{
					Related:     []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}},
					DeletionLog: DeletionLog{Text: log, Save: func(_ context.Context, text string) error { log = text; return nil }},
				})
			}
			s, stop := run()
			name, _ := b.createCopied(n)
			be := func(i int, kind string) { b.mergeSecret(b.target, b.targetNS, name(i), `{"type":"`+kind+`"}`) }
			before := func() (left []int) {
				for i := range n {
					if u := b.copied(name(i)); u != nil && field(u, "type") == "Opaque" {
						left = append(left, i)
					}
				}
				return left
			}
			settled := func(when string, held int) {
				t.Helper()
				time.Sleep(time.Hour)
				if got := len(before()); got != held || s.Status().HeldCopies != held {
					t.Errorf("%s, %s: %d copies are what they were, %d held, want %d", kind, when, got, s.Status().HeldCopies, held)
				}
				for i := range n {
					want, u := "", b.copied(name(i))
					switch {
					case u != nil && field(u, "type") == "Opaque" && field(b.getSecret(b.target, b.targetNS, name(i)), "type") != "Opaque":
						want = "and is kept: more than 10 objects were deleted"
					case u == nil:
						want = "is of type example.org/private, which does not travel"
					case field(u, "type") == kind && !travels:
						t.Errorf("%s has travelled", name(i))
					}
					if got := b.message(name(i)); !strings.Contains(got, want) || want == "" && got != "" {
						t.Errorf("%s, %s: %s says %q, want %q", kind, when, name(i), got, want)
					}
				}
			}
			for i := range n {
				be(i, kind)
			}
			settled("at once", n-limit)
			stop()
			s, stop = run()
			defer func() { stop() }()
			settled("after a restart", n-limit)
			left := before()
			if len(left) == 0 {
				return
			}
			be(left[0], "Opaque")
			b.until("what it was", func() bool { return s.Status().HeldCopies == len(left)-1 && b.message(name(left[0])) == "" })
			s.Release()
			b.until("released", func() bool { return len(before()) == 1 && s.Status().HeldCopies == 0 })
		})
	}
}
