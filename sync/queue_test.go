// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
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

// running runs a pool and its lanes until the test ends.
func running(t *testing.T, p *pool, lanes ...*lane) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg gosync.WaitGroup
	for _, l := range lanes {
		wg.Go(func() { l.run(ctx) })
	}
	synctest.Wait()
	wg.Go(func() { p.run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func key(name string) cache.ObjectName {
	out, err := cache.ParseObjectName(name)
	if err != nil {
		panic(err)
	}
	return out
}

// Lanes and namespaces take turns, and of each the first class comes first; what
// goes through all objects comes last.
func TestQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPool(1, 0), &calls{}
		a, b := p.lane("a", 1, c.fn(time.Millisecond, nil)), p.lane("b", 1, c.fn(time.Millisecond, nil))
		for i := range 3 {
			a.add(key(fmt.Sprintf("a1/x%d", i)), classInitial)
			a.add(key(fmt.Sprintf("a1/y%d", i)), classStatus)
		}
		a.add(key("a2/y"), classStatus)
		b.add(key("b/y"), classStatus)
		b.add(key("b/y"), classResync) // waits already, in a better class
		a.add(key("a1/x2"), classUser) // moves up
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
		p, c := newPool(1, 0), &calls{}
		var l *lane
		l = p.lane("a", 1, func(ctx context.Context, k cache.ObjectName) (time.Duration, error) {
			if k.Name == "noisy" {
				l.add(k, classUser)
			}
			return c.fn(time.Millisecond, nil)(ctx, k)
		})
		l.add(key("a/noisy"), classUser)
		l.add(key("a/quiet"), classResync)
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
		p := newPool(8, 0)
		var mu gosync.Mutex
		waited := map[string]time.Duration{}
		asked := map[string]time.Time{}
		l := p.lane("a", 8, func(_ context.Context, k cache.ObjectName) (time.Duration, error) {
			mu.Lock()
			if at, ok := asked[k.Namespace]; ok {
				waited[k.Namespace] = max(waited[k.Namespace], time.Since(at))
				delete(asked, k.Namespace)
			}
			mu.Unlock()
			time.Sleep(call)
			return 0, nil
		})
		for i := range 10_000 {
			l.add(key(fmt.Sprintf("noisy/%d", i)), classUser)
		}
		running(t, p, l)
		for i := range 50 {
			time.Sleep(3 * time.Millisecond)
			mu.Lock()
			asked["quiet"] = time.Now()
			mu.Unlock()
			l.add(key(fmt.Sprintf("quiet/%d", i)), classUser)
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
		p, c := newPool(4, 0), &calls{}
		l := p.lane("a", 4, c.fn(10*time.Millisecond, nil))
		for i := range 1000 {
			l.add(key(fmt.Sprintf("noisy%d/%d", i%5, i)), classUser)
		}
		running(t, p, l)
		time.Sleep(time.Second)
		l.add(key("quiet/a"), classStatus)
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
		p, c := newPool(4, 0), &calls{}
		l := p.lane("a", 4, c.fn(time.Second, nil))
		running(t, p, l)
		l.add(key("a/x"), classUser)
		synctest.Wait()
		for range 3 {
			l.add(key("a/x"), classUser)
		}
		time.Sleep(time.Second / 2)
		c.Lock()
		if len(c.names) != 1 {
			t.Errorf("calls at once: %v", c.names)
		}
		c.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(c.names) != 2 || len(l.keys) != 0 || len(l.flows) != 0 {
			t.Errorf("calls = %v, left: %v, %v", c.names, l.keys, l.flows)
		}
	})
}

// Failures, panics too, are retried ever more slowly, those of an outage soon.
func TestQueueRetries(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		at     time.Duration
		atMost int
		least  int
	}{
		"outage":  {errors.New("connection refused"), 10 * time.Minute, 600, 150},
		"refusal": {forbidden(fakecluster.Request{Resource: widgets}), 10 * time.Minute, 60, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, c := newPool(1, 0), &calls{}
				l := p.lane("a", 1, c.fn(0, test.err))
				running(t, p, l)
				l.add(key("a/x"), classUser)
				time.Sleep(test.at)
				synctest.Wait()
				if n := len(c.names); n < test.least || n > test.atMost {
					t.Errorf("%d calls in %v, want %d to %d", n, test.at, test.least, test.atMost)
				}
			})
		})
	}
}
