// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	gosync "sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// Syncs of one Set that read the same share one watch of it.
func TestSharedWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var mu gosync.Mutex
		watches := 0
		w.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "watch" && r.Resource == widgets {
				mu.Lock()
				watches++
				mu.Unlock()
			}
			return do()
		})
		stopA := w.run(Options{Binding: "a", Finalizer: "example.org/a", Mapper: Prefix("a-")})
		stopB := w.run(Options{Binding: "b", Finalizer: "example.org/b", Mapper: Prefix("b-")})
		w.namespace(w.target, w.sourceNS)
		w.create(w.source, w.sourceNS, w.widget("x", `{"size":"small"}`, ``))
		there := func(name string) func() bool {
			return func() bool { return w.get(w.target, w.sourceNS, name) != nil }
		}
		w.until("first target exists", there("a-x"))
		w.until("second target exists", there("b-x"))
		stopA()
		w.create(w.source, w.sourceNS, w.widget("y", `{"size":"small"}`, ``))
		w.until("the second Sync goes on", there("b-y"))
		if w.get(w.target, w.sourceNS, "a-y") != nil {
			t.Error("a Sync that has ended works on")
		}
		stopA = w.run(Options{Binding: "a", Finalizer: "example.org/a", Mapper: Prefix("a-")})
		w.until("a Sync that joins later catches up", there("a-y"))
		stopA()
		stopB()
		if watches != 1 {
			t.Errorf("%d watches, want 1", watches)
		}
		if len(w.from.stores.All())+len(w.to.stores.All()) != 0 {
			t.Errorf("watches are left: %v, %v", w.from.stores.All(), w.to.stores.All())
		}
	})
}

// A watch on which nothing comes any more, not even a bookmark, is begun anew.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		time.Sleep(time.Second)         // the answer to a write of the Sync shows the source too: let all of them be answered first
		w.fakeSource.Lag(widgets, true) // for the watches that there are
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		time.Sleep(watchstore.Silence / 2)
		if got := field(w.targetOf("a"), "spec", "size"); got != "small" {
			t.Errorf("size = %v on a silent watch", got)
		}
		time.Sleep(watchstore.Silence)
		w.fakeSource.Lag(widgets, false)
		w.until("spec went up", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
	})
}

// What takes the place of an API server and is behind it would feed none of its
// watches: that is noticed when they begin again, and one that is not is not listed anew.
func TestBehind(t *testing.T) {
	for name, replaced := range map[string]bool{"restored": true, "restarted": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var away atomic.Bool
				var looks atomic.Int64
				view := w.fakeSource.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if away.Load() {
						return errors.New("connection refused")
					}
					if r.Verb == "list" && r.Resource == widgets {
						looks.Add(1)
					}
					return do()
				})
				w.from, _ = NewClusterForClients(view.Client(), view.Metadata())
				s, stop := w.sync(Options{})
				defer stop()
				w.createMany(3)
				w.settle()
				looks.Store(0)
				before := s.engine.source.Listed(w.sourceNS)
				away.Store(!replaced) // another one may answer at once
				for _, watch := range view.Watches() {
					watch.Stop()
				}
				if replaced {
					w.fakeSource.Replace(true)
				}
				time.Sleep(10 * time.Second)
				away.Store(false)
				began := time.Now()
				w.create(w.source, w.sourceNS, w.widget("late", `{"size":"small"}`, ``))
				w.until("in step", func() bool { return w.targetOf("late") != nil })
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("in step after %v", took)
				}
				if lists := s.engine.source.Listed(w.sourceNS) - before; !replaced && (lists > 0 || looks.Load() != 1) {
					t.Errorf("an API server that was restarted is listed anew %d times, and looked at %d times", lists, looks.Load())
				}
			})
		})
	}
}

// Lists and watches that an API server refuses are asked ever more rarely, whatever it answers
// and whatever other ways to ask a reflector has, and told; when they are answered all goes on.
func TestReadsRefusedForLong(t *testing.T) {
	expired := fakecluster.Answer{Kind: fates.Expired, Err: func(fakecluster.Request) error { return apierrors.NewResourceExpired("too old") }}
	for _, answer := range append(fakecluster.Answers(), expired) {
		for _, verb := range []string{"list", "watch", ""} {
			t.Run(fmt.Sprintf("%v %s", answer.Err(fakecluster.Request{}), verb), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { refusedReads(t, answer, verb) })
			})
		}
	}
}

