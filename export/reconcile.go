// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A reconciler keeps tenants complete.
type reconciler struct {
	clients

	opts    *options
	tenants *tenants
	caches  *caches
	quotas  *quotas
	logins  *logins
	passes  sync.Map // of pass: the last one over each tenant
}

// reconcile keeps what bind made, and renews its credential in time. A
// tenant that looks as it did is left alone until then: its konnector's heartbeats
// bring us here every few minutes.
func (r *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if _, ok, err := r.caches.holderIn(ctx, key.Name); !ok {
		r.passes.Delete(key.Name)
		r.logins.noted.Delete(key.Name)
		r.logins.authorizations.forget(key.Name)
		return 0, err
	}
	if r.caches.leaving(key.Name) {
		r.passes.Delete(key.Name)
		return 0, nil
	}
	seen := r.caches.snapshot(key.Name)
	if left := r.left(key.Name, seen); left > 0 {
		return left, nil
	}
	if err := r.tenants.rights.enter(ctx, key.Name, v1alpha1.BackendTenantRole); err != nil {
		return 0, err
	}
	if yes, again, err := r.unrecorded(ctx, key.Name); yes || err != nil {
		return again, err
	}
	again, err := r.keep(ctx, key.Name)
	if err == nil {
		r.passes.Store(key.Name, pass{seen, time.Now().Add(again)})
	}
	return again, err
}

// keep makes what is missing of a tenant, and says when it has to be looked at again.
func (r *reconciler) keep(ctx context.Context, tenant string) (again time.Duration, err error) {
	if err := r.tenants.furnish(ctx, tenant); err != nil && !errors.Is(err, errTerminating) {
		return 0, err
	}
	capped, err := r.quotas.capTenant(ctx, tenant)
	if err != nil {
		return 0, err
	}
	if yes, err := r.logins.renewable(ctx, tenant); !yes || err != nil {
		return sooner(capped, r.opts.ReviewInterval), err
	}
	_, renew, err := r.tenants.credentials.current(ctx, tenant, r.opts.Pauses.Settle)
	return sooner(renew, capped), err
}

// A snapshot is what the caches show of a tenant that tells whether something of it may
// be missing.
type snapshot struct {
	namespace, binding     types.UID
	anchor                 string // that the last login made
	account, rights, entry string // their versions
}

// A pass over a tenant need not be repeated before it is due if the tenant looks the
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
