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

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

type interceptor = func(context.Context, fakecluster.Request, func() error) error

func isWrite(r fakecluster.Request) bool {
	return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
}

func forbidden(r fakecluster.Request) error {
	return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, fmt.Errorf("not allowed to %s", r.Verb))
}

// refuse answers all requests for widgets with err.
func refuse(err func(fakecluster.Request) error) interceptor {
	return func(_ context.Context, r fakecluster.Request, do func() error) error {
		if r.Resource == widgets {
			return err(r)
		}
		return do()
	}
}

// While a side cannot be read or written nothing is lost, and when it can be
// again things go on by themselves.
func TestOutage(t *testing.T) {
	unreachable := func(fakecluster.Request) error { return fmt.Errorf("dial tcp: connection refused") }
	for name, fault := range map[string]func(fakecluster.Request) error{
		"unreachable": unreachable, "forbidden": forbidden,
		"unavailable": func(fakecluster.Request) error { return apierrors.NewServiceUnavailable("starting") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				defer w.run(Options{})()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
				w.create(w.source, w.sourceNS, w.widget("b", `{"size":"small"}`, ``))
				w.until("targets exist", func() bool { return w.targetOf("a") != nil && w.targetOf("b") != nil })

				w.fakeTarget.Intercept(refuse(fault))
				w.delete(w.source, w.sourceNS, "a")
				w.merge(w.source, w.sourceNS, "b", `{"spec":{"size":"large"}}`)
				w.create(w.source, w.sourceNS, w.widget("c", `{"size":"small"}`, ``))
				time.Sleep(time.Minute)
				if w.get(w.source, w.sourceNS, "a") == nil {
					t.Error("the source was let go while its target could not be read")
				}
				w.fakeTarget.Intercept(nil)
				w.until("a is gone on both sides, b has changed, c is there", func() bool {
					return w.get(w.source, w.sourceNS, "a") == nil && w.targetOf("a") == nil &&
						field(w.targetOf("b"), "spec", "size") == "large" && w.targetOf("c") != nil && w.message("c") == ""
				})
			})
		})
	}
}

// A cluster that cannot be reached at the start is waited for, and Status says so.
func TestStartWithoutTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.fakeTarget.Intercept(func(context.Context, fakecluster.Request, func() error) error {
			return fmt.Errorf("dial tcp: connection refused")
		})
		table := NewNamespaces(nil)
		table.Set(w.sourceNS, w.targetNS)
		s, err := New(w.from, w.to, widgets, Options{Mapper: table})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		time.Sleep(time.Minute)
		if st := s.Status(); st.Synced || st.Err == nil {
			t.Errorf("status without a target = %+v", st)
		}
		if f := w.get(w.source, w.sourceNS, "a").GetFinalizers(); len(f) > 0 {
			t.Errorf("source is held by %v before the target was ever seen", f)
		}
		w.fakeTarget.Intercept(nil)
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.settle()
		if st := s.Status(); !st.Synced || st.Err != nil || st.Objects != 1 {
			t.Errorf("status = %+v", st)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A target whose CRD goes away holds its sources, and comes back with the CRD.
func TestTargetResourceGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.fakeTarget.Withdraw(widgets)
		time.Sleep(time.Minute)
		w.delete(w.source, w.sourceNS, "a")
		w.create(w.source, w.sourceNS, w.widget("b", `{"size":"small"}`, ``))
		time.Sleep(time.Minute)
		if w.get(w.source, w.sourceNS, "a") == nil {
			t.Error("the source was let go although it is not known whether its target is there")
		}
		w.fakeTarget.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
		w.until("a is gone, b is there", func() bool { return w.get(w.source, w.sourceNS, "a") == nil && w.targetOf("b") != nil })
	})
}

// answersAbsent has requests of Syncs to one side answered that there is no such object, while
// absent is true; asked counts these.
func (w *world) answersAbsent(side Side, verb string) (asked *atomic.Int64, absent *atomic.Bool) {
	w.Helper()
	asked, absent = &atomic.Int64{}, &atomic.Bool{}
	of, to := w.fakeSource, &w.from
	if side == TargetSide {
		of, to = w.fakeTarget, &w.to
	}
	view := of.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if !absent.Load() || r.Resource != widgets || r.Verb != verb {
			return do()
		}
		asked.Add(1)
		return apierrors.NewNotFound(widgets.GroupResource(), r.Object.Name)
	})
	var err error
	if *to, err = NewClusterForClients(view.Client(), view.Metadata()); err != nil {
		w.Fatal(err)
	}
	return asked, absent
}

