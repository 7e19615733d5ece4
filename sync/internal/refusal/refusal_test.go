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

	"github.com/klutch-go/sdk/internal/fates"
)

var (
	quota   = apierrors.NewForbidden(schema.GroupResource{Resource: "widgets"}, "a", errors.New("exceeded quota"))
	webhook = apierrors.NewInternalError(errors.New("failed calling webhook"))
)

func named(n int) cache.ObjectName { return cache.NewObjectName("team", fmt.Sprintf("w%05d", n)) }

func due(r *Refusal, wish string, seen any) bool { return r.Delay(wish, seen) <= 0 }

// One object is asked again after pauses that double, up to ten minutes, and at once when
// what is asked changes.
func TestOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLedger(&Budget{}, func(cache.ObjectName) { t.Error("the object that is asked is woken") })
		var pauses []time.Duration
		for range 10 {
			r := l.Refused(named(1), Spec, Asked{"wish", 1, time.Now()}, quota)
			if due(r, "wish", 1) || !due(r, "another", 1) || !due(r, "wish", 2) || !r.Lasts() {
				t.Fatalf("after %v: due %t, another wish %t, another list %t, told %t", pauses, due(r, "wish", 1), due(r, "another", 1), due(r, "wish", 2), r.Lasts())
			}
			pauses = append(pauses, r.Wait())
			time.Sleep(r.Wait())
			if !due(l.Of(named(1), Spec), "wish", 1) {
				t.Fatalf("not due after %v", r.Wait())
			}
		}
		want := []float64{5, 10, 20, 40, 80, 160, 320, 600, 600, 600}
		if !slices.EqualFunc(pauses, want, func(a time.Duration, b float64) bool { return a.Seconds() == b }) {
			t.Errorf("pauses %v, want %v in seconds", pauses, want)
		}
		if r := l.Refused(named(1), Spec, Asked{Unknown, 1, time.Now()}, quota); r.Wait() != longest || due(r, Unknown, 1) || due(r, "wish", 1) || !due(r, "mended", 1) {
			t.Errorf("what is not known for a moment waits %v, and is due: %t", r.Wait(), due(r, Unknown, 1))
		}
		if r := l.Refused(named(1), Spec, Asked{"mended", 1, time.Now()}, quota); r.Wait() != 5*time.Second {
			t.Errorf("another wish waits %v", r.Wait())
		}
		if l.Accepted(named(1), Spec); l.Of(named(1), Spec) != nil || len(l.lines) > 0 {
			t.Error("what was accepted is not forgotten")
		}
	})
}

// What may pass by itself is asked again sooner, and told when it has not passed.
func TestPassing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLedger(&Budget{}, func(cache.ObjectName) {})
		asked := 0
		for began := time.Now(); ; asked++ {
			r := l.Refused(named(1), Spec, Asked{"wish", 1, time.Now()}, webhook)
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

// What meets another state than was seen is due soon once that is another one again, and ever more rarely if it is so each time.
func TestMoving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLedger(&Budget{}, func(cache.ObjectName) {})
		moved, began := apierrors.NewConflict(schema.GroupResource{Resource: "widgets"}, "a", errors.New("the object has been modified")), time.Now()
		asked := 0
		for ; time.Since(began) < time.Hour; asked++ {
			r := l.Refused(named(1), Spec, Asked{"wish", asked, time.Now()}, moved)
			if !due(r, "another", asked) || asked == 0 && r.Delay("wish", asked+1) > 100*time.Millisecond {
				t.Fatalf("another wish is due %t, another version after %v", due(r, "another", asked), r.Delay("wish", asked+1))
			}
			time.Sleep(max(r.Delay("wish", asked+1), time.Millisecond))
		}
		if asked > 130 {
			t.Errorf("asked %d times in an hour", asked)
		}
		asked = 0
		for range 3600 {
			for n := range 10 * fates.Few {
				if before := l.Of(named(n), Spec); before == nil || due(before, "wish", asked) {
					asked++
					l.Refused(named(n), Spec, Asked{"wish", -asked, time.Now()}, moved)
				}
			}
			time.Sleep(time.Second)
		}
		if asked > 4*3600/4 {
			t.Errorf("a crowd is asked %d times in an hour", asked)
		}
	})
}

