// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/limit"
	"github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A reconciler keeps tenants complete.
type reconciler struct {
	Clients

	opts    *Options
	tenants *Tenants
	caches  *Caches
	Quotas  *quotas
	logins  *Logins
	locks   *tenantLocks
	passes  sync.Map // of pass: the last one over each tenant
}

// tenantLocks give each tenant to one pass at a time: what a removal takes, a pass that began
// before it must not give back.
type tenantLocks struct {
	mu       sync.Mutex
	byTenant map[string]*tenantLock // that a pass has locked or waits for
}

type tenantLock struct {
	sync.Mutex
	users int
}

// lock waits for the tenant, and returns what gives it back.
func (l *tenantLocks) lock(tenant string) (done func()) {
	l.mu.Lock()
	one := l.byTenant[tenant]
	if one == nil {
		if l.byTenant == nil {
			l.byTenant = map[string]*tenantLock{}
		}
		one = &tenantLock{}
		l.byTenant[tenant] = one
	}
	one.users++
	l.mu.Unlock()
	one.Lock()
	return func() {
		one.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.byTenant, tenant)
		}
	}
}

// Reconcile keeps what bind made, and renews its credential in time. A
// tenant that looks as it did is left alone until then.
func (r *reconciler) Reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	again, err := r.pass(ctx, key)
	return again, errors.Join(err, r.tell(ctx, key.Name, err))
}

// tell says on the ClusterBinding of a tenant why it cannot be kept, once people are to be told, and
// that it can be again.
func (r *reconciler) tell(ctx context.Context, tenant string, err error) error {
	binding, ok := Lookup(r.caches.ClusterBindings, cache.NewObjectName(tenant, v1alpha1.ClusterBindingName))
	if !ok || binding.DeletionTimestamp != nil {
		return nil
	}
	kept, refused := v1alpha1.True(v1alpha1.ConditionKept), AsRefusal(err)
	switch {
	case refused != nil:
		kept = v1alpha1.False(kept.Type, v1alpha1.SeverityWarning, refused.Reason, refused.Message)
	case fates.IsTold(ctx, err):
		kept = v1alpha1.False(kept.Type, v1alpha1.SeverityWarning, reasonRefused, Against("a step for the rights and the credential of the tenant", err))
	case err != nil || v1alpha1.FindCondition(binding.Status.Conditions, kept.Type) == nil:
		return nil //nolint:nilerr // it may be a moment's
	}
	return status.Write(ctx, r.Dyn.Resource(ClusterBindingResource).Namespace(tenant), binding, func(o *v1alpha1.ClusterBinding) {
		kept.ObservedGeneration = o.Generation
		o.Status.Conditions = v1alpha1.Summarize(v1alpha1.SetCondition(o.Status.Conditions, kept), o.Generation)
	})
}

func (r *reconciler) pass(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if _, ok, err := r.caches.HolderIn(ctx, key.Name); !ok {
		r.passes.Delete(key.Name)
		r.logins.noted.Delete(key.Name)
		r.logins.authorizations.Forget(key.Name)
		return 0, err
	}
	defer r.locks.lock(key.Name)()
	if r.caches.Leaving(key.Name) {
		r.passes.Delete(key.Name)
		return 0, nil
	}
	seen := r.caches.snapshot(key.Name)
	if left := r.left(key.Name, seen); left > 0 {
		return left, nil
	}
	if err := r.tenants.Rights.Enter(ctx, key.Name, v1alpha1.BackendTenantRole); err != nil {
		return 0, err
	}
	if yes, again, err := r.unrecorded(ctx, key.Name); yes || err != nil {
		return again, err
	}
	again, err := r.Keep(ctx, key.Name)
	if err == nil {
		r.passes.Store(key.Name, pass{seen, time.Now().Add(again)})
	}
	return again, err
}

// Keep makes what is missing of a tenant, and says when it has to be looked at again.
func (r *reconciler) Keep(ctx context.Context, tenant string) (again time.Duration, err error) {
	if err := r.tenants.furnish(ctx, tenant); err != nil && !errors.Is(err, ErrTerminating) {
		return 0, err
	}
	capped, err := r.Quotas.capTenant(ctx, tenant)
	if err != nil {
		return 0, err
	}
	if yes, err := r.logins.renewable(ctx, tenant); !yes || err != nil {
		return sooner(capped, r.opts.ReviewInterval), err
	}
	_, renew, err := r.tenants.Credentials.Current(ctx, tenant, r.opts.Pauses.Settle)
	return sooner(renew, capped), err
}

