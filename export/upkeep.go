// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// reconcileTenant keeps what bindTenant made, and renews its credential in time. A
// tenant that looks as it did is left alone until then: its konnector's heartbeats
// bring us here every few minutes.
func (c *control) reconcileTenant(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if _, ok, err := c.holderIn(ctx, key.Name); !ok {
		c.passes.Delete(key.Name)
		c.logins.Delete(key.Name)
		c.standings.forget(key.Name)
		return 0, err
	}
	if c.leaving(key.Name) {
		c.passes.Delete(key.Name)
		return 0, nil
	}
	seen := c.sight(key.Name)
	if left := c.left(key.Name, seen); left > 0 {
		return left, nil
	}
	if err := c.enter(ctx, key.Name, v1alpha1.BackendTenantRole); err != nil {
		return 0, err
	}
	if yes, again, err := c.unrecorded(ctx, key.Name); yes || err != nil {
		return again, err
	}
	again, err := c.keep(ctx, key.Name)
	if err == nil {
		c.passes.Store(key.Name, pass{seen, time.Now().Add(again)})
	}
	return again, err
}

// keep makes what is missing of a tenant, and says when it has to be looked at again.
func (c *control) keep(ctx context.Context, tenant string) (again time.Duration, err error) {
	if err := c.furnish(ctx, tenant); err != nil && !errors.Is(err, errTerminating) {
		return 0, err
	}
	capped, err := c.capTenant(ctx, tenant)
	if err != nil {
		return 0, err
	}
	if yes, err := c.renewable(ctx, tenant); !yes || err != nil {
		return sooner(capped, c.opts.ReviewInterval), err
	}
	_, renew, err := c.credential(ctx, tenant, c.revocation)
	return sooner(renew, capped), err
}

// A sight is what the caches show of a tenant that tells whether something of it may
// be missing.
type sight struct {
	namespace, binding     types.UID
	anchor                 string // that the last login made
	account, rights, entry string // their versions
}

// sight returns that of a tenant.
func (c *control) sight(tenant string) (s sight) {
	if ns, ok := stored(c.owned, tenant); ok {
		s.namespace = ns.GetUID()
	}
	if binding, ok := stored(c.clusterBindings, tenant+"/"+v1alpha1.ClusterBindingName); ok {
		s.binding, s.anchor = binding.GetUID(), binding.GetAnnotations()[v1alpha1.AnchorAnnotation]
	}
	if account, ok := stored(c.accounts, tenant+"/"+v1alpha1.TenantServiceAccount); ok {
		s.account = account.GetResourceVersion()
	}
	if rights, ok := stored(c.bindings, tenant+"/"+v1alpha1.TenantServiceAccount); ok {
		s.rights = rights.GetResourceVersion()
	}
	if entry, ok := stored(c.entries, tenant+"/"+v1alpha1.BackendRoleBinding); ok {
		s.entry = entry.GetResourceVersion()
	}
	return s
}

// A pass over a tenant need not be repeated before it is due if the tenant looks the
// same.
type pass struct {
	seen sight
	due  time.Time
}

// left is how long a tenant that looks like that can be left alone.
func (c *control) left(tenant string, seen sight) time.Duration {
	last, _ := c.passes.Load(tenant)
	if last, ok := last.(pass); ok && last.seen == seen {
		return time.Until(last.due)
	}
	return 0
}
