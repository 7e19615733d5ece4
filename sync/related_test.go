// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/internal/fakecluster"
)

var gadgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gadgets"}

// A bench is a world in which two APIs are bound, each by a Sync of its own.
type bench struct {
	*world
	table *Namespaces
}

func newBench(t *testing.T) *bench {
	t.Helper()
	w := newFake(t)
	for _, c := range []*fakecluster.Cluster{w.fakeSource, w.fakeTarget} {
		c.Serve(fakecluster.Resource{GroupVersionResource: gadgets, Kind: "Gadget"})
	}
	b := &bench{world: w, table: NewNamespaces(nil)}
	b.table.Set(w.sourceNS, w.targetNS)
	return b
}

// sync runs a Sync of resource with related objects.
func (b *bench) sync(resource schema.GroupVersionResource, related ...Related) (stop func()) {
	b.Helper()
	s, err := New(b.from, b.to, resource, Options{Mapper: b.table, Workers: 4, Related: related})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// claim makes a bound object, and lets the provider say in its status whose
// credentials it got.
func (b *bench) claim(resource schema.GroupVersionResource, kind, name string) {
	b.Helper()
	u := object(b.TB, `{"apiVersion":"example.org/v1","kind":"`+kind+`","metadata":{"name":"`+name+`"},"spec":{}}`)
	if _, err := b.source.Resource(resource).Namespace(b.sourceNS).Create(b.Context(), u, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	b.settle()
}

func (b *bench) names(resource schema.GroupVersionResource, name, secret string) {
	b.Helper()
	patch := []byte(`{"status":{"secret":` + secret + `}}`)
	if _, err := b.target.Resource(resource).Namespace(b.targetNS).Patch(b.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		b.Fatal(err)
	}
	b.settle()
}

func (b *bench) copied(name string) *unstructured.Unstructured {
	b.Helper()
	return b.getSecret(b.source, b.sourceNS, name)
}

// writes are those to secrets of the source.
func (b *bench) writes() (n int) {
	for _, r := range b.fakeSource.Writes() {
		if r.Resource == secrets {
			n++
		}
	}
	return n
}

// Two Syncs that claim the same resource leave each other's copies alone.
func TestCopiesOfAnotherSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		byStatus := Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}
		defer b.sync(widgets, byStatus)()
		stop := b.sync(gadgets, byStatus)
		for _, name := range []string{"of-widget", "of-gadget"} {
			b.secret(b.target, b.targetNS, name, "cGFzcw==")
		}
		b.claim(widgets, "Widget", "a")
		b.claim(gadgets, "Gadget", "a")
		b.names(widgets, "a", `"of-widget"`)
		b.names(gadgets, "a", `"of-gadget"`)
		for range 2 {
			before := b.writes()
			time.Sleep(time.Hour)
			if b.copied("of-widget") == nil || b.copied("of-gadget") == nil {
				t.Fatalf("copies: %v, %v", b.copied("of-widget"), b.copied("of-gadget"))
			}
			if n := b.writes() - before; n > 0 {
				t.Errorf("%d writes while nothing happened", n)
			}
			stop()
			stop = b.sync(gadgets, byStatus) // to which all copies are new
			b.settle()
		}
		defer stop()
		b.names(gadgets, "a", "null")
		if b.copied("of-gadget") != nil || b.copied("of-widget") == nil {
			t.Error("not just the copy that lost its reason went")
		}
	})
}

// A copy that two Syncs want goes with the last of them.
func TestSharedCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		byStatus := Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}
		defer b.sync(widgets, byStatus)()
		defer b.sync(gadgets, byStatus)()
		b.secret(b.target, b.targetNS, "shared", "cGFzcw==")
		b.claim(widgets, "Widget", "w")
		b.claim(gadgets, "Gadget", "g")
		b.names(widgets, "w", `"shared"`)
		b.names(gadgets, "g", `"shared"`)
		before := b.writes()
		b.mergeSecret(b.target, b.targetNS, "shared", `{"data":{"password":"bmV3"}}`)
		time.Sleep(time.Hour)
		if n := b.writes() - before; n > 2 {
			t.Errorf("%d writes for one change", n)
		}
		b.names(widgets, "w", "null")
		if got := b.copied("shared"); got == nil || got.GetAnnotations()[ReferrerAnnotation] != "g" || field(got, "data", "password") != "bmV3" {
			t.Fatalf("after the first one left: %v", got)
		}
		b.mergeSecret(b.target, b.targetNS, "shared", `{"data":{"password":"bmV3ZXI=","x":null}}`)
		b.settle()
		if got := b.copied("shared"); field(got, "data", "password") != "bmV3ZXI=" || field(got, "data", "x") != nil {
			t.Errorf("the one that stayed does not keep the copy: %v", got)
		}
		b.names(gadgets, "g", "null")
		if b.copied("shared") != nil {
			t.Error("the copy outlives both")
		}
	})
}

// Selectors of one Sync are one: what the one selects the other does not remove.
func TestSelectorsOfOneResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.sync(widgets,
			Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}},
			Related{Resource: secrets, From: TargetSide, Names: []string{"ca"}},
		)()
		b.secret(b.target, b.targetNS, "ca", "Y2E=")
		b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
		b.claim(widgets, "Widget", "a")
		b.names(widgets, "a", `"creds"`)
		time.Sleep(time.Hour)
		if b.copied("ca") == nil || b.copied("creds") == nil {
			t.Errorf("copies: %v, %v", b.copied("ca"), b.copied("creds"))
		}
		b.names(widgets, "a", `"ca"`)
		if b.copied("ca") == nil || b.copied("creds") != nil {
			t.Errorf("copies after the reference moved: %v, %v", b.copied("ca"), b.copied("creds"))
		}
		b.names(widgets, "a", "null")
		if b.copied("ca") == nil {
			t.Error("what is selected by name went with a reference")
		}
	})
}
