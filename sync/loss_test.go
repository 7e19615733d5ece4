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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/loss"
	"github.com/klutch-go/sdk/sync/internal/names"
)

// I19: a target that vanished and is not on offer any more costs a request in ten minutes at
// most, and a look after each list. It is told, and comes back within an hour of the offer.
func TestI19LossIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var withdrawn atomic.Bool
		var requests atomic.Int64
		defer w.run(Options{Offered: func(context.Context) (string, error) {
			if withdrawn.Load() {
				return "it is not on offer", nil
			}
			return "", nil
		}})()
		w.createMany(1)
		withdrawn.Store(true)
		w.delete(w.target, w.targetNS, "w0")
		time.Sleep(12 * time.Hour)
		if got := w.message("w0"); !strings.HasPrefix(got, string(ReasonVanished)) || !strings.HasSuffix(got, "it is not on offer") {
			t.Errorf("message %q", got)
		}
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			switch {
			case r.Resource != widgets || r.Verb == "watch":
			case r.Verb == "list":
				requests.Add(-2) // the fake sends no bookmarks, so that there are many
			default:
				requests.Add(1)
			}
			return do()
		})
		time.Sleep(12 * time.Hour)
		w.fakeTarget.Intercept(nil)
		if got := requests.Load(); got > 12*6 {
			t.Errorf("%d requests in twelve hours", got)
		}
		withdrawn.Store(false)
		time.Sleep(65 * time.Minute)
		if w.targetOf("w0") == nil || w.message("w0") != "" {
			t.Errorf("target %v, message %q", w.targetOf("w0"), w.message("w0"))
		}
	})
}

// Each loss in a row of one object waits twice as long as the one before, and an hour at most: an
// owner who deletes each target at once has few of them made in a day.
func TestLossesInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.createMany(1)
		before, losses, day := time.Duration(0), 0, time.Now().Add(24*time.Hour)
		for ; time.Now().Before(day) && losses <= 36; losses++ {
			w.settle()
			w.delete(w.target, w.targetNS, "w0")
			began := time.Now()
			for w.targetOf("w0") == nil && time.Since(began) < 2*loss.Longest {
				time.Sleep(max(50*time.Millisecond, before/100))
			}
			took := time.Since(began)
			if took < max(time.Second, min(before*3/2, loss.Longest)) || took > loss.Longest+time.Minute {
				t.Fatalf("back after %v, before that after %v", took, before)
			}
			before = took
		}
		if before < loss.Longest || losses > 36 {
			t.Errorf("%d targets in a day, the last one after %v", losses, before)
		}
	})
}

// ownerDeletes has an owner delete a target now, and each one as it is made, and counts these.
func (w *world) ownerDeletes(name string) (made *int) {
	made = new(int)
	w.fakeTarget.Intercept(func(ctx context.Context, r fakecluster.Request, do func() error) error {
		err := do()
		if r.Verb == "apply" && err == nil {
			*made++
			_ = w.target.Resource(widgets).Namespace(w.targetNS).Delete(ctx, r.Object.Name, metav1.DeleteOptions{})
		}
		return err
	})
	w.delete(w.target, w.targetNS, name)
	return made
}

// journaled begins a Sync that keeps its deletions in log.
func (w *world) journaled(opts Options, log *string) (stop func()) {
	opts.DeletionLog = DeletionLog{Text: *log, Save: func(_ context.Context, text string) error {
		*log = text
		return nil
	}}
	_, stop = w.sync(opts)
	return stop
}

// I19: an edit of the source does not end the pause before what an owner deletes each time is made
// anew; it goes up with that.
func TestEditsDoNotEndThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		_, stop := w.sync(Options{DeletionLimit: -1})
		defer stop()
		w.createMany(1)
		made := w.ownerDeletes("w0")
		for i := range 60 {
			w.merge(w.source, w.sourceNS, "w0", fmt.Sprintf(`{"spec":{"color":"c%d"}}`, i))
			time.Sleep(10 * time.Second)
		}
		if *made > 10 {
			t.Errorf("made anew %d times in ten minutes", *made)
		}
		w.fakeTarget.Intercept(nil)
		time.Sleep(20 * time.Minute)
		if got := field(w.targetOf("w0"), "spec", "color"); got != "c59" {
			t.Errorf("color is %v", got)
		}
	})
}

