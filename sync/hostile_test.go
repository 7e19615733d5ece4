// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/pace"
)

// platform is another target cluster, which serves gadgets.
func (b *bench) platform(fault interceptor) *bench {
	b.Helper()
	w := *b.world
	w.fakeTarget = fakecluster.New(fakecluster.Resource{GroupVersionResource: gadgets, Kind: "Gadget"})
	w.target, w.to = w.fakeTarget.Client(), w.faulty(w.fakeTarget, fault)
	w.namespace(w.target, w.targetNS)
	other := &bench{world: &w, table: NewNamespaces(nil)}
	other.table.Set(w.sourceNS, w.targetNS)
	return other
}

// hidden does not say who the cluster is.
func hidden(_ context.Context, r fakecluster.Request, do func() error) error {
	if r.Resource.Resource == "namespaces" {
		return forbidden(r)
	}
	return do()
}

// P20: a platform that does not say who it is does not get at the copies of another one,
// whose service namespace and Secret it gives the same names.
func TestP20CopiesOfAnotherPlatform(t *testing.T) {
	for name, faults := range map[string][2]interceptor{
		"the other one hides": {func(_ context.Context, _ fakecluster.Request, do func() error) error { return do() }, hidden},
		"both hide":           {hidden, hidden},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.to = b.faulty(b.fakeTarget, faults[0])
				evil := b.platform(faults[1])
				all := Related{Resource: secrets, From: TargetSide, Names: []string{"*"}}
				defer b.sync(widgets, all)()
				b.secret(b.target, b.targetNS, "creds", "aG9uZXN0")
				b.claim(widgets, "Widget", "w")
				if got := field(b.copied("creds"), "data", "password"); got != "aG9uZXN0" {
					t.Fatalf("the copy has %v", got)
				}
				evil.secret(evil.target, b.targetNS, "creds", "ZXZpbA==")
				defer evil.sync(gadgets, all)()
				evil.claim(gadgets, "Gadget", "g")
				b.settle()
				before := b.writes()
				time.Sleep(time.Minute)
				if got := field(b.copied("creds"), "data", "password"); got != "aG9uZXN0" {
					t.Errorf("the copy has %v", got)
				}
				if n := b.writes() - before; n > 0 {
					t.Errorf("%d writes in a minute", n)
				}
			})
		})
	}
}

// P25: what a platform's API server says against an object is not written to it at
// whatever length, nor each time that it says something else.
func TestP25Messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var n atomic.Int64
		w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && isWrite(r) {
				why := fmt.Errorf("%d \x1b[2J %s", n.Add(1), strings.Repeat("x", 200<<10))
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, why)
			}
			return do()
		})
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("refusal told", func() bool { return w.message("a") != "" })
		if l := len(w.message("a")); l > maxMessage {
			t.Errorf("a message of %d bytes", l)
		}
		before := len(w.fakeSource.Writes())
		time.Sleep(10 * time.Minute)
		if n := len(w.fakeSource.Writes()) - before; n > pace.Burst+10 {
			t.Errorf("%d writes in ten minutes", n)
		}
	})
}

// P25: nor do the words of a denial fill hooks, the Status or the log, where no message can tell of it.
func TestP25Denials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.from = w.faulty(w.fakeSource, func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == widgets && isWrite(r) {
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, errors.New(strings.Repeat("x", 200<<10)))
			}
			return do()
		})
		table := NewNamespaces(nil)
		table.Set(w.sourceNS, w.targetNS)
		var longest, reports, lines atomic.Int64
		note := func(text string) { longest.Store(max(longest.Load(), int64(len(text)))) }
		s, err := New(w.from, w.to, widgets, Options{Mapper: table, Hooks: Hooks{Reported: func(_ context.Context, r Report) {
			reports.Add(1)
			note(r.Message)
		}}})
		if err != nil {
			t.Fatal(err)
		}
		log := funcr.New(func(_, args string) {
			lines.Add(1)
			note(args)
		}, funcr.Options{})
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), log))
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		time.Sleep(10 * time.Minute)
		state := s.Status()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if reports.Load() == 0 || lines.Load() == 0 || state.Err == nil {
			t.Fatalf("%d reports, %d lines in the log, %v", reports.Load(), lines.Load(), state.Err)
		}
		note(state.Err.Error())
		if n := longest.Load(); n > 3<<10 { // with the names of the object around
			t.Errorf("up to %d bytes are told", n)
		}
	})
}