// One of a crowd that is woken is due, also where it is another version than was seen.
func TestMovingIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var woken cache.ObjectName
		l := NewLedger(&Budget{}, func(n cache.ObjectName) { woken = n })
		moved := apierrors.NewConflict(schema.GroupResource{Resource: "widgets"}, "a", errors.New("the object has been modified"))
		for n := range 100 * fates.Few {
			l.Refused(named(n), Spec, Asked{"wish", 1, time.Now()}, moved)
		}
		first := l.Of(named(0), Spec)
		if due(first, "wish", 2) {
			t.Fatal("one of a crowd is due at once")
		}
		l.Accepted(named(1), Spec)
		if !due(l.Of(woken, Spec), "wish", 2) {
			t.Errorf("%v is woken, and due in %v", woken, l.Of(woken, Spec).Delay("wish", 2))
		}
	})
}

// A request for which an API server names a pause is not made again before its end.
func TestAskedToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLedger(&Budget{}, func(cache.ObjectName) {})
		for i, want := range []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second, 40 * time.Second} {
			if got := l.Refused(named(1), Spec, Asked{"wish", 1, time.Now()}, apierrors.NewTooManyRequests("the webhook is busy", 30)).Wait(); got != want {
				t.Errorf("pause %d is %v, want %v", i, got, want)
			}
		}
	})
}

// I19: many objects, whatever the reasons and in however many Ledgers, share a request in two
// seconds; when a cause goes all are accepted within moments.
func TestI19Refusals(t *testing.T) {
	tooLarge, invalid := apierrors.NewRequestEntityTooLargeError("much"), apierrors.NewBadRequest("no")
	for name, test := range map[string]struct {
		reasons []error
		ledgers int
	}{
		"one cause":    {[]error{quota}, 1},
		"four causes":  {[]error{quota, webhook, tooLarge, invalid}, 1},
		"four Ledgers": {[]error{quota}, 4},
		"both":         {[]error{quota, tooLarge, invalid}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playRefusals(t, test.reasons, test.ledgers) })
		})
	}
}

func playRefusals(t *testing.T, reasons []error, ledgers int) {
	t.Helper()
	const objects = 3_000
	var woken []cache.ObjectName
	all, budget := make([]*Ledger, ledgers), &Budget{}
	for i := range all {
		all[i] = NewLedger(budget, func(o cache.ObjectName) { woken = append(woken, o) })
	}
	of := func(n int) *Ledger { return all[n%ledgers] }
	ask := func(n int) {
		of(n).Refused(named(n), Spec, Asked{"wish", 1, time.Now()}, reasons[n/ledgers%len(reasons)])
	}
	for n := range objects {
		ask(n)
	}
	requests := func(during time.Duration) (n int) {
		for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(10 * time.Second) {
			for i := range objects {
				if due(of(i).Of(named(i), Spec), "wish", 1) {
					n++
					ask(i)
				}
			}
		}
		return n
	}
	requests(10 * time.Minute)
	if n := requests(2 * time.Hour); n > 2*1800+fates.Few*len(reasons)*ledgers {
		t.Errorf("%d requests in 2 hours", n)
	}
	if r := of(0).Refused(named(objects), Spec, Asked{"wish", 1, time.Now()}, errors.New("no answer")); r.Wait() > time.Second {
		t.Errorf("a refusal of another kind waits %v", r.Wait())
	}
	for n := range objects { // of which some are due by themselves
		if n < ledgers*len(reasons) || due(of(n).Of(named(n), Spec), "wish", 1) {
			woken = append(woken, named(n))
		}
	}
	for ; len(woken) > 0; woken = woken[1:] { // some of them twice
		if i := slices.IndexFunc(all, func(l *Ledger) bool { return l.Of(woken[0], Spec) != nil }); i >= 0 {
			all[i].Accepted(woken[0], Spec)
		}
	}
	left := 0
	for _, l := range all {
		left += l.Count(Spec, "wish")
	}
	if left != 1 || budget.crowds.Load() != 0 {
		t.Errorf("%d are refused still, %d crowds", left, budget.crowds.Load())
	}
}

