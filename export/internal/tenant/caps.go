// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// MaxRequests is how many APIServiceExportRequests one tenant may have at a time.
const MaxRequests = 100

// ReasonTooMany is why a service namespace beyond the cap is not made, nor a request
// answered that asks for too much at once.
const ReasonTooMany = "TooMany"

// newNamespaces is how many service namespaces a tenant may begin at once, and then a minute: as many as it may have.
func (l Limits) newNamespaces() int {
	if l.Namespaces < 0 {
		return 0 // without a limit
	}
	return max(l.Namespaces, MaxRequests)
}

// quotas cap what tenants can make in their namespaces.
type quotas struct {
	Clients

	opts      *Options
	caches    *Caches
	uncounted sync.Map // of uncounted, by namespace
}

// An uncounted is a quota of which kube-controller-manager has not counted what its hard limits name: until
// then API servers refuse each object of the kinds that are missing.
type uncounted struct {
	times int       // it was asked to count anew
	next  time.Time // not before the next time
}

const (
	// youngKind is how old a CRD is of which kube-controller-manager surely knows whether it can count it.
	youngKind = time.Hour
	// countedWithin is how long it may take to count.
	countedWithin = 15 * time.Second
)

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
	hard, young := corev1.ResourceList{}, false
	for name, n := range caps {
		left := q.unknown(name)
		crd, ok := stored(q.caches.CRDs, name)
		young = young || ok && time.Since(crd.GetCreationTimestamp().Time) < youngKind
		if again = max(again, left); left == 0 {
			hard[corev1.ResourceName("count/"+name)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	got, err := q.write(ctx, namespace, hard, fresh)
	if _, known := q.uncounted.Load(namespace); err != nil || !young && !known {
		return again, err
	}
	counted, err := q.recount(ctx, got)
	return sooner(again, counted), err
}

// recount has kube-controller-manager count a quota that it has left uncounted, and says when to look again; 0 if it
// is counted. A kind that comes back after its CRD was gone cannot be counted at first, and the pauses between attempts
// grow up to a quarter of an hour; but limits that change are counted at once. So the backend sets the limits that
// are not counted to 0, so that they hold meanwhile, and back, with growing pauses of its own.
func (q *quotas) recount(ctx context.Context, got *corev1.ResourceQuota) (again time.Duration, err error) {
	changed, missing := maps.Clone(got.Spec.Hard), 0
	for name := range changed {
		if _, counted := got.Status.Used[name]; !counted {
			changed[name] = resource.Quantity{}
			missing++
		}
	}
	if missing == 0 || metav1.HasAnnotation(got.ObjectMeta, v1alpha1.CreateOnlyAnnotation) {
		q.uncounted.Delete(got.Namespace)
		return 0, nil
	}
	kept, waits := q.uncounted.LoadOrStore(got.Namespace, uncounted{next: time.Now().Add(countedWithin)})
	u, _ := kept.(uncounted)
	if left := time.Until(u.next); left > 0 || !waits {
		return max(left, time.Millisecond), nil
	}
	for _, hard := range []corev1.ResourceList{changed, got.Spec.Hard} {
		if _, err := q.write(ctx, got.Namespace, hard, false); err != nil {
			return 0, err
		}
	}
	u.times++
	pause := min(countedWithin<<min(u.times-1, 6), fates.Forbidden.Longest())
	u.next = time.Now().Add(pause)
	q.uncounted.Store(got.Namespace, u)
	logr.FromContextOrDiscard(ctx).Info("resource quota is not counted, limits set anew", "namespace", got.Namespace, "times", u.times)
	return pause, nil
}

func (q *quotas) write(ctx context.Context, namespace string, hard corev1.ResourceList, fresh bool) (*corev1.ResourceQuota, error) {
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
		got, err = quotas.Update(ctx, got, metav1.UpdateOptions{})
	}
	return got, ensured(err, "resource quota", namespace)
}
