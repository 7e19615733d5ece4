// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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

// ErrCapped says that there are as many as there may be.
var ErrCapped = errors.New("is one too many")

// capTenants returns an error that wraps ErrCapped if there would be more tenants than
// may be, or more of h's identity, once there were so many more.
func (t *Tenants) capTenants(ctx context.Context, h Holder, more int) error {
	caps := t.Opts.Caps
	if caps.Tenants < 0 && caps.PerIdentity < 0 {
		return nil
	}
	list, err := t.Meta.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.TenantLabel + ",!" + v1alpha1.AppNamespaceLabel,
	})
	if err != nil {
		return fmt.Errorf("count tenants: %w", err)
	}
	all, own := more, more
	for _, ns := range list.Items {
		if other, ok := HolderOf(&ns); ok {
			all++
			own += One(other.Issuer == h.Issuer && other.Subject == h.Subject)
		}
	}
	switch {
	case caps.PerIdentity >= 0 && own > caps.PerIdentity:
		return fmt.Errorf("the App Cluster %s %w: you have bound %d, and the platform allows no more", h.Cluster, ErrCapped, caps.PerIdentity)
	case caps.Tenants >= 0 && all > caps.Tenants:
		return fmt.Errorf("the App Cluster %s %w: the platform has no room for more than %d", h.Cluster, ErrCapped, caps.Tenants)
	}
	return nil
}

// One is 1 for yes and 0 for no.
func One(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// EnsureTenantNamespace makes the namespace of a tenant unless that is one too many.
// It counts before and after: of many that come at once none stays beyond a cap,
// though some may be refused that would have fitted.
func (t *Tenants) EnsureTenantNamespace(ctx context.Context, h Holder) (string, error) {
	name := h.Namespace(t.Opts.NamespacePrefix)
	_, err := t.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !fates.Is(err, fates.Absent) {
		return name, t.ensureNamespace(ctx, name, name, h.ownAnnotation(), h.labels())
	}
	annotations := h.Annotations()
	switch klutchs, err := t.elsewhere(ctx, h); {
	case err != nil:
		return "", err
	case klutchs != nil && isAdopted(klutchs):
		return klutchs.Name, owned(klutchs, klutchs.Name, h.ownAnnotation())
	case klutchs != nil && !t.Opts.BesideKlutch:
		return "", fmt.Errorf("namespace %s %w: it is your tenant at Klutch's backend, and the platform team has that taken over with: backend adopt-tenants --tenant %s",
			klutchs.Name, ErrForeign, klutchs.Name)
	case klutchs != nil:
		annotations = h.ownAnnotation() // Klutch's backend serves nobody whom two namespaces name
	}
	if err := t.capTenants(ctx, h, 1); err != nil {
		return "", err
	}
	if err := t.ensureNamespace(ctx, name, name, annotations, h.labels()); err != nil {
		return "", err
	}
	if err := t.capTenants(ctx, h, 0); err != nil {
		return "", errors.Join(err, t.undoTenant(ctx, name))
	}
	return name, nil
}

// elsewhere returns the namespace of h that Klutch's backend made, be it adopted or not; nil
// if there is none.
func (t *Tenants) elsewhere(ctx context.Context, h Holder) (*metav1.PartialObjectMetadata, error) {
	opts := metav1.ListOptions{Limit: namespacesPage}
	for identity := h.Annotations()[v1alpha1.IdentityAnnotation]; ; {
		list, err := t.Meta.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("look for a tenant of Klutch's backend: %w", err)
		}
		for i := range list.Items {
			ns := &list.Items[i]
			held, ours := HolderOf(ns)
			if ns.Annotations[v1alpha1.IdentityAnnotation] == identity && (!ours || held == h && isAdopted(ns)) {
				return ns, nil
			}
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return nil, nil //nolint:nilnil // none is an answer
		}
	}
}

const namespacesPage = 500 // namespaces a request

// undoTenant deletes a tenant namespace in which nothing has been made yet.
func (t *Tenants) undoTenant(ctx context.Context, name string) error {
	ns, err := t.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = t.deleteNamespace(ctx, ns)
	}
	return IgnoreNotFound(err)
}

// quotas cap what tenants can make in their namespaces.
type quotas struct {
	Clients

	opts   *Options
	caches *Caches
}

// countable returns how long it takes until objects of a resource are counted.
func (q *quotas) countable(resource string) time.Duration {
	crd, ok := stored(q.caches.CRDs, resource)
	if !ok {
		return 0 // not a custom resource
	}
	return max(0, time.Until(crd.GetCreationTimestamp().Add(q.opts.Pauses.Quota)))
}

// capTenant puts a quota on a tenant namespace, for what a tenant can make there.
func (q *quotas) capTenant(ctx context.Context, tenant string) (again time.Duration, err error) {
	caps := map[string]int{RequestResource.GroupResource().String(): MaxRequests}
	if n := q.opts.Caps.Namespaces; n >= 0 {
		caps[NamespaceResource.GroupResource().String()] = 2*n + 1 // those that wait beyond the cap say so
	}
	return q.Ensure(ctx, tenant, caps)
}

// capObjects puts a quota on a service namespace, for what its tenant can make there.
func (q *quotas) capObjects(ctx context.Context, namespace string, rules []rbacv1.PolicyRule) (again time.Duration, err error) {
	caps := map[string]int{}
	for _, rule := range rules {
		if q.opts.Caps.Objects >= 0 && slices.Contains(rule.Verbs, "create") {
			caps[ruleName(rule)] = q.opts.Caps.Objects
		}
	}
	return q.Ensure(ctx, namespace, caps)
}

// Ensure caps how many objects of each resource a namespace may hold. What
// cannot be counted yet is left out; again says when it can.
func (q *quotas) Ensure(ctx context.Context, namespace string, caps map[string]int) (again time.Duration, err error) {
	hard := corev1.ResourceList{}
	for name, n := range caps {
		left := q.countable(name)
		if again = max(again, left); left == 0 {
			hard[corev1.ResourceName("count/"+name)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	return again, q.write(ctx, namespace, hard)
}

func (q *quotas) write(ctx context.Context, namespace string, hard corev1.ResourceList) error {
	quotas := q.Kube.CoreV1().ResourceQuotas(namespace)
	got, err := quotas.Get(ctx, v1alpha1.TenantServiceAccount, metav1.GetOptions{})
	switch {
	case fates.Is(err, fates.Absent) && len(hard) == 0:
		return nil
	case fates.Is(err, fates.Absent):
		_, err = quotas.Create(ctx, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantServiceAccount}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
		}, metav1.CreateOptions{})
	case err == nil && !metav1.HasAnnotation(got.ObjectMeta, v1alpha1.CreateOnlyAnnotation) && !equality.Semantic.DeepEqual(got.Spec.Hard, hard):
		got.Spec.Hard = hard
		_, err = quotas.Update(ctx, got, metav1.UpdateOptions{})
	}
	return ensured(err, "resource quota", namespace)
}
