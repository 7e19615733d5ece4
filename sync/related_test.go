// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	gosync "sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	field2 "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/legacycopy"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
	"github.com/klutch-go/sdk/sync/internal/loss"
	"github.com/klutch-go/sdk/sync/internal/refusal"
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

// Two Syncs that claim the same resource leave each other's copies alone, and a start writes none,
// also while it may not be read who the cluster is.
func TestCopiesOfAnotherSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		byStatus := Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}
		hidden := false
		b.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if hidden && r.Resource.Resource == "namespaces" {
				return forbidden(r)
			}
			return do()
		})
		defer b.sync(widgets, byStatus)()
		stop := b.sync(gadgets, byStatus)
		for _, name := range []string{"of-widget", "of-gadget"} {
			b.secret(b.target, b.targetNS, name, "cGFzcw==")
		}
		b.claim(widgets, "Widget", "a")
		b.claim(gadgets, "Gadget", "a")
		b.names(widgets, "a", `"of-widget"`)
		b.names(gadgets, "a", `"of-gadget"`)
		before := b.writes()
		for range 3 {
			time.Sleep(time.Hour)
			if b.copied("of-widget") == nil || b.copied("of-gadget") == nil {
				t.Fatalf("copies: %v, %v", b.copied("of-widget"), b.copied("of-gadget"))
			}
			if n := b.writes() - before; n > 0 {
				t.Errorf("%d writes while nothing happened", n)
			}
			stop()
			hidden = !hidden
			stop = b.sync(gadgets, byStatus) // to which all copies are new, and who the cluster is unknown
			b.settle()
		}
		defer stop()
		b.names(gadgets, "a", "null")
		if b.copied("of-gadget") != nil || b.copied("of-widget") == nil {
			t.Error("not just the copy that lost its reason went")
		}
	})
}

// A copy names the first claim that refers to its original, also once that is another one, so that a
// start finds nothing to write.
func TestCopyNamesWhoRefersToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		byStatus := Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}
		stop := b.sync(widgets, byStatus)
		defer func() { stop() }()
		b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
		for _, name := range []string{"a", "b"} {
			b.claim(widgets, "Widget", name)
			b.names(widgets, name, `"creds"`)
		}
		b.delete(b.source, b.sourceNS, "a")
		b.settle()
		if got := b.copied("creds").GetAnnotations()[ReferrerAnnotation]; got != "b" {
			t.Errorf("it names %q", got)
		}
		before := b.writes()
		stop()
		stop = b.sync(widgets, byStatus)
		time.Sleep(time.Minute)
		if n := b.writes() - before; n > 0 {
			t.Errorf("a start writes it %d times", n)
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

// What a cluster handed out before another one took its place gives way to what that
// one hands out, and goes with the claim that it was for, not before.
func TestCopyOfFormerCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.sync(widgets, Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}})()
		exchange := func() {
			b.fakeTarget.Replace(false)
			time.Sleep(time.Hour)
			if b.copied("creds") == nil {
				t.Fatal("the copy went with the cluster that the original was in")
			}
		}
		b.secret(b.target, b.targetNS, "creds", "b2xk")
		b.claim(widgets, "Widget", "a")
		b.names(widgets, "a", `"creds"`)
		exchange()
		if got := b.message("a"); !strings.Contains(got, loss.Held) || b.targetOf("a") != nil {
			t.Errorf("in another cluster the claim says %q", got)
		}
		b.release("a")
		b.secret(b.target, b.targetNS, "creds", "bmV3")
		b.until("the target is made in the other cluster", func() bool { return b.targetOf("a") != nil })
		b.names(widgets, "a", `"creds"`)
		if got := field(b.copied("creds"), "data", "password"); got != "bmV3" || b.message("a") != "" {
			t.Errorf("copy of the new cluster's = %v, and the claim says %q", got, b.message("a"))
		}
		exchange()
		b.delete(b.source, b.sourceNS, "a")
		time.Sleep(time.Minute)
		b.release("a")
		time.Sleep(time.Minute)
		if b.get(b.source, b.sourceNS, "a") != nil || b.copied("creds") != nil {
			t.Errorf("claim %v, copy %v", b.get(b.source, b.sourceNS, "a"), b.copied("creds"))
		}
	})
}

func (b *bench) mergeOriginal(name, patch string) {
	b.Helper()
	b.mergeSecret(b.source, b.sourceNS, name, patch)
	b.settle()
}