// An API server that is back is asked at once for what it could not answer.
func TestRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := map[cache.ObjectName]bool{}
		l := NewLedger(&Budget{}, func(o cache.ObjectName) { woken[o] = true })
		l.Refused(named(1), Spec, Asked{"wish", 1, time.Now()}, quota)
		l.Refused(named(2), Spec, Asked{"wish", 1, time.Now()}, errors.New("connection refused"))
		l.Refused(named(3), Access, Asked{"", 1, time.Now()}, webhook)
		l.Recovered()
		if woken[named(1)] || !woken[named(2)] || !woken[named(3)] || !due(l.Of(named(2), Spec), "wish", 1) {
			t.Errorf("woken: %v", woken)
		}
		if first := l.First(func(*Refusal) bool { return true }); first == nil || first.Kind != l.Of(named(3), Access).Kind {
			t.Errorf("the first refusal of access is %v", first)
		}
		if l.Forget(named(3)); l.Count(Access, "") != 0 {
			t.Error("it is not forgotten")
		}
		for n := range 10 * fates.Few {
			l.Refused(named(n), Status, Asked{"wish", 1, time.Now()}, webhook)
		}
		clear(woken)
		if l.Recovered(); len(woken) != fates.Few || !woken[named(0)] || woken[named(fates.Few)] {
			t.Errorf("of a crowd %d are woken, want the first %d", len(woken), fates.Few)
		}
		if l.Accepted(named(0), Status); len(woken) != fates.Few+2 {
			t.Errorf("the first that is accepted wakes %d, want 2", len(woken)-fates.Few)
		}
	})
}

// TestI19WishesThatChange: a refused wish is asked at once when people edit it, and a program that edits all the time costs
// no more than what stays as it is: one object is asked once a minute, and a crowd keeps its budget.
func TestI19WishesThatChange(t *testing.T) {
	for name, test := range map[string]struct {
		objects, most int // requests in the second hour
		err           error
	}{
		"one object":                        {1, 65, quota},
		"one object, and a webhook":         {1, 65, webhook},
		"one object that is not answered":   {1, 65, errors.New("no answer")},
		"fifty":                             {50, 1850, quota},
		"fifty that are not answered":       {50, 950, errors.New("no answer")}, // each is looked at, too
		"a thousand, by far beyond a crowd": {1000, 2050, quota},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLedger(&Budget{}, func(cache.ObjectName) {})
				edit := 0
				play := func(during time.Duration) (asked int) {
					for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(10 * time.Second) {
						edit++
						for n := range test.objects {
							if r, wish := l.Of(named(n), Spec), fmt.Sprint(edit); r == nil || due(r, wish, 1) {
								l.Refused(named(n), Spec, Asked{wish, 1, time.Now()}, test.err)
								asked++
							}
						}
					}
					return asked
				}
				if n := play(40 * time.Second); n != 4*test.objects {
					t.Errorf("of the first four edits %d requests are made, want %d", n, 4*test.objects)
				}
				play(time.Hour)
				if n := play(time.Hour); n == 0 || n > test.most {
					t.Errorf("%d requests an hour, want at most %d", n, test.most)
				}
				time.Sleep(6 * time.Hour) // the program that edited has ended
				l.Refused(named(0), Spec, Asked{"last", 1, time.Now()}, test.err)
				if wait := l.Of(named(0), Spec).Delay("mended", 1); wait > 0 {
					t.Errorf("an edit of a person waits %s", wait)
				}
			})
		})
	}
}
