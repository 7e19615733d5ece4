// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/loss"
)

// theirs makes a target as the target's side does.
func (w *world) theirs(name string) *unstructured.Unstructured {
	w.Helper()
	u := w.widget(name, `{"size":"small","resourceRef":{"name":"xr"}}`, ``)
	u.SetFinalizers([]string{"example.org/operator"})
	return w.create(w.target, w.targetNS, u)
}

// adopt makes the source of a target.
func (w *world) adopt(target *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	u, ok := NewAdopted(target, cache.NewObjectName(w.sourceNS, target.GetName()))
	if !ok {
		w.Fatalf("%s is not for adoption", target.GetName())
	}
	return w.create(w.source, w.sourceNS, u)
}

// A source takes over just the target that it names, where that was agreed to.
func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var unclaimed atomic.Int64
		hooks := Hooks{Unclaimed: func(_ context.Context, source, target cache.ObjectName) {
			if source != (cache.ObjectName{Namespace: w.sourceNS, Name: "a"}) || target.Namespace != w.targetNS {
				t.Errorf("unclaimed: %s for %s", target, source)
			}
			unclaimed.Add(1)
		}}
		a := w.theirs("a")
		_, stop := w.sync(Options{Hooks: hooks})
		w.until("found", func() bool { return unclaimed.Load() > 0 })
		source := w.adopt(a)
		if _, has := source.Object["spec"].(map[string]any)["resourceRef"]; has || len(source.GetFinalizers()) > 0 {
			t.Errorf("source: %v", source.Object)
		}
		w.until("told without the option", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonConflict)) })
		if diff := cmp.Diff(a, w.targetOf("a")); diff != "" {
			t.Errorf("taken over without the option (-before +after):\n%s", diff)
		}
		stop()

		other := w.theirs("other")
		claims := w.adopt(other)
		w.merge(w.source, w.sourceNS, "other", `{"metadata":{"annotations":{"`+TargetAnnotation+`":"x"}}}`)
		_, stop = w.sync(Options{Adopt: true})
		defer stop()
		w.until("taken over", func() bool {
			made, _ := OriginOf(w.targetOf("a"))
			return made.UID == source.GetUID() && w.message("a") == ""
		})
		if now := w.targetOf("a"); now.GetUID() != a.GetUID() || len(now.GetFinalizers()) != 1 || field(now, "spec", "size") != "small" {
			t.Errorf("target: %v", now.Object)
		}
		w.until("another UID is told", func() bool { return strings.HasPrefix(w.message(claims.GetName()), string(ReasonConflict)) })
		if diff := cmp.Diff(other, w.targetOf("other")); diff != "" {
			t.Errorf("another UID (-before +after):\n%s", diff)
		}
	})
}

// What the target's side made goes by no deletion of a source, however that went; nor is it
// for adoption again. Where it vanished nothing is made, until people say so.
func TestAdoptedOutlivesItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		_, stop := w.sync(Options{Adopt: true, Orphans: OrphanDelete})
		defer stop()
		before := map[string]*unstructured.Unstructured{}
		for _, name := range []string{"deleted", "vanished", "lost", "usual"} {
			before[name] = w.theirs(name)
			w.adopt(before[name])
			w.until("taken over", func() bool { _, made := OriginOf(w.targetOf(name)); return made })
		}
		w.settle()
		w.delete(w.source, w.sourceNS, "deleted")
		w.until("gone", func() bool { return w.get(w.source, w.sourceNS, "deleted") == nil })
		w.vanish("vanished")
		time.Sleep(3 * orphanGrace)
		for _, name := range []string{"deleted", "vanished"} {
			now := w.targetOf(name)
			if now == nil || now.GetUID() != before[name].GetUID() || now.GetDeletionTimestamp() != nil || field(now, "spec", "size") != "small" {
				t.Fatalf("%s: %v", name, now)
			}
			if _, ok := NewAdopted(now, cache.NewObjectName(w.sourceNS, name)); ok {
				t.Errorf("%s is for adoption again", name)
			}
		}
		w.merge(w.target, w.targetNS, "lost", `{"metadata":{"finalizers":null}}`)
		w.delete(w.target, w.targetNS, "lost")
		w.until("told", func() bool { return strings.HasPrefix(w.message("lost"), string(ReasonLost)) })
		time.Sleep(2 * loss.Longest)
		if now := w.targetOf("lost"); now != nil {
			t.Errorf("made anew: %v", now.Object)
		}
		// Without the label it is a target like any other.
		w.merge(w.target, w.targetNS, "usual", `{"metadata":{"finalizers":null}}`)
		w.merge(w.source, w.sourceNS, "usual", `{"metadata":{"labels":null}}`)
		w.delete(w.source, w.sourceNS, "usual")
		w.until("deleted", func() bool { return w.targetOf("usual") == nil })
	})
}