// Labels and namespaces narrow what travels, and what no longer has them is taken
// back.
func TestSelectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.namespace(b.source, "other")
		b.namespace(b.target, "svc-other")
		b.table.Set("other", "svc-other")
		defer b.sync(widgets,
			Related{Resource: secrets, From: SourceSide, Namespaces: []string{b.sourceNS}, Labels: "travel=yes,tier!=test", Names: []string{"a", "b"}},
			Related{Resource: secrets, From: SourceSide, Namespaces: []string{b.sourceNS}, Labels: "travel=yes", References: []string{"spec.secret"}},
		)()
		for _, name := range []string{"a", "b", "c", "d"} {
			b.secret(b.source, b.sourceNS, name, "cGFzcw==")
			b.secret(b.source, "other", name, "cGFzcw==")
			b.mergeSecret(b.source, "other", name, `{"metadata":{"labels":{"travel":"yes"}}}`)
		}
		b.resident(b.sourceNS)
		b.resident("other")
		u := b.widget("w", `{"secret":"c"}`, ``)
		b.create(b.source, b.sourceNS, u)
		b.settle()
		up := func(want string) {
			t.Helper()
			got := ""
			for _, ns := range []string{b.targetNS, "svc-other"} {
				for _, name := range []string{"a", "b", "c", "d"} {
					if b.getSecret(b.target, ns, name) != nil {
						got += name
					}
				}
			}
			if got != want {
				t.Errorf("copies %q, want %q", got, want)
			}
		}
		up("")
		for _, name := range []string{"a", "b", "c", "d"} {
			b.mergeOriginal(name, `{"metadata":{"labels":{"travel":"yes"}}}`)
		}
		up("abc")
		b.mergeOriginal("a", `{"metadata":{"labels":{"tier":"test"}}}`)
		b.mergeOriginal("c", `{"metadata":{"labels":{"travel":"no"}}}`)
		up("b")
		b.mergeOriginal("c", `{"metadata":{"labels":{"travel":"yes"}}}`)
		up("bc")
		b.delete(b.source, b.sourceNS, "w")
		b.settle()
		up("b")
	})
}

// What the source's side owns goes up for as long as the target exists.
func TestSourceOwned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.sync(widgets, Related{Resource: secrets, From: SourceSide, References: []string{"spec.secret"}})()
		b.secret(b.source, b.sourceNS, "config", "b25l")
		b.create(b.source, b.sourceNS, b.widget("w", `{"secret":"config"}`, ``))
		b.settle()
		copied := func() *unstructured.Unstructured { return b.getSecret(b.target, b.targetNS, "config") }
		if got := copied(); got == nil || got.GetAnnotations()[OwnerAnnotation] != "Consumer" || got.GetAnnotations()[ReferrerAnnotation] != "w" {
			t.Fatalf("copy: %v", got)
		}
		b.mergeOriginal("config", `{"data":{"password":"dHdv"}}`)
		if got := field(copied(), "data", "password"); got != "dHdv" {
			t.Errorf("password = %v", got)
		}
		b.merge(b.target, b.targetNS, "w", `{"metadata":{"finalizers":["provider.example.org/busy"]}}`)
		b.delete(b.source, b.sourceNS, "w")
		time.Sleep(time.Hour)
		if copied() == nil {
			t.Error("the copy went before the target that needs it")
		}
		b.merge(b.target, b.targetNS, "w", `{"metadata":{"finalizers":null}}`)
		time.Sleep(time.Minute)
		if copied() != nil || b.getSecret(b.source, b.sourceNS, "config") == nil {
			t.Error("not just the copy went with the target")
		}
	})
}

// Claims in both directions do not send copies back to where they came from.
func TestBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.sync(widgets, Related{Resource: secrets, From: SourceSide}, Related{Resource: secrets, From: TargetSide})()
		b.resident(b.sourceNS)
		b.secret(b.source, b.sourceNS, "up", "dXA=")
		b.secret(b.target, b.targetNS, "down", "ZG93bg==")
		b.settle()
		writes := func() int { return len(b.fakeSource.Writes()) + len(b.fakeTarget.Writes()) }
		before := writes()
		time.Sleep(time.Hour + time.Minute) // no multiple of the silence after which the fake, which sends no bookmarks, is listed anew
		if n := writes() - before; n > 0 {
			t.Errorf("%d writes while nothing happened", n)
		}
		before = b.writes()
		b.deleteSecret(b.source, b.sourceNS, "up")
		b.deleteSecret(b.target, b.targetNS, "down")
		b.settle()
		if n := b.writes() - before; n != 2 { // both deletions
			t.Errorf("%d writes at the source", n)
		}
		for _, name := range []string{"up", "down"} {
			if b.copied(name) != nil || b.getSecret(b.target, b.targetNS, name) != nil {
				t.Errorf("%s is left", name)
			}
		}
	})
}

