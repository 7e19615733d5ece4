// SPDX-License-Identifier: Apache-2.0

// Package controller runs a reconcile function for every name put on a queue: a
// controller is a name, a function, and the informers that feed it.
//
// It is what stands between informers and [queue]: the worker loop, its retries and its
// words in the log are those of that package, with workers for each controller.
package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/queue"
)

// A Func brings one object in line with its desired state. It is told only the
// object's name and must read everything else. A non-zero duration asks to be
// called again after that long.
type Func = func(ctx context.Context, key cache.ObjectName) (again time.Duration, err error)

// ErrBusy is the error of a Func that could not begin; see [queue.ErrBusy].
var ErrBusy = queue.ErrBusy

// Options tune a Controller. The zero value is ready to use.
type Options struct {
	Workers      int           // concurrent calls of the Func; 0 means 1
	PerNamespace int           // of these with keys of one namespace; 0 means all
	Patience     time.Duration // see queue.Options
	Meanwhile    Func          // see queue.Options
}

// A Controller calls a Func for every key added to it.
type Controller struct {
	name  string
	queue *queue.Queue

	mu      sync.Mutex
	running bool
	synced  []cache.DoneChecker // what Run waits for
}

// New returns a Controller that must be started with Run.
func New(name string, fn Func, opts Options) *Controller {
	workers := max(opts.Workers, 1)
	return &Controller{name: name, queue: queue.NewPool(workers, spread).Queue(fn, queue.Options{
		Name: name, PerNamespace: cmp.Or(opts.PerNamespace, workers), Patience: opts.Patience, Meanwhile: opts.Meanwhile,
	})}
}

// spread has what failed at once not be tried again at once.
func spread(pause time.Duration, _ cache.ObjectName, failures int) time.Duration {
	if failures == 0 || pause < time.Second {
		return pause
	}
	return pause - rand.N(pause/2) //nolint:gosec // jitter is no secret
}

// Add queues key. Adding a key that already waits is a no-op.
func (c *Controller) Add(key cache.ObjectName) { c.queue.Add(key, queue.User) }

// Look queues key for what a pause after a failure does not delay; see queue.Options.Meanwhile.
func (c *Controller) Look(key cache.ObjectName) { c.queue.Look(key, queue.User) }

// Watch queues keys(obj) for every object inf reports as added, changed or
// deleted. What failed before counts no more, unless only a status has changed: controllers
// themselves write those. Run waits for the informers that were watched before to sync; Watch may
// also be called while it runs. The returned function detaches the handler and
// waits until it has ended.
func (c *Controller) Watch(inf cache.SharedIndexInformer, keys func(metav1.Object) []cache.ObjectName) (stop func(), err error) {
	return c.watch(inf, keys, c.queue.Add)
}

// WatchSpecs is Watch where statuses do not matter: a change of one ends no pause after a failure, however
// often others write it.
func (c *Controller) WatchSpecs(inf cache.SharedIndexInformer, keys func(metav1.Object) []cache.ObjectName) (stop func(), err error) {
	return c.watch(inf, keys, func(cache.ObjectName, queue.Priority) {})
}

// watch is Watch with what is done where only a status has changed.
func (c *Controller) watch(inf cache.SharedIndexInformer, keys func(metav1.Object) []cache.ObjectName, ofStatus func(cache.ObjectName, queue.Priority)) (stop func(), err error) {
	enqueue := func(obj any, add func(cache.ObjectName, queue.Priority)) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(metav1.Object); ok {
			for _, key := range keys(o) {
				add(key, queue.User)
			}
		}
	}
	reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { enqueue(obj, c.queue.Changed) },
		UpdateFunc: func(before, after any) {
			add := ofStatus
			if altered(before, after) {
				add = c.queue.Changed
			}
			enqueue(before, add) // a mapping may have moved, so both ends need a look
			enqueue(after, add)
		},
		DeleteFunc: func(obj any) { enqueue(obj, c.queue.Changed) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch for controller %s: %w", c.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running {
		c.synced = append(c.synced, reg.HasSyncedChecker())
	}
	return func() { _ = cache.ShutDownEventHandler(inf, reg) }, nil
}

// altered reports whether more of an object has changed than its status. Kinds without a
// generation have none, or none of their own.
func altered(before, after any) bool {
	was, ok := before.(metav1.Object)
	is, also := after.(metav1.Object)
	switch {
	case !ok || !also || was.GetUID() != is.GetUID():
		return true
	case was.GetGeneration() == 0 && is.GetGeneration() == 0:
		return was.GetResourceVersion() != is.GetResourceVersion()
	}
	return was.GetGeneration() != is.GetGeneration() || !maps.Equal(was.GetAnnotations(), is.GetAnnotations()) || !maps.Equal(was.GetLabels(), is.GetLabels())
}

// Self is the keys argument of Watch for the controller's own objects.
func Self(o metav1.Object) []cache.ObjectName { return []cache.ObjectName{cache.MetaObjectToName(o)} }

// ShutDown ends a Controller that may never run; Run does so by itself.
func (c *Controller) ShutDown() { c.queue.Close() }

// Run works the queue until ctx is done and every call in flight has returned; it
// then returns nil, also if the informers never synced. It can be called once.
//
// A call that fails is repeated with growing delays, as package fates has them. Conflicts are
// repeated without a word, unless there are many in a row; fates.ErrTerminal is not repeated.
func (c *Controller) Run(ctx context.Context) error {
	c.mu.Lock()
	synced := c.synced
	c.running, c.synced = true, nil
	c.mu.Unlock()
	if !cache.WaitFor(ctx, "", synced...) {
		c.ShutDown()
		return nil // ctx is done
	}
	c.queue.Run(ctx)
	return nil
}
