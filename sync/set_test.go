// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"strings"
	gosync "sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// Syncs of a Set come and go, and one that fails does not disturb the others.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		table := NewNamespaces(nil)
		table.Set(w.sourceNS, w.targetNS)
		build := func(resource schema.GroupVersionResource, hooks Hooks) *Sync {
			s, err := New(w.from, w.to, resource, Options{Mapper: table, Hooks: hooks})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		var mu gosync.Mutex
		changed := map[string]bool{}
		set := NewSet(SetOptions{Changed: func(name string) {
			mu.Lock()
			defer mu.Unlock()
			changed[name] = true
		}})
		set.Put("widgets", build(widgets, Hooks{}))
		set.Put("missing", build(schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gizmos"}, Hooks{}))
		ctx, cancel := context.WithCancel(t.Context())
		done := start(func() error { return set.Run(ctx) })
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.settle()
		if st, ok := set.State("widgets"); !ok || !st.Synced || st.Err != nil || st.Objects != 1 {
			t.Errorf("state of widgets = %+v, %t", st, ok)
		}
		if st, ok := set.State("missing"); !ok || st.Synced || st.Err == nil {
			t.Errorf("state of a resource that is not served = %+v, %t", st, ok)
		}
		mu.Lock()
		if !changed["widgets"] || !changed["missing"] {
			t.Errorf("changed = %v", changed)
		}
		mu.Unlock()

		set.Put("widgets", build(widgets, Hooks{})) // in place of the first
		w.create(w.source, w.sourceNS, w.widget("b", `{"size":"small"}`, ``))
		w.until("another target exists", func() bool { return w.targetOf("b") != nil })

		set.Remove("widgets")
		set.Remove("unheard of")
		if _, ok := set.State("widgets"); ok {
			t.Error("a removed Sync has a state")
		}
		w.create(w.source, w.sourceNS, w.widget("c", `{"size":"small"}`, ``))
		time.Sleep(time.Minute)
		if w.targetOf("c") != nil {
			t.Error("a removed Sync works on")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if set.Run(t.Context()) == nil {
			t.Error("a Set runs twice")
		}
	})
}

func start(run func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	return done
}

// What no New has made is an error like others.
func TestSetWithoutSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := NewSet(SetOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		done := start(func() error { return set.Run(ctx) })
		set.Put("nil", nil)
		set.Put("zero", &Sync{})
		synctest.Wait()
		for _, name := range []string{"nil", "zero"} {
			set.Release(name)
			var bad *OptionError
			if st, ok := set.State(name); !ok || !errors.As(st.Err, &bad) {
				t.Errorf("state of %s = %+v, %t", name, st, ok)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What the source's API server did not permit for long is asked again at once when the owner of
// the Set says so, as when rights have come back.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var denied atomic.Bool
		view := w.fakeSource.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if denied.Load() && r.Resource == widgets && isWrite(r) {
				return forbidden(r)
			}
			return do()
		})
		from, err := NewClusterForClients(view.Client(), view.Metadata())
		if err != nil {
			t.Fatal(err)
		}
		table := NewNamespaces(nil)
		table.Set(w.sourceNS, w.targetNS)
		s, err := New(from, w.to, widgets, Options{Mapper: table})
		if err != nil {
			t.Fatal(err)
		}
		set := NewSet(SetOptions{})
		set.Put("widgets", s)
		ctx, cancel := context.WithCancel(t.Context())
		done := start(func() error { return set.Run(ctx) })
		w.create(w.source, w.sourceNS, w.widget("status", `{"size":"small"}`, ``))
		w.create(w.source, w.sourceNS, w.widget("gone", `{"size":"small"}`, ``))
		w.until("targets exist", func() bool { return w.targetOf("status") != nil && w.targetOf("gone") != nil })
		denied.Store(true)
		w.create(w.source, w.sourceNS, w.widget("new", `{"size":"small"}`, ``))
		w.merge(w.target, w.targetNS, "status", `{"status":{"phase":"Ready"}}`, "status")
		w.delete(w.source, w.sourceNS, "gone")
		time.Sleep(2 * time.Minute)
		if st, _ := set.State("widgets"); w.targetOf("new") != nil || st.Err == nil {
			t.Fatalf("nothing is denied: %+v", st)
		}
		denied.Store(false)
		set.Retry("widgets")
		set.Retry("unheard of")
		w.settle()
		if w.targetOf("new") == nil || field(w.get(w.source, w.sourceNS, "status"), "status", "phase") != "Ready" || w.get(w.source, w.sourceNS, "gone") != nil {
			t.Errorf("not in step a moment after the rights came back:\n%s\n%s", dump(w.source, w.sourceNS), dump(w.target, w.targetNS))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// many gives all objects one target.
type many struct{ Mapper }

func (many) Target(source cache.ObjectName) (cache.ObjectName, bool) {
	return cache.NewObjectName("svc-team", "one"), true
}

func (many) Source(target cache.ObjectName) (cache.ObjectName, bool) {
	return cache.NewObjectName("team", "a"), target.Name == "one"
}

// Of the sources that a mapper gives one target, the one that it names has it. The
// others are told, and go without it.
func TestMapperConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{Mapper: many{}})()
		for _, name := range []string{"b", "a"} {
			w.create(w.source, w.sourceNS, w.widget(name, `{"size":"small"}`, ``))
		}
		w.until("the conflict is told", func() bool { return strings.HasPrefix(w.message("b"), string(ReasonMapper)+": ") })
		w.settle()
		if from, _ := OriginOf(w.targetOf("one")); from.Name != "a" || w.message("a") != "" {
			t.Errorf("the target was made from %+v, message %q", from, w.message("a"))
		}
		w.delete(w.source, w.sourceNS, "b")
		w.settle()
		if w.get(w.source, w.sourceNS, "b") != nil || w.targetOf("one") == nil {
			t.Error("a source without target does not go, or not alone")
		}
	})
}

// A Sync that cannot run is tried again, and its state says why.
func TestSetKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		s, err := New(w.from, w.to, widgets, Options{})
		if err != nil {
			t.Fatal(err)
		}
		set := NewSet(SetOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		alone := start(func() error { return s.Run(ctx) })
		synctest.Wait()
		set.Put("busy", s)
		all, end := context.WithCancel(t.Context())
		done := start(func() error { return set.Run(all) })
		synctest.Wait()
		if st, ok := set.State("busy"); !ok || st.Err == nil {
			t.Errorf("state of a Sync that runs elsewhere = %+v, %t", st, ok)
		}
		cancel()
		if err := <-alone; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if st, ok := set.State("busy"); !ok || st.Err != nil || !st.Synced {
			t.Errorf("state once it runs = %+v, %t", st, ok)
		}
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