// A copy that the other side refers to, as providers do that echo a name, is not
// taken for an original whose name is taken.
func TestEchoedReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.sync(widgets,
			Related{Resource: secrets, From: SourceSide, References: []string{"spec.secret"}},
			Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}},
		)()
		b.secret(b.source, b.sourceNS, "up", "dXA=")
		b.create(b.source, b.sourceNS, b.widget("a", `{"secret":"up"}`, ``))
		b.settle()
		b.names(widgets, "a", `"up"`)
		time.Sleep(time.Hour)
		if b.getSecret(b.target, b.targetNS, "up") == nil || b.message("a") != "" {
			t.Errorf("copy %v, message %q", b.getSecret(b.target, b.targetNS, "up"), b.message("a"))
		}
	})
}

// A related object is no reason to make a namespace.
func TestRelatedScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.table = NewNamespaces(func(ns string) { t.Errorf("namespace wanted for %s", ns) })
		defer b.sync(widgets, Related{Resource: secrets, From: SourceSide}, Related{Resource: secrets, From: TargetSide})()
		b.secret(b.source, b.sourceNS, "config", "b25l")
		b.settle()
	})
}

// A token that stands where an original was does not travel, and what was copied
// from the original goes.
func TestTokenReplacesOriginal(t *testing.T) {
	for name, annotations := range map[string]string{
		"as API servers have it": `"annotations":{"kubernetes.io/service-account.name":"default"},`,
		"known by type alone":    ``,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				defer b.sync(widgets, Related{Resource: secrets, From: TargetSide})()
				b.resident(b.sourceNS)
				b.secret(b.target, b.targetNS, "a", "cGFzcw==")
				b.settle()
				if b.copied("a") == nil {
					t.Fatal("no copy")
				}
				b.deleteSecret(b.target, b.targetNS, "a")
				b.createSecret(b.target, b.targetNS, object(t, `{"apiVersion":"v1","kind":"Secret","metadata":{`+annotations+`"name":"a"},`+
					`"type":"kubernetes.io/service-account-token","data":{"token":"Y2FuYXJ5"}}`))
				b.settle()
				if got := b.copied("a"); got != nil {
					t.Errorf("a copy is left: %v", got)
				}
			})
		})
	}
}

// The content of a Secret that no claim selects, or that is not a copy of ours, is
// never read, on neither side: only its metadata are.
func TestP20ForeignSecretsAreNeverRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var mu gosync.Mutex
		read := map[string]bool{}
		through := func(side Side, c *fakecluster.Cluster) *Cluster {
			whole := c.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if r.Resource == secrets {
					read[string(side)+" "+r.Object.Name] = true // of a list, none: all
				}
				return do()
			})
			out, err := NewClusterForClients(whole.Client(), c.Metadata())
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		b.from, b.to = through(SourceSide, b.fakeSource), through(TargetSide, b.fakeTarget)
		foreign := b.secret(b.source, b.sourceNS, "taken", "bWluZQ==")
		defer b.sync(widgets,
			Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}},
			Related{Resource: secrets, From: SourceSide, Names: []string{"up"}},
		)()
		for _, name := range []string{"taken", "creds", "neighbour"} {
			b.secret(b.target, b.targetNS, name, "cGFzcw==")
		}
		for _, name := range []string{"up", "private"} {
			b.secret(b.source, b.sourceNS, name, "cGFzcw==")
		}
		b.createSecret(b.target, b.targetNS, object(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"token",`+
			`"annotations":{"kubernetes.io/service-account.name":"default"}},"type":"kubernetes.io/service-account-token"}`))
		for _, name := range []string{"creds", "taken", "token"} {
			b.claim(widgets, "Widget", name)
			b.names(widgets, name, `"`+name+`"`)
		}
		b.mergeSecret(b.target, b.targetNS, "neighbour", `{"data":{"password":"bmV3"}}`)
		b.mergeOriginal("private", `{"data":{"password":"bmV3"}}`)
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(map[string]bool{"Target creds": true, "Source creds": true, "Source up": true, "Target up": true}, read); diff != "" {
			t.Errorf("content of secrets that was read or written (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(foreign, b.copied("taken")); diff != "" {
			t.Errorf("a foreign secret changed:\n%s", diff)
		}
		if b.copied("creds") == nil || b.getSecret(b.target, b.targetNS, "up") == nil {
			t.Error("what was selected did not travel")
		}
	})
}

// What takes the place of an original between the look at its metadata and the one at
// its content does not travel, unless it is selected itself.
func TestOriginalExchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const labelled = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"creds","labels":{"share":"yes"}},"data":{"password":"YQ=="}}`
		exchanged := false
		b.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "get" && r.Resource == secrets && !exchanged {
				exchanged = true
				b.deleteSecret(b.target, b.targetNS, "creds")                                                                                          //nolint:contextcheck // it has that of the test
				b.createSecret(b.target, b.targetNS, object(t, strings.ReplaceAll(strings.ReplaceAll(labelled, "yes", "no"), "YQ==", "cHJpdmF0ZQ=="))) //nolint:contextcheck // it has that of the test
			}
			return do()
		})
		defer b.sync(widgets, Related{Resource: secrets, From: TargetSide, Labels: "share=yes"})()
		b.resident(b.sourceNS)
		b.createSecret(b.target, b.targetNS, object(t, labelled))
		b.settle()
		if got := b.copied("creds"); got != nil || !exchanged || b.writes() > 0 {
			t.Errorf("copy: %v after %d writes, exchanged: %t", got, b.writes(), exchanged)
		}
		b.mergeSecret(b.target, b.targetNS, "creds", `{"metadata":{"labels":{"share":"yes"}}}`)
		b.settle()
		if got := field(b.copied("creds"), "data", "password"); got != "cHJpdmF0ZQ==" {
			t.Errorf("password once it is selected: %v", got)
		}
	})
}

