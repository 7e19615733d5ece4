// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/klutch-go/sdk/examples/catalog/engine"
)

const workers = 8

// Run carries out the claims of all namespaces of the cluster until ctx is done and
// everything in flight has returned. The CRDs must be there. It logs "ready" to the
// logger of ctx once it has seen every claim that exists. A data service without an
// engine, by serviceInstanceType, is a page of text in a ConfigMap.
func Run(ctx context.Context, config *rest.Config, engines map[string]engine.Engine) error {
	a, err := newAutomation(config, engines)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

type automation struct {
	world *world
	made  []cache.SharedIndexInformer // ConfigMaps and Secrets, metadata only
	queue workqueue.TypedRateLimitingInterface[key]
}

// A work is how claims of a kind are carried out.
type work struct {
	// carryOut brings the world in line with a claim and returns its
	// status.managed. The error may be a *hold.
	carryOut func(*world, context.Context, claim) (managed, error)
	// remove removes the object made for a claim; nil when none is made.
	remove func(*world, context.Context, claim) (gone bool, err error)
}

// workOf returns the work of a kind by its name.
func workOf(name string) work {
	switch name {
	case "ServiceBinding":
		return work{(*world).binding, (*world).removeBinding}
	case "Backup":
		return work{(*world).backup, (*world).removeBackup}
	case "Restore":
		return work{(*world).restore, nil}
	}
	return work{(*world).instance, (*world).removeInstance}
}

func newAutomation(config *rest.Config, engines map[string]engine.Engine) (*automation, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the API server has its own idea of fairness
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	a := &automation{
		world: &world{dyn: dyn, core: core, engines: engines, claims: claimInformers(dyn)}, made: madeInformers(meta),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[key]()),
	}
	return a, a.watch()
}

func (a *automation) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer a.queue.ShutDown()
	var synced []cache.DoneChecker
	for _, inf := range a.informers() {
		wg.Go(func() { inf.RunWithContext(ctx) })
		synced = append(synced, inf.HasSyncedChecker())
	}
	if !cache.WaitFor(ctx, "", synced...) {
		return nil // ctx is done
	}
	logr.FromContextOrDiscard(ctx).Info("ready")
	for range workers {
		wg.Go(func() {
			for a.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	return nil
}

func (a *automation) informers() []cache.SharedIndexInformer {
	out := slices.Clone(a.made)
	for _, inf := range a.world.claims {
		out = append(out, inf)
	}
	return out
}

// Next carries out one claim; false when there will be no more.
func (a *automation) next(ctx context.Context) bool {
	k, quit := a.queue.Get()
	if quit {
		return false
	}
	defer a.queue.Done(k)
	err := a.reconcile(ctx, k)
	if err == nil {
		a.queue.Forget(k)
		return true
	}
	log := logr.FromContextOrDiscard(ctx).WithValues("resource", k.resource, "claim", k.String())
	if quiet(err) {
		log.V(4).Info("retrying", "cause", err.Error())
	} else {
		log.Error(err, "retrying")
	}
	a.queue.AddRateLimited(k)
	return true
}

// Quiet reports whether another writer was faster, or the context has ended: both are
// ordinary.
func quiet(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, context.Canceled)
}

func (a *automation) reconcile(ctx context.Context, k key) error {
	c, found, err := a.world.claim(k)
	switch {
	case err != nil || !found:
		return err
	case c.GetDeletionTimestamp() != nil:
		return a.release(ctx, c)
	case c.suffix != "" && !slices.Contains(c.GetFinalizers(), Finalizer):
		if err := a.world.setFinalizers(ctx, c, append(c.GetFinalizers(), Finalizer)); err != nil {
			return err
		}
	}
	m, err := workOf(c.name).carryOut(a.world, ctx, c)
	return a.world.report(ctx, c, m, err)
}

// Release removes the object of a claim that is being deleted, and then the claim's
// finalizer.
func (a *automation) release(ctx context.Context, c claim) error {
	if !slices.Contains(c.GetFinalizers(), Finalizer) {
		return nil
	}
	gone, err := workOf(c.name).remove(a.world, ctx, c)
	if h, told := errors.AsType[*hold](err); told {
		return a.world.report(ctx, c, managed{"state": string(Deleting)}, h)
	}
	if err != nil {
		return err
	}
	if !gone {
		message := fmt.Sprintf("waiting until %s is gone", c.madeName())
		return a.world.report(ctx, c, managed{"state": string(Deleting)}, &hold{Deleting, string(Deleting), message})
	}
	others := slices.DeleteFunc(c.GetFinalizers(), func(f string) bool { return f == Finalizer })
	return a.world.setFinalizers(ctx, c, others)
}