// What an API server, or a webhook of it, calls absent and is there all the same is asked ever
// more rarely, and told; when it is answered all goes on.
func TestI19AnsweredAbsent(t *testing.T) {
	for name, test := range map[string]struct {
		side   Side
		verb   string
		reason Reason
	}{
		"patch of the source":    {SourceSide, "patch", ReasonUnavailable},
		"deletion of the target": {TargetSide, "delete", ReasonMissing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var told atomic.Value
				asked, absent := w.answersAbsent(test.side, test.verb)
				defer w.run(Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) { told.Store(r.Reason) }}})()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
				w.until("target exists", func() bool { return w.targetOf("a") != nil })
				w.settle()
				absent.Store(true)
				w.delete(w.source, w.sourceNS, "a")
				time.Sleep(time.Minute)
				if told.Load() != test.reason {
					t.Errorf("told %v after a minute, want %s", told.Load(), test.reason)
				}
				time.Sleep(time.Hour)
				if n := asked.Load(); n > 15 {
					t.Errorf("%d requests in an hour", n)
				}
				absent.Store(false)
				time.Sleep(10 * time.Minute)
				w.until("gone on both sides", func() bool { return w.get(w.source, w.sourceNS, "a") == nil && w.targetOf("a") == nil })
			})
		})
	}
}

