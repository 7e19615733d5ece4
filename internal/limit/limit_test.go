// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := PerMinute(60)
		for i := range 60 {
			if wait := l.Take("a"); wait != 0 {
				t.Fatalf("%d: wait %s", i, wait)
			}
		}
		for range 100 { // a refused client does not wait for longer by asking again
			if wait := l.Take("a"); wait != time.Second {
				t.Fatalf("wait %s", wait)
			}
		}
		if wait := l.Take("b"); wait != 0 {
			t.Errorf("another key waits %s", wait)
		}
		if wait := l.TakeN("c", 50); wait != 0 {
			t.Errorf("of many at once: wait %s", wait)
		}
		for range 2 { // and nothing is taken
			if wait := l.TakeN("c", 15); wait != 5*time.Second {
				t.Errorf("of more than are left: wait %s", wait)
			}
		}
		if wait := l.TakeN("d", 1000); wait != 0 || l.Take("d") != time.Second {
			t.Errorf("of more than there ever are: wait %s, or not all is taken", wait)
		}
		time.Sleep(2 * time.Second)
		for i, want := range []time.Duration{0, 0, time.Second} {
			if wait := l.Take("a"); wait != want {
				t.Errorf("%d after two seconds: wait %s, want %s", i, wait, want)
			}
		}
	})
}

func TestNoLimit(t *testing.T) {
	for _, n := range []int{0, -1} {
		l := PerMinute(n)
		for range 1000 {
			if wait := l.Take("a"); wait != 0 {
				t.Fatal(wait)
			}
		}
	}
}

func TestBoundedMemory(t *testing.T) {
	l := PerMinute(1)
	l.Take("first")
	for i := range 3 * maxKeys {
		l.Take(fmt.Sprint(i))
		l.Take("busy")
	}
	if len(l.buckets) != maxKeys || l.recent.Len() != maxKeys {
		t.Errorf("%d buckets, %d in order", len(l.buckets), l.recent.Len())
	}
	if l.Take("busy") == 0 || l.Take("first") != 0 {
		t.Error("the one that is silent is remembered, or the busy one forgotten")
	}
}

func TestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := PerMinute(100)
		var taken atomic.Int64
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 50 {
					if l.Take("a") == 0 {
						taken.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := taken.Load(); n != 100 {
			t.Errorf("%d taken at once", n)
		}
	})
}

func TestAddress(t *testing.T) {
	for raw, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := Address(netip.MustParseAddr(raw)); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}
