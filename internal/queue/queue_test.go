// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	gosync "sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/klutch-go/sdk/internal/fates"
)

// Calls are the keys that a function was called with.
type calls struct {
	gosync.Mutex
	names []string
}

func (c *calls) fn(took time.Duration, err error) func(context.Context, cache.ObjectName) (time.Duration, error) {
	return func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
		c.Lock()
		c.names = append(c.names, key.String())
		c.Unlock()
		time.Sleep(took)
		return 0, err
	}
}

// running runs queues of a pool until the test ends. They begin at once.
func running(t *testing.T, p *Pool, queues ...*Queue) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg gosync.WaitGroup
	workers := p.workers
	p.workers = 0
	for _, l := range queues {
		wg.Go(func() { l.Run(ctx) })
	}
	synctest.Wait()
	p.mu.Lock()
	for p.workers = workers; p.hire(); {
	}
	p.mu.Unlock()
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func key(name string) cache.ObjectName {
	out, err := cache.ParseObjectName(name)
	if err != nil {
		panic(err)
	}
	return out
}

// Queues and namespaces take turns, and of each the first class comes first; what
// goes through all objects comes last.
func TestQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := NewPool(1, nil), &calls{}
		a, b := p.Queue(c.fn(time.Millisecond, nil), Options{Name: "a", Limit: 1}), p.Queue(c.fn(time.Millisecond, nil), Options{Name: "b", Limit: 1})
		for i := range 3 {
			a.Add(key(fmt.Sprintf("a1/x%d", i)), Initial)
			a.Add(key(fmt.Sprintf("a1/y%d", i)), Status)
		}
		a.Add(key("a2/y"), Status)
		b.Add(key("b/y"), Status)
		b.Add(key("b/y"), Resync) // waits already, in a better class
		a.Add(key("a1/x2"), User) // moves up
		running(t, p, a, b)
		time.Sleep(time.Second)
		synctest.Wait()
		want := []string{"a1/x2", "b/y", "a2/y", "a1/y0", "a1/y1", "a1/y2", "a1/x0", "a1/x1"}
		if diff := cmp.Diff(want, c.names); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// What comes last comes all the same.
func TestQueueStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := NewPool(1, nil), &calls{}
		var l *Queue
		l = p.Queue(func(ctx context.Context, k cache.ObjectName) (time.Duration, error) {
			if k.Name == "noisy" {
				l.Add(k, User)
			}
			return c.fn(time.Millisecond, nil)(ctx, k)
		}, Options{Limit: 1})
		l.Add(key("a/noisy"), User)
		l.Add(key("a/quiet"), Resync)
		running(t, p, l)
		time.Sleep(time.Second)
		c.Lock()
		defer c.Unlock()
		if !slices.Contains(c.names, "a/quiet") {
			t.Error("the last class never came")
		}
	})
}

// A namespace with work without end leaves workers to others at any time.
func TestQueueIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const call = 10 * time.Millisecond
		p := NewPool(8, nil)
		var mu gosync.Mutex
		waited := map[string]time.Duration{}
		asked := map[string]time.Time{}
		l := p.Queue(func(_ context.Context, k cache.ObjectName) (time.Duration, error) {
			mu.Lock()
			if at, ok := asked[k.Namespace]; ok {
				waited[k.Namespace] = max(waited[k.Namespace], time.Since(at))
				delete(asked, k.Namespace)
			}
			mu.Unlock()
			time.Sleep(call)
			return 0, nil
		}, Options{})
		for i := range 10_000 {
			l.Add(key(fmt.Sprintf("noisy/%d", i)), User)
		}
		running(t, p, l)
		for i := range 50 {
			time.Sleep(3 * time.Millisecond)
			mu.Lock()
			asked["quiet"] = time.Now()
			mu.Unlock()
			l.Add(key(fmt.Sprintf("quiet/%d", i)), User)
			time.Sleep(2 * call)
		}
		synctest.Wait()
		if waited["quiet"] > 0 {
			t.Errorf("a quiet namespace waited for %v beside a noisy one", waited["quiet"])
		}
	})
}

// Changes of specs in some namespaces do not hold up a status in another.
func TestQueueIsFairAcrossClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := NewPool(4, nil), &calls{}
		l := p.Queue(c.fn(10*time.Millisecond, nil), Options{Name: "a", Limit: 4})
		for i := range 1000 {
			l.Add(key(fmt.Sprintf("noisy%d/%d", i%5, i)), User)
		}
		running(t, p, l)
		time.Sleep(time.Second)
		l.Add(key("quiet/a"), Status)
		time.Sleep(25 * time.Millisecond) // a round of six namespaces by four workers
		c.Lock()
		defer c.Unlock()
		if !slices.Contains(c.names, "quiet/a") {
			t.Errorf("not among the first %d calls", len(c.names))
		}
	})
}

