// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"fmt"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
)

// lates are the keys that Late was called with, and how often.
type lates struct {
	gosync.Mutex
	told map[string]int
}

func (l *lates) late(_ context.Context, key cache.ObjectName, _ Priority) {
	l.Lock()
	defer l.Unlock()
	l.told[key.String()]++
}

// What waits while a call of the pool hangs is told once, by no worker, and once more when it has
// moved up. A panic ends nothing.
func TestLateKeysAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c, l := NewPool(1, nil), &calls{}, &lates{told: map[string]int{}}
		hangs := p.Queue(c.fn(time.Minute, nil), Options{})
		waits := p.Queue(c.fn(0, nil), Options{Late: func(ctx context.Context, key cache.ObjectName, p Priority) {
			l.late(ctx, key, p)
			panic("late")
		}})
		hangs.Add(key("a/hangs"), User)
		running(t, p, hangs, waits)
		synctest.Wait()
		waits.Add(key("b/waits"), Status)
		waits.Add(key("b/moves"), Status)
		time.Sleep(Slow + 2*lookEvery)
		waits.Add(key("b/moves"), User)
		time.Sleep(2 * Slow)
		l.Lock()
		if diff := cmp.Diff(map[string]int{"b/waits": 1, "b/moves": 2}, l.told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		l.Unlock()
		time.Sleep(time.Minute)
		c.Lock()
		defer c.Unlock()
		if diff := cmp.Diff([]string{"a/hangs", "b/moves", "b/waits"}, c.names); diff != "" {
			t.Errorf("called (-want +got):\n%s", diff)
		}
	})
}

// However long a key waits, it is not told where calls return.
func TestBusyIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c, l := NewPool(1, nil), &calls{}, &lates{told: map[string]int{}}
		q := p.Queue(c.fn(Slow-time.Second, nil), Options{Late: l.late})
		for i := range 10 {
			q.Add(key(fmt.Sprintf("a/%d", i)), User)
		}
		running(t, p, q)
		time.Sleep(time.Minute)
		l.Lock()
		defer l.Unlock()
		c.Lock()
		defer c.Unlock()
		if len(c.names) != 10 || len(l.told) > 0 {
			t.Errorf("called with %q, told of %v", c.names, l.told)
		}
	})
}
