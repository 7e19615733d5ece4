// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"slices"
	gosync "sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// I13: a neighbour that writes as fast as it can, or whose cluster does not answer, moves
// the time that others wait by less than a fifth. The API servers take 40 ms for each
// request, however many there are, and time is virtual: what is measured is the engine,
// and nothing that engine, API servers and load would share on one machine.
func TestI13Neighbours(t *testing.T) {
	t.Parallel()
	alone := slowest(t, func(context.Context, *town) {})
	if alone < 40*time.Millisecond {
		t.Fatalf("alone: %v, less than one request takes", alone)
	}
	for name, neighbour := range map[string]func(context.Context, *town){
		"a noisy namespace": func(ctx context.Context, h *town) { h.noise(ctx, widgets, loud) },
		"a noisy binding":   func(ctx context.Context, h *town) { h.noise(ctx, gadgets, loud) },
		"a dead cluster":    func(ctx context.Context, h *town) { h.hangs(ctx, 1, isWrite) },
		"a cluster that hangs, one kind": func(ctx context.Context, h *town) {
			h.hangs(ctx, 1, func(fakecluster.Request) bool { return true })
		},
		"a cluster that hangs, ten kinds": func(ctx context.Context, h *town) {
			h.hangs(ctx, 10, func(fakecluster.Request) bool { return true })
		},
		"a cluster that hangs, 40 kinds": func(ctx context.Context, h *town) {
			h.hangs(ctx, 40, func(fakecluster.Request) bool { return true })
		},
		"writes that hang, ten kinds": func(ctx context.Context, h *town) { h.hangs(ctx, 10, isWrite) },
		"reads that hang, ten kinds": func(ctx context.Context, h *town) {
			h.hangs(ctx, 10, func(r fakecluster.Request) bool { return !isWrite(r) })
		},
		"watches that hang, ten kinds": func(ctx context.Context, h *town) {
			h.hangs(ctx, 10, func(r fakecluster.Request) bool { return r.Verb == "watch" })
		},
		"every other request hangs, ten kinds": func(ctx context.Context, h *town) {
			var n atomic.Int64
			h.hangs(ctx, 10, func(fakecluster.Request) bool { return n.Add(1)%2 == 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			if p99 := slowest(t, neighbour); p99 > alone*12/10 {
				t.Errorf("p99 of the others is %v, alone it is %v", p99, alone)
			}
		})
	}
}

// loud is the pause between two changes, 250 a second: far more than 8 workers can follow.
const loud = 4 * time.Millisecond

// A town is a Set of the Syncs of neighbours who share their API servers.
type town struct {
	*world
	set   *Set
	table *Namespaces

	mu   gosync.Mutex
	seen map[string]time.Time // when the target of the quiet one had a size
}

// slowest returns the p99 of how long 60 changes take to the target, one after the
// other, beside a neighbour.
func slowest(t *testing.T, neighbour func(context.Context, *town)) (p99 time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newTown(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := start(func() error { return h.set.Run(ctx) })
		h.create(h.source, "quiet", h.widget("a", `{"size":"0"}`, ``))
		h.until("the quiet one is in step", func() bool { return h.took("0", time.Time{}) > 0 })
		var wg gosync.WaitGroup
		wg.Go(func() { neighbour(ctx, h) })
		defer func() { // also where a change never comes
			cancel()
			wg.Wait()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		var times []time.Duration
		for i := 0; i < 60 && (i == 0 || times[i-1] < time.Second); i++ { // one second is bad enough
			time.Sleep(97 * time.Millisecond)
			size, begin := fmt.Sprint(i+1), time.Now()
			h.merge(h.source, "quiet", "a", `{"spec":{"size":"`+size+`"}}`)
			h.until("the change has come", func() bool { return h.took(size, begin) > 0 })
			times = append(times, h.took(size, begin))
		}
		slices.Sort(times)
		p99 = times[len(times)*99/100]
	})
	return p99
}

func newTown(t *testing.T) *town {
	t.Helper()
	h := &town{world: newFake(t), table: NewNamespaces(nil), seen: map[string]time.Time{}}
	for _, c := range []*fakecluster.Cluster{h.fakeSource, h.fakeTarget} {
		c.Serve(fakecluster.Resource{GroupVersionResource: gadgets, Kind: "Gadget"})
	}
	for _, name := range []string{"quiet", "noisy"} {
		h.namespace(h.source, name)
		h.namespace(h.target, "svc-"+name)
		h.table.Set(name, "svc-"+name)
	}
	h.from, h.to = h.slow(h.fakeSource), h.slow(h.fakeTarget)
	h.fakeTarget.Observe(func(c fakecluster.Commit) {
		if c.After != nil && c.After.GetNamespace() == "svc-quiet" {
			size, _, _ := unstructured.NestedString(c.After.Object, "spec", "size")
			h.mu.Lock()
			defer h.mu.Unlock()
			h.seen[size] = time.Now()
		}
	})
	h.set = NewSet(SetOptions{Workers: 8})
	h.put("widgets", widgets, h.to)
	h.put("gadgets", gadgets, h.to)
	return h
}

// slow is a cluster as a konnector sees it, with 40 ms for each request.
func (h *town) slow(c *fakecluster.Cluster) *Cluster {
	h.Helper()
	view := c.View(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if r.Verb != "watch" {
			time.Sleep(40 * time.Millisecond)
		}
		return do()
	})
	out, err := NewClusterForClients(view.Client(), view.Metadata())
	if err != nil {
		h.Fatal(err)
	}
	return out
}

