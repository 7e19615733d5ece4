// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A breaker holds the removals of tenants when too many come at once.
type breaker struct {
	opts   *Options
	caches *Caches
}

// whyHeld returns why the removal of a tenant has to wait, or nil. A removal with a policy waits
// for removalGrace, so that many that come together are seen as many; while more than
// RemovalsAtOnce are under way, each waits until its ClusterBinding has the release annotation.
func (b *breaker) whyHeld(binding *v1alpha1.ClusterBinding) *RefusalError {
	most := b.opts.RemovalsAtOnce
	if most < 0 || !breaks(binding) {
		return nil
	}
	if time.Since(binding.DeletionTimestamp.Time) < removalGrace {
		return Refuse(v1alpha1.ReasonRemovalPending, "the removal begins in a few seconds")
	}
	n := 0
	for _, obj := range b.caches.ClusterBindings.GetStore().List() {
		other, ok := obj.(*v1alpha1.ClusterBinding)
		n += One(ok && other.DeletionTimestamp != nil && breaks(other) && b.ofTenant(other))
	}
	if n <= most {
		return nil
	}
	return Refuse(v1alpha1.ReasonRemovalHeld, fmt.Sprintf(
		"%d tenants are being removed at once, more than %d: if it is meant, annotate this object with %s=true", n, most, v1alpha1.ReleaseAnnotation))
}

// ofTenant tells whether the removal of a ClusterBinding is that of a tenant, and not over.
func (b *breaker) ofTenant(binding *v1alpha1.ClusterBinding) bool {
	ns, ok := stored(b.caches.Owned, binding.Namespace)
	if !ok || !slices.Contains(binding.Finalizers, v1alpha1.TenantFinalizer) {
		return false
	}
	_, ok = holderOf(ns)
	return ok
}

// breaks tells whether the removal of a tenant takes something from it that was not
// released.
func breaks(binding *v1alpha1.ClusterBinding) bool {
	return binding.Spec.DeletionPolicy != "" && !metav1.HasAnnotation(binding.ObjectMeta, v1alpha1.ReleaseAnnotation)
}

// removing returns the ClusterBinding of a tenant that is being removed at this moment.
func (b *breaker) removing(tenant string) (*v1alpha1.ClusterBinding, bool) {
	binding, ok := Lookup(b.caches.ClusterBindings, cache.NewObjectName(tenant, v1alpha1.ClusterBindingName))
	return binding, ok && terminating(binding) && b.whyHeld(binding) == nil
}