// refusedReads answers reads of the target with an error for an hour; an empty verb stands for
// both.
func refusedReads(t *testing.T, answer fakecluster.Answer, verb string) {
	t.Helper()
	w := newFake(t)
	var refusing atomic.Bool
	var asked atomic.Int64
	view := w.fakeTarget.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if refusing.Load() && r.Resource == widgets && (r.Verb == "list" || r.Verb == "watch") {
			asked.Add(1)
			if verb == "" || r.Verb == verb {
				return answer.Err(r)
			}
		}
		return do()
	})
	w.to, _ = NewClusterForClients(view.Client(), view.Metadata())
	s, stop := w.sync(Options{})
	defer stop()
	w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
	w.until("target exists", func() bool { return w.targetOf("a") != nil })
	w.settle()
	refusing.Store(true)
	s.engine.target.Relist("another schema")
	for _, watch := range view.Watches() {
		watch.Stop()
	}
	time.Sleep(time.Hour)
	w.until("told", func() bool {
		var unread *ReadError
		return errors.As(s.Status().Err, &unread) && unread.View == "target"
	})
	most := int64(300)
	if slices.Contains([]fates.Kind{fates.Unreachable, fates.Failing, fates.Ahead}, answer.Kind) {
		most = 3_000 // they may be over at any moment
	}
	if n := asked.Load(); n > most {
		t.Errorf("%d lists and watches in an hour", n)
	}
	refusing.Store(false)
	w.create(w.source, w.sourceNS, w.widget("b", `{"size":"small"}`, ``))
	began := time.Now()
	w.until("in step", func() bool { return w.targetOf("b") != nil && s.Status().Err == nil })
	if took := time.Since(began); took > time.Minute {
		t.Errorf("in step after %s", took)
	}
}

// Where it cannot be found out who the clusters are, be it at a start or after a list, that is asked
// ever more rarely, and told; when it is answered all goes on. What says that it may not, or cannot,
// be known is heeded at a start.
func TestUnidentifiedIsTold(t *testing.T) {
	heeded := []fates.Kind{fates.Forbidden, fates.Terminating, fates.Absent, fates.Unserved}
	for _, answer := range fakecluster.Answers() {
		for _, late := range []bool{false, true} {
			if slices.Contains(heeded, answer.Kind) {
				continue
			}
			t.Run(fmt.Sprintf("%v %v", answer.Err(fakecluster.Request{}), late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { unidentified(t, answer, late) })
			})
		}
	}
}

// unidentified answers the question who the target's cluster is with an error for an hour, at a
// start or late.
func unidentified(t *testing.T, answer fakecluster.Answer, late bool) {
	t.Helper()
	w := newFake(t)
	var refusing atomic.Bool
	var asked atomic.Int64
	view := w.fakeTarget.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if refusing.Load() && r.Resource.Resource == "namespaces" {
			asked.Add(1)
			return answer.Err(r)
		}
		return do()
	})
	w.to, _ = NewClusterForClients(view.Client(), view.Metadata())
	refusing.Store(!late)
	s, stop := w.sync(Options{})
	defer stop()
	if late {
		w.settle()
		refusing.Store(true)
		s.engine.source.Relist("another schema")
	}
	for i := range 30 {
		w.create(w.source, w.sourceNS, w.widget(fmt.Sprintf("a%d", i), `{"size":"small"}`, ``))
		time.Sleep(time.Second)
	}
	time.Sleep(time.Minute)
	if err := s.Status().Err; err == nil || !strings.Contains(err.Error(), "who the clusters are") {
		t.Errorf("a minute later the status has %v", err)
	}
	asked.Store(0)
	time.Sleep(time.Hour)
	most := int64(330) // each twenty seconds, and each time that a list begins anew
	if !late && slices.Contains([]fates.Kind{fates.Unreachable, fates.Failing, fates.Ahead}, answer.Kind) {
		most = 2_000 // they may be over at any moment
	}
	if n := asked.Load(); n > most {
		t.Errorf("asked %d times in an hour", n)
	}
	refusing.Store(false)
	began := time.Now()
	w.until("in step", func() bool { return w.targetOf("a0") != nil && w.targetOf("a29") != nil && s.Status().Err == nil })
	if took := time.Since(began); took > time.Minute {
		t.Errorf("in step after %s", took)
	}
}

// A cluster that might not be identified at a start is identified once it may be: targets that
// are made from then on say where they come from.
func TestIdentifiedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var refusing atomic.Bool
		view := w.fakeSource.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if refusing.Load() && r.Resource.Resource == "namespaces" {
				return forbidden(r)
			}
			return do()
		})
		w.from, _ = NewClusterForClients(view.Client(), view.Metadata())
		refusing.Store(true)
		s, stop := w.sync(Options{})
		defer stop()
		clusterOf := func(name string) string {
			w.create(w.source, w.sourceNS, w.widget(name, `{"size":"small"}`, ``))
			w.until("target exists", func() bool { return w.targetOf(name) != nil })
			from, _ := OriginOf(w.targetOf(name))
			return string(from.Cluster)
		}
		if got := clusterOf("a"); got != "" || s.Status().Err != nil {
			t.Errorf("the target says that it comes from %q, and the status has %v", got, s.Status().Err)
		}
		refusing.Store(false)
		time.Sleep(15 * time.Minute) // the longest pause is ten
		if got := clusterOf("b"); got == "" {
			t.Error("the cluster may be identified, and is not")
		}
	})
}