// Where a cluster refuses the message, the caller's hook hears of each cause, also of a second one
// with the reason of the first, and of none that is the first in other words of the network.
func TestEachCauseIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var told []string
		cause, port := "", 1024
		var mu gosync.Mutex
		refusing := func(c *fakecluster.Cluster) *Cluster {
			view := c.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if cause == "" || !isWrite(r) || r.Resource != widgets {
					return do()
				}
				port++
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, fmt.Errorf("%s: read tcp 10.0.0.1:%d->10.0.0.2:443: read: connection reset by peer", cause, port))
			})
			out, err := NewClusterForClients(view.Client(), view.Metadata())
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		w.from, w.to = refusing(w.fakeSource), refusing(w.fakeTarget)
		defer w.run(Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, r.Message)
		}}})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		for _, next := range []string{"quota", "policy"} {
			mu.Lock()
			cause = next
			mu.Unlock()
			w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"`+next+`"}}`)
			time.Sleep(time.Hour)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(told) != 2 || !strings.Contains(told[0], "quota: read: ") || !strings.Contains(told[1], "policy: read: ") {
			t.Errorf("told %q", told)
		}
	})
}

// A reason that was told of an object is told of the next one of its name too, also where that came so soon that
// nothing was seen between them.
func TestEachIncarnationIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		told := make(chan Report, 10)
		defer w.run(Options{Mapper: NewNamespaces(nil), Hooks: Hooks{Reported: func(_ context.Context, r Report) { told <- r }}})()
		for range 2 {
			w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
			time.Sleep(time.Minute)
			var r Report
			for len(told) > 0 { // the first may say that nothing is in the way of what has gone
				r = <-told
			}
			if r.Reason != ReasonMissing || r.UID != w.get(w.source, w.sourceNS, "a").GetUID() {
				t.Errorf("told %+v", r)
			}
			if err := w.source.Resource(widgets).Namespace(w.sourceNS).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// I19: lists that show no other schema make nothing due that was refused: many objects cost no
// more where an API server or a proxy ends watches every five minutes. Another schema does.
func TestI19RelistsAskNothing(t *testing.T) {
	for name, refuse := range map[string]func(fakecluster.Request) error{
		"quota": forbidden,
		"webhook": func(fakecluster.Request) error {
			return apierrors.NewInternalError(errors.New("failed calling webhook"))
		},
		"conflict": func(r fakecluster.Request) error {
			return apierrors.NewConflict(r.Resource.GroupResource(), "w", errors.New("the object has been modified"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const objects = 100
				w := newFake(t)
				var asked atomic.Int64
				view := w.fakeTarget.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if !isWrite(r) || r.Resource != widgets {
						return do()
					}
					asked.Add(1)
					return refuse(r)
				})
				w.to, _ = NewClusterForClients(view.Client(), view.Metadata())
				for i := range objects {
					w.create(w.source, w.sourceNS, w.widget(fmt.Sprint("w", i), `{"size":"small"}`, ``))
				}
				s, stop := w.sync(Options{})
				defer stop()
				time.Sleep(time.Hour)
				asked.Store(0)
				s.mu.Lock()
				target := s.engine.target
				s.mu.Unlock()
				before := target.Listed(w.targetNS)
				for i := range 12 {
					target.Relist(fmt.Sprint("list ", i))
					time.Sleep(5 * time.Minute)
				}
				lists := target.Listed(w.targetNS) - before // of which some follow a silence of the fake, which sends no bookmarks
				if n := int(asked.Load()); lists < 12 || n > 6*objects+20*lists {
					t.Errorf("%d requests in an hour of %d lists", n, lists)
				}
			})
		})
	}
}

// What met another state of its target for so long that it is asked rarely is asked at once when the
// target has changed.
func TestConflictIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var conflicts atomic.Bool
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if conflicts.Load() && isWrite(r) && r.Resource == widgets {
				return apierrors.NewConflict(r.Resource.GroupResource(), "a", errors.New("the object has been modified"))
			}
			return do()
		})
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		conflicts.Store(true)
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		time.Sleep(time.Hour)
		conflicts.Store(false)
		time.Sleep(time.Second)
		if got := field(w.targetOf("a"), "spec", "size"); got != "small" {
			t.Fatalf("a second later the target has size %v: nothing is paced", got)
		}
		w.merge(w.target, w.targetNS, "a", `{"metadata":{"labels":{"theirs":"x"}}}`)
		time.Sleep(time.Second)
		if got := field(w.targetOf("a"), "spec", "size"); got != "large" {
			t.Errorf("a second after it changed the target has size %v", got)
		}
	})
}

// I19: what changes at each write, and is answered as another one than was seen each time, is asked ever more rarely.
func TestConflictOfEachWrite(t *testing.T) {
	for name, change := range map[string]func(*world){
		"edit":     func(w *world) { w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`) },
		"deletion": func(w *world) { w.delete(w.source, w.sourceNS, "a") },
		"drift":    func(w *world) { w.merge(w.target, w.targetNS, "a", `{"spec":{"size":"theirs"}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var hostile atomic.Bool
				var asked atomic.Int32
				w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
					if !hostile.Load() || !isWrite(r) || r.Resource != widgets {
						return do()
					}
					w.merge(w.target, w.targetNS, "a", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, asked.Add(1))) //nolint:contextcheck // the world has one
					return conflicts(r)
				})
				defer w.run(Options{})()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
				w.until("target exists", func() bool { return w.targetOf("a") != nil })
				w.settle()
				hostile.Store(true)
				change(w)
				time.Sleep(time.Hour)
				if n, said := asked.Load(), w.message("a"); n > 260 || !strings.HasPrefix(said, string(ReasonUnavailable)) {
					t.Errorf("asked %d times in an hour, message %q", n, said)
				}
				hostile.Store(false)
				time.Sleep(time.Minute)
				if u := w.targetOf("a"); (u == nil) != (name == "deletion") || u != nil && (field(u, "spec", "size") == "theirs" || w.message("a") != "") {
					t.Errorf("afterwards the target is %v, message %q", u, w.message("a"))
				}
			})
		})
	}
}

// I19: the objects of a Sync that are refused share a request in two seconds, whatever the answer
// is, also where each of them is asked once in ten minutes. Reads, messages and lists count, too.
func TestI19ManyRefused(t *testing.T) {
	t.Parallel()
	seen := map[fates.Kind]bool{}
	for _, answer := range fakecluster.Answers() {
		of := slices.Contains([]fates.Kind{fates.Forbidden, fates.Failing, fates.Absent, fates.Undeclared, fates.TooLarge, fates.Conflict, fates.Exists}, answer.Kind)
		if !of || seen[answer.Kind] {
			continue
		}
		seen[answer.Kind] = true
		mostWrites, most := int64(2000), int64(3600)
		t.Run(answer.Err(fakecluster.Request{Resource: widgets, Verb: "apply"}).Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const objects = 400
				w := newFake(t)
				var writes, all atomic.Int64
				w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					all.Add(1)
					if r.Resource != widgets || !isWrite(r) {
						return do()
					}
					writes.Add(1)
					return answer.Err(r)
				})
				w.fakeSource.Intercept(func(_ context.Context, _ fakecluster.Request, do func() error) error {
					all.Add(1)
					return do()
				})
				for n := range objects {
					w.create(w.source, w.sourceNS, w.widget(fmt.Sprint("w", n), `{"size":"small"}`, ``))
				}
				defer w.run(Options{})()
				time.Sleep(time.Hour)
				writes.Store(0)
				all.Store(0)
				time.Sleep(time.Hour)
				if n := writes.Load(); n > mostWrites || n < 2*objects {
					t.Errorf("%d refused writes in an hour, want at most %d", n, mostWrites)
				}
				if n := all.Load(); n > most {
					t.Errorf("%d requests in an hour, want at most %d", n, most)
				}
			})
		})
	}
}

// TestI19RefusedThatChange: a refused write whose content changes all the time, on either side, costs no more than one that
// stays the same, and is told.
func TestI19RefusedThatChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit    func(w *world, name string, n int)
		refused func(fakecluster.Request) error // of one side
		source  bool
		reason  Reason
	}{
		"statuses": {
			func(w *world, name string, n int) {
				w.merge(w.target, w.targetNS, name, fmt.Sprintf(`{"status":{"phase":"%d"}}`, n), "status")
			},
			func(r fakecluster.Request) error {
				if r.Subresource == "status" {
					return forbidden(r)
				}
				return nil
			}, true, ReasonStatus,
		},
		"specs": {
			func(w *world, name string, n int) {
				w.merge(w.source, w.sourceNS, name, fmt.Sprintf(`{"spec":{"size":"%d"}}`, n))
			},
			func(r fakecluster.Request) error {
				if r.Verb == "apply" {
					return apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.org": connection refused`))
				}
				return nil
			}, false, ReasonUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const objects = 30
				w := newFake(t)
				var refuses atomic.Bool
				var writes atomic.Int64
				side := w.fakeTarget
				if test.source {
					side = w.fakeSource
				}
				side.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource == widgets && refuses.Load() {
						if err := test.refused(r); err != nil {
							writes.Add(1)
							return err
						}
					}
					return do()
				})
				for n := range objects {
					w.create(w.source, w.sourceNS, w.widget(fmt.Sprint("w", n), `{"size":"small"}`, ``))
				}
				defer w.run(Options{})()
				time.Sleep(time.Minute)
				refuses.Store(true)
				play := func(times int) {
					for n := range times {
						for o := range objects {
							test.edit(w, fmt.Sprint("w", o), n)
						}
						time.Sleep(10 * time.Second)
					}
				}
				play(180)
				writes.Store(0)
				play(180)
				if n := writes.Load(); n == 0 || n > 950 { // a request in two seconds, in half an hour
					t.Errorf("%d refused writes in half an hour", n)
				}
				if said := w.get(w.source, w.sourceNS, "w7").GetAnnotations()[MessageAnnotation]; !strings.HasPrefix(said, string(test.reason)+": ") {
					t.Errorf("it is told as %q, want %s", said, test.reason)
				}
			})
		})
	}
}

