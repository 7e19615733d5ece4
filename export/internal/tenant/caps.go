// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// MaxRequests is how many APIServiceExportRequests one tenant may have at a time.
const MaxRequests = 100

// ReasonTooMany is why a service namespace beyond the cap is not made, nor a request
// answered that asks for too much at once.
const ReasonTooMany = "TooMany"

// quotas cap what tenants can make in their namespaces.
type quotas struct {
	Clients

	opts   *Options
	caches *Caches
}

// unknown returns for how long kube-controller-manager may not know a resource.
func (q *quotas) unknown(resource string) time.Duration {
	crd, ok := stored(q.caches.CRDs, resource)
	if !ok {
		return 0 // not a custom resource
	}
	return max(0, time.Until(crd.GetCreationTimestamp().Add(q.opts.Pauses.NewKind)))
}

// capTenant puts a quota on a tenant namespace, for what a tenant can make there.
func (q *quotas) capTenant(ctx context.Context, tenant string) (again time.Duration, err error) {
	caps := map[string]int{RequestResource.GroupResource().String(): MaxRequests}
	if n := q.opts.Caps.Namespaces; n >= 0 {
		caps[NamespaceResource.GroupResource().String()] = 2*n + 1 // a namespace that waits beyond the cap says so
	}
	return q.Ensure(ctx, tenant, caps, false)
}

// capObjects puts a quota on a service namespace, for what its tenant can make there.
func (q *quotas) capObjects(ctx context.Context, namespace string, rules []rbacv1.PolicyRule, fresh bool) (again time.Duration, err error) {
	caps := map[string]int{}
	for _, rule := range rules {
		if q.opts.Caps.Objects >= 0 && slices.Contains(rule.Verbs, "create") {
			caps[ruleName(rule)] = q.opts.Caps.Objects
		}
	}
	return q.Ensure(ctx, namespace, caps, fresh)
}

// Ensure caps how many objects of each resource a namespace may hold. What
// cannot be counted yet is left out; again says when it can.
func (q *quotas) Ensure(ctx context.Context, namespace string, caps map[string]int, fresh bool) (again time.Duration, err error) {
	hard := corev1.ResourceList{}
	for name, n := range caps {
		left := q.unknown(name)
		if again = max(again, left); left == 0 {
			hard[corev1.ResourceName("count/"+name)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	return again, q.write(ctx, namespace, hard, fresh)
}

func (q *quotas) write(ctx context.Context, namespace string, hard corev1.ResourceList, fresh bool) error {
	quotas := q.Kube.CoreV1().ResourceQuotas(namespace)
	wanted := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CapsQuota}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	got, _, err := obtain(fresh,
		func() (*corev1.ResourceQuota, error) { return quotas.Get(ctx, wanted.Name, metav1.GetOptions{}) },
		func() (*corev1.ResourceQuota, error) {
			if len(hard) == 0 {
				return wanted, nil // there need not be one
			}
			return quotas.Create(ctx, wanted, metav1.CreateOptions{})
		})
	if err == nil && !metav1.HasAnnotation(got.ObjectMeta, v1alpha1.CreateOnlyAnnotation) && !equality.Semantic.DeepEqual(got.Spec.Hard, hard) {
		got.Spec.Hard = hard
		_, err = quotas.Update(ctx, got, metav1.UpdateOptions{})
	}
	return ensured(err, "resource quota", namespace)
}
