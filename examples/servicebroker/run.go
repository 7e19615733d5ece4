// SPDX-License-Identifier: Apache-2.0

package servicebroker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const workers = 4

type key struct {
	gvr schema.GroupVersionResource
	cache.ObjectName
}

// Served returns the serviceInstanceTypes of which there are CRDs.
func Served(api discovery.ServerResourcesInterface) (types []string, err error) {
	list, err := api.ServerResourcesForGroupVersion(group.String())
	if err != nil {
		return nil, fmt.Errorf("what is served of %s: %w; apply the catalog's crds and services first", group, err)
	}
	for _, r := range list.APIResources {
		if name, ok := strings.CutSuffix(r.Name, ofType); ok {
			types = append(types, name)
		}
	}
	return types, nil
}

// Run carries out claims until ctx is done. The CRDs must be there.
func (c *Controller) Run(ctx context.Context) error {
	w := newWork(c)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer w.queue.ShutDown()
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c.Client, resync)
	names := slices.Collect(maps.Keys(parts))
	for _, name := range c.Types {
		names = append(names, name+ofType)
	}
	for _, name := range names {
		add := func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if u, ok := obj.(*unstructured.Unstructured); ok {
				for _, k := range touched(factory, name, u) {
					w.queue.Add(k)
				}
			}
		}
		update := func(old, obj any) {
			was, _ := old.(*unstructured.Unstructured)
			if is, ok := obj.(*unstructured.Unstructured); ok && was.GetGeneration() != is.GetGeneration() {
				w.orderedAnew(key{resource(name), cache.MetaObjectToName(is)})
			}
			add(obj)
		}
		_, err := factory.ForResource(resource(name)).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: update, DeleteFunc: add})
		if err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for range workers {
		wg.Go(func() {
			for w.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	return nil
}

// touched returns the keys to reconcile when a claim changes: the claim; the instance that it
// names, whose deletion waits for its bindings; and the claims that name it.
func touched(factory dynamicinformer.DynamicSharedInformerFactory, resourceName string, u *unstructured.Unstructured) []key {
	at := func(resourceName, name string) key {
		return key{resource(resourceName), cache.NewObjectName(u.GetNamespace(), name)}
	}
	out := []key{at(resourceName, u.GetName())}
	if resourceName == "servicebindings" {
		out = append(out, at(text(u, "spec", "serviceInstanceType")+ofType, text(u, "spec", "instanceRef")))
	}
	for part := range parts {
		claims, _ := factory.ForResource(resource(part)).Lister().ByNamespace(u.GetNamespace()).List(labels.Everything()) // no error: it reads memory
		for _, obj := range claims {
			claim, ok := obj.(*unstructured.Unstructured)
			if ok && slices.Contains([]string{text(claim, "spec", "instanceRef"), text(claim, "spec", "backupRef")}, u.GetName()) {
				out = append(out, at(part, claim.GetName()))
			}
		}
	}
	return out
}

// A work is the queue of claims, and the pauses of those whose call failed.
type work struct {
	c       *Controller
	queue   workqueue.TypedDelayingInterface[key]
	limiter workqueue.TypedRateLimiter[key]
	mu      sync.Mutex
	pauses  map[key]time.Time
}

// newWork: a broker that fails is asked again after pauses that grow to five minutes, or as
// late as it wishes.
func newWork(c *Controller) *work {
	return &work{
		c: c, pauses: map[key]time.Time{},
		queue:   workqueue.NewTypedDelayingQueue[key](),
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[key](time.Second, 5*time.Minute),
	}
}

// next looks at one claim. An event does not end the pause of one that failed: the reason that
// is written on a claim is an event too.
func (w *work) next(ctx context.Context) bool {
	k, quit := w.queue.Get()
	if quit {
		return false
	}
	defer w.queue.Done(k)
	if pause := w.pause(k); pause > 0 {
		w.queue.AddAfter(k, pause)
		return true
	}
	again, err := w.c.Reconcile(ctx, k.gvr, k.Namespace, k.Name)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		again = max(again, w.limiter.When(k))
		// The broker's words are bounded, and have no credentials: those are in answers that succeed.
		logr.FromContextOrDiscard(ctx).Info("tries again", "resource", k.gvr.Resource, "object", k.String(), "in", again.String(), "cause", err.Error())
		w.rest(k, again)
	default:
		w.limiter.Forget(k)
	}
	if again > 0 {
		w.queue.AddAfter(k, again)
	}
	return true
}

// pause is how long k is not looked at yet.
func (w *work) pause(k key) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	pause := time.Until(w.pauses[k])
	if pause <= 0 {
		delete(w.pauses, k)
	}
	return pause
}

func (w *work) rest(k key, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pauses[k] = time.Now().Add(pause)
}

// orderedAnew: what the owner has changed, or deletes, is looked at without a pause.
func (w *work) orderedAnew(k key) {
	w.limiter.Forget(k)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pauses, k)
}
