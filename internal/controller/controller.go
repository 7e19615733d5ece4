// SPDX-License-Identifier: Apache-2.0

// Package controller runs a reconcile function for every name put on a queue.
//
// It is the only place in this module that touches a workqueue: a controller
// elsewhere is a name, a function, and the informers that feed it.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// A Func brings one object in line with its desired state. It is told only the
// object's name and must read everything else. A non-zero duration asks to be
// called again after that long.
type Func func(ctx context.Context, key cache.ObjectName) (again time.Duration, err error)

// Options tune a Controller. The zero value is ready to use.
type Options struct {
	Workers int                                          // concurrent calls of the Func; 0 means 1
	Limiter workqueue.TypedRateLimiter[cache.ObjectName] // delay after a failure; nil means client-go's default
}

// A Controller calls a Func for every key added to it.
type Controller struct {
	name    string
	fn      Func
	workers int
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]

	mu     sync.Mutex
	synced []cache.DoneChecker
}

// New returns a Controller that must be started with Run.
func New(name string, fn Func, opts Options) *Controller {
	if opts.Limiter == nil {
		opts.Limiter = workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
	}
	return &Controller{
		name:    name,
		fn:      fn,
		workers: max(opts.Workers, 1),
		queue:   workqueue.NewTypedRateLimitingQueueWithConfig(opts.Limiter, workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: name}),
	}
}

// Add queues key. Adding a key that already waits is a no-op.
func (c *Controller) Add(key cache.ObjectName) { c.queue.Add(key) }

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
				c.queue.Add(key)
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
func (c *Controller) ShutDown() { c.queue.ShutDown() }

// Run works the queue until ctx is done and every call in flight has returned; it
// then returns nil, also if the informers never synced. It can be called once.
//
// A call that fails is repeated with growing delays. Conflicts are repeated
// without a word, unless there are many in a row; ErrTerminal is not repeated.
func (c *Controller) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("controller", c.name)
	ctx = logr.NewContext(ctx, log)
	c.mu.Lock()
	synced := slices.Clone(c.synced)
	c.mu.Unlock()
	if !cache.WaitFor(ctx, "", synced...) {
		c.queue.ShutDown()
		return nil // ctx is done
	}
	var wg sync.WaitGroup
	for range c.workers {
		wg.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
	return nil
}

func (c *Controller) next(ctx context.Context) bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(key)
	log := logr.FromContextOrDiscard(ctx).WithValues("object", key.String())
	again, err := c.call(logr.NewContext(ctx, log), key)
	switch {
	case errors.Is(err, ErrTerminal):
		log.Error(err, "reconcile failed, not retrying")
		c.queue.Forget(key)
	case err != nil && ctx.Err() != nil:
		c.queue.Forget(key) // the end of Run is no failure
	case quiet(err) && c.queue.NumRequeues(key) < maxQuiet:
		log.V(4).Info("reconcile met a newer object, retrying", "reason", err.Error())
		c.queue.AddRateLimited(key)
	case err != nil:
		log.Error(err, "reconcile failed, retrying", "failures", c.queue.NumRequeues(key)+1)
		c.queue.AddRateLimited(key)
	default:
		c.queue.Forget(key)
		if again > 0 {
			c.queue.AddAfter(key, again)
		}
	}
	return true
}

// maxQuiet is the number of conflicts in a row that are nothing to tell anyone.
const maxQuiet = 5

// quiet reports whether err says only that someone else was faster.
func quiet(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func (c *Controller) call(ctx context.Context, key cache.ObjectName) (again time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.fn(ctx, key)
}

// ErrTerminal marks an error that a retry cannot cure. Wrap it with %w.
var ErrTerminal = errors.New("terminal")
