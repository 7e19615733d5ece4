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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		gvr := resource(name)
		add := func(obj any) {
			if o, ok := obj.(metav1.Object); ok {
				queue.Add(key{gvr, cache.MetaObjectToName(o)})
			}
		}
		_, err := factory.ForResource(gvr).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }})
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
