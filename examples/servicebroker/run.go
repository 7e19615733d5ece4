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
	// A broker that is down is asked again after pauses that grow to five minutes.
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](time.Second, 5*time.Minute))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer queue.ShutDown()
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
					queue.Add(k)
				}
			}
		}
		_, err := factory.ForResource(resource(name)).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }, DeleteFunc: add,
		})
		if err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for range workers {
		wg.Go(func() {
			for c.next(ctx, queue) {
			}
		})
	}
	<-ctx.Done()
	return nil
}

// touched returns what is looked at when a claim changes: the claim, the instance that it
// names, which waits for its bindings, and the claims that name it.
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

func (c *Controller) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[key]) bool {
	k, quit := queue.Get()
	if quit {
		return false
	}
	defer queue.Done(k)
	again, err := c.Reconcile(ctx, k.gvr, k.Namespace, k.Name)
	switch {
	case err != nil && ctx.Err() == nil:
		// The broker's words are bounded, and have no credentials: those are in answers that succeed.
		logr.FromContextOrDiscard(ctx).Info("tries again", "resource", k.gvr.Resource, "object", k.String(), "cause", err.Error())
		queue.AddRateLimited(k)
	case again > 0:
		queue.Forget(k)
		queue.AddAfter(k, again)
	default:
		queue.Forget(k)
	}
	return true
}