// A target that is lost while an edit of it is refused, or behind an object of someone else's that took
// its name for a while, is told as lost, counted, and made anew after the pause.
func TestLossesThatOtherAnswersHide(t *testing.T) {
	refuse := func(w *world) {
		w.fakeTarget.Intercept(func(ctx context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource != widgets || r.Verb != "apply" {
				return do()
			}
			w.fakeTarget.Intercept(nil)
			_ = w.target.Resource(widgets).Namespace(w.targetNS).Delete(ctx, "w0", metav1.DeleteOptions{})
			return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
		})
		w.merge(w.source, w.sourceNS, "w0", `{"spec":{"size":"large"}}`)
	}
	take := func(w *world) {
		w.delete(w.target, w.targetNS, "w0")
		w.create(w.target, w.targetNS, w.widget("w0", `{"size":"theirs"}`, ``))
		w.until("told", func() bool { return strings.HasPrefix(w.message("w0"), string(ReasonConflict)) })
		w.delete(w.target, w.targetNS, "w0")
	}
	for name, lose := range map[string]func(*world){"a refused edit": refuse, "a name that is taken": take} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				told, mu := []Reason{}, gosync.Mutex{}
				_, stop := w.sync(Options{DeletionLimit: 1, Hooks: Hooks{Reported: func(_ context.Context, r Report) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, r.Reason)
				}}})
				defer stop()
				w.createMany(2)
				w.settle()
				lose(w)
				w.until("the loss is told", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return slices.Contains(told, ReasonVanished)
				})
				w.until("made anew", func() bool { return w.targetOf("w0") != nil })
				w.settle()
				w.delete(w.source, w.sourceNS, "w1")
				time.Sleep(20 * time.Second)
				if got := w.message("w1"); !strings.HasPrefix(got, string(ReasonHeld)) {
					t.Errorf("the loss is not counted: %q", got)
				}
			})
		})
	}
}

