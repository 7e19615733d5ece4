// SPDX-License-Identifier: Apache-2.0

package breaker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/breaker"
)

func object(i int) cache.ObjectName { return cache.NewObjectName("team", fmt.Sprint(i)) }

// So many deletions are admitted, and no more.
func TestLimit(t *testing.T) {
	for name, test := range map[string]struct{ limit, objects, want int }{
		"nothing there": {0, 0, 10}, "few": {0, 200, 10}, "many": {0, 2000, 100}, "chosen": {3, 2000, 3}, "none": {-1, 2000, 500},
	} {
		t.Run(name, func(t *testing.T) {
			b, got := breaker.New(test.limit), 0
			for i := range 500 {
				if b.Admit(object(i), time.Now(), func() int { return test.objects }).Why == "" {
					got++
				}
			}
			if got != test.want {
				t.Errorf("%d deletions are admitted, want %d", got, test.want)
			}
		})
	}
}

// A breaker counts each object once, in a sliding window, and stays open until it
// is released.
func TestBreaker(t *testing.T) {
	now := time.Now()
	b := breaker.New(2)
	ask := func(i int) bool { return b.Admit(object(i), now, func() int { return 100 }).Why == "" }
	for i, want := range []bool{true, true, false, false} {
		if again := ask(i); ask(i) != want || again != want {
			t.Errorf("deletion %d admitted: %t", i, !want)
		}
	}
	now = now.Add(time.Hour)
	if ask(2) || ask(4) || !ask(0) || b.Held() != 3 {
		t.Error("the breaker closed by itself")
	}
	if released := b.Release(); len(released) != 3 || b.Held() != 0 {
		t.Errorf("released %v, holds %d", released, b.Held())
	}
	for i, want := range map[int]bool{2: true, 3: true, 4: true} {
		if ask(i) != want {
			t.Errorf("deletion %d after release admitted: %t", i, !want)
		}
	}
	if !ask(5) || !ask(6) || ask(7) {
		t.Error("deletions are not counted anew")
	}
	b.Release()
	if !ask(8) || !ask(9) {
		t.Error("too few deletions")
	}
	now = now.Add(5 * time.Minute)
	if !ask(10) {
		t.Error("the window does not slide")
	}
	b.Hold(object(11), breaker.Hold{Why: "before a restart"})
	if ask(11) || b.Blocks(object(11)).Why == "" || b.Blocks(object(12)).Why != "" {
		t.Error("what was held before a restart is not held")
	}
	b.Forget(object(11))
	b.Trip("the cluster is another one", true)
	if b.Blocks(object(12)).Why == "" || b.Blocks(object(10)).Why == "" || ask(13) {
		t.Error("another cluster is not told apart")
	}
	unlimited := breaker.New(-1)
	for i := range 1000 {
		if unlimited.Admit(object(i), now, func() int { return 0 }).Why != "" {
			t.Fatal("a breaker without a limit opened")
		}
	}
}

// Without a limit nothing is counted, so that a journal is written for no deletion.
func TestWithoutALimit(t *testing.T) {
	saves := 0
	b := breaker.New(-1)
	j := breaker.NewJournal("", func(context.Context, string) error { saves++; return nil }, b)
	for i := range 20 {
		if why := b.Admit(object(i), time.Now(), func() int { return 20 }).Why; why != "" {
			t.Fatal(why)
		}
		if err := j.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if saves > 1 { // the first says that there is nothing
		t.Errorf("the journal was written %d times", saves)
	}
}

// What was let pass, or held, is one instance: the next one under its source's name is counted.
func TestAskOfAnotherInstance(t *testing.T) {
	b := breaker.New(2)
	ask := func(going string) string {
		return b.Ask(breaker.Request{Source: object(1), Going: going, Deletes: true, Objects: func() int { return 1 }}).Why
	}
	for i, step := range []struct {
		going string
		held  bool
	}{{"a", false}, {"a", false}, {"b", false}, {"c", true}, {"c", true}} {
		if why := ask(step.going); (why != "") != step.held {
			t.Errorf("step %d: %s is held: %q", i, step.going, why)
		}
	}
	b.Release()
	if why := ask("c"); why != "" {
		t.Errorf("released, and held: %s", why)
	}
	if why := b.Ask(breaker.Request{Source: object(1), Going: "d", Before: breaker.Hold{Why: "too many"}, Objects: func() int { return 1 }}).Why; why != "too many" {
		t.Errorf("what its message says is held: %q", why)
	}
}