// A copy that a restore of its cluster from a backup has made an older one is written again, although the
// original is what it was.
func TestCopyGoesBack(t *testing.T) {
	for side, spec := range map[Side]Related{SourceSide: {Resource: secrets, From: SourceSide, Names: []string{"creds"}}, TargetSide: handedOut} {
		t.Run(string(side), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				defer b.sync(widgets, spec)()
				original, in, copies, at := b.source, b.sourceNS, b.fakeTarget, func() *unstructured.Unstructured { return b.getSecret(b.target, b.targetNS, "creds") }
				if side == TargetSide {
					original, in, copies, at = b.target, b.targetNS, b.fakeSource, func() *unstructured.Unstructured { return b.copied("creds") }
				}
				b.secret(original, in, "creds", "b2xk")
				b.claim(widgets, "Widget", "a")
				b.names(widgets, "a", `"creds"`)
				backup := copies.Version()
				b.mergeSecret(original, in, "creds", `{"data":{"password":"bmV3"}}`)
				b.settle()
				copies.Restore(backup)
				time.Sleep(time.Minute)
				if got := field(at(), "data", "password"); got != "bmV3" {
					t.Errorf("password after the restore: %v", got)
				}
			})
		})
	}
}

// What all names select: of the CA that each cluster keeps in each namespace there is no
// copy, and a name that is taken is told although no claim refers to it.
func TestAllNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		var mu gosync.Mutex
		var refused []string
		s, err := New(b.from, b.to, widgets, Options{
			Mapper: b.table, Workers: 4,
			Related: []Related{{Resource: configMaps, From: TargetSide, Names: []string{"*"}}, {Resource: secrets, From: TargetSide, Names: []string{"*"}}},
			Hooks: Hooks{Refused: func(_ context.Context, r Refusal) {
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, r.Object.Name+": "+r.Why)
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := start(func() error { return s.Run(ctx) })
		b.resident(b.sourceNS)
		b.secret(b.source, b.sourceNS, "taken", "bWluZQ==")
		b.secret(b.target, b.targetNS, "taken", "cGFzcw==")
		b.secret(b.target, b.targetNS, "free", "cGFzcw==")
		for _, name := range []string{"kube-root-ca.crt", "config"} {
			u := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"},"data":{"a":"b"}}`)
			if _, err := b.target.Resource(configMaps).Namespace(b.targetNS).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		b.settle()
		if b.copied("free") == nil {
			t.Error("what is free was not copied")
		}
		all, err := b.source.Resource(configMaps).Namespace(b.sourceNS).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(all.Items) != 1 || all.Items[0].GetName() != "config" {
			t.Errorf("ConfigMaps %v, %v; want config alone", all, err)
		}
		if len(refused) == 0 || len(refused) > 12 || !strings.HasPrefix(refused[0], "taken: secrets ") || !strings.Contains(refused[0], "is not a copy") {
			t.Errorf("told %q, want now and then that the name is taken", refused)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// I19: the names of copies that others have taken are looked at ever more rarely, however many there
// are, and what is told of them stays. When they are free all copies are made, once the first is found
// to be; one that becomes ours by its labels is put right at once.
func TestI19TakenNamesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		b := newBench(t)
		defer b.sync(widgets, Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}})()
		var reads atomic.Int32
		b.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "get" && r.Resource == secrets {
				reads.Add(1)
			}
			return do()
		})
		b.secret(b.target, b.targetNS, "back", "cGFzcw==")
		b.claim(widgets, "Widget", "back")
		b.names(widgets, "back", `"back"`)
		ours := b.copied("back")
		b.mergeSecret(b.source, b.sourceNS, "back", `{"metadata":{"labels":null,"annotations":null},"data":{"password":"bWluZQ=="}}`)
		for n := range most {
			name := fmt.Sprint("taken-", n)
			b.secret(b.source, b.sourceNS, name, "bWluZQ==")
			b.secret(b.target, b.targetNS, name, "cGFzcw==")
			b.claim(widgets, "Widget", name)
			b.names(widgets, name, `"`+name+`"`)
		}
		time.Sleep(time.Hour)
		before := reads.Load()
		time.Sleep(time.Hour)
		if n := reads.Load() - before; n > 3600 || n == 0 {
			t.Errorf("%d reads in an hour", n)
		}
		for _, name := range []string{"back", "taken-0", "taken-99"} {
			if !strings.Contains(b.message(name), "is not a copy") {
				t.Errorf("%s says %q", name, b.message(name))
			}
		}
		metadata, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": ours.GetLabels(), "annotations": ours.GetAnnotations()}})
		if err != nil {
			t.Fatal(err)
		}
		b.mergeSecret(b.source, b.sourceNS, "back", string(metadata))
		b.settle()
		if diff := cmp.Diff(ours.Object["data"], b.copied("back").Object["data"]); diff != "" || b.message("back") != "" {
			t.Errorf("a copy whose labels are back differs (-want +got):\n%s\nand says %q", diff, b.message("back"))
		}
		for n := range most {
			b.deleteSecret(b.source, b.sourceNS, fmt.Sprint("taken-", n))
		}
		time.Sleep(time.Minute)
		b.settle()
		for n := range most {
			if name := fmt.Sprint("taken-", n); b.copied(name) == nil || b.message(name) != "" {
				t.Errorf("%s is no copy, or says %q", name, b.message(name))
			}
		}
	})
}