// So is a target of a legacy konnector that was never taken over, since each change of it was refused.
func TestLossOfALegacyTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"huge"}`, `"finalizers":["`+DefaultFinalizer+`"]`))
		theirs := w.widget("a", `{"size":"small"}`, `"annotations":{"`+BoundAnnotation+`":"true"}`)
		if _, err := w.target.Resource(widgets).Namespace(w.targetNS).Create(t.Context(), theirs, metav1.CreateOptions{FieldManager: "konnector"}); err != nil {
			t.Fatal(err)
		}
		defer w.run(Options{})()
		w.until("the refusal is told", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonRefused)) })
		w.delete(w.target, w.targetNS, "a")
		w.until("the loss is told", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonVanished)) })
	})
}

// What comes back is counted over restarts, as deletions are: be it that many targets are lost, or
// that an owner deletes the same one each time.
func TestReturnsAreCountedOverRestarts(t *testing.T) {
	const limit = 5
	over := func(t *testing.T, lose func(w *world, restart func())) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newFake(t)
			log := ""
			begin := func() func() { return w.journaled(Options{DeletionLimit: limit}, &log) }
			stop := begin()
			defer func() { stop() }()
			lose(w, func() {
				stop()
				stop = begin()
			})
		})
	}
	over(t, func(w *world, restart func()) {
		w.createMany(15)
		w.settle()
		for i := range 15 {
			w.delete(w.target, w.targetNS, fmt.Sprint("w", i))
			if i%3 == 2 {
				time.Sleep(10 * time.Second)
				restart()
				w.settle()
			}
		}
		time.Sleep(time.Hour)
		if n := w.count(w.fakeTarget, w.targetNS); n != limit {
			t.Errorf("%d of 15 targets came back", n)
		}
	})
	over(t, func(w *world, restart func()) {
		w.createMany(1)
		made := w.ownerDeletes("w0")
		for range 60 {
			time.Sleep(time.Minute)
			w.until("told", func() bool { return w.message("w0") != "" }) // a start knows of no loss that no message tells of
			restart()
		}
		if *made != limit {
			t.Errorf("made anew %d times in an hour", *made)
		}
	})
}

// The pause before a target that an owner deletes each time goes on over restarts, which are too rare
// for the breaker to count what comes back between two of them.
func TestLossesOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		log := ""
		stop := w.journaled(Options{}, &log)
		defer func() { stop() }()
		w.createMany(1)
		made := w.ownerDeletes("w0")
		for range 40 { // four hours
			time.Sleep(6 * time.Minute)
			stop()
			stop = w.journaled(Options{}, &log)
		}
		if *made < 10 || *made > 20 {
			t.Errorf("made anew %d times in four hours, message %q", *made, w.message("w0"))
		}
		w.fakeTarget.Intercept(nil)
		time.Sleep(loss.Longest + time.Minute)
		if w.targetOf("w0") == nil {
			t.Error("it is not made anew once it is let be")
		}
	})
}

// The message of a claim whose target had vanished, copied with its manifest to a new one, does not make
// that wait for the end of the other's pause.
func TestLossOfACopiedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		time.Sleep(time.Hour)
		until := time.Now().Add(50 * time.Minute).UTC().Format(time.RFC3339)
		message := func(of, rest string) string {
			return string(ReasonVanished) + ": " + display(widgets, cache.NewObjectName(w.targetNS, of)) + hasVanished + rest
		}
		for name, copied := range map[string]struct{ size, message string }{
			"again":   {"small", message("again", loss.Returns+": loss 13, until "+until)},
			"copy":    {"small", message("other", loss.Returns+": loss 13, until "+until)},
			"refused": {"huge", message("other", loss.Refused+"the target cluster refuses a target for this object")},
		} {
			u := w.widget(name, `{"size":"`+copied.size+`"}`, ``)
			u.SetAnnotations(map[string]string{klutchNames.Message: copied.message})
			w.create(w.source, w.sourceNS, u)
		}
		time.Sleep(time.Minute)
		for _, name := range []string{"again", "copy"} {
			if w.targetOf(name) == nil || w.message(name) != "" {
				t.Errorf("%s: after a minute there is no target, or a message: %q", name, w.message(name))
			}
		}
		if m := w.message("refused"); !strings.HasPrefix(m, string(ReasonRefused)) {
			t.Errorf("message %q", m)
		}
	})
}

// Targets that vanished and are refused when they come back count as one loss each, however
// often they are asked again, over starts too.
func TestRefusedReturnsCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var quota atomic.Bool
		w.quota(w.fakeTarget, &quota)
		s, stop := w.sync(Options{DeletionLimit: 3})
		defer func() { stop() }()
		w.createMany(5)
		w.settle()
		quota.Store(true)
		for i := range 4 {
			w.delete(w.target, w.targetNS, fmt.Sprint("w", i))
			time.Sleep(2 * time.Hour)
		}
		for range 2 {
			if st := s.Status(); st.Held != 0 || !strings.HasPrefix(w.message("w0"), string(ReasonVanished)) || !strings.HasSuffix(w.message("w0"), "exceeded quota") {
				t.Errorf("%d held, message %q", st.Held, w.message("w0"))
			}
			stop()
			s, stop = w.sync(Options{DeletionLimit: 3})
			time.Sleep(time.Minute)
		}
		w.delete(w.source, w.sourceNS, "w4")
		time.Sleep(time.Minute)
		if m := w.message("w4"); m != "" {
			t.Errorf("a deletion by hand: %q", m)
		}
		quota.Store(false)
		time.Sleep(time.Hour)
		if n := w.count(w.fakeTarget, w.targetNS); n != 4 || s.Status().Held != 0 {
			t.Errorf("%d targets, %d held", n, s.Status().Held)
		}
	})
}

// quota has a cluster forbid all applies while on.
func (w *world) quota(c *fakecluster.Cluster, on *atomic.Bool) {
	c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if r.Resource == widgets && r.Verb == "apply" && on.Load() {
			return apierrors.NewForbidden(widgets.GroupResource(), r.Object.Name, errors.New("exceeded quota"))
		}
		return do()
	})
}

// A claim that was bound anew has lost nothing, also where its target is refused, and after a start.
func TestBoundAnewIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var quota atomic.Bool
		w.quota(w.fakeTarget, &quota)
		stop := w.run(Options{})
		w.createMany(1)
		w.merge(w.target, w.targetNS, "w0", `{"status":{"phase":"Ready"}}`, "status")
		w.settle()
		stop()
		w.delete(w.target, w.targetNS, "w0")
		w.merge(w.source, w.sourceNS, "w0", `{"metadata":{"finalizers":null}}`)
		quota.Store(true)
		for range 2 {
			stop = w.run(Options{})
			time.Sleep(time.Hour)
			if m := w.message("w0"); !strings.HasPrefix(m, string(ReasonForbidden)) {
				t.Errorf("message %q", m)
			}
			stop()
		}
	})
}

// withTwoTargets is w with a second cluster of targets, and that cluster.
func (w *world) withTwoTargets() (other *world, two *fakecluster.Cluster) {
	w.Helper()
	two = fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
	w.namespace(two.Client(), w.targetNS)
	to, err := NewClusterForClients(two.Client(), two.Metadata())
	if err != nil {
		w.Fatal(err)
	}
	copied := *w
	copied.to = to
	return &copied, two
}

// What the first Sync of a source has lost, the second has not, and the pauses are each one's own.
func TestLossOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var quota atomic.Bool
		w.quota(w.fakeTarget, &quota)
		other, two := w.withTwoTargets()
		defer w.run(Options{})()
		w.createMany(1)
		w.settle()
		quota.Store(true)
		w.delete(w.target, w.targetNS, "w0")
		time.Sleep(time.Hour)
		told := make(chan string, 100)
		defer other.run(Options{Binding: "two", Finalizer: "example.org/two", DeletionLimit: -1, Hooks: Hooks{Reported: func(_ context.Context, r Report) {
			if r.Reason == ReasonVanished {
				told <- r.Message
			}
		}}})()
		time.Sleep(time.Hour)
		if n := w.count(two, w.targetNS); n != 1 || len(told) > 0 {
			t.Errorf("%d targets of the second Sync, %d losses told", n, len(told))
		}
		for range 6 { // which the message of the first one does not shorten
			_ = two.Client().Resource(widgets).Namespace(w.targetNS).Delete(t.Context(), "w0", metav1.DeleteOptions{})
			time.Sleep(time.Minute)
		}
		_ = two.Client().Resource(widgets).Namespace(w.targetNS).Delete(t.Context(), "w0", metav1.DeleteOptions{})
		time.Sleep(30 * time.Second)
		if n := w.count(two, w.targetNS); n != 0 {
			t.Error("made anew 30 s after the seventh loss in a row")
		}
	})
}

// Many losses are held, whatever words another cluster puts into a message before, and whatever a
// message said that was no word of a first target that is refused.
func TestLossesDespiteMessages(t *testing.T) {
	const claims, limit = 15, 3
	refuse := func(words string, verbs ...string) func(*world) {
		return func(w *world) {
			w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				if r.Resource == widgets && slices.Contains(verbs, r.Verb) {
					return apierrors.NewForbidden(widgets.GroupResource(), r.Object.Name, errors.New(words))
				}
				return do()
			})
			for i := range claims {
				w.merge(w.source, w.sourceNS, fmt.Sprint("w", i), `{"spec":{"color":"red"}}`)
			}
		}
	}
	earlier := func(w *world) { // as konnectors said of a refused change before they told it from a first target
		for i := range claims {
			w.merge(w.source, w.sourceNS, fmt.Sprint("w", i), `{"metadata":{"annotations":{"`+MessageAnnotation+`":"TargetRefused: the target cluster refuses this object: no"}}}`)
		}
	}
	for name, test := range map[string]struct {
		before  func(*world)
		running bool // as the message comes
		goes    bool // on, as the targets are lost
	}{
		"a refusal with our words":               {refuse(loss.Refused+"no", "apply"), true, false},
		"a refusal with our words, while we run": {refuse(loss.Refused+"no", "apply"), true, true},
		"targets that could not be read":         {refuse("no rights", "apply", "get", "list", "watch"), false, false},
		"a message of an earlier version":        {earlier, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				opts := Options{DeletionLimit: limit}
				stop := w.run(opts)
				defer func() { stop() }()
				w.createMany(claims)
				for i := range claims {
					w.merge(w.target, w.targetNS, fmt.Sprint("w", i), `{"status":{"phase":"Ready"}}`, "status")
				}
				w.settle()
				if !test.running {
					stop()
				}
				test.before(w)
				if name == "targets that could not be read" {
					stop = w.run(opts)
				}
				time.Sleep(10 * time.Minute)
				if !test.goes {
					stop()
				}
				w.fakeTarget.Intercept(nil)
				for i := range claims {
					w.delete(w.target, w.targetNS, fmt.Sprint("w", i))
				}
				if !test.goes {
					stop = w.run(opts)
				}
				time.Sleep(30 * time.Minute)
				if n := w.count(w.fakeTarget, w.targetNS); n != limit {
					t.Errorf("%d of %d lost targets were made anew", n, claims)
				}
			})
		})
	}
}

// Another cluster's words neither hold a return nor stretch its pause.
func TestWordsOfAnotherClusterHoldNothing(t *testing.T) {
	for _, words := range []string{loss.Held + "we say so", loss.Returns + ": loss 13, until 2999-01-01T00:00:00Z"} {
		synctest.Test(t, func(t *testing.T) {
			w := newFake(t)
			var deny atomic.Bool
			w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				if r.Resource == widgets && r.Verb == "apply" && deny.Load() {
					return apierrors.NewForbidden(widgets.GroupResource(), r.Object.Name, errors.New(words))
				}
				return do()
			})
			defer w.run(Options{})()
			w.createMany(1)
			w.settle()
			deny.Store(true)
			w.merge(w.source, w.sourceNS, "w0", `{"spec":{"color":"red"}}`)
			time.Sleep(time.Minute)
			w.delete(w.target, w.targetNS, "w0")
			deny.Store(false)
			time.Sleep(2 * time.Minute)
			if w.targetOf("w0") == nil {
				t.Errorf("not made anew: %q", w.message("w0"))
			}
		})
	}
}

// What the second Sync of a source holds of the deletions stays held over its restarts.
func TestSecondHoldsOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		other, two := w.withTwoTargets()
		defer w.run(Options{DeletionLimit: 3})()
		w.createMany(15)
		w.settle()
		opts := Options{Binding: "two", Finalizer: "example.org/two", DeletionLimit: 3}
		stop := other.run(opts)
		defer func() { stop() }()
		w.until("the second one's are made", func() bool { return w.count(two, w.targetNS) == 15 })
		time.Sleep(time.Minute)
		for i := range 15 {
			w.delete(w.source, w.sourceNS, fmt.Sprint("w", i))
		}
		for range 4 {
			time.Sleep(10 * time.Minute)
			stop()
			stop = other.run(opts)
		}
		time.Sleep(10 * time.Minute)
		if n := w.count(two, w.targetNS); n != 12 {
			t.Errorf("%d of 12 are still held", n)
		}
	})
}

// A loss that only the message tells of, after a start, stays known where another message takes its place.
func TestLossBehindOtherMessages(t *testing.T) {
	taken := func(w *world, down, _ *atomic.Bool) {
		w.create(w.target, w.targetNS, w.widget("w0", `{"size":"theirs"}`, ``))
		w.until("told", func() bool { return strings.HasPrefix(w.message("w0"), string(ReasonConflict)) })
		w.delete(w.target, w.targetNS, "w0")
	}
	for name, behind := range map[string]func(w *world, down, withdrawn *atomic.Bool){"a name that is taken": taken, "a target that cannot be read": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var refused, down, withdrawn atomic.Bool
				w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource == widgets && (down.Load() || r.Verb == "apply" && refused.Load()) {
						return apierrors.NewForbidden(widgets.GroupResource(), r.Object.Name, errors.New("no rights"))
					}
					return do()
				})
				opts := Options{Offered: func(context.Context) (why string, err error) {
					if withdrawn.Load() {
						why = "it is not on offer"
					}
					return why, nil
				}}
				stop := w.run(opts)
				w.createMany(1)
				w.settle()
				refused.Store(true)
				w.delete(w.target, w.targetNS, "w0")
				time.Sleep(time.Hour)
				stop()
				down.Store(behind == nil)
				defer w.run(opts)()
				if time.Sleep(time.Hour); behind != nil {
					behind(w, &down, &withdrawn)
				}
				withdrawn.Store(true)
				down.Store(false)
				refused.Store(false)
				time.Sleep(2 * time.Hour)
				if m := w.message("w0"); w.targetOf("w0") != nil || !strings.HasSuffix(m, "it is not on offer") {
					t.Errorf("made anew though it is not on offer: %t; message %q", w.targetOf("w0") != nil, m)
				}
			})
		})
	}
}

// What is held stays so after a restart, until people release it.
func TestHeldReturnSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		stop := w.run(Options{DeletionLimit: 1})
		w.createMany(3)
		for i := range 3 {
			w.delete(w.target, w.targetNS, fmt.Sprint("w", i))
		}
		held := func() (out []string) {
			time.Sleep(time.Hour)
			for i := range 3 {
				name := fmt.Sprint("w", i)
				if strings.Contains(w.message(name), loss.Held) && w.targetOf(name) == nil {
					out = append(out, name)
				}
			}
			return out
		}
		before := held()
		stop()
		defer w.run(Options{DeletionLimit: 1})()
		if after := held(); len(before) != 2 || !slices.Equal(before, after) {
			t.Fatalf("held before the restart %v, and after it %v", before, after)
		}
		w.release(before[0])
		if after := held(); !slices.Equal(after, before[1:]) {
			t.Errorf("one of %v was released, and %v are held", before, after)
		}
	})
}

// lostUnderReport is a world with a source a whose target has vanished, which a Sync has told that
// has ended since.
func lostUnderReport(t *testing.T) *world {
	t.Helper()
	w := newFake(t)
	defer w.run(Options{Lost: LostReport})()
	w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
	w.until("made", func() bool { return w.targetOf("a") != nil })
	w.settle()
	if err := w.target.Resource(widgets).Namespace(w.targetNS).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("told", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonLost)) })
	return w
}

// A loss that the source says already, as after a restart or where another konnector was faster, is
// reported all the same.
func TestLossIsReportedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lostUnderReport(t)
		reports := make(chan Report, 10)
		stop := w.run(Options{Lost: LostReport, Hooks: Hooks{Reported: func(_ context.Context, r Report) { reports <- r }}})
		time.Sleep(time.Minute)
		stop()
		if close(reports); len(reports) != 1 {
			t.Fatalf("%d reports", len(reports))
		}
		if r := <-reports; r.Reason != ReasonLost || !r.Told {
			t.Errorf("reported %s, told before: %t", r.Reason, r.Told)
		}
	})
}

// A loss that was reported and is made anew by another word of the owner is told as one: what
// refers to the target has the credentials of the old one.
func TestReportedLossIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lostUnderReport(t)
		reports := make(chan Report, 10)
		stop := w.run(Options{Lost: LostRecreate, Hooks: Hooks{Reported: func(_ context.Context, r Report) { reports <- r }}})
		w.until("made anew", func() bool { return w.targetOf("a") != nil })
		stop()
		close(reports)
		var reasons []Reason
		for r := range reports {
			reasons = append(reasons, r.Reason)
		}
		if !slices.Contains(reasons, ReasonVanished) {
			t.Errorf("reported %q", reasons)
		}
	})
}

// Two Syncs of one source that report losses keep a mark each: neither takes the other's target
// for its own, nor writes over its mark.
func TestLossesOfTwoSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		other, two := w.withTwoTargets()
		defer w.run(Options{Lost: LostReport})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("the first target exists", func() bool { return w.targetOf("a") != nil })
		defer other.run(Options{Lost: LostReport, Finalizer: "example.org/two"})()
		w.until("the second target exists", func() bool { return two.Created(widgets) == 1 })
		w.settle()
		before := len(w.fakeSource.Writes())
		time.Sleep(time.Hour)
		if n := len(w.fakeSource.Writes()) - before; n > 0 {
			t.Errorf("%d writes to the source in an hour of rest", n)
		}
		uid := string(w.targetOf("a").GetUID())
		if err := w.target.Resource(widgets).Namespace(w.targetNS).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.until("the loss is told", func() bool { return strings.Contains(w.message("a"), string(ReasonLost)) })
		if got := w.get(w.source, w.sourceNS, "a").GetAnnotations()[TargetAnnotation]; !strings.HasPrefix(got, uid) {
			t.Errorf("the mark is %q, not of %s", got, uid)
		}
	})
}

// A target that is being deleted and does not go, though its source stays, is told with what holds
// it. Its status comes, edits wait, and reach the target that is made anew.
func TestTargetIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.createMany(1)
		w.settle()
		w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":["example.org/hold"]}}`)
		w.delete(w.target, w.targetNS, "w0")
		w.merge(w.source, w.sourceNS, "w0", `{"spec":{"size":"large"}}`)
		time.Sleep(time.Minute)
		if got := w.message("w0"); !strings.HasPrefix(got, string(ReasonTerminating)) || !strings.Contains(got, "example.org/hold") || strings.Contains(got, "this object is being deleted") {
			t.Errorf("message %q", got)
		}
		w.merge(w.target, w.targetNS, "w0", `{"status":{"phase":"Leaving"}}`, "status")
		w.until("its status comes", func() bool { return field(w.get(w.source, w.sourceNS, "w0"), "status", "phase") == "Leaving" })
		w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":null}}`)
		w.until("made anew", func() bool { return field(w.targetOf("w0"), "spec", "size") == "large" && w.message("w0") == "" })
	})
}

