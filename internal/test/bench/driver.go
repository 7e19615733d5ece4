// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/klutch-go/sdk/internal/test/stack"
)

// A driver does to objects what people and automation do, and sees what comes of it.
type driver struct {
	app, control *api
	sees         map[seat]*observer
	writers      int

	mu      sync.Mutex
	targets map[string]string // service namespaces, by that of the App Cluster
}

// A seat is where an observer sits.
type seat struct {
	side     side
	resource string
}

type side string

const (
	inApp     side = "App Cluster"
	inControl side = "Control Plane Cluster"
)

// newDriver returns one that observes all bound resources until ctx is done.
func newDriver(ctx context.Context, s *stack.Stack, writers int) (d *driver, err error) {
	d = &driver{sees: map[seat]*observer{}, writers: writers, targets: map[string]string{}}
	if d.app, err = newAPI(s.App); err != nil {
		return nil, err
	}
	if d.control, err = newAPI(s.Control); err != nil {
		return nil, err
	}
	for _, at := range []seat{{inApp, widgets}, {inControl, widgets}, {inApp, gadgets}, {inControl, gadgets}} {
		d.sees[at] = newObserver()
		if err := d.api(at.side).follow(ctx, path(at.resource, ""), d.sees[at].see); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *driver) api(s side) *api {
	if s == inApp {
		return d.app
	}
	return d.control
}

// sent is how many writes to our group the driver itself has sent.
func (d *driver) sent() int64 { return d.app.sent.Load() + d.control.sent.Load() }

// A batch is a number of objects that the same happens to. Their names are the
// batch's, with a number each.
type batch struct {
	*driver
	resource   string
	name       string
	size       int
	namespaces int
	among      string // begins the names of the namespaces; empty: those that all parts share
	in         string // the only namespace, if not empty
}

func (b batch) object(i int) string { return fmt.Sprintf("%s-%d", b.name, i) }

func (b batch) namespace(i int) string {
	if b.in != "" {
		return b.in
	}
	return fmt.Sprintf("%s-%d", cmp.Or(b.among, "bench"), i%b.namespaces)
}

func (b batch) path(i int) string { return path(b.resource, b.namespace(i), b.object(i)) }

// A phase is one thing that can be done to an object, and what is to be seen on the
// other side when it has been carried through.
type phase struct {
	name  string
	do    func(b batch, ctx context.Context, i int) error
	side  side
	meets func(event) bool
}

var (
	creating = phase{"creates", batch.create, inControl, exists}
	stating  = phase{"statuses", batch.setStatus, inApp, running}
	updating = phase{"updates", batch.update, inControl, big}
	deleting = phase{"deletes", batch.remove, inApp, deleted} // the last of a deletion: the source is let go
)

func exists(e event) bool  { return e.Type != "DELETED" }
func deleted(e event) bool { return e.Type == "DELETED" }
func running(e event) bool { return exists(e) && e.Object.Status.Phase == "Running" }
func big(e event) bool     { return exists(e) && e.Object.Spec.Size == "big" }

func (b batch) create(ctx context.Context, i int) error {
	body := fmt.Appendf(nil, `{"apiVersion":"%s/%s","kind":"%s","metadata":{"name":"%s"},"spec":{"size":"small"}}`, group, version, kindFor(b.resource), b.object(i))
	return b.app.create(ctx, path(b.resource, b.namespace(i)), body)
}

func (b batch) update(ctx context.Context, i int) error { return b.resize(ctx, i, "big") }

func (b batch) resize(ctx context.Context, i int, size string) error {
	return b.app.merge(ctx, b.path(i), fmt.Appendf(nil, `{"spec":{"size":"%s"}}`, size))
}

func (b batch) remove(ctx context.Context, i int) error { return b.app.remove(ctx, b.path(i)) }

func (b batch) setStatus(ctx context.Context, i int) error {
	b.mu.Lock()
	target := b.targets[b.namespace(i)]
	b.mu.Unlock()
	return b.control.merge(ctx, path(b.resource, target, b.object(i), "status"), []byte(`{"status":{"phase":"Running"}}`))
}

// all does a phase to all objects as fast as it can, and returns how long it took
// until the last one was seen on the other side.
func (b batch) all(ctx context.Context, p phase) (time.Duration, error) {
	seen := b.sees[seat{p.side, b.resource}].expect(b.name, b.size, p.meets)
	begin := time.Now()
	if err := b.each(ctx, p.do); err != nil {
		return 0, fmt.Errorf("%s: %w", p.name, err)
	}
	if err := seen.await(ctx); err != nil {
		return 0, fmt.Errorf("%s: %w", p.name, err)
	}
	b.learn(p, seen)
	return seen.last.Sub(begin), nil
}

// one does a phase to one object, and returns how long it took.
func (b batch) one(ctx context.Context, p phase, i int) (time.Duration, error) {
	seen := b.sees[seat{p.side, b.resource}].expect(b.object(i), 1, p.meets)
	begin := time.Now()
	if err := p.do(b, ctx, i); err != nil {
		return 0, fmt.Errorf("%s: %w", p.name, err)
	}
	if err := seen.await(ctx); err != nil {
		return 0, fmt.Errorf("%s: %w", p.name, err)
	}
	return seen.last.Sub(begin), nil
}

// learn remembers which service namespace belongs to which namespace.
func (b batch) learn(p phase, seen *tally) {
	if p.side != inControl {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range min(b.size, b.namespaces) {
		b.targets[b.namespace(i)] = seen.seen[b.object(i)].namespace
	}
}

// each calls do for all objects, with all writers at once, and returns the first error.
func (b batch) each(ctx context.Context, do func(b batch, ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range b.writers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < b.size && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(b, ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// warm sends one object through each namespace, which has the service namespaces made.
func (b batch) warm(ctx context.Context) error {
	b.name, b.size = b.name+"-warm", b.namespaces
	for _, p := range []phase{creating, deleting} {
		if _, err := b.all(ctx, p); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	return nil
}

// clear deletes all objects of the batch's namespaces, whatever made them, and waits
// until they are gone.
func (b batch) clear(ctx context.Context) error {
	for i := range b.namespaces {
		if err := b.app.remove(ctx, path(b.resource, b.namespace(i))); err != nil {
			return fmt.Errorf("clear: %w", err)
		}
	}
	for i := range b.namespaces {
		if err := b.awaitEmpty(ctx, b.namespace(i)); err != nil {
			return fmt.Errorf("clear: %w", err)
		}
	}
	return nil
}

func (b batch) awaitEmpty(ctx context.Context, namespace string) error {
	for {
		n, _, err := b.app.count(ctx, path(b.resource, namespace))
		if err != nil || n == 0 {
			return err
		}
		if wait(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// makeNamespaces makes those of the App Cluster that are not there yet.
func (d *driver) makeNamespaces(ctx context.Context, names ...string) error {
	for _, name := range names {
		err := d.app.create(ctx, "/api/v1/namespaces", fmt.Appendf(nil, `{"metadata":{"name":"%s"}}`, name))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}