// All that one Sync may not read costs less than its share of refused objects does, one request in
// two seconds, and is read at once when it is told that rights have come back.
func TestI19ReadsOfASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var refusing atomic.Bool
		var asked atomic.Int64
		var views []*fakecluster.View
		cluster := func(c *fakecluster.Cluster) *Cluster {
			view := c.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
				if !refusing.Load() {
					return do()
				}
				asked.Add(1)
				return forbidden(r)
			})
			views = append(views, view)
			out, err := NewClusterForClients(view.Client(), view.Metadata())
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		w.from, w.to = cluster(w.fakeSource), cluster(w.fakeTarget)
		s, stop := w.sync(Options{Related: []Related{{Resource: secrets, From: TargetSide}, {Resource: secrets, From: SourceSide}}})
		defer stop()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.settle()
		refusing.Store(true)
		for _, view := range views {
			for _, watch := range view.Watches() {
				watch.Stop()
			}
		}
		time.Sleep(time.Hour)
		asked.Store(0)
		time.Sleep(time.Hour)
		if n := asked.Load(); n > 1_000 {
			t.Errorf("%d requests in an hour", n)
		}
		refusing.Store(false)
		w.create(w.source, w.sourceNS, w.widget("b", `{"size":"small"}`, ``))
		began := time.Now()
		s.Retry()
		w.until("in step", func() bool { return w.targetOf("b") != nil })
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("in step after %s", took)
		}
	})
}

// An API server that is back is used again at once, however long it was away.
func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		down := errors.New("connection refused")
		w.fakeTarget.Intercept(func(context.Context, fakecluster.Request, func() error) error { return down })
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		w.create(w.source, w.sourceNS, w.widget("b", `{"size":"small"}`, ``))
		time.Sleep(time.Hour)
		w.fakeTarget.Intercept(nil)
		began := time.Now()
		w.until("in step", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" && w.targetOf("b") != nil })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("in step %v after the end of an outage", took)
		}
	})
}

// I17: a settled object stays within its budget.
func TestI17Memory(t *testing.T) {
	if got := settledMemory(t, 2000); got <= 0 || got > 4<<10 {
		t.Errorf("a settled object takes %.0f bytes, more than 4 KB", got)
	}
}

func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(settledMemory(b, 10_000), "B/object")
	}
}

// settledMemory is what a settled object with a status takes, both sides together: the
// heap while a Sync runs less the heap once it has ended.
func settledMemory(tb testing.TB, objects int) float64 {
	tb.Helper()
	w := newFake(tb)
	spec := `{"size":"small","color":"red","ports":[{"name":"http","port":80}],"args":["one","two"]}`
	for i := range objects {
		w.create(w.source, w.sourceNS, w.widget("widget-"+strconv.Itoa(i), spec, `"labels":{"app":"web","team":"red"}`))
	}
	var given atomic.Int64
	stop := w.run(Options{Workers: 32, Hooks: Hooks{Done: func(_ context.Context, r Result) {
		if slices.Contains(r.Steps, string(stepStatus)) {
			given.Add(1)
		}
	}}})
	w.until("all targets exist", func() bool { return w.fakeTarget.Created(widgets) >= objects })
	for i := range objects {
		w.merge(w.target, w.targetNS, "widget-"+strconv.Itoa(i),
			`{"status":{"phase":"Ready","conditions":[{"type":"Ready","status":"True","reason":"Available","message":"All is well."}]}}`, "status")
	}
	w.until("all are in step", func() bool { return given.Load() >= int64(objects) })
	busy := heap()
	stop()
	idle := heap()
	runtime.KeepAlive(w) // what the API servers need is in both
	return (busy - idle) / float64(objects)
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// Run leaves no request behind, not even one that takes its time to end, and no
// goroutine.
func TestRunLeavesNothing(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var open atomic.Int64
				slow := func(ctx context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb != verb || r.Resource != widgets {
						return do()
					}
					open.Add(1)
					defer open.Add(-1)
					<-ctx.Done()
					time.Sleep(time.Second)
					return ctx.Err()
				}
				w.from, w.to = w.faulty(w.fakeSource, slow), w.faulty(w.fakeTarget, slow)
				stop := w.run(Options{})
				synctest.Wait()
				if open.Load() == 0 {
					t.Fatal("nothing was asked")
				}
				stop()
				if n := open.Load(); n != 0 {
					t.Errorf("%d requests go on after Run has returned", n)
				}
			})
		})
	}
}

// Run ends at once, also when watches end with errors at the time.
func TestRunEndsInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		stop := w.run(Options{})
		time.Sleep(time.Second)
		w.fakeSource.Intercept(refuse(forbidden))
		time.Sleep(watchstore.Silence + time.Minute)
		began := time.Now()
		stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("Run took %v to end", took)
		}
	})
}

// Of a namespace that is no longer mapped nothing is kept.
func TestUnmappedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, table := newFake(t), NewNamespaces(nil)
		table.Set(w.sourceNS, w.targetNS)
		var watched weak.Pointer[watchstore.Store]
		defer w.run(Options{Mapper: table, TargetScope: ScopeMapped})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		for _, store := range w.to.stores.All() {
			watched = weak.Make(store)
		}
		table.Delete(w.sourceNS)
		w.settle()
		runtime.GC()
		if watched.Value() != nil {
			t.Error("the watch of a namespace that has gone is remembered")
		}
	})
}