// A copy that is refused, for whatever reason, is asked again ever more rarely, told, and remembered,
// without a word of what the API server said, and made soon after the reason has gone for another one.
func TestRefusedCopies(t *testing.T) {
	t.Parallel()
	going := apierrors.NewForbidden(secrets.GroupResource(), "creds", errors.New("because namespace s3cret is being terminated"))
	going.ErrStatus.Details.Causes = append(going.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"})
	for _, a := range map[string]struct {
		err  error
		told string
	}{
		"invalid":     {apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "creds", field2.ErrorList{field2.Invalid(field2.NewPath("data"), "s3cret", "a webhook says no")}), "refuses"},
		"forbidden":   {apierrors.NewForbidden(secrets.GroupResource(), "creds", errors.New("no s3cret here")), "does not permit"},
		"going":       {going, "lacks what it needs for"},
		"too large":   {apierrors.NewRequestEntityTooLargeError("s3cret"), "refuses"},
		"webhook":     {apierrors.NewInternalError(errors.New("failed calling webhook: s3cret")), "cannot take"},
		"unreachable": {errors.New("connection refused, s3cret"), "cannot take"},
		"conflict":    {apierrors.NewConflict(secrets.GroupResource(), "creds", errors.New("s3cret")), "cannot take"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			s, stop := b.world.sync(Options{Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}}})
			defer stop()
			var requests atomic.Int64
			b.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				switch {
				case r.Resource != secrets, r.Verb == "watch":
				case r.Verb == "list":
					requests.Add(-12) // the fake sends no bookmarks, so that there are many, after which both are asked for
				default:
					if requests.Add(1); r.Verb == "apply" {
						return a.err
					}
				}
				return do()
			})
			for _, name := range []string{"w0", "w1"} {
				b.claim(widgets, "Widget", name)
				b.secret(b.target, b.targetNS, "creds-"+name, "YQ==")
				b.names(widgets, name, `"creds-`+name+`"`)
			}
			time.Sleep(time.Minute)
			for _, name := range []string{"w0", "w1"} {
				if m := b.message(name); !strings.HasPrefix(m, string(ReasonRelated)) || !strings.Contains(m, a.told) || strings.Contains(m, "s3cret") {
					t.Errorf("%v: message %q", a.err, m)
				}
				if f := s.engine.related[0].refused.Of(cache.NewObjectName(b.targetNS, "creds-"+name), refusal.Copy); f == nil || strings.Contains(f.Detail, "s3cret") {
					t.Errorf("%v: remembered as %+v", a.err, f)
				}
			}
			time.Sleep(2 * time.Hour)
			requests.Store(0)
			time.Sleep(time.Hour)
			if n := requests.Load(); n > 2*3*10 {
				t.Errorf("%v: %d requests in an hour", a.err, n)
			}
			b.fakeSource.Intercept(nil)
			time.Sleep(11 * time.Minute)
			for _, name := range []string{"w0", "w1"} {
				if b.getSecret(b.source, b.sourceNS, "creds-"+name) == nil || b.message(name) != "" {
					t.Errorf("%v: no copy, or message %q", a.err, b.message(name))
				}
			}
		})
	}
}

