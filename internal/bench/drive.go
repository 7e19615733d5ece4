// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/stack"
)

// A load is what is done to one konnector.
type load struct {
	app, control dynamic.Interface
	run          string // prefix of every object's name
	namespaces   int    // of the App Cluster, bench-0 and so on
	objects      int    // in each burst
	singles      int    // one at a time, for latency
	writers      int
}

// figures are what came of it: rates in objects a second, latencies in milliseconds.
type figures struct {
	creates, statuses, updates, deletes float64
	upP50, upP99, downP50, downP99      float64
	memoryMB                            float64
}

func (l load) drive(ctx context.Context, memory func() float64) (f figures, err error) {
	w, err := l.watch(ctx)
	if err != nil {
		return f, err
	}
	if err := l.warm(ctx, w); err != nil {
		return f, err
	}
	if err := l.latencies(ctx, w, &f); err != nil {
		return f, err
	}
	phases := []struct {
		name string
		into *float64
		seen *arrivals
		do   func(ctx context.Context, name string, i int) error
	}{
		{"create", &f.creates, w.up, l.create},
		{"status", &f.statuses, w.down, func(ctx context.Context, name string, _ int) error { return l.setStatus(ctx, w, name) }},
		{"update", &f.updates, w.updated, l.update},
		{"delete", &f.deletes, w.gone, l.remove},
	}
	for _, p := range phases {
		if *p.into, err = l.burst(ctx, p.seen, p.do); err != nil {
			return f, fmt.Errorf("%s: %w", p.name, err)
		}
		if p.name == "create" {
			f.memoryMB = memory()
		}
	}
	return f, l.clean(ctx, w)
}

// warm sends one object through each namespace, since the first one makes the
// service namespace.
func (l load) warm(ctx context.Context, w *watched) error {
	var names []string
	for i := range l.namespaces {
		names = append(names, l.name("warm", i))
		if err := l.create(ctx, names[i], i); err != nil {
			return err
		}
	}
	return w.up.await(ctx, names...)
}

func (l load) latencies(ctx context.Context, w *watched, f *figures) error {
	var up, down []float64
	for i := range l.singles {
		name := l.name("single", i)
		begin := time.Now()
		if err := l.create(ctx, name, i); err != nil {
			return err
		}
		if err := w.up.await(ctx, name); err != nil {
			return err
		}
		up = append(up, w.up.since(name, begin))
		begin = time.Now()
		if err := l.setStatus(ctx, w, name); err != nil {
			return err
		}
		if err := w.down.await(ctx, name); err != nil {
			return err
		}
		down = append(down, w.down.since(name, begin))
	}
	f.upP50, f.upP99 = percentile(up, 50), percentile(up, 99)
	f.downP50, f.downP99 = percentile(down, 50), percentile(down, 99)
	return nil
}

// burst does something to all objects and returns how many a second arrived.
func (l load) burst(ctx context.Context, seen *arrivals, do func(context.Context, string, int) error) (rate float64, err error) {
	begin := time.Now()
	work, errs := make(chan int), make(chan error, l.writers)
	var wg sync.WaitGroup
	names := make([]string, l.objects)
	for i := range names {
		names[i] = l.name("burst", i)
	}
	for range l.writers {
		wg.Go(func() {
			for i := range work {
				if err := do(ctx, names[i], i); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	for i := range names {
		work <- i
	}
	close(work)
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	err = seen.await(ctx, names...)
	return float64(l.objects) / time.Since(begin).Seconds(), err
}

func (l load) name(kind string, i int) string { return fmt.Sprintf("%s-%s-%d", l.run, kind, i) }
func (l load) namespace(i int) string         { return fmt.Sprintf("bench-%d", i%l.namespaces) }
func (l load) claims(i int) dynamic.ResourceInterface {
	return l.app.Resource(widgets).Namespace(l.namespace(i))
}

func (l load) create(ctx context.Context, name string, i int) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.GroupVersion().String(), "kind": "Widget",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"size": "small"},
	}}
	_, err := l.claims(i).Create(ctx, u, metav1.CreateOptions{})
	return err
}

