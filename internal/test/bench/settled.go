// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// settled fills both clusters with objects, starts the konnector anew and then leaves
// it alone: how long until it works again, what does it write, what does it need? The
// objects are left, so this comes last.
func settled(ctx context.Context, c contest) ([]figure, error) {
	b := c.batch("settled", widgets)
	b.size = c.settled
	if err := b.warm(ctx); err != nil {
		return nil, err
	}
	wait(ctx, 2*time.Second)
	empty := memoryOf(c.process)
	for _, p := range []phase{creating, stating} {
		if _, err := b.all(ctx, p); err != nil {
			return nil, err
		}
	}
	filled := memoryOf(c.process).minus(empty).over(c.settled)
	figures := []figure{
		{"empty process, resident MB", empty.resident / 1024, goal{}},
		{"after the first sync, resident KB/object", filled.resident, goal{}},
	}
	restarted, err := c.restart(ctx)
	figures = append(figures, restarted...)
	if err != nil {
		return figures, err
	}
	idle, err := c.idleness(ctx, empty)
	return append(figures, idle...), err
}

// restart measures the time until an object has been synced that was made in the
// moment in which the process was started.
func (c contest) restart(ctx context.Context) ([]figure, error) {
	if err := c.process.Stop(); err != nil {
		return nil, err
	}
	floor, err := c.readAll(ctx)
	if err != nil {
		return nil, err
	}
	full, err := c.cachesFull(ctx)
	if err != nil {
		return nil, err
	}
	var begin, synced time.Time
	written, err := c.writesOf(ctx, func() error {
		begin = time.Now()
		var failed error
		var wg sync.WaitGroup
		wg.Go(func() { failed = c.process.Start(ctx) })
		took, err := c.batch("new", widgets).one(ctx, creating, 0)
		synced = begin.Add(took)
		wg.Wait()
		wait(ctx, 5*time.Second) // for writes that it does later
		return errors.Join(failed, err)
	})
	figures := []figure{
		{"restart until a new object is synced, s", synced.Sub(begin).Seconds(), atMost(10)},
		{"writes of the restart, but for that object", float64(written) - 2, exactly(0)},
		{"a plain list of both sides, s", floor.Seconds(), goal{}},
	}
	if full.count() == 1 {
		figures = append(figures,
			figure{"restart until caches are full, s", full.last.Sub(begin).Seconds(), goal{}},
			figure{"from then until the new object is synced, s", max(0, synced.Sub(full.last).Seconds()), atMost(2)})
	}
	return figures, err
}

// cachesFull waits for what the konnector says of it in its binding. That is taken
// away while the konnector is down, since it would not say again what is there.
func (c contest) cachesFull(ctx context.Context) (*tally, error) {
	const name = widgets + "." + group
	bindings := fmt.Sprintf("/apis/%s/namespaces/%s/apiservicebindings", v1alpha1.GroupVersion, v1alpha1.Namespace)
	if err := c.app.merge(ctx, bindings+"/"+name+"/status", []byte(`{"status":{"conditions":[]}}`)); err != nil {
		return nil, fmt.Errorf("forget the binding's conditions: %w", err)
	}
	o := newObserver()
	return o.expect(name, 1, turnsTrue(v1alpha1.ConditionInformersSynced)), c.app.follow(ctx, bindings, o.see)
}

// turnsTrue is met when a condition is true and was not in the event before.
func turnsTrue(condition string) func(event) bool {
	was := true
	return func(e event) bool {
		for _, c := range e.Object.Status.Conditions {
			if c.Type == condition {
				turned := !was && c.Status == "True"
				was = c.Status == "True"
				return turned
			}
		}
		return false
	}
}

// readAll is the time that it takes to read the objects of both clusters, at once and
// once, as anything that starts must.
func (c contest) readAll(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, a := range []*api{c.app, c.control} {
		wg.Go(func() {
			data, err := a.client.Get().AbsPath(path(widgets, "")).DoRaw(ctx)
			errs[i] = errors.Join(err, new(unstructured.UnstructuredList).UnmarshalJSON(data))
		})
	}
	wg.Wait()
	return time.Since(begin), errors.Join(errs...)
}

// idleness measures the konnector while nothing is asked of it.
func (c contest) idleness(ctx context.Context, empty memory) ([]figure, error) {
	n, err := c.writesOf(ctx, func() error { wait(ctx, c.idle); return context.Cause(ctx) })
	if err != nil {
		return nil, err
	}
	rest := memoryOf(c.process).minus(empty).over(c.settled)
	figures := []figure{
		{fmt.Sprintf("writes in %s of idleness", c.idle), float64(n), exactly(0)},
		{"at rest, resident KB/object", rest.resident, atMost(4)},
	}
	if c.idle > forcedCollection { // else the last one may have been before it came to rest
		figures = append(figures, figure{"at rest, live heap KB/object", rest.live, atMost(4)})
	}
	return figures, nil
}