// A key is worked on by one worker at a time, and again if it was added meanwhile.
func TestQueueOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := NewPool(4, nil), &calls{}
		l := p.Queue(c.fn(time.Second, nil), Options{Name: "a", Limit: 4})
		running(t, p, l)
		l.Add(key("a/x"), User)
		synctest.Wait()
		for range 3 {
			l.Add(key("a/x"), User)
		}
		time.Sleep(time.Second / 2)
		c.Lock()
		if len(c.names) != 1 {
			t.Errorf("calls at once: %v", c.names)
		}
		c.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(c.names) != 2 || len(l.items) != 0 || len(l.lines) != 0 {
			t.Errorf("calls = %v, left: %v, %v", c.names, l.items, l.lines)
		}
	})
}

// Failures, panics too, are retried ever more slowly, those of an outage soon, and what asks for a pause
// no sooner, though delays are shorter: up to ten minutes.
func TestQueueRetries(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		at     time.Duration
		atMost int
		least  int
	}{
		"outage":  {syscall.ECONNREFUSED, 10 * time.Minute, 600, 150},
		"webhook": {apierrors.NewInternalError(errors.New(`failed calling webhook "a.b": no answer`)), 3 * time.Hour, 40, 28},
		"unknown": {errors.New("something else"), 3 * time.Hour, 40, 28},
		"refusal": {apierrors.NewForbidden(schema.GroupResource{Resource: "widgets"}, "x", errors.New("no")), 10 * time.Minute, 20, 12},
		"asked":   {apierrors.NewTooManyRequests("not now", 60), 9*time.Minute + time.Second, 10, 10},
		"bounded": {apierrors.NewTooManyRequests("not now", 86400), 30*time.Minute + time.Second, 4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, c := NewPool(1, func(pause time.Duration, _ cache.ObjectName, _ int) time.Duration { return pause - pause/16 }), &calls{}
				l := p.Queue(c.fn(0, test.err), Options{Name: "a", Limit: 1})
				running(t, p, l)
				l.Add(key("a/x"), User)
				time.Sleep(test.at)
				synctest.Wait()
				if n := len(c.names); n < test.least || n > test.atMost {
					t.Errorf("%d calls in %v, want %d to %d", n, test.at, test.least, test.atMost)
				}
			})
		})
	}
}

// The first key that succeeds has two others called, each of which has two more, though the watch
// shows what a call has made before the call ends.
func TestSuccessWakesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 30
		var q *Queue
		var enough atomic.Bool
		made := map[cache.ObjectName]bool{}
		q = NewPool(1, nil).Queue(func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
			if !enough.Load() {
				return 0, apierrors.NewForbidden(schema.GroupResource{Resource: "widgets"}, key.Name, errors.New("exceeded quota"))
			}
			if !made[key] {
				made[key] = true
				q.Changed(key, User)
			}
			return 0, nil
		}, Options{Limit: 1})
		running(t, q.pool, q)
		for i := range keys {
			q.Add(key(fmt.Sprint("a/", i)), User)
		}
		time.Sleep(time.Hour)
		enough.Store(true)
		q.Add(key("a/7"), User)
		synctest.Wait()
		if len(made) < keys {
			t.Errorf("%d of %d keys were called at once", len(made), keys)
		}
	})
}

// What cannot be cured is not tried again, and nothing is remembered of it.
func TestQueueGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := NewPool(1, nil), &calls{}
		q := p.Queue(c.fn(0, fates.ErrTerminal), Options{})
		running(t, p, q)
		q.Add(key("a/x"), User)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(c.names) != 1 || len(q.items) != 0 {
			t.Errorf("%d calls, %d keys are remembered", len(c.names), len(q.items))
		}
	})
}

// An end drops what waits and lets what is worked on end; nothing is worked on after it.
func TestQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := NewPool(1, nil), &calls{}
		q := p.Queue(c.fn(time.Second, errors.New("no")), Options{})
		running(t, p, q)
		q.Add(key("a/x"), User)
		q.Add(key("a/y"), User)
		synctest.Wait()
		began := time.Now()
		q.Close()
		if took := time.Since(began); took != time.Second {
			t.Errorf("closed after %v, with a call that takes a second", took)
		}
		q.Add(key("a/z"), User)
		never := p.Queue(c.fn(0, nil), Options{})
		never.Add(key("b/x"), User)
		synctest.Wait()
		never.Close() // without a Run
		time.Sleep(time.Hour)
		if diff := cmp.Diff([]string{"a/x"}, c.names); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.turns[live].list) != 0 {
			t.Error("the pool remembers a queue that has ended")
		}
	})
}