// What a legacy konnector owns of a copy is taken over ever more rarely where that is refused, whatever the answer is, and
// the claim says so, without the API server's words.
func TestRefusedTakeoverOfACopy(t *testing.T) {
	for _, a := range fakecluster.Answers() {
		request := fakecluster.Request{Resource: secrets, Verb: "patch", Object: cache.NewObjectName("team", "creds")}
		if a.Kind == fates.Absent || a.Kind == fates.Unserved {
			continue // then it is not there
		}
		t.Run(fmt.Sprint(a.Err(request)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				related := []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}}
				_, stop := b.world.sync(Options{Related: related})
				b.claim(widgets, "Widget", "a")
				b.secret(b.target, b.targetNS, "creds", "YQ==")
				b.names(widgets, "a", `"creds"`)
				b.until("copied", func() bool { return b.copied("creds") != nil })
				b.settle()
				stop()
				theirs := []byte(`{"metadata":{"labels":{"of":"before"}},"data":{"more":"Yg=="}}`)
				if _, err := b.source.Resource(secrets).Namespace(b.sourceNS).Patch(t.Context(), "creds", types.MergePatchType, theirs, metav1.PatchOptions{FieldManager: legacycopy.Manager}); err != nil {
					t.Fatal(err)
				}
				var requests atomic.Int64
				b.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource != secrets || r.Verb != "patch" {
						return do()
					}
					requests.Add(1)
					return a.Err(r)
				})
				s, stop := b.world.sync(Options{Related: related})
				defer stop()
				time.Sleep(time.Minute)
				if m := b.message("a"); requests.Load() == 0 || !strings.HasPrefix(m, string(ReasonRelated)) || strings.Contains(m, a.Err(request).Error()) {
					t.Errorf("after %d requests message %q", requests.Load(), m)
				}
				time.Sleep(2 * time.Hour)
				requests.Store(0)
				time.Sleep(time.Hour)
				most := int64(60) // what may be over is asked for after each list, of which the fake needs many
				if a.Kind.Fate() == fates.Refused {
					most = 10
				}
				if n := requests.Load(); n > most {
					t.Errorf("%d requests in an hour", n)
				}
				b.fakeSource.Intercept(nil)
				time.Sleep(11 * time.Minute)
				if u := b.copied("creds"); u == nil || fields.By(u, legacy.WroteCopy) != nil || b.message("a") != "" || s.engine.related[0].refused.Len() > 0 {
					t.Errorf("later the copy is %v, message %q", u, b.message("a"))
				}
			})
		})
	}
}

