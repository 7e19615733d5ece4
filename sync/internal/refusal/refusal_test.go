// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

var (
	quota   = apierrors.NewForbidden(schema.GroupResource{Resource: "widgets"}, "a", errors.New("exceeded quota"))
	webhook = apierrors.NewInternalError(errors.New("failed calling webhook"))
)

func named(n int) cache.ObjectName { return cache.NewObjectName("team", fmt.Sprintf("w%05d", n)) }

// One object is asked again after pauses that double, up to ten minutes, and at once when
// what is asked changes.
func TestOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLedger(func(cache.ObjectName) { t.Error("the object that is asked is woken") })
		var pauses []time.Duration
		for range 10 {
			r := l.Refused(named(1), Spec, "wish", 1, quota)
			if r.Due("wish", 1) || !r.Due("another", 1) || !r.Due("wish", 2) || !r.Lasts() {
				t.Fatalf("after %v: due %t, another wish %t, another list %t, told %t", pauses, r.Due("wish", 1), r.Due("another", 1), r.Due("wish", 2), r.Lasts())
			}
			pauses = append(pauses, r.Wait())
			time.Sleep(r.Wait())
			if !l.Of(named(1), Spec).Due("wish", 1) {
				t.Fatalf("not due after %v", r.Wait())
			}
		}
		want := []float64{5, 10, 20, 40, 80, 160, 320, 600, 600, 600}
		if !slices.EqualFunc(pauses, want, func(a time.Duration, b float64) bool { return a.Seconds() == b }) {
			t.Errorf("pauses %v, want %v in seconds", pauses, want)
		}
		if r := l.Refused(named(1), Spec, "mended", 1, quota); r.Wait() != 5*time.Second {
			t.Errorf("another wish waits %v", r.Wait())
		}
		if l.Accepted(named(1), Spec); l.Of(named(1), Spec) != nil || len(l.kinds) > 0 {
			t.Error("what was accepted is not forgotten")
		}
	})
}

// What may pass by itself is asked again sooner, and told when it has not passed.
func TestPassing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLedger(func(cache.ObjectName) {})
		asked := 0
		for began := time.Now(); ; asked++ {
			r := l.Refused(named(1), Spec, "wish", 1, webhook)
			if lasts := time.Since(began) >= passing; r.Lasts() != lasts {
				t.Fatalf("told after %v: %t", time.Since(began), r.Lasts())
			} else if lasts {
				break
			}
			time.Sleep(r.Wait())
		}
		if asked > 7 {
			t.Errorf("asked %d times in %v", asked, passing)
		}
	})
}

// I19: many objects share a request in two seconds; when the cause goes all are accepted within moments.
func TestI19Refusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = 3_000
		var woken []cache.ObjectName
		l := NewLedger(func(o cache.ObjectName) { woken = append(woken, o) })
		for n := range objects {
			l.Refused(named(n), Spec, "wish", 1, quota)
		}
		requests := func(during time.Duration) (n int) {
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(10 * time.Second) {
				for i := range objects {
					if l.Of(named(i), Spec).Due("wish", 1) {
						n++
						l.Refused(named(i), Spec, "wish", 1, quota)
					}
				}
			}
			return n
		}
		if n := requests(5 * time.Hour); n > 5*1800+few {
			t.Errorf("%d requests in 5 hours", n)
		}
		if r := l.Refused(named(objects), Spec, "wish", 1, webhook); r.Wait() > time.Second {
			t.Errorf("a refusal of another kind waits %v", r.Wait())
		}
		for n := range objects { // of which some are due by themselves
			if r := l.Of(named(n), Spec); r.Due("wish", 1) {
				woken = append(woken, named(n))
			}
		}
		l.Accepted(named(0), Spec)
		for len(woken) > 0 {
			l.Accepted(woken[0], Spec)
			woken = woken[1:]
		}
		if n := l.Count(Spec); n != 1 {
			t.Errorf("%d are refused still", n)
		}
	})
}

// An API server that is back is asked at once for what it could not answer.
func TestRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := map[cache.ObjectName]bool{}
		l := NewLedger(func(o cache.ObjectName) { woken[o] = true })
		l.Refused(named(1), Spec, "wish", 1, quota)
		l.Refused(named(2), Spec, "wish", 1, errors.New("connection refused"))
		l.Refused(named(3), Access, "", 1, webhook)
		l.Recovered()
		if woken[named(1)] || !woken[named(2)] || !woken[named(3)] || !l.Of(named(2), Spec).Due("wish", 1) {
			t.Errorf("woken: %v", woken)
		}
		if first := l.First(func(*Refusal) bool { return true }); first == nil || first.Kind != l.Of(named(3), Access).Kind {
			t.Errorf("the first refusal of access is %v", first)
		}
		if l.Forget(named(3)); l.Count(Access) != 0 {
			t.Error("it is not forgotten")
		}
	})
}
