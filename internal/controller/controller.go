// SPDX-License-Identifier: Apache-2.0

// Package controller runs a reconcile function for every name put on a queue: a
// controller is a name, a function, and the informers that feed it.
//
// It is what stands between informers and [queue]: the worker loop, its retries and its
// words in the log are those of that package, with workers for each controller.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/queue"
)

// A Func brings one object in line with its desired state. It is told only the
// object's name and must read everything else. A non-zero duration asks to be
// called again after that long.
type Func = func(ctx context.Context, key cache.ObjectName) (again time.Duration, err error)

// Options tune a Controller. The zero value is ready to use.
type Options struct {
	Workers int                                          // concurrent calls of the Func; 0 means 1
	Limiter workqueue.TypedRateLimiter[cache.ObjectName] // pause after so many failures; nil means that of package fates
}

// A Controller calls a Func for every key added to it.
type Controller struct {
	name  string
	queue *queue.Queue

	mu     sync.Mutex
	synced []cache.DoneChecker
}

// New returns a Controller that must be started with Run.
func New(name string, fn Func, opts Options) *Controller {
	workers := max(opts.Workers, 1)
	o := queue.Options{Name: name, PerNamespace: workers}
	if l := opts.Limiter; l != nil {
		fn = forgetting(fn, l)
		o.Pause = func(key cache.ObjectName, _ error, _ int) time.Duration { return l.When(key) }
	}
	return &Controller{name: name, queue: queue.NewPool(workers, nil).Queue(fn, o)}
}

// forgetting has l count failures in a row.
func forgetting(fn Func, l workqueue.TypedRateLimiter[cache.ObjectName]) Func {
	return func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
		again, err := fn(ctx, key)
		if err == nil || errors.Is(err, ErrTerminal) {
			l.Forget(key)
		}
		return again, err
	}
}

// Add queues key. Adding a key that already waits is a no-op.
func (c *Controller) Add(key cache.ObjectName) { c.queue.Add(key, queue.User) }

// Watch queues keys(obj) for every object inf reports as added, changed or
// deleted. Run waits for the informers that were watched before to sync; Watch may
// also be called while it runs. The returned function detaches the handler and
// waits until it has ended.
func (c *Controller) Watch(inf cache.SharedIndexInformer, keys func(metav1.Object) []cache.ObjectName) (stop func(), err error) {
	enqueue := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(metav1.Object); ok {
			for _, key := range keys(o) {
				c.Add(key)
			}
		}
	}
	reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(before, after any) {
			enqueue(before) // a mapping may have moved, so both ends need a look
			enqueue(after)
		},
		DeleteFunc: enqueue,
	})
	if err != nil {
		return nil, fmt.Errorf("watch for controller %s: %w", c.name, err)
	}
	c.mu.Lock()
	c.synced = append(c.synced, reg.HasSyncedChecker())
	c.mu.Unlock()
	return func() { _ = cache.ShutDownEventHandler(inf, reg) }, nil
}

// Self is the keys argument of Watch for the controller's own objects.
func Self(o metav1.Object) []cache.ObjectName { return []cache.ObjectName{cache.MetaObjectToName(o)} }

// ShutDown ends a Controller that may never run; Run does so by itself.
func (c *Controller) ShutDown() { c.queue.Close() }

// Run works the queue until ctx is done and every call in flight has returned; it
// then returns nil, also if the informers never synced. It can be called once.
//
// A call that fails is repeated with growing delays. Conflicts are repeated
// without a word, unless there are many in a row; ErrTerminal is not repeated.
func (c *Controller) Run(ctx context.Context) error {
	c.mu.Lock()
	synced := slices.Clone(c.synced)
	c.mu.Unlock()
	if !cache.WaitFor(ctx, "", synced...) {
		c.ShutDown()
		return nil // ctx is done
	}
	c.queue.Run(ctx)
	return nil
}

// ErrTerminal marks an error that a retry cannot cure. Wrap it with %w.
var ErrTerminal = fates.ErrTerminal