// A copy of a claim that has gone, whose deletion an API server refuses, is told for the Sync as a whole: a
// credential that stays is nothing to be silent about.
func TestRefusedDeletionOfACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, stop := b.world.sync(Options{Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}}})
		defer stop()
		b.claim(widgets, "Widget", "a")
		b.secret(b.target, b.targetNS, "creds", "YQ==")
		b.names(widgets, "a", `"creds"`)
		b.until("copied", func() bool { return b.copied("creds") != nil })
		b.settle()
		b.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == secrets && r.Verb == "delete" {
				return forbidden(r)
			}
			return do()
		})
		b.deleteSecret(b.target, b.targetNS, "creds")
		b.delete(b.source, b.sourceNS, "a")
		time.Sleep(time.Minute)
		if said := s.Status().Untold; b.get(b.source, b.sourceNS, "a") != nil || b.copied("creds") == nil || len(said) != 1 || !strings.Contains(said[0], "does not permit the copy secrets team/creds") {
			t.Errorf("claim %v, copy %v, told %q", b.get(b.source, b.sourceNS, "a"), b.copied("creds"), said)
		}
		b.fakeSource.Intercept(nil)
		time.Sleep(11 * time.Minute)
		if said := s.Status().Untold; b.copied("creds") != nil || len(said) > 0 {
			t.Errorf("copy %v, told %q", b.copied("creds"), said)
		}
	})
}

// A copy to which no claim refers, since a selector chose it, and which an API server does not take
// or others change back, is told for the Sync as a whole, until it is as it should be.
func TestUntoldCopies(t *testing.T) {
	for rival, want := range map[bool]string{
		false: "an API server does not permit the copy secrets team/creds of the target cluster's",
		true:  `secrets team/creds, a copy of the target cluster's, is changed by rival each time that it is put right, which is done ever more slowly`,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			s, stop := b.world.sync(Options{Related: []Related{{Resource: secrets, From: TargetSide}}})
			defer stop()
			var bad atomic.Bool
			bad.Store(true)
			b.fakeSource.Intercept(func(ctx context.Context, r fakecluster.Request, do func() error) error {
				if r.Resource != secrets || r.Verb != "apply" || !bad.Load() {
					return do()
				}
				if !rival {
					return apierrors.NewForbidden(secrets.GroupResource(), "creds", errors.New("no s3cret here"))
				}
				err := do()
				_, _ = b.source.Resource(secrets).Namespace(b.sourceNS).Patch(ctx, "creds", types.MergePatchType, []byte(`{"data":{"password":"Yg=="}}`), metav1.PatchOptions{FieldManager: "rival"})
				return err
			})
			b.claim(widgets, "Widget", "w0")
			b.secret(b.target, b.targetNS, "creds", "YQ==")
			time.Sleep(time.Minute)
			if diff := cmp.Diff([]string{want}, s.Status().Untold); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			bad.Store(false)
			time.Sleep(20 * time.Minute)
			if said := s.Status().Untold; said != nil || b.copied("creds") == nil {
				t.Errorf("told %q, or no copy", said)
			}
		})
	}
}

