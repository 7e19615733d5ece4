// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"strings"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	field2 "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/pace"
)

// paced runs a test with the objects a, of which a hostile cluster changes the status
// all the time, and quiet.
func paced(t *testing.T, run func(w *world, report func(name, status string))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		for _, name := range []string{"a", "quiet"} {
			w.create(w.source, w.sourceNS, w.widget(name, `{"size":"small"}`, ``))
			w.until("target exists", func() bool { return w.targetOf(name) != nil })
		}
		run(w, func(name, status string) {
			w.merge(w.target, w.targetNS, name, `{"status":`+status+`}`, "status")
		})
	})
}

// arrives waits until a source has a value in its status, and returns how long it took.
func (w *world) arrives(name, key string, value any) time.Duration {
	w.Helper()
	began := time.Now()
	w.until(fmt.Sprintf("%s of %s is %v", key, name, value), func() bool {
		return field(w.get(w.source, w.sourceNS, name), "status", key) == value
	})
	return time.Since(began)
}

// A cluster that lets a phase turn a hundred times a second does not have it written a
// hundred times, and what comes next does not pay for it.
func TestP25StatusTurns(t *testing.T) {
	paced(t, func(w *world, report func(name, status string)) {
		before := len(w.fakeSource.Writes())
		for n := range 1000 {
			report("a", fmt.Sprintf(`{"phase":"Turn%d"}`, n))
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(w.fakeSource.Writes()) - before; n > 115 {
			w.Errorf("%d writes for 1000 turns in ten seconds", n)
		}
		w.arrives("a", "phase", "Turn999")
		report("a", `{"done":1}`)
		if took := w.arrives("a", "done", int64(1)); took > time.Second {
			w.Errorf("the next change waited for %s", took)
		}
	})
}

// Maps that are emptied are written by a patch, which counts as a write like others.
func TestP25StatusEmptied(t *testing.T) {
	paced(t, func(w *world, report func(name, status string)) {
		before := len(w.fakeSource.Writes())
		for n := range 500 {
			report("a", fmt.Sprintf(`{"phase":"Turn%d","map":{"a":%s}}`, n, []string{"null", `"b"`}[n%2]))
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(w.fakeSource.Writes()) - before; n > 75 {
			w.Errorf("%d writes for 500 statuses in five seconds", n)
		}
		w.arrives("a", "phase", "Turn499")
		report("a", `{"phase":"Empty","map":{"a":null}}`)
		w.arrives("a", "phase", "Empty")
		w.settle()
		if diff := cmp.Diff(map[string]any{}, field(w.get(w.source, w.sourceNS, "a"), "status", "map")); diff != "" {
			w.Errorf("the map (-want +got):\n%s", diff)
		}
	})
}

// A large status counts as several. Another object does not wait for it.
func TestP25StatusBytes(t *testing.T) {
	t.Parallel()
	paced(t, func(w *world, report func(name, status string)) {
		before := len(w.fakeSource.Writes())
		for n := range 200 {
			report("a", fmt.Sprintf(`{"phase":"Turn%d","text":%q}`, n, strings.Repeat("x", 1<<20)))
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(w.fakeSource.Writes()) - before; n > 16 {
			w.Errorf("%d writes of a megabyte in twenty seconds", n)
		}
		for n := range pace.Burst {
			report("quiet", fmt.Sprintf(`{"done":%d}`, n))
			synctest.Wait()
			if got := field(w.get(w.source, w.sourceNS, "quiet"), "status", "done"); got != int64(n) {
				w.Errorf("the status %d of another object has not come at once: %v", n, got)
			}
		}
		if took := w.arrives("a", "phase", "Turn199"); took > 2*time.Second {
			w.Errorf("the last status waited for %s", took)
		}
		report("a", `{"phase":"Ready","text":null}`)
		if took := w.arrives("a", "phase", "Ready"); took > 2*time.Second {
			w.Errorf("the next change waited for %s", took)
		}
	})
}

// Thousands of objects of which the statuses change all the time write no more than a
// binding may. The statuses of one that is quiet go at once nevertheless, and when it is
// over all have the pace that they had.
func TestP25StatusFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects, size, minutes = 2000, 10_000, 10
		var budget pace.Budget
		records := make([]pace.Status, objects)
		given := map[string]any{"phase": "", "text": strings.Repeat("x", size)}
		written := 0
		give := func(s *pace.Status, phase string) bool {
			given["phase"] = phase
			if s.Delay(given, budget.Pause()) > 0 {
				return false
			}
			s.Gave(given, &budget)
			written += size
			return true
		}
		var quiet pace.Status
		for second := range minutes * 60 {
			for i := range records {
				give(&records[i], fmt.Sprint("Turn", second))
			}
			for n := range pace.Burst {
				if second%300 == 0 && !give(&quiet, fmt.Sprint("Turn", second, n)) {
					t.Errorf("the status %d of a quiet object waits at second %d", n, second)
				}
			}
			time.Sleep(time.Second)
		}
		if most := 2 * minutes * 60 * pace.Rate; written > most {
			t.Errorf("%d MB written in %d minutes", written>>20, minutes)
		}
		time.Sleep(2 * time.Minute)
		for i := range records {
			if wait := records[i].Delay(given, budget.Pause()); wait > 0 {
				t.Fatalf("object %d waits for %s after the flood", i, wait)
			}
		}
	})
}