// I19: messages that are refused too stand in the way of nothing, and are forgotten with what they
// would have told.
func TestI19MessagesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = 300
		w := newFake(t)
		seen := func(name string) *unstructured.Unstructured { return w.get(w.source, w.sourceNS, name) }
		var quota atomic.Bool
		quota.Store(true)
		w.from = w.faulty(w.fakeSource, func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && r.Verb == "patch" && len(seen(r.Object.Name).GetFinalizers()) > 0 {
				return forbidden(r)
			}
			return do()
		})
		var late []time.Time
		w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
			switch {
			case r.Resource != widgets || !isWrite(r):
				return do()
			case r.Object.Name == "late":
				late = append(late, time.Now())
				return forbidden(r)
			case quota.Load():
				return forbidden(r)
			}
			return do()
		})
		for n := range objects {
			w.create(w.source, w.sourceNS, w.widget(fmt.Sprint("w", n), `{"size":"small"}`, ``))
		}
		s, stop := w.sync(Options{})
		defer stop()
		time.Sleep(2 * time.Hour)
		quota.Store(false)
		time.Sleep(time.Minute)
		if n := w.fakeTarget.Created(widgets); n != objects {
			t.Errorf("a minute after the quota ended %d of %d targets are made", n, objects)
		}
		if n := s.engine.refused.Len(); n != 0 {
			t.Errorf("%d refusals are left", n)
		}
		w.create(w.source, w.sourceNS, w.widget("late", `{"size":"small"}`, ``))
		time.Sleep(time.Minute)
		if len(late) < 4 {
			t.Errorf("another one that is refused is asked %d times in the first minute", len(late))
		}
	})
}

// What was refused goes at once when it is mended, however long its pause has become.
func TestMendedGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"huge"}`, ``))
		time.Sleep(2 * time.Hour)
		if m := w.message("a"); !strings.HasPrefix(m, string(ReasonRefused)) {
			t.Fatalf("message %q", m)
		}
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"small"}}`)
		time.Sleep(time.Second)
		if w.targetOf("a") == nil || w.message("a") != "" {
			t.Errorf("a second after it was mended there is no target, or a message: %q", w.message("a"))
		}
	})
}