// A copy has just the content of its original, also where others own fields of it: a backup that brought it back by
// a POST, the Sync under its former name, someone who added a key. A label that travelled goes with the original's;
// other labels stay.
func TestCopiesHaveNothingElse(t *testing.T) {
	const changed = `{"data":{"x":null,"y":"eQ=="},"metadata":{"labels":{"share/a":null}}}`
	restored := func(b *bench) {
		copied := b.copied("creds")
		b.deleteSecret(b.source, b.sourceNS, "creds")
		copied.SetUID("")
		copied.SetResourceVersion("")
		copied.SetManagedFields(nil)
		if _, err := b.source.Resource(secrets).Namespace(b.sourceNS).Create(b.Context(), copied, metav1.CreateOptions{FieldManager: "velero"}); err != nil {
			b.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		next  string // what the binding is called after a restart
		comes func(b *bench)
	}{
		"restored": {"one", restored},
		"renamed":  {"two", func(*bench) {}},
		"added":    {"one", func(b *bench) { b.mergeSecret(b.source, b.sourceNS, "creds", `{"data":{"z":"eg=="}}`) }},
	} {
		for _, meanwhile := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " meanwhile ", meanwhile), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					run := func(binding string) (stop func()) {
						_, stop = b.world.sync(Options{Binding: binding, Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret"}, KeepLabels: []string{"share/*"}}}})
						return stop
					}
					stop := run("one")
					b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
					b.mergeSecret(b.target, b.targetNS, "creds", `{"metadata":{"labels":{"share/a":"1"}}}`)
					b.claim(widgets, "Widget", "a")
					b.names(widgets, "a", `"creds"`)
					b.mergeSecret(b.source, b.sourceNS, "creds", `{"metadata":{"labels":{"share/mine":"1","tier":"gold"},"finalizers":["example.org/mine"]}}`)
					b.settle()
					stop()
					b.mergeSecret(b.source, b.sourceNS, "creds", `{"metadata":{"finalizers":null}}`)
					test.comes(b)
					if meanwhile {
						b.mergeSecret(b.target, b.targetNS, "creds", changed)
					}
					stop = run(test.next)
					defer func() { stop() }()
					b.settle()
					if !meanwhile {
						b.mergeSecret(b.target, b.targetNS, "creds", changed)
					}
					time.Sleep(time.Minute)
					if diff := cmp.Diff(b.getSecret(b.target, b.targetNS, "creds").Object["data"], b.copied("creds").Object["data"]); diff != "" {
						t.Errorf("the copy is not as its original (-want +got):\n%s", diff)
					}
					labels := b.copied("creds").GetLabels()
					if labels["share/a"] != "" || labels["tier"] != "gold" || name != "restored" && labels["share/mine"] == "" {
						t.Errorf("labels: %v", labels)
					}
					before := b.writes()
					stop()
					stop = run(test.next)
					time.Sleep(time.Minute)
					if n := b.writes() - before; n > 0 {
						t.Errorf("a start writes it %d times", n)
					}
				})
			})
		}
	}
}

// A copy that has to be made anew, since the type of its original is another one, and that an API server does not take
// then, or does not let go, is told, asked for ever more rarely, and made once it may be.
func TestCopyMadeAnewIsRefused(t *testing.T) {
	for _, verb := range []string{"delete", "apply"} {
		for _, referred := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				related := Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}
				if !referred {
					related.References = nil
				}
				s, stop := b.world.sync(Options{Related: []Related{related}})
				defer stop()
				b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
				b.claim(widgets, "Widget", "a")
				b.names(widgets, "a", `"creds"`)
				var asked atomic.Int32
				b.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource == secrets && r.Verb == verb {
						asked.Add(1)
						return apierrors.NewForbidden(secrets.GroupResource(), "creds", errors.New("no s3cret here"))
					}
					return do()
				})
				b.mergeSecret(b.target, b.targetNS, "creds", `{"type":"kubernetes.io/basic-auth"}`)
				time.Sleep(2 * time.Hour)
				told := b.message("a") + strings.Join(s.Status().Untold, "")
				if want := "an API server does not permit the copy secrets team/creds"; !strings.Contains(told, want) {
					t.Errorf("%s, referred %t: told %q, want %q", verb, referred, told, want)
				}
				before := asked.Load()
				time.Sleep(time.Hour)
				if n := asked.Load() - before; n < 1 || n > 10 {
					t.Errorf("%s: %d requests in an hour", verb, n)
				}
				b.fakeSource.Intercept(nil)
				time.Sleep(11 * time.Minute)
				told = b.message("a") + strings.Join(s.Status().Untold, "")
				if got := b.copied("creds"); field(got, "type") != "kubernetes.io/basic-auth" || told != "" {
					t.Errorf("%s: copy %v, told %q", verb, got, told)
				}
			})
		}
	}
}

// Of two Syncs that want a copy, the one that does not let its type travel any more leaves it to the other one, which
// makes it anew.
func TestTypeTravelsForOneSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		byStatus := Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}
		defer b.sync(widgets, byStatus)()
		all := byStatus
		all.SecretTypes = []string{"*"}
		stop := b.sync(gadgets, all)
		b.secret(b.target, b.targetNS, "shared", "cGFzcw==")
		b.claim(widgets, "Widget", "w")
		b.claim(gadgets, "Gadget", "g")
		b.names(widgets, "w", `"shared"`)
		b.names(gadgets, "g", `"shared"`)
		stop()
		b.mergeSecret(b.target, b.targetNS, "shared", `{"type":"example.org/private"}`)
		time.Sleep(time.Minute)
		if b.copied("shared") == nil || !strings.Contains(b.message("w"), "does not travel") {
			t.Errorf("the copy that the other one wants is %v, and the first claim says %q", b.copied("shared"), b.message("w"))
		}
		defer b.sync(gadgets, all)()
		time.Sleep(time.Minute)
		before := b.writes()
		time.Sleep(time.Hour)
		if n := b.writes() - before; n > 0 || field(b.copied("shared"), "type") != "example.org/private" || !strings.Contains(b.message("w"), "does not travel") {
			t.Errorf("%d writes while nothing happened, copy %v, the first claim says %q", n, b.copied("shared"), b.message("w"))
		}
		b.names(gadgets, "g", "null")
		time.Sleep(time.Minute)
		if b.copied("shared") != nil {
			t.Error("the copy outlives the one that wants it")
		}
	})
}