// P25: neither does one that lets a deletion wait for something else all the time.
func TestP25FinalizerFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		finalizers := func(n int) {
			w.merge(w.target, w.targetNS, "a", `{"metadata":{"finalizers":["example.org/a"`+numbered(n)+`]}}`)
		}
		finalizers(500)
		w.delete(w.source, w.sourceNS, "a")
		time.Sleep(time.Minute)
		before := len(w.fakeSource.Writes())
		for n := range 500 {
			finalizers(499 - n)
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(w.fakeSource.Writes()) - before; n > 20 {
			t.Errorf("%d writes in five seconds", n)
		}
	})
}

func numbered(n int) (text string) {
	for n := range n {
		text += fmt.Sprintf(`,"example.org/%d"`, n)
	}
	return text
}

// P25: a platform that changes what it hands out a hundred times a second does not have
// it written a hundred times.
func TestP25CopyFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.sync(widgets, Related{Resource: secrets, From: TargetSide, Names: []string{"*"}})()
		b.secret(b.target, b.targetNS, "creds", "MA==")
		b.claim(widgets, "Widget", "w")
		before := b.writes()
		for n := range 1000 {
			b.mergeSecret(b.target, b.targetNS, "creds", fmt.Sprintf(`{"data":{"password":"%08d"}}`, n))
			time.Sleep(10 * time.Millisecond)
		}
		if n := b.writes() - before; n > 130 {
			t.Errorf("%d writes in ten seconds", n)
		}
		time.Sleep(2 * time.Second)
		if got := field(b.copied("creds"), "data", "password"); got != "00000999" {
			t.Errorf("the copy has %v in the end", got)
		}
	})
}

// P8: of what a platform has outside of namespaces that are mapped, or only names, a Sync
// remembers nothing.
func TestP8RelatedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.namespace(b.target, "elsewhere")
		b.to = b.faulty(b.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == gadgets && r.Verb == "list" {
				return errors.New("not now")
			}
			return do()
		})
		s, err := New(b.from, b.to, widgets, Options{Mapper: b.table, Workers: 4, Related: []Related{
			{Resource: secrets, From: TargetSide, References: []string{"status.secret"}},
			{Resource: gadgets, From: TargetSide, References: []string{"status.secret"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		b.claim(widgets, "Widget", "w")
		for n := range 100 {
			b.secret(b.target, "elsewhere", fmt.Sprint("s", n), "MA==")
			b.deleteSecret(b.target, "elsewhere", fmt.Sprint("s", n))
			b.names(widgets, "w", fmt.Sprintf(`"t%d"`, n))
		}
		time.Sleep(time.Minute)
		for _, r := range s.engine.related {
			if n := r.copier.Records(); n > 2 {
				t.Errorf("%d records of %s", n, r.Resource.Resource)
			}
		}
	})
}

// P8: of the related objects of a namespace that is not mapped, or is no more, nothing is
// remembered but that they are there.
func TestP8UnmappedRelated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.namespace(b.target, "elsewhere")
		s, err := New(b.from, b.to, widgets, Options{Mapper: b.table, Related: []Related{{Resource: secrets, From: TargetSide}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := start(func() error { return s.Run(ctx) })
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		remembered := func() int { return s.engine.related[0].copier.Records() }
		b.claim(widgets, "Widget", "w")
		const many = 100
		for n := range many {
			b.secret(b.target, "elsewhere", fmt.Sprint("s", n), "MA==")
			b.secret(b.target, b.targetNS, fmt.Sprint("s", n), "MA==")
		}
		time.Sleep(time.Hour)
		if n := remembered(); n > many+2 || n < many {
			t.Fatalf("%d records of %d related objects in mapped namespaces", n, many)
		}
		b.table.Delete(b.sourceNS)
		time.Sleep(time.Hour)
		if n := remembered(); n > 2 {
			t.Errorf("%d records after the last mapping has gone", n)
		}
	})
}