// Another message than the refused one does not wait as long as that, and messages that change all the
// time come no more often for being refused.
func TestAnotherMessageGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		seen := func(name string) *unstructured.Unstructured { return w.get(w.source, w.sourceNS, name) }
		var policy, webhook atomic.Bool
		policy.Store(true)
		var asked, said atomic.Int64
		w.from = w.faulty(w.fakeSource, func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && r.Verb == "patch" && policy.Load() && len(seen(r.Object.Name).GetFinalizers()) > 0 {
				asked.Add(1)
				return forbidden(r)
			}
			return do()
		})
		w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && isWrite(r) && webhook.Load() {
				return apierrors.NewForbidden(widgets.GroupResource(), r.Object.Name, fmt.Errorf("quota %d", said.Add(1)))
			}
			return do()
		})
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"huge"}`, ``))
		time.Sleep(3 * time.Hour)
		policy.Store(false)
		webhook.Store(true)
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		time.Sleep(time.Second)
		if m := w.message("a"); !strings.Contains(m, "quota 1") {
			t.Errorf("a second after another answer the message is %q", m)
		}
		policy.Store(true)
		asked.Store(0)
		for n := range 1800 {
			w.merge(w.source, w.sourceNS, "a", fmt.Sprintf(`{"spec":{"size":"s%d"}}`, n))
			time.Sleep(time.Second)
		}
		if n := asked.Load(); n > 5+30+1 {
			t.Errorf("%d refused messages in half an hour of edits", n)
		}
	})
}

// A source that may not be written is written as soon as people have mended it, be it by an
// annotation, and no more often for one that is another one each second.
func TestMendedByAnAnnotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		seen := func(name string) *unstructured.Unstructured { return w.get(w.source, w.sourceNS, name) }
		var asked atomic.Int64
		w.from = w.faulty(w.fakeSource, func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && r.Verb == "patch" && seen(r.Object.Name).GetAnnotations()["owner"] == "" {
				asked.Add(1)
				return forbidden(r)
			}
			return do()
		})
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		time.Sleep(3 * time.Hour)
		asked.Store(0)
		for n := range 3600 {
			w.merge(w.source, w.sourceNS, "a", fmt.Sprintf(`{"metadata":{"annotations":{"seen":"%d"}}}`, n))
			time.Sleep(time.Second)
		}
		if n := asked.Load(); n > 5+60+1 {
			t.Errorf("asked %d times in an hour", n)
		}
		time.Sleep(10 * time.Minute)
		w.merge(w.source, w.sourceNS, "a", `{"metadata":{"annotations":{"owner":"me"}}}`)
		time.Sleep(time.Second)
		if w.targetOf("a") == nil {
			t.Error("a second after it was mended there is no target")
		}
	})
}

// What mends an object right after a burst of other changes goes within a minute, without another event.
func TestMendedAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.from = w.faulty(w.fakeSource, func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && r.Verb == "patch" && w.get(w.source, w.sourceNS, r.Object.Name).GetAnnotations()["owner"] == "" { //nolint:contextcheck // the world has one
				return forbidden(r)
			}
			return do()
		})
		defer w.run(Options{})()
		time.Sleep(time.Hour + 7*time.Minute)
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		time.Sleep(time.Second)
		for n := range 8 {
			w.merge(w.source, w.sourceNS, "a", fmt.Sprintf(`{"metadata":{"annotations":{"seen":"%d"}}}`, n))
			time.Sleep(time.Second)
		}
		w.merge(w.source, w.sourceNS, "a", `{"metadata":{"annotations":{"owner":"me"}}}`)
		time.Sleep(messagePause)
		if w.targetOf("a") == nil {
			t.Error("a minute after it was mended there is no target")
		}
	})
}

// I19: a target that cannot be read, after a write of which no answer tells what came, is read ever
// more rarely whatever the answer is and whatever happens to it, and its status and what stands in its way are told meanwhile.
func TestI19RefusedReads(t *testing.T) {
	t.Parallel()
	for _, answer := range fakecluster.Answers() {
		if slices.Contains([]fates.Kind{fates.Absent, fates.Unserved}, answer.Kind) {
			continue // then it is not there
		}
		t.Run(fmt.Sprint(answer.Err(fakecluster.Request{Resource: widgets})), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { refusedReadsOfATarget(t, answer) })
		})
	}
}

func refusedReadsOfATarget(t *testing.T, answer fakecluster.Answer) {
	t.Helper()
	w := newFake(t)
	var down atomic.Bool
	var reads atomic.Int64
	w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
		switch {
		case r.Resource != widgets || !down.Load():
			return do()
		case isWrite(r):
			return apierrors.NewInternalError(errors.New("failed calling webhook"))
		case r.Verb == "get":
			reads.Add(1)
			return answer.Err(r)
		}
		return do()
	})
	s, stop := w.sync(Options{})
	defer stop()
	w.createMany(1)
	w.settle()
	down.Store(true)
	w.merge(w.source, w.sourceNS, "w0", `{"spec":{"size":"large"}}`)
	for n := range 360 {
		w.merge(w.target, w.targetNS, "w0", fmt.Sprintf(`{"status":{"phase":"P%d"}}`, n), "status")
		time.Sleep(10 * time.Second)
	}
	if n := reads.Load(); n > 20 {
		t.Errorf("%d refused reads in an hour", n)
	}
	if got := field(w.get(w.source, w.sourceNS, "w0"), "status", "phase"); got != "P359" {
		t.Errorf("status %v", got)
	}
	if m := w.message("w0"); !strings.HasPrefix(m, string(ReasonUnavailable)) {
		t.Errorf("message %q", m)
	}
	if err := s.Status().Err; answer.Kind.Fate() == fates.Refused && answer.Kind != fates.Contested && (err == nil || !strings.Contains(err.Error(), "read target")) {
		t.Errorf("status of the Sync: %v", err)
	}
	down.Store(false)
	time.Sleep(11 * time.Minute)
	if got := field(w.targetOf("w0"), "spec", "size"); got != "large" || w.message("w0") != "" || s.Status().Err != nil || s.engine.refused.Len() != 0 {
		t.Errorf("later the target has size %v, the source the message %q, the Sync %v", got, w.message("w0"), s.Status().Err)
	}
}

// A message that an API server calls absent is in the way of nothing.
func TestMessageAnsweredAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		asked, absent := w.answersAbsent(SourceSide, "patch")
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		absent.Store(true)
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"huge"}}`)
		time.Sleep(time.Hour)
		if n := asked.Load(); n > 15 {
			t.Errorf("%d messages in an hour", n)
		}
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status")
		w.until("status", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" })
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		w.until("spec", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
	})
}