func (h *town) put(name string, resource schema.GroupVersionResource, to *Cluster) {
	h.Helper()
	s, err := New(h.from, to, resource, Options{Binding: name, Mapper: h.table})
	if err != nil {
		h.Fatal(err)
	}
	h.set.Put(name, s)
}

func (h *town) took(size string, begin time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen[size].IsZero() {
		return 0
	}
	return h.seen[size].Sub(begin)
}

// noise changes 100 objects of the noisy namespace, one after the other.
func (h *town) noise(ctx context.Context, resource schema.GroupVersionResource, pause time.Duration) {
	client := h.source.Resource(resource).Namespace("noisy")
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprint("n", i%100)
		if i < 100 {
			u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
			u.SetGroupVersionKind(resource.GroupVersion().WithKind("Gadget"))
			if resource == widgets {
				u.SetKind("Widget")
			}
			u.SetName(name)
			_, _ = client.Create(ctx, u, metav1.CreateOptions{})
		}
		_, _ = client.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"n":%d}}`, i), metav1.PatchOptions{})
		time.Sleep(pause)
	}
}

// hangs binds kinds of a Control Plane Cluster that takes requests and does not answer
// those that silent says, once it has answered all for two seconds; and it changes their
// objects.
func (h *town) hangs(ctx context.Context, kinds int, silent func(fakecluster.Request) bool) {
	served := make([]fakecluster.Resource, kinds)
	for i := range served {
		served[i] = fakecluster.Resource{GroupVersionResource: gadgets.GroupVersion().WithResource(fmt.Sprint("gadgets", i)), Kind: "Gadget"}
		h.fakeSource.Serve(served[i])
	}
	c, begin := fakecluster.New(served...), time.Now()
	h.namespace(c.Client(), "svc-noisy") //nolint:contextcheck // the world has one
	view := c.View(func(ctx context.Context, r fakecluster.Request, do func() error) error {
		if time.Since(begin) > 2*time.Second && silent(r) {
			return hang(ctx)
		}
		return do()
	})
	to, err := NewClusterForClients(view.Client(), view.Metadata())
	if err != nil {
		h.Error(err)
		return
	}
	var wg gosync.WaitGroup
	for _, r := range served {
		h.put(r.Resource, r.GroupVersionResource, to) //nolint:contextcheck // it ends with the Set
		wg.Go(func() { h.noise(ctx, r.GroupVersionResource, 4*loud*time.Duration(kinds)) })
	}
	wg.Wait()
}

// hang is the answer of a cluster that gives none, for as long as a client waits.
func hang(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(30 * time.Second):
		return context.DeadlineExceeded
	}
}