// A pass is the last one over a tenant: until due it is not repeated if the tenant looks the
// same.
type pass struct {
	seen snapshot
	due  time.Time
}

// left is how long a tenant that looks like that can be left alone.
func (r *reconciler) left(tenant string, seen snapshot) time.Duration {
	last, _ := r.passes.Load(tenant)
	if last, ok := last.(pass); ok && last.seen == seen {
		return time.Until(last.due)
	}
	return 0
}

// unrecorded tells whether a tenant namespace has no record yet, and deletes it if it
// will never have one: a bind did not come to its end there, so that no credential
// was handed out. Again says when that can be told.
func (r *reconciler) unrecorded(ctx context.Context, name string) (yes bool, again time.Duration, err error) {
	binding, ok := Lookup(r.caches.ClusterBindings, cache.NewObjectName(name, v1alpha1.ClusterBindingName))
	if ok && !binding.Status.LastHeartbeatTime.IsZero() {
		return false, 0, nil
	}
	if _, _, err = r.tenants.Records.Read(ctx, name); !errors.Is(err, errNoRecord) {
		return false, 0, err
	}
	ns, err := r.caches.namespace(ctx, name)
	if err != nil {
		return true, 0, IgnoreNotFound(err)
	}
	if left := r.opts.Pauses.Bind - time.Since(ns.GetCreationTimestamp().Time); left > 0 {
		return true, left, nil
	}
	return true, 0, r.deleteUnused(ctx, ns)
}

// deleteUnused deletes a tenant namespace, unless anything was ever asked for or
// granted there.
func (r *reconciler) deleteUnused(ctx context.Context, ns metav1.Object) error {
	for _, gvr := range []schema.GroupVersionResource{ExportResource, NamespaceResource} {
		list, err := r.Dyn.Resource(gvr).Namespace(ns.GetName()).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return fmt.Errorf("list %s of %s: %w", gvr.Resource, ns.GetName(), err)
		}
		if len(list.Items) > 0 {
			return nil
		}
	}
	err := r.deleteNamespace(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.GetName(), UID: ns.GetUID()}}, metav1.DeleteOptions{})
	if err == nil {
		audit.Record(ctx, "tenant without a record deleted", "tenant", ns.GetName())
	}
	return err
}

// Controllers keep tenants, and take them away. They run at one replica.
type Controllers struct {
	Tenants         *reconciler
	ClusterBindings *clusterBindings
	Namespaces      *serviceNamespaces
	Prefixed        *prefixed
	Authorizations  *Authorizations
	Logins          *Logins
}

// NewControllers returns the controllers of tenants, which see what the caches hold.
func NewControllers(t *Tenants, seen *Caches, resourceOf resourceOf) *Controllers {
	known := &Authorizations{opts: t.Opts, records: t.Records, caches: seen}
	logins := &Logins{opts: t.Opts, authorizations: known}
	gates := &gates{t.Opts, seen}
	quotas := &quotas{Clients: t.Clients, opts: t.Opts, caches: seen}
	contents := &contents{t.Clients, t.Rights, resourceOf, quotas.unknown}
	breaker, locks := &removalBreaker{t.Opts, seen}, new(tenantLocks)
	return &Controllers{
		Authorizations: known, Logins: logins,
		Tenants: &reconciler{Clients: t.Clients, opts: t.Opts, tenants: t, caches: seen, Quotas: quotas, logins: logins, locks: locks},
		ClusterBindings: &clusterBindings{
			Clients: t.Clients, opts: t.Opts, caches: seen, gates: gates, logins: logins,
			removals: &removals{Clients: t.Clients, rights: t.Rights, contents: contents, breaker: breaker, locks: locks},
		},
		Prefixed: &prefixed{t.Clients, t.Opts, t.Rights, seen, gates, locks},
		Namespaces: &serviceNamespaces{
			Clients: t.Clients, opts: t.Opts, tenants: t, caches: seen, gates: gates, quotas: quotas, contents: contents, breaker: breaker,
			begins: limit.PerMinute(t.Opts.Caps.newNamespaces()),
		},
	}
}