// I19: a refusal that lasts for hours is logged when it begins, and then once an hour for all objects,
// whatever the answer is, also where an API server finds other words each time.
func TestLogOnceAnHour(t *testing.T) {
	t.Parallel()
	const denied, cannot = "access to an object is denied", "object cannot be synced"
	widget := schema.GroupKind{Group: "example.org", Kind: "Widget"}
	for answer, a := range map[string]struct {
		err           func(r fakecluster.Request, n int) error
		apply, access Reason // of an apply that meets it, and of a finalizer
	}{
		"forbidden": {func(r fakecluster.Request, n int) error {
			return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, fmt.Errorf("request %d exceeds the quota", n))
		}, ReasonForbidden, ReasonDenied},
		"invalid": {func(r fakecluster.Request, n int) error {
			return apierrors.NewInvalid(widget, r.Object.Name, field2.ErrorList{field2.Invalid(field2.NewPath("spec"), n, "no")})
		}, ReasonRefused, ReasonDenied},
		"webhook fails": {func(_ fakecluster.Request, n int) error {
			return apierrors.NewInternalError(fmt.Errorf("failed calling webhook: request %d", n))
		}, ReasonUnavailable, ReasonUnavailable},
		"no namespace": {func(r fakecluster.Request, n int) error {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, fmt.Sprint(r.Object.Namespace, " of request ", n))
		}, ReasonMissing, ReasonUnavailable},
	} {
		for name, c := range map[string]struct {
			refuses func(r fakecluster.Request) bool
			begins  string // line of each object
			counted Reason
		}{
			"an apply":         {func(r fakecluster.Request) bool { return r.Resource == widgets && r.Verb == "apply" }, cannot, a.apply},
			"a finalizer":      {func(r fakecluster.Request) bool { return r.Resource == widgets && r.Verb == "patch" }, denied, a.access},
			"a copy of no one": {func(r fakecluster.Request) bool { return r.Resource == secrets && r.Verb == "apply" }, "", ReasonRelated},
		} {
			t.Run(answer+", "+name, func(t *testing.T) {
				lines, asked := refusedForHours(t, c.refuses, a.err)
				begins, hours := 0, 0
				for _, line := range lines {
					if c.begins != "" && strings.Contains(line, fmt.Sprintf(`"msg"=%q`, c.begins)) {
						begins++
					}
					if strings.Contains(line, `"msg"="objects are not in step"`) && strings.HasSuffix(line, fmt.Sprintf(`"objects"={%q=3}`, c.counted)) {
						hours++
					}
				}
				if begins > 3 || c.begins != "" && begins != 3 || hours != 5 || len(lines) > 40 || asked < 80 {
					t.Errorf("of %d requests %d beginnings and %d hours are told in %d lines:\n%s", asked, begins, hours, len(lines), strings.Join(lines, "\n"))
				}
			})
		}
	}
}

// refusedForHours is what is logged in five hours, in which requests that are refused get another err
// each time, for three objects and a Secret each; and how many these requests are.
func refusedForHours(t *testing.T, refused func(fakecluster.Request) bool, err func(r fakecluster.Request, n int) error) (lines []string, asked int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var mu gosync.Mutex
		log := funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, args)
		}, funcr.Options{})
		s, failed := New(b.from, b.to, widgets, Options{Mapper: b.table, Related: []Related{{Resource: secrets, From: TargetSide}}})
		if failed != nil {
			t.Fatal(failed)
		}
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), log))
		done := start(func() error { return s.Run(ctx) })
		refuse := func(_ context.Context, r fakecluster.Request, do func() error) error {
			if !refused(r) {
				return do()
			}
			mu.Lock()
			defer mu.Unlock()
			asked++
			return err(r, asked)
		}
		b.fakeSource.Intercept(refuse)
		b.fakeTarget.Intercept(refuse)
		for i := range 3 {
			b.create(b.source, b.sourceNS, b.widget(fmt.Sprint("w", i), `{"size":"small"}`, ``))
			b.secret(b.target, b.targetNS, fmt.Sprint("s", i), "YQ==")
		}
		time.Sleep(5*time.Hour + time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
	return lines, asked
}