func (l load) update(ctx context.Context, name string, i int) error {
	_, err := l.claims(i).Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"size":"big"}}`), metav1.PatchOptions{})
	return err
}

func (l load) remove(ctx context.Context, name string, i int) error {
	return l.claims(i).Delete(ctx, name, metav1.DeleteOptions{})
}

func (l load) setStatus(ctx context.Context, w *watched, name string) error {
	_, err := l.control.Resource(widgets).Namespace(w.up.namespace(name)).
		Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	return err
}

// clean removes what is left and waits until it is gone in the App Cluster.
func (l load) clean(ctx context.Context, w *watched) error {
	var left []string
	for i := range l.singles {
		left = append(left, l.name("single", i))
	}
	for i := range l.namespaces {
		left = append(left, l.name("warm", i))
		if err := l.claims(i).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return err
		}
	}
	for i := range l.objects {
		left = append(left, l.name("burst", i))
	}
	return w.released.await(ctx, left...)
}

func percentile(v []float64, p int) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[p*(len(v)-1)/100]
}

// watched is what the two API servers say, as far as it concerns a run.
type watched struct {
	up, updated, gone *arrivals // in the Control Plane Cluster
	down, released    *arrivals // in the App Cluster
}

func (l load) watch(ctx context.Context) (*watched, error) {
	w := &watched{up: newArrivals(), updated: newArrivals(), gone: newArrivals(), down: newArrivals(), released: newArrivals()}
	err := follow(ctx, l.control, func(deleted bool, u *unstructured.Unstructured) {
		size, _, _ := unstructured.NestedString(u.Object, "spec", "size")
		w.up.markIf(l.mine(u) && !deleted, u)
		w.updated.markIf(l.mine(u) && !deleted && size == "big", u)
		w.gone.markIf(l.mine(u) && deleted, u)
	})
	if err != nil {
		return nil, err
	}
	return w, follow(ctx, l.app, func(deleted bool, u *unstructured.Unstructured) {
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		w.down.markIf(l.mine(u) && !deleted && phase == "Running", u)
		w.released.markIf(l.mine(u) && deleted, u)
	})
}

func (l load) mine(u *unstructured.Unstructured) bool {
	return strings.HasPrefix(u.GetName(), l.run+"-")
}

// follow calls f for every object of the resource and every event until ctx is done.
func follow(ctx context.Context, c dynamic.Interface, f func(deleted bool, u *unstructured.Unstructured)) error {
	list, err := c.Resource(widgets).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for i := range list.Items {
		f(false, &list.Items[i])
	}
	go func() {
		for version := list.GetResourceVersion(); ctx.Err() == nil; {
			w, err := c.Resource(widgets).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
				continue
			}
			for e := range w.ResultChan() {
				if u, ok := e.Object.(*unstructured.Unstructured); ok {
					version = u.GetResourceVersion()
					f(e.Type == "DELETED", u)
				}
			}
		}
	}()
	return nil
}

// arrivals remember when and where each object first showed up.
type arrivals struct {
	mu      sync.Mutex
	at      map[string]time.Time
	where   map[string]string
	changed chan struct{} // closed and replaced with each arrival
}

func newArrivals() *arrivals {
	return &arrivals{at: map[string]time.Time{}, where: map[string]string{}, changed: make(chan struct{})}
}

func (a *arrivals) markIf(cond bool, u *unstructured.Unstructured) {
	if !cond {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.at[u.GetName()]; ok {
		return
	}
	a.at[u.GetName()], a.where[u.GetName()] = time.Now(), u.GetNamespace()
	close(a.changed)
	a.changed = make(chan struct{})
}

// await returns when all names have arrived. It gives up when nothing arrives for a minute.
func (a *arrivals) await(ctx context.Context, names ...string) error {
	for {
		a.mu.Lock()
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, ok := a.at[n]; return ok })
		changed := a.changed
		a.mu.Unlock()
		if len(names) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			return fmt.Errorf("%d objects did not arrive, %s among them", len(names), names[0])
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (a *arrivals) since(name string, begin time.Time) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return float64(a.at[name].Sub(begin).Microseconds()) / 1000
}

func (a *arrivals) namespace(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.where[name]
}

// makeNamespaces makes those of the App Cluster that are not there yet.
func (l load) makeNamespaces(ctx context.Context) error {
	for i := range l.namespaces {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": l.namespace(i)}}}
		_, err := l.app.Resource(stack.Namespaces).Create(ctx, u, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