// A source says that its target cannot be looked at, also while it is being deleted: its
// namespace has no place in the target cluster any more, or the kind has gone from there. When
// it can, all goes on, and the message goes.
func TestBlindIsTold(t *testing.T) {
	table := NewNamespaces(nil)
	var show func()
	for name, test := range map[string]struct {
		tells      []string
		says       bool // on the source too
		begin, end func(w *world)
	}{
		"namespace not mapped": {
			[]string{"alive", "deleted", "new"},
			false,
			func(w *world) { table.Delete(w.sourceNS) },
			func(w *world) { table.Set(w.sourceNS, w.targetNS) },
		},
		"kind gone": {
			[]string{"alive", "deleted", "new"},
			true,
			func(w *world) { w.fakeTarget.Withdraw(widgets) },
			func(w *world) {
				w.fakeTarget.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
			},
		},
		"kind gone, as a deletion finds out": {
			[]string{"alive", "deleted", "new"},
			true,
			func(w *world) {
				var once gosync.Once
				w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "delete" && r.Resource == widgets {
						once.Do(func() { w.fakeTarget.Withdraw(widgets) })
					}
					return do()
				})
			},
			func(w *world) {
				w.fakeTarget.Intercept(nil)
				w.fakeTarget.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
			},
		},
		"version not served": { // without an event for any object
			[]string{"alive", "deleted", "new"},
			true,
			func(w *world) { show = w.fakeTarget.Hide(widgets) },
			func(*world) { show() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				table.Set(w.sourceNS, w.targetNS)
				var told gosync.Map
				hooks := Hooks{Reported: func(_ context.Context, r Report) { told.Store(r.Source.Name, r.Reason) }}
				defer w.run(Options{Mapper: table, Hooks: hooks})()
				for _, name := range []string{"alive", "deleted"} {
					w.create(w.source, w.sourceNS, w.widget(name, `{"size":"small"}`, ``))
					w.until("target exists", func() bool { return w.targetOf(name) != nil })
				}
				w.settle()
				test.begin(w)
				w.delete(w.source, w.sourceNS, "deleted")
				time.Sleep(time.Second)
				w.create(w.source, w.sourceNS, w.widget("new", `{"size":"small"}`, ``))
				w.create(w.source, w.sourceNS, w.widget("never", `{"size":"small"}`, ``))
				w.delete(w.source, w.sourceNS, "never") // without a finalizer it can go
				time.Sleep(5 * time.Second)
				if message := w.message("alive"); message != "" {
					t.Errorf("told at once: %q", message)
				}
				time.Sleep(10 * time.Second)
				for _, name := range test.tells {
					if reason, _ := told.Load(name); reason != ReasonMissing || test.says && !strings.HasPrefix(w.message(name), string(ReasonMissing)) {
						t.Errorf("%s: reported %v, message %q", name, reason, w.message(name))
					}
				}
				if w.get(w.source, w.sourceNS, "never") != nil {
					t.Error("a source without a finalizer stays")
				}
				writes := len(w.fakeSource.Writes())
				time.Sleep(time.Hour)
				if n := len(w.fakeSource.Writes()) - writes; n > 1 {
					t.Errorf("%d writes in an hour in which nothing changes", n)
				}
				test.end(w)
				w.until("in step", func() bool { return w.targetOf("new") != nil && w.message("alive") == "" && w.message("new") == "" })
				w.until("gone", func() bool { return w.get(w.source, w.sourceNS, "deleted") == nil })
			})
		})
	}
}

// lifecycle takes an object through all that can happen to it, with whatever
// faults have been arranged, and tells which writes of the engine took effect.
func lifecycle(w *world) {
	defer w.run(Options{Binding: "faults"})()
	w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
	w.until("target exists", func() bool { return w.targetOf("a") != nil })
	w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status")
	w.until("status came down", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" })
	w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
	w.until("spec went up", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
	w.delete(w.source, w.sourceNS, "a")
	w.until("both are gone", func() bool { return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil })
}

// Whichever write fails, with its effect or without, the end is the same, and
// the target is made once and deleted once.
func TestEveryWriteFailsOnce(t *testing.T) {
	for _, effect := range []bool{true, false} {
		for n := int64(1); ; n++ {
			var count atomic.Int64
			t.Run(fmt.Sprintf("write %d, effect %t", n, effect), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newFake(t)
					fault := func(_ context.Context, r fakecluster.Request, do func() error) error {
						if !isWrite(r) || count.Add(1) != n {
							return do()
						}
						if effect {
							_ = do()
						}
						return apierrors.NewInternalError(fmt.Errorf("connection lost"))
					}
					w.from = w.faulty(w.fakeSource, fault)
					w.to = w.faulty(w.fakeTarget, fault)
					lifecycle(w)
					var made, deleted int
					for _, r := range w.fakeTarget.Writes() {
						if r.Resource == widgets && r.Verb == "delete" {
							deleted++
						}
					}
					made = w.fakeTarget.Created(widgets)
					if diff := cmp.Diff([]int{1, 1}, []int{made, deleted}); diff != "" {
						t.Errorf("targets made and deleted (-want +got):\n%s", diff)
					}
				})
			})
			if count.Load() < n {
				break
			}
		}
	}
}

