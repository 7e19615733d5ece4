// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Caps bound what one identity and one tenant can make the Control Plane Cluster
// hold. Zero means the default, less than zero no cap. A cap that is lowered takes
// nothing away from those who are beyond it.
type Caps struct {
	// Tenants of all identities together. Default 5000.
	Tenants int
	// PerIdentity is how many App Clusters one identity may bind. Default 50.
	PerIdentity int
	// Namespaces is how many service namespaces one tenant may have. Default 200.
	Namespaces int
	// Objects is how many objects of each exported API may be in one service
	// namespace: a ResourceQuota says so, which the backend leaves alone when it
	// carries the annotation [CreateOnlyAnnotation]. Default 1000.
	Objects int
}

// CreateOnlyAnnotation on a ResourceQuota of the backend, with whatever value, says
// that somebody else decides about it from now on.
const CreateOnlyAnnotation = v1alpha1.CreateOnlyAnnotation

// maxRequests is how many APIServiceExportRequests one tenant may have at a time.
const maxRequests = 100

// reasonTooMany is why a service namespace beyond the cap is not made, nor a request
// answered that asks for too much at once.
const reasonTooMany = "TooMany"

// errCapped says that there are as many as there may be.
var errCapped = errors.New("is one too many")

func (c Caps) withDefaults() Caps {
	return Caps{cmp.Or(c.Tenants, 5000), cmp.Or(c.PerIdentity, 50), cmp.Or(c.Namespaces, 200), cmp.Or(c.Objects, 1000)}
}

// capTenants returns an error that wraps errCapped if there would be more tenants than
// may be, or more of h's identity, once there were so many more.
func (e *Exporter) capTenants(ctx context.Context, h holder, more int) error {
	caps := e.opts.Caps
	if caps.Tenants < 0 && caps.PerIdentity < 0 {
		return nil
	}
	list, err := e.meta.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.TenantLabel + ",!" + v1alpha1.AppNamespaceLabel,
	})
	if err != nil {
		return fmt.Errorf("count tenants: %w", err)
	}
	all, own := more, more
	for _, ns := range list.Items {
		if other, ok := holderOf(&ns); ok {
			all++
			own += one(other.Issuer == h.Issuer && other.Subject == h.Subject)
		}
	}
	switch {
	case caps.PerIdentity >= 0 && own > caps.PerIdentity:
		return fmt.Errorf("the App Cluster %s %w: you have bound %d, and the platform allows no more", h.Cluster, errCapped, caps.PerIdentity)
	case caps.Tenants >= 0 && all > caps.Tenants:
		return fmt.Errorf("the App Cluster %s %w: the platform has no room for more than %d", h.Cluster, errCapped, caps.Tenants)
	}
	return nil
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// ensureTenantNamespace makes the namespace of a tenant unless that is one too many.
// It counts before and after: of many that come at once none stays beyond a cap,
// though some may be refused that would have fitted.
func (e *Exporter) ensureTenantNamespace(ctx context.Context, h holder) (string, error) {
	name := h.namespace(e.opts.NamespacePrefix)
	_, err := e.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return name, e.ensureNamespace(ctx, name, name, h.annotations(), h.labels())
	}
	if err := e.capTenants(ctx, h, 1); err != nil {
		return "", err
	}
	if err := e.ensureNamespace(ctx, name, name, h.annotations(), h.labels()); err != nil {
		return "", err
	}
	if err := e.capTenants(ctx, h, 0); err != nil {
		return "", errors.Join(err, e.undoTenant(ctx, name))
	}
	return name, nil
}

// undoTenant deletes a tenant namespace in which nothing has been made yet.
func (e *Exporter) undoTenant(ctx context.Context, name string) error {
	ns, err := e.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = e.deleteNamespace(ctx, ns)
	}
	return ignoreNotFound(err)
}