// The target's side wrote what an adopted source says, so that it leads no Secret of the
// source's side over (P36). Without the label a person has taken the source over.
func TestP36AdoptedSourceSendsNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.secret(w.source, w.sourceNS, "private", "cGFzcw==")
		theirs := w.create(w.target, w.targetNS, w.widget("a", `{"secret":"private"}`, ``))
		_, stop := w.sync(Options{Adopt: true, Related: []Related{{Resource: secrets, From: SourceSide, References: []string{"spec.secret"}}}})
		defer stop()
		w.adopt(theirs)
		w.until("taken over", func() bool { _, made := OriginOf(w.targetOf("a")); return made })
		w.settle()
		sent := func() bool { return w.getSecret(w.target, w.targetNS, "private") != nil }
		if sent() {
			t.Error("the target's side has got a Secret that no person of the source's side named")
		}
		w.merge(w.source, w.sourceNS, "a", `{"metadata":{"labels":null}}`)
		w.until("sent without the label", sent)
		w.merge(w.source, w.sourceNS, "a", `{"metadata":{"labels":{"`+AdoptedLabel+`":"true"}}}`)
		w.until("withdrawn with the label", func() bool { return !sent() })
	})
}

// A provider who changes an adopted object once is no one who insists: it is put right, and nothing
// is told. What a Sync did to take the object over is its own work.
func TestAdoptedIsChangedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		_, stop := w.sync(Options{Adopt: true})
		defer stop()
		w.adopt(w.theirs("a"))
		w.until("taken over", func() bool { _, made := OriginOf(w.targetOf("a")); return made })
		w.settle()
		w.merge(w.target, w.targetNS, "a", `{"spec":{"size":"large"}}`)
		w.until("put right", func() bool { return field(w.targetOf("a"), "spec", "size") == "small" })
		time.Sleep(time.Minute)
		if got := w.message("a"); got != "" {
			t.Errorf("message %q", got)
		}
	})
}

// That a name is taken by what an earlier source has left is reported by each start, also where the source
// says so already.
func TestConflictIsReportedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		reports := make(chan Report, 10)
		opts := Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) { reports <- r }}}
		stop := w.run(opts)
		defer func() { stop() }()
		w.createMany(1)
		w.vanish("w0")
		w.create(w.source, w.sourceNS, w.widget("w0", `{"size":"large"}`, ``))
		for i, within := range []time.Duration{time.Hour, time.Minute} { // after ten minutes more is known of an orphan
			time.Sleep(within)
			last := Report{}
			for len(reports) > 0 {
				last = <-reports
			}
			if last.Reason != ReasonConflict || !strings.HasPrefix(w.message("w0"), string(ReasonConflict)) {
				t.Errorf("start %d reports %q, message %q", i, last.Reason, w.message("w0"))
			}
			stop()
			stop = w.run(opts)
		}
	})
}

// A target that an earlier source of the name is recorded on, and that has fields of it and of this one, as
// another cluster may forge it, is taken over in a few writes.
func TestAdoptedFromTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const earlier = "an-earlier-uid"
		w := newFake(t)
		made := w.widget("a", `{"size":"small","color":"red"}`, ``)
		made.SetAnnotations(map[string]string{SourceAnnotation: origin{uid: earlier, name: cache.NewObjectName(w.sourceNS, "a")}.record(1, "")})
		source := w.create(w.source, w.sourceNS, w.widget("a", `{"size":"large"}`, ``))
		for _, a := range []struct {
			by types.UID
			of *unstructured.Unstructured
		}{{earlier, made}, {source.GetUID(), w.widget("a", `{"size":"small"}`, ``)}} {
			as := metav1.ApplyOptions{FieldManager: klutchNames.Incarnation(a.by), Force: true}
			if _, err := w.target.Resource(widgets).Namespace(w.targetNS).Apply(t.Context(), "a", a.of, as); err != nil {
				t.Fatal(err)
			}
		}
		before := len(w.fakeTarget.Writes())
		defer w.run(Options{Conflict: ConflictAdopt})()
		time.Sleep(time.Hour)
		if n := len(w.fakeTarget.Writes()) - before; n > 4 || field(w.targetOf("a"), "spec", "size") != "large" || field(w.targetOf("a"), "spec", "color") != nil {
			t.Errorf("after %d writes its spec is %v", n, w.targetOf("a").Object["spec"])
		}
	})
}

// What an earlier source of the name applied, and another writer owns too, goes when the source that
// adopts the target lacks it.
func TestAdoptedFromAPredecessor(t *testing.T) {
	const earlier = "an-earlier-uid"
	for name, says := range map[string]bool{"which the target names": true, "whose mark others have taken off": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				made := w.widget("a", `{"size":"small","color":"red"}`, ``)
				if says {
					made.SetAnnotations(map[string]string{SourceAnnotation: origin{uid: earlier, name: cache.NewObjectName(w.sourceNS, "a")}.record(1, "")})
				}
				w.create(w.target, w.targetNS, made) // by another writer, who owns all of it
				as := metav1.ApplyOptions{FieldManager: klutchNames.Incarnation(earlier)}
				if _, err := w.target.Resource(widgets).Namespace(w.targetNS).Apply(t.Context(), "a", made, as); err != nil {
					t.Fatal(err)
				}
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"large"}`, ``))
				defer w.run(Options{Conflict: ConflictAdopt})()
				w.until("adopted", func() bool { from, _ := OriginOf(w.targetOf("a")); return from.Hash != "" })
				w.settle()
				if got := field(w.targetOf("a"), "spec", "color"); got != nil || w.message("a") != "" {
					t.Errorf("color is %v, message %q", got, w.message("a"))
				}
			})
		})
	}
}
