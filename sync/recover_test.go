// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// foreignTarget is made from a source of that name in a third cluster.
func (w *world) foreignTarget(name string) *unstructured.Unstructured {
	w.Helper()
	from := origin{cluster: "third", uid: "3", name: cache.NewObjectName(w.sourceNS, name)}
	u := w.widget(name, `{"size":"small"}`, ``)
	u.SetAnnotations(map[string]string{SourceAnnotation: from.record(1, "")})
	return w.create(w.target, w.targetNS, u)
}

// A source cluster is lost and set up again. Nothing of what the one before made is taken
// up, until its owner says so; then just what has a source of the same name, and nothing
// of a third cluster, nor is anything deleted.
func TestLostSourceCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		third := w.foreignTarget("theirs")
		_, stop := w.sync(Options{})
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, ``))
		w.create(w.source, w.sourceNS, w.widget("b", `{"size":"small"}`, ``))
		w.until("made", func() bool { return w.targetOf("a") != nil && w.targetOf("b") != nil })
		w.settle()
		stop()
		made, _ := OriginOf(w.targetOf("a"))
		w.vanish("a")
		w.vanish("b")
		w.replaceIdentity(w.fakeSource)
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"large"}`, ``))
		w.create(w.source, w.sourceNS, w.widget("theirs", `{"size":"large"}`, ``))
		before := w.targetOf("a")
		_, stop = w.sync(Options{Conflict: ConflictAdopt, Orphans: OrphanDelete})
		time.Sleep(time.Hour)
		if diff := cmp.Diff(before, w.targetOf("a")); diff != "" {
			t.Errorf("taken up without a word (-before +after):\n%s", diff)
		}
		if m := w.message("a"); !strings.Contains(m, "another source cluster") || !strings.Contains(m, "recover") {
			t.Errorf("message: %q", m)
		}
		stop()
		s, stop := w.sync(Options{Orphans: OrphanDelete, FormerSource: made.Cluster})
		defer stop()
		began := time.Now()
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Up"}}`, "status")
		w.until("taken up", func() bool {
			return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Up" && w.message("a") == ""
		})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		got := w.targetOf("a")
		if diff := cmp.Diff(map[string]any{"size": "large"}, got.Object["spec"]); diff != "" || got.GetUID() != before.GetUID() {
			t.Errorf("target %s, spec (-want +got):\n%s", got.GetUID(), diff)
		}
		time.Sleep(2 * orphanGrace)
		if w.targetOf("b") == nil || s.Status().Orphans != 1 {
			t.Errorf("target without a source: %v, %d orphans", w.targetOf("b"), s.Status().Orphans)
		}
		if diff := cmp.Diff(third, w.targetOf("theirs")); diff != "" {
			t.Errorf("a third cluster's (-before +after):\n%s", diff)
		}
	})
}

// An edit between a restore of the source and the first look cannot be told from what the backup
// brought. The message says how it is sent, without another edit, and only the generation that it
// names is.
func TestSentAsItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		_, stop := w.sync(Options{})
		w.createMany(1)
		w.settle()
		backup := w.fakeSource.Version()
		edit := func(color string) { w.merge(w.source, w.sourceNS, "w0", `{"spec":{"color":"`+color+`"}}`) }
		for _, color := range []string{"red", "green", "blue"} {
			edit(color)
			w.settle()
		}
		stop()
		w.fakeSource.Restore(backup)
		edit("new")
		_, stop = w.sync(Options{})
		defer stop()
		time.Sleep(time.Hour)
		is := func(want string) {
			t.Helper()
			if got := field(w.targetOf("w0"), "spec", "color"); got != want {
				t.Errorf("color is %v, not %s; message %q", got, want, w.message("w0"))
			}
		}
		is("blue")
		const says = "annotate it with " + SendAnnotation + "=2"
		if got := w.message("w0"); !strings.HasPrefix(got, string(ReasonStale)) || !strings.HasSuffix(got, says) {
			t.Fatalf("message %q", got)
		}
		send := func(generation string) {
			w.merge(w.source, w.sourceNS, "w0", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, SendAnnotation, generation))
			w.settle()
		}
		send("1")
		is("blue")
		send("2")
		is("new")
		if got := w.message("w0"); got != "" || w.targetOf("w0").GetAnnotations()[SendAnnotation] != "" {
			t.Errorf("message %q, annotations of the target %v", got, w.targetOf("w0").GetAnnotations())
		}
	})
}