// deleteNamespace deletes exactly the namespace that was read.
func (e *Exporter) deleteNamespace(ctx context.Context, ns *corev1.Namespace) error {
	err := e.kube.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ns.UID}})
	if err := ignoreNotFound(err); err != nil {
		return fmt.Errorf("delete namespace %s: %w", ns.Name, err)
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// capNamespaces returns a *refusal if asked is beyond the cap: those that have their
// service namespace come first, then the older ones.
func (c *control) capNamespaces(asked *v1alpha1.APIServiceNamespace) error {
	most := c.opts.Caps.Namespaces
	if most < 0 || asked.Status.Namespace != "" {
		return nil
	}
	before := 0
	for _, other := range inNamespace(c.namespaces, asked.Namespace) {
		before += one(other.Name != asked.Name && (other.Status.Namespace != "" || older(other, asked)))
	}
	if before < most {
		return nil
	}
	return &refusal{reason: reasonTooMany, message: fmt.Sprintf("a tenant may have %d service namespaces, and this one would be one more", most)}
}

func older(a, b metav1.Object) bool {
	x, y := a.GetCreationTimestamp().Time, b.GetCreationTimestamp().Time
	return x.Before(y) || x.Equal(y) && a.GetName() < b.GetName()
}

// quotaDelay is how old a CRD has to be before a quota may name it: the API server
// refuses all objects of a kind that nobody counts yet, and kube-controller-manager
// looks for new kinds twice a minute.
const quotaDelay = 2 * time.Minute

// countable returns how long it takes until objects of a resource are counted.
func (c *control) countable(resource string) time.Duration {
	crd, ok := stored(c.crds, resource)
	if !ok {
		return 0 // not a custom resource
	}
	return max(0, time.Until(crd.GetCreationTimestamp().Add(c.quotaDelay)))
}

// capTenant puts a quota on a tenant namespace, for what a tenant can make there.
func (c *control) capTenant(ctx context.Context, tenant string) (again time.Duration, err error) {
	caps := map[string]int{requestResource.GroupResource().String(): maxRequests}
	if n := c.opts.Caps.Namespaces; n >= 0 {
		caps[namespaceResource.GroupResource().String()] = 2*n + 1 // those that wait beyond the cap say so
	}
	return c.ensureQuota(ctx, tenant, caps)
}

// capObjects puts a quota on a service namespace, for what its tenant can make there.
func (c *control) capObjects(ctx context.Context, namespace string, rules []rbacv1.PolicyRule) (again time.Duration, err error) {
	caps := map[string]int{}
	for _, rule := range rules {
		if c.opts.Caps.Objects >= 0 && slices.Contains(rule.Verbs, "create") {
			caps[ruleName(rule)] = c.opts.Caps.Objects
		}
	}
	return c.ensureQuota(ctx, namespace, caps)
}

// ensureQuota caps how many objects of each resource a namespace may hold. What
// cannot be counted yet is left out; again says when it can.
func (c *control) ensureQuota(ctx context.Context, namespace string, caps map[string]int) (again time.Duration, err error) {
	hard := corev1.ResourceList{}
	for name, n := range caps {
		left := c.countable(name)
		if again = max(again, left); left == 0 {
			hard[corev1.ResourceName("count/"+name)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	return again, c.writeQuota(ctx, namespace, hard)
}

func (c *control) writeQuota(ctx context.Context, namespace string, hard corev1.ResourceList) error {
	quotas := c.kube.CoreV1().ResourceQuotas(namespace)
	got, err := quotas.Get(ctx, v1alpha1.TenantServiceAccount, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && len(hard) == 0:
		return nil
	case apierrors.IsNotFound(err):
		_, err = quotas.Create(ctx, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantServiceAccount}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
		}, metav1.CreateOptions{})
	case err == nil && !metav1.HasAnnotation(got.ObjectMeta, CreateOnlyAnnotation) && !equality.Semantic.DeepEqual(got.Spec.Hard, hard):
		got.Spec.Hard = hard
		_, err = quotas.Update(ctx, got, metav1.UpdateOptions{})
	}
	return ensured(err, "resource quota", namespace)
}