// What was lost while no Sync ran is told before it is made anew, and past no breaker, where the
// status of the source says that there was a target: given by this Sync or by the konnector before
// it, since the source was made and not let go. A copy and a source that is bound anew have lost nothing.
func TestLossOverARestart(t *testing.T) {
	for name, test := range map[string]struct {
		plain bool
		ahead bool                        // the clock of the source's cluster is, as sources are made
		meant func(w *world, name string) // what happens to a source meanwhile
		now   string                      // the name of the binding
		told  bool
	}{
		"lost":                           {told: true},
		"lost, under another name":       {told: true, now: "renamed"},
		"lost, clock set back":           {told: true, ahead: true},
		"lost, plain status":             {told: true, plain: true},
		"status of the konnector before": {told: true, meant: func(w *world, name string) { w.statusBy("konnector", name) }},
		"bound anew": {meant: func(w *world, name string) {
			w.merge(w.source, w.sourceNS, name, `{"metadata":{"finalizers":null}}`)
		}},
		"copied":        {meant: (*world).copySource},
		"copied, plain": {meant: (*world).copySource, plain: true},
		"another status": {meant: func(w *world, name string) {
			w.copySource(name)
			w.statusBy("someone", name)
		}},
		"status of another Sync": {meant: func(w *world, name string) {
			w.copySource(name)
			w.statusBy(names.Of(names.Klutch, "other").StatusManager(), name)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				sub := w.statusAt(test.plain)
				stop := w.run(Options{})
				if test.ahead {
					w.fakeSource.Skew(time.Hour)
				}
				w.createMany(3)
				w.fakeSource.Skew(0)
				for i := range 3 {
					w.merge(w.target, w.targetNS, fmt.Sprint("w", i), `{"status":{"phase":"Ready"}}`, sub...)
				}
				w.until("in step", func() bool { return field(w.get(w.source, w.sourceNS, "w2"), "status", "phase") == "Ready" })
				w.settle()
				stop()
				for i := range 3 {
					w.delete(w.target, w.targetNS, fmt.Sprint("w", i))
					if time.Sleep(time.Minute); test.meant != nil {
						test.meant(w, fmt.Sprint("w", i))
					}
				}
				var told atomic.Int32
				defer w.run(Options{Binding: test.now, DeletionLimit: 1, Hooks: Hooks{Reported: func(_ context.Context, r Report) {
					if r.Reason == ReasonVanished {
						told.Add(1)
					}
				}}})()
				time.Sleep(10 * time.Minute)
				want, made := int32(0), 3
				if test.told {
					want, made = 3, 1
				}
				if there := w.count(w.fakeTarget, w.targetNS); told.Load() < want || want == 0 && told.Load() > 0 || there != made {
					t.Errorf("%d losses were told, %d targets are there: want %d and %d", told.Load(), there, want, made)
				}
			})
		})
	}
}