// BenchmarkKeys has keys added, worked on by eight workers and finished.
func BenchmarkKeys(b *testing.B) {
	const keys, workers = 10_000, 8
	names := make([]cache.ObjectName, keys)
	for i := range names {
		names[i] = cache.NewObjectName(fmt.Sprintf("namespace-%d", i%20), fmt.Sprintf("object-%d", i))
	}
	report := func(b *testing.B) {
		b.Helper()
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/key")
		b.ReportAllocs()
	}
	b.Run("ours", func(b *testing.B) {
		defer report(b)
		for b.Loop() {
			var wg gosync.WaitGroup
			p := NewPool(workers, nil)
			q := p.Queue(func(context.Context, cache.ObjectName) (time.Duration, error) { wg.Done(); return 0, nil }, Options{Name: "a"})
			ctx, cancel := context.WithCancel(b.Context())
			var ended gosync.WaitGroup
			ended.Go(func() { q.Run(ctx) })
			wg.Add(keys)
			for _, name := range names {
				q.Add(name, User)
			}
			wg.Wait()
			cancel()
			ended.Wait()
		}
	})
	b.Run("workqueue", func(b *testing.B) {
		defer report(b)
		for b.Loop() {
			var wg, ended gosync.WaitGroup
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
			for range workers {
				ended.Go(func() {
					ctx := logr.NewContext(b.Context(), logr.Discard())
					for name, quit := q.Get(); !quit; name, quit = q.Get() {
						_ = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("object", name.String()))
						q.Forget(name)
						q.Done(name)
						wg.Done()
					}
				})
			}
			wg.Add(keys)
			for _, name := range names {
				q.Add(name)
			}
			wg.Wait()
			q.ShutDown()
			ended.Wait()
		}
	})
}

// A function learns from its context that what it meets has lasted; another wish, or a success,
// begins anew.
func TestLasting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told, failing atomic.Bool
		failing.Store(true)
		p := NewPool(1, nil)
		q := p.Queue(func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
			if !failing.Load() {
				return 0, nil
			}
			err := errors.New("connection refused")
			told.Store(fates.IsTold(ctx, err))
			return 0, err
		}, Options{})
		running(t, p, q)
		lasts := func() {
			t.Helper()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if told.Load() {
				t.Error("told after five seconds")
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if !told.Load() {
				t.Error("not told after 15 seconds")
			}
		}
		q.Add(key("a"), User)
		lasts()
		q.Changed(key("a"), User)
		lasts()
		failing.Store(false)
		q.Add(key("a"), User)
		synctest.Wait()
		failing.Store(true)
		q.Add(key("a"), User)
		lasts()
	})
}

// What changes while a call goes on that then fails is for Meanwhile: the pause goes on.
func TestLookDuringACallKeepsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, looked atomic.Int64
		p := NewPool(1, nil)
		var q *Queue
		q = p.Queue(func(context.Context, cache.ObjectName) (time.Duration, error) {
			if asked.Add(1) < 100 {
				q.Look(key("a"), User)
			}
			return 0, apierrors.NewForbidden(schema.GroupResource{Resource: "widgets"}, "a", errors.New("no"))
		}, Options{Meanwhile: func(context.Context, cache.ObjectName) (time.Duration, error) {
			if looked.Add(1)%3 != 0 {
				q.Look(key("a"), User)
			}
			return 0, nil
		}})
		running(t, p, q)
		q.Add(key("a"), User)
		time.Sleep(time.Hour)
		if n, m := asked.Load(), looked.Load(); n > 25 || m != 3*n {
			t.Errorf("asked %d times in an hour, and looked %d times", n, m)
		}
	})
}

// A call that cannot begin leaves the pauses after failures as they are, and is repeated when it says.
func TestBusyIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, turned atomic.Int64
		p := NewPool(1, nil)
		q := p.Queue(func(context.Context, cache.ObjectName) (time.Duration, error) {
			if turned.Add(1)%2 == 0 {
				return time.Second, ErrBusy
			}
			asked.Add(1)
			return 0, apierrors.NewForbidden(schema.GroupResource{Resource: "widgets"}, "a", errors.New("no"))
		}, Options{})
		running(t, p, q)
		q.Add(key("a"), User)
		time.Sleep(time.Hour)
		if n, m := asked.Load(), turned.Load(); n < 10 || n > 25 || m < 2*n-1 {
			t.Errorf("asked %d times in an hour, of %d turns", n, m)
		}
	})
}

// What has a time of its own comes at that time also in the long pause after a failure, as often as it
// asks for, and has nothing asked again that failed; an event ends the pause as ever.
func TestMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, told atomic.Int64
		fails, lasts := error(apierrors.NewForbidden(schema.GroupResource{Resource: "widgets"}, "a", errors.New("no"))), atomic.Bool{}
		p := NewPool(1, nil)
		q := p.Queue(func(context.Context, cache.ObjectName) (time.Duration, error) {
			asked.Add(1)
			return 7 * time.Second, fails
		}, Options{Meanwhile: func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
			told.Add(1)
			lasts.Store(fates.IsTold(ctx, syscall.ECONNREFUSED))
			return 7 * time.Second, nil
		}})
		running(t, p, q)
		q.Add(key("a"), User)
		time.Sleep(time.Hour)
		asked.Store(0)
		told.Store(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n, m := asked.Load(), told.Load(); n < 5 || n > 7 || m < 500 || m > 515 || !lasts.Load() {
			t.Errorf("in an hour asked %d times what fails, and %d times what does not, which knows that it lasts: %t", n, m, lasts.Load())
		}
		q.Add(key("a"), User)
		synctest.Wait()
		if n := asked.Load(); n < 6 || n > 8 {
			t.Errorf("asked %d times after an event", n)
		}
	})
}