// faulty returns c as the engine sees it, while the test sees it without faults.
func (w *world) faulty(c *fakecluster.Cluster, fault interceptor) *Cluster {
	w.Helper()
	view := c.View(fault)
	out, err := NewClusterForClients(view.Client(), view.Metadata())
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// Namespaces that are mapped one by one are watched one by one.
func TestMappedScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && !strings.HasPrefix(r.Object.Namespace, "svc-") {
				return forbidden(r)
			}
			return do()
		})
		var mu gosync.Mutex
		wanted := map[string]bool{}
		table := NewNamespaces(func(ns string) {
			mu.Lock()
			defer mu.Unlock()
			wanted[ns] = true
		})
		defer w.run(Options{Mapper: table, TargetScope: ScopeMapped})()
		w.namespace(w.source, "other")
		w.namespace(w.target, "svc-other")
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.create(w.source, "other", w.widget("a", `{"size":"large"}`, ``))
		w.settle()
		mu.Lock()
		if diff := cmp.Diff(map[string]bool{w.sourceNS: true, "other": true}, wanted); diff != "" {
			t.Errorf("wanted namespaces (-want +got):\n%s", diff)
		}
		mu.Unlock()
		table.Set(w.sourceNS, w.targetNS)
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		table.Set("other", "svc-other")
		w.until("other target exists", func() bool { return field(w.get(w.target, "svc-other", "a"), "spec", "size") == "large" })
		table.Delete("other")
		w.merge(w.source, "other", "a", `{"spec":{"size":"small"}}`)
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		w.until("the mapped one changes", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
		w.settle()
		if got := field(w.get(w.target, "svc-other", "a"), "spec", "size"); got != "large" {
			t.Errorf("a namespace that is mapped no more got size %v", got)
		}
	})
}

// A source whose finalizer was taken off by force, and that was made again under
// the same name, does not inherit what the old one left.
func TestRecreatedSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		stop := w.run(Options{})
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Old"}}`, "status")
		stop()
		left := w.targetOf("a")
		w.vanish("a")
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		defer w.run(Options{})()
		w.until("conflict reported", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonConflict)) })
		w.settle()
		if diff := cmp.Diff(left, w.targetOf("a")); diff != "" {
			t.Errorf("the old target changed:\n%s", diff)
		}
		if s := field(w.get(w.source, w.sourceNS, "a"), "status", "phase"); s != nil {
			t.Errorf("the new source got the old status %v", s)
		}
	})
}

// A resource without the status subresource, on one side or both, keeps its status all the same, and
// does not loop. A restart writes nothing where the schema says so.
func TestPlainStatus(t *testing.T) {
	for name, plain := range map[string]struct{ known, both bool }{"schema unknown": {}, "source": {known: true}, "both sides": {true, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				known := fakecluster.Schema(nil)
				if plain.known {
					known = fakecluster.Schema{"spec": {"size"}, "status": {"phase"}}
					w.from.ReadSchemas(w.fakeSource.View(nil).Schemas())
					w.to.ReadSchemas(w.fakeTarget.View(nil).Schemas())
				}
				w.fakeSource.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Plain: true, Schema: known})
				w.fakeTarget.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Plain: plain.both, Schema: known})
				part := []string{"status"}
				if plain.both {
					part = nil
				}
				stop := w.run(Options{})
				defer func() { stop() }()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
				w.until("target exists", func() bool { return w.targetOf("a") != nil })
				w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, part...)
				w.until("status came down", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" })
				w.settle()
				before := len(w.fakeSource.Writes()) + len(w.fakeTarget.Writes())
				time.Sleep(time.Hour)
				if plain.known {
					stop()
					stop = w.run(Options{})
					time.Sleep(time.Hour)
				}
				if after := len(w.fakeSource.Writes()) + len(w.fakeTarget.Writes()); after != before {
					t.Errorf("%d writes while nothing happened", after-before)
				}
				if len(w.fakeTarget.Writes()) != 3 { // of its namespace, itself and its status
					t.Errorf("a status is taken for an edit: %v", w.fakeTarget.Writes())
				}
			})
		})
	}
}

// Secret content stays out of everything that people and tools look at.
func TestSecretsStaySecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{Related: []Related{{Resource: secrets, From: TargetSide, Names: []string{"*"}}}})()
		w.resident(w.sourceNS)
		token := object(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"token"},"type":"kubernetes.io/service-account-token","data":{"token":"Y2FuYXJ5"}}`)
		w.createSecret(w.target, w.targetNS, token)
		w.secret(w.target, w.targetNS, "creds", "Y2FuYXJ5")
		w.until("secret came down", func() bool { return w.getSecret(w.source, w.sourceNS, "creds") != nil })
		w.settle()
		if w.getSecret(w.source, w.sourceNS, "token") != nil {
			t.Error("a token travelled")
		}
		for k, v := range w.getSecret(w.source, w.sourceNS, "creds").GetAnnotations() {
			if strings.Contains(v, "canary") || strings.Contains(v, "Y2FuYXJ5") {
				t.Errorf("annotation %s has content", k)
			}
		}
	})
}

// What the cache shows is not what is there: the API server has the last word.
func TestStaleViews(t *testing.T) {
	for name, test := range map[string]func(w *world){
		"a name that was taken a moment ago": func(w *world) {
			w.fakeTarget.Lag(widgets, true)
			foreign := w.create(w.target, w.targetNS, w.widget("b", `{"late":"x"}`, ``))
			w.create(w.source, w.sourceNS, w.widget("b", `{"size":"small"}`, ``))
			w.until("conflict reported", func() bool { return strings.HasPrefix(w.message("b"), string(ReasonConflict)) })
			if diff := cmp.Diff(foreign, w.targetOf("b")); diff != "" {
				w.Errorf("foreign object changed:\n%s", diff)
			}
		},
		"a target that was replaced a moment ago": func(w *world) {
			w.fakeTarget.Lag(widgets, true)
			w.delete(w.target, w.targetNS, "a")
			foreign := w.create(w.target, w.targetNS, w.widget("a", `{"late":"x"}`, ``))
			w.delete(w.source, w.sourceNS, "a")
			w.until("source is gone", func() bool { return w.get(w.source, w.sourceNS, "a") == nil })
			if diff := cmp.Diff(foreign, w.targetOf("a")); diff != "" {
				w.Errorf("foreign object changed:\n%s", diff)
			}
		},
		"a target that was replaced a moment ago, when the source changes": func(w *world) {
			w.fakeTarget.Lag(widgets, true)
			w.delete(w.target, w.targetNS, "a")
			foreign := w.create(w.target, w.targetNS, w.widget("a", `{"late":"x"}`, ``))
			w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
			w.until("conflict reported", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonConflict)) })
			if diff := cmp.Diff(foreign, w.targetOf("a")); diff != "" {
				w.Errorf("foreign object changed:\n%s", diff)
			}
		},
		"a target that was deleted a moment ago": func(w *world) {
			w.fakeTarget.Lag(widgets, true)
			w.delete(w.target, w.targetNS, "a")
			w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
			w.until("target is back", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
		},
		"a source that was made again a moment ago": func(w *world) {
			w.fakeSource.Lag(widgets, true)
			w.vanish("a")
			w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
			w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Old"}}`, "status")
			w.settle()
			if got := field(w.get(w.source, w.sourceNS, "a"), "status", "phase"); got != nil {
				w.Errorf("the new source got the old status %v", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				defer w.run(Options{})()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
				w.until("target exists", func() bool { return w.targetOf("a") != nil })
				w.settle()
				test(w)
			})
		})
	}
}