// A restart tells nothing new of a target that was lost and is refused since: both are told already. It
// is not made anew once its kind is not on offer any more.
func TestRefusedReturnOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var withdrawn atomic.Bool
		opts := Options{Offered: func(context.Context) (why string, err error) {
			if withdrawn.Load() {
				why = "it is not on offer"
			}
			return why, nil
		}}
		stop := w.run(opts)
		w.createMany(1)
		w.merge(w.target, w.targetNS, "w0", `{"status":{"phase":"Ready"}}`, "status")
		w.settle()
		w.merge(w.source, w.sourceNS, "w0", `{"spec":{"size":"huge"}}`)
		w.settle()
		w.delete(w.target, w.targetNS, "w0")
		time.Sleep(time.Hour)
		stop()
		before := len(w.fakeSource.Writes())
		stop = w.run(opts)
		time.Sleep(time.Hour)
		if n := len(w.fakeSource.Writes()) - before; n > 0 || !strings.HasPrefix(w.message("w0"), string(ReasonVanished)) || !strings.HasSuffix(w.message("w0"), `Unsupported value: "huge"`) {
			t.Errorf("%d writes over a restart, and the message is %q", n, w.message("w0"))
		}
		stop()
		withdrawn.Store(true)
		w.merge(w.source, w.sourceNS, "w0", `{"spec":{"size":"small"}}`)
		defer w.run(opts)()
		time.Sleep(time.Hour)
		if w.targetOf("w0") != nil || !strings.HasSuffix(w.message("w0"), "it is not on offer") {
			t.Errorf("made anew though it is not on offer: %t; message %q", w.targetOf("w0") != nil, w.message("w0"))
		}
		withdrawn.Store(false)
		w.until("made anew", func() bool { return w.targetOf("w0") != nil && w.message("w0") == "" })
	})
}