// A claim that a backup brought back takes nothing back as it is deleted, be it seen before or not: API servers
// count a deletion as another generation. What is changed after that goes up, as long as the target is kept.
func TestDeletionAfterARestore(t *testing.T) {
	for _, seen := range []bool{true, false} {
		for _, policy := range []DeletionPolicy{DeletionDelete, DeletionOrphan} {
			t.Run(fmt.Sprint(policy, ", seen before: ", seen), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, opts := newFake(t), Options{Deletion: policy}
					_, stop := w.sync(opts)
					w.createMany(1)
					w.settle()
					backup := w.fakeSource.Version()
					w.merge(w.source, w.sourceNS, "w0", `{"spec":{"color":"blue"}}`)
					w.settle()
					w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":["example.org/hold"]}}`)
					stop()
					w.fakeSource.Restore(backup)
					if !seen {
						w.delete(w.source, w.sourceNS, "w0")
					}
					_, stop = w.sync(opts)
					defer stop()
					time.Sleep(time.Minute)
					if seen {
						w.delete(w.source, w.sourceNS, "w0")
						time.Sleep(time.Minute)
					}
					if got := field(w.targetOf("w0"), "spec", "color"); got != "blue" {
						t.Errorf("the color is %v", got)
					}
					if policy == DeletionOrphan {
						return
					}
					if got := w.message("w0"); !strings.HasPrefix(got, string(ReasonTerminating)) || !strings.Contains(got, SendAnnotation+"=2") {
						t.Errorf("message %q", got)
					}
					w.merge(w.source, w.sourceNS, "w0", `{"spec":{"color":"free"}}`)
					w.settle()
					if got := field(w.targetOf("w0"), "spec", "color"); got != "free" {
						t.Errorf("after the change the color is %v; message %q", got, w.message("w0"))
					}
					w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":null}}`)
					w.until("both are gone", func() bool { return w.targetOf("w0") == nil && w.get(w.source, w.sourceNS, "w0") == nil })
				})
			})
		}
	}
}

// I19: what a target's API server refused is not asked while the source is an older one, and neither
// is the source read again and again for it.
func TestRefusedBeforeARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		_, stop := w.sync(Options{})
		defer stop()
		w.createMany(1)
		w.settle()
		backup := w.fakeSource.Version()
		edit := func(color string) {
			w.merge(w.source, w.sourceNS, "w0", `{"spec":{"color":"`+color+`"}}`)
			w.settle()
		}
		edit("red")
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && r.Verb == "apply" {
				return apierrors.NewForbidden(widgets.GroupResource(), r.Object.Name, errors.New("exceeded quota"))
			}
			return do()
		})
		edit("blue")
		if got := w.message("w0"); !strings.HasPrefix(got, string(ReasonForbidden)) {
			t.Fatalf("message %q", got)
		}
		w.fakeSource.Restore(backup)
		time.Sleep(time.Hour)
		w.fakeTarget.Intercept(nil)
		var reads atomic.Int64
		w.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && r.Verb == "get" {
				reads.Add(1)
			}
			return do()
		})
		time.Sleep(12 * time.Minute)
		if got := reads.Load(); got > 24 { // the fake sends no bookmarks: all is listed, and looked at, every three minutes
			t.Errorf("%d reads of the source in twelve minutes", got)
		}
		if got := w.message("w0"); !strings.HasPrefix(got, string(ReasonStale)) || field(w.targetOf("w0"), "spec", "color") != "red" {
			t.Errorf("message %q, target %v", got, w.targetOf("w0"))
		}
		edit("new")
		w.until("the edit has gone up", func() bool { return field(w.targetOf("w0"), "spec", "color") == "new" && w.message("w0") == "" })
	})
}

// The source's cluster is restored from before a source was made. The target of that one is an
// orphan, and stays, as it would be if the backup were wrong. A release says that it is not: then
// this orphan goes, and a later one by its grace alone.
func TestCollectingIsHeldAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		s, stop := w.sync(Options{Orphans: OrphanDelete})
		defer stop()
		w.createMany(2)
		w.settle()
		backup := w.fakeSource.Version()
		w.create(w.source, w.sourceNS, w.widget("younger", `{"size":"small"}`, ``))
		for i := range 20 { // the restored cluster shows older versions than were seen before
			w.merge(w.source, w.sourceNS, "w0", fmt.Sprintf(`{"metadata":{"annotations":{"later":"%d"}}}`, i))
		}
		w.until("the younger one has a target", func() bool { return w.targetOf("younger") != nil })
		w.settle()
		w.fakeSource.Restore(backup)
		time.Sleep(6 * orphanGrace)
		if st := s.Status(); w.targetOf("younger") == nil || st.Orphans != 1 || st.Held != 1 {
			t.Fatalf("target %v, status %+v", w.targetOf("younger"), st)
		}
		s.Release()
		w.until("the released orphan goes", func() bool { return w.targetOf("younger") == nil })
		w.vanish("w1")
		time.Sleep(3 * orphanGrace)
		if st := s.Status(); w.targetOf("w1") != nil || st.Orphans != 0 || st.Held != 0 {
			t.Errorf("after the release: target %v, status %+v", w.targetOf("w1"), st)
		}
	})
}