// What stands in the way is told by Result and Report, and again when it is over.
func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.create(w.target, w.targetNS, w.widget("a", `{"size":"small"}`, ``))
		var mu gosync.Mutex
		var reported, failed []Reason
		defer w.run(Options{Hooks: Hooks{
			Reported: func(_ context.Context, r Report) {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, r.Reason)
			},
			Done: func(_ context.Context, r Result) {
				mu.Lock()
				defer mu.Unlock()
				var bad *ObjectError
				if errors.As(r.Err, &bad) && len(failed) == 0 {
					failed = append(failed, bad.Reason)
				}
			},
		}})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("conflict reported", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return w.message("a") != "" && len(failed) > 0
		})
		w.delete(w.target, w.targetNS, "a")
		w.until("target made", func() bool { return w.targetOf("a") != nil && w.message("a") == "" })
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff([]Reason{ReasonConflict, ""}, reported); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]Reason{ReasonConflict}, failed); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
	})
}

// A status that the source's API server does not take is told, tried seldom, and
// holds up nothing else.
func TestP25StatusRefused(t *testing.T) {
	invalid := func(r fakecluster.Request) error {
		return apierrors.NewInvalid(schema.GroupKind{Group: r.Resource.Group, Kind: "Widget"}, r.Object.Name, nil)
	}
	for name, test := range map[string]struct {
		refusal func(fakecluster.Request) error
	}{"by its schema": {invalid}, "for want of a right": {forbidden}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var tries atomic.Int64
				var odd atomic.Bool
				odd.Store(true)
				w.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Subresource != "status" || !odd.Load() {
						return do()
					}
					tries.Add(1)
					return test.refusal(r)
				})
				defer w.run(Options{})()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
				w.until("target exists", func() bool { return w.targetOf("a") != nil })
				w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Odd"}}`, "status")
				w.until("refusal told", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonStatus)) })
				time.Sleep(10 * time.Minute)
				if n := tries.Load(); n > 10 {
					t.Errorf("%d tries in ten minutes", n)
				}
				w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
				w.until("spec went up", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
				odd.Store(false)
				time.Sleep(10 * time.Minute)
				w.until("status came down", func() bool {
					return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Odd" && w.message("a") == ""
				})
			})
		})
	}
}

// Of statuses that change all the time most are left out, but not the last, and
// not what users wait for.
func TestP25StatusFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		status := func() any { return w.get(w.source, w.sourceNS, "a").Object["status"] }
		report := func(text string) {
			w.merge(w.target, w.targetNS, "a", `{"status":`+text+`}`, "status")
			time.Sleep(10 * time.Millisecond)
		}
		report(`{"phase":"Busy","done":0}`)
		synctest.Wait()
		if diff := cmp.Diff(map[string]any{"phase": "Busy", "done": int64(0)}, status()); diff != "" {
			t.Errorf("the first status (-want +got):\n%s", diff)
		}
		before := len(w.fakeSource.Writes())
		for n := range 200 {
			report(fmt.Sprintf(`{"done":%d}`, n))
		}
		report(`{"phase":"Ready"}`)
		synctest.Wait()
		if diff := cmp.Diff(map[string]any{"phase": "Ready", "done": int64(199)}, status()); diff != "" {
			t.Errorf("at once (-want +got):\n%s", diff)
		}
		if n := len(w.fakeSource.Writes()) - before; n < 20 || n > 30 {
			t.Errorf("%d writes for 200 statuses in two seconds", n)
		}
		report(`{"done":200}`)
		w.until("the last one came down", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "done") == int64(200) })
	})
}