// statusBy has manager alone give a source its status.
func (w *world) statusBy(manager, name string) {
	w.Helper()
	u := w.get(w.source, w.sourceNS, name)
	for _, status := range []any{map[string]any{}, map[string]any{"phase": "Old"}} {
		u.Object["status"] = status
		var err error
		if u, err = w.source.Resource(widgets).Namespace(w.sourceNS).Update(w.Context(), u, metav1.UpdateOptions{FieldManager: manager}, "status"); err != nil {
			w.Fatal(err)
		}
	}
}

// copySource puts in place of a source what a program reads of it and creates.
func (w *world) copySource(name string) {
	w.Helper()
	u := w.get(w.source, w.sourceNS, name)
	w.vanish(name)
	u.SetUID("")
	u.SetResourceVersion("")
	w.create(w.source, w.sourceNS, u)
}

// What others have changed is left to them by policy over a restart too, be it that they took a field away.
func TestReportedDriftSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		opts := Options{Drift: DriftReport}
		stop := w.run(opts)
		defer func() { stop() }()
		w.createMany(1)
		w.merge(w.target, w.targetNS, "w0", `{"spec":{"size":null}}`)
		for range 3 {
			time.Sleep(time.Hour)
			if got := field(w.targetOf("w0"), "spec", "size"); got != nil || !strings.HasPrefix(w.message("w0"), string(ReasonDrifted)) {
				t.Errorf("size is %v, message %q", got, w.message("w0"))
			}
			stop()
			stop = w.run(opts)
		}
		w.merge(w.source, w.sourceNS, "w0", `{"spec":{"color":"red"}}`)
		w.until("an edit goes up with all of the object", func() bool {
			return field(w.targetOf("w0"), "spec", "size") != nil && field(w.targetOf("w0"), "spec", "color") == "red" && w.message("w0") == ""
		})
	})
}

// Another claim of the name, made between two looks, has lost nothing: it waits for no pause of the one before.
func TestLossIsOfOneIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.createMany(1)
		for range 8 {
			w.until("made", func() bool { return w.targetOf("w0") != nil })
			w.settle()
			w.delete(w.target, w.targetNS, "w0")
			time.Sleep(time.Second)
		}
		w.until("the loss is told", func() bool { return strings.HasPrefix(w.message("w0"), string(ReasonVanished)) })
		w.fakeSource.Lag(widgets, true)
		w.vanish("w0")
		w.create(w.source, w.sourceNS, w.widget("w0", `{"size":"large"}`, ``))
		w.fakeSource.Lag(widgets, false)
		time.Sleep(5 * time.Second)
		if w.targetOf("w0") == nil || w.message("w0") != "" {
			t.Errorf("there is a target: %t; message %q", w.targetOf("w0") != nil, w.message("w0"))
		}
	})
}