// No message tells of orphans that are held, since a cluster may have been restored or since they are too
// many: a restart goes on with the journal.
func TestHeldOrphansOverARestart(t *testing.T) {
	for name, restored := range map[string]bool{"restored from a backup": true, "too many": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 3
				w := newFake(t)
				opts := Options{Orphans: OrphanDelete, DeletionLimit: 1}
				opts.DeletionLog.Save = func(_ context.Context, text string) error { opts.DeletionLog.Text = text; return nil }
				_, stop := w.sync(opts)
				backup := w.fakeSource.Version()
				w.createMany(n)
				w.settle()
				want := n - 1
				if restored {
					want = n
					w.fakeSource.Restore(backup)
				} else {
					for i := range n {
						w.vanish(fmt.Sprint("w", i))
					}
				}
				time.Sleep(3 * orphanGrace)
				stop()
				s, stop := w.sync(opts)
				defer stop()
				time.Sleep(6 * orphanGrace)
				if st := s.Status(); len(w.left()) != want || st.Held != want {
					t.Fatalf("after a restart %v are left, status %+v", w.left(), st)
				}
				s.Release()
				time.Sleep(6 * orphanGrace)
				if restored && len(w.left()) == want {
					t.Errorf("released, and %v are left", w.left())
				}
			})
		})
	}
}

// What the breaker holds is held no more once a restore has undone it: the deletion of sources, or the
// loss of targets.
func TestRestoreUndoesHeld(t *testing.T) {
	for _, side := range []Side{SourceSide, TargetSide} {
		t.Run(string(side), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n, limit = 14, 10
				w := newFake(t)
				s, stop := w.sync(Options{})
				defer stop()
				w.createMany(n)
				w.settle()
				cluster, client, namespace := w.fakeSource, w.source, w.sourceNS
				if side == TargetSide {
					cluster, client, namespace = w.fakeTarget, w.target, w.targetNS
				}
				backup := cluster.Version()
				for i := range n {
					w.delete(client, namespace, fmt.Sprintf("w%d", i))
				}
				w.until("the rest is held", func() bool { return s.Status().Held == n-limit })
				cluster.Restore(backup)
				w.until("none is held", func() bool {
					return s.Status().Held == 0 && w.count(w.fakeSource, w.sourceNS) == n && w.count(w.fakeTarget, w.targetNS) == n
				})
			})
		})
	}
}

// The target's cluster is replaced by an empty one, and the sources are synced there. Of those whose
// status says that they had a target ten get one, empty, and the others once they are released;
// the ones that never had one are not held.
func TestTargetClusterIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, limit = 14, 10
		w := newFake(t)
		_, stop := w.sync(Options{})
		w.createMany(n)
		for i := range n {
			w.merge(w.target, w.targetNS, fmt.Sprintf("w%d", i), `{"status":{"phase":"Up"}}`, "status")
		}
		w.until("all have a status", func() bool {
			for i := range n {
				if field(w.get(w.source, w.sourceNS, fmt.Sprintf("w%d", i)), "status", "phase") != "Up" {
					return false
				}
			}
			return true
		})
		w.settle()
		stop()
		for i := range n {
			w.delete(w.target, w.targetNS, fmt.Sprintf("w%d", i))
		}
		w.replaceIdentity(w.fakeTarget)
		w.create(w.source, w.sourceNS, w.widget("new", `{"size":"small"}`, ``))
		s, stop := w.sync(Options{})
		defer stop()
		time.Sleep(time.Hour)
		if st := s.Status(); w.count(w.fakeTarget, w.targetNS) != limit+1 || w.targetOf("new") == nil || st.Held != n-limit {
			t.Errorf("%d targets, one of the new source: %t, status %+v", w.count(w.fakeTarget, w.targetNS), w.targetOf("new") != nil, st)
		}
		for i := range n {
			name := fmt.Sprintf("w%d", i)
			if m := w.message(name); w.targetOf(name) == nil && !strings.HasPrefix(m, string(ReasonVanished)+": ") {
				t.Errorf("%s has no target and says %q", name, m)
			}
		}
		s.Release()
		w.until("all have a target", func() bool { return w.count(w.fakeTarget, w.targetNS) == n+1 })
	})
}
