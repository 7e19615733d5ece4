// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	// removalGrace is how long nothing happens after a ClusterBinding was deleted that
	// the breaker counts, so that many that go at once are seen as many.
	removalGrace = 5 * time.Second
	removalRetry = 2 * time.Second // at first
)

// removeTenant takes a tenant away whose ClusterBinding is deleted: first its
// credential and rights, then its exports, its service namespaces with what is in
// them, and last the tenant namespace. Without a policy it waits until the App
// Cluster has deleted all its objects.
func (c *control) removeTenant(ctx context.Context, binding *v1alpha1.ClusterBinding) (time.Duration, error) {
	i := slices.Index(binding.Finalizers, v1alpha1.TenantFinalizer)
	if i < 0 {
		return 0, nil
	}
	if left := c.resting(binding); left > 0 {
		return left, nil
	}
	ns, err := c.kube.CoreV1().Namespaces().Get(ctx, binding.Namespace, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read tenant namespace: %w", err)
	}
	if _, ok := holderOf(ns); ok {
		if waits, err := c.drain(ctx, binding, ns); waits != nil || err != nil {
			return removalPace(binding), errors.Join(err, c.explain(ctx, binding, waits))
		}
	}
	c.looks.Delete(binding.UID)
	return 0, c.setFinalizers(ctx, clusterBindingResource, binding, slices.Delete(slices.Clone(binding.Finalizers), i, i+1))
}

// resting is how long a tenant is left alone that waits for its App Cluster: each look is a
// few requests for each of its namespaces, and what it writes must not have us look.
func (c *control) resting(binding *v1alpha1.ClusterBinding) time.Duration {
	if terminating(binding) {
		return 0
	}
	last, _ := c.looks.Load(binding.UID)
	if at, ok := last.(time.Time); ok && time.Since(at) < removalPace(binding) {
		return removalPace(binding) - time.Since(at)
	}
	c.looks.Store(binding.UID, time.Now())
	return 0
}

// removalPace is how soon to look again: seldom where nothing happens for long, since
// tenants themselves can have us wait.
func removalPace(binding *v1alpha1.ClusterBinding) time.Duration {
	return min(max(removalRetry, time.Since(binding.DeletionTimestamp.Time)/4), namespaceRetry)
}

// explain says on a ClusterBinding what its removal waits for.
func (c *control) explain(ctx context.Context, binding *v1alpha1.ClusterBinding, waits *refusal) error {
	if waits == nil {
		return nil
	}
	severity := v1alpha1.SeverityInfo
	if waits.reason == v1alpha1.ReasonRemovalHeld {
		severity = v1alpha1.SeverityWarning
	}
	return c.writeClusterBinding(ctx, binding, v1alpha1.False(v1alpha1.ConditionRemoved, severity, waits.reason, waits.message))
}

// drain does the next steps of a removal, and returns what it waits for until ns is
// deleted. Each step can be done again.
func (c *control) drain(ctx context.Context, binding *v1alpha1.ClusterBinding, ns *corev1.Namespace) (*refusal, error) {
	if waits := c.mayRemove(binding); waits != nil {
		return waits, nil
	}
	if waits, err := c.unlessEmpty(ctx, binding); waits != nil || err != nil {
		return waits, err
	}
	if !terminating(binding) { // nobody is to give back what is taken now
		err := c.patch(ctx, clusterBindingResource, binding, map[string]any{"annotations": map[string]any{v1alpha1.DrainingAnnotation: "true"}}, nil)
		return &refusal{reason: v1alpha1.ReasonDraining, message: "nothing is left of it"}, ignoreNotFound(err)
	}
	if err := c.revoke(ctx, ns); err != nil {
		return nil, err
	}
	for _, gvr := range []schema.GroupVersionResource{exportResource, namespaceResource} {
		left, err := c.deleteAll(ctx, gvr, ns.Name)
		if err != nil {
			return nil, err
		}
		if left > 0 {
			return &refusal{reason: v1alpha1.ReasonDraining, message: fmt.Sprintf("%d %s are left", left, gvr.Resource)}, nil
		}
	}
	if ns.DeletionTimestamp != nil {
		return nil, nil //nolint:nilnil // nothing is waited for
	}
	if err := c.deleteNamespace(ctx, ns); err != nil {
		return nil, err
	}
	audit(ctx, "tenant removed", "tenant", ns.Name, "policy", binding.Spec.DeletionPolicy)
	return nil, nil //nolint:nilnil // nothing is waited for
}

// mayRemove is the breaker: of many tenants that go at once none goes without a word
// for each.
func (c *control) mayRemove(binding *v1alpha1.ClusterBinding) *refusal {
	most := c.opts.RemovalsAtOnce
	if most < 0 || !breaks(binding) {
		return nil
	}
	if time.Since(binding.DeletionTimestamp.Time) < removalGrace {
		return &refusal{reason: v1alpha1.ReasonRemovalPending, message: "the removal begins in a few seconds"}
	}
	n := 0
	for _, obj := range c.clusterBindings.GetStore().List() {
		other, ok := obj.(*v1alpha1.ClusterBinding)
		n += one(ok && other.DeletionTimestamp != nil && breaks(other))
	}
	if n <= most {
		return nil
	}
	return &refusal{reason: v1alpha1.ReasonRemovalHeld, message: fmt.Sprintf(
		"%d tenants are being removed at once, more than %d: if it is meant, annotate this object with %s=true", n, most, v1alpha1.ReleaseAnnotation)}
}

// terminating tells whether a tenant is being removed. Without a policy it goes on as
// before until nothing of it is left. Its status is no evidence, since it writes there.
func terminating(binding *v1alpha1.ClusterBinding) bool {
	return binding.DeletionTimestamp != nil && (binding.Spec.DeletionPolicy != "" || metav1.HasAnnotation(binding.ObjectMeta, v1alpha1.DrainingAnnotation))
}

// breaks tells whether the removal of a tenant takes something from it that was not
// released.
func breaks(binding *v1alpha1.ClusterBinding) bool {
	return binding.Spec.DeletionPolicy != "" && !metav1.HasAnnotation(binding.ObjectMeta, v1alpha1.ReleaseAnnotation)
}

// removing returns the ClusterBinding of a tenant that is being removed at this moment.
func (c *control) removing(tenant string) (*v1alpha1.ClusterBinding, bool) {
	binding, ok := lookup(c.clusterBindings, cache.NewObjectName(tenant, v1alpha1.ClusterBindingName))
	return binding, ok && terminating(binding) && c.mayRemove(binding) == nil
}

// unlessEmpty returns what is left of a tenant for which there is no policy. It asks
// the API server: that a cache knows of nothing is no evidence.
func (c *control) unlessEmpty(ctx context.Context, binding *v1alpha1.ClusterBinding) (*refusal, error) {
	if binding.Spec.DeletionPolicy != "" {
		return nil, nil //nolint:nilnil // nothing is left
	}
	list, err := c.meta.Resource(namespaceResource).Namespace(binding.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list service namespaces of %s: %w", binding.Namespace, err)
	}
	for _, asked := range list.Items {
		ns, err := c.kube.CoreV1().Namespaces().Get(ctx, serviceNamespaceName(asked.Namespace, asked.Name), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && errors.Is(owned(ns, asked.Namespace, serviceAnnotations(&asked)), errForeign) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read service namespace: %w", err)
		}
		if ns.DeletionTimestamp == nil {
			err = c.enter(ctx, ns.Name, v1alpha1.BackendOfferRole)
		}
		if err == nil {
			err = c.checkEmpty(ctx, ns)
		}
		if left, ok := errors.AsType[*refusal](err); ok {
			left.message += ": the removal waits until the App Cluster has deleted them; spec.deletionPolicy of this object says to delete (Delete) or to keep (Orphan) them"
			return left, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // nothing is left
}

// revoke takes the credential of a tenant and its rights in its tenant namespace, all
// of which Kubernetes deletes from a namespace that is being deleted.
func (c *control) revoke(ctx context.Context, ns *corev1.Namespace) error {
	if ns.DeletionTimestamp != nil {
		return nil
	}
	if err := c.enter(ctx, ns.Name, v1alpha1.BackendTenantRole); err != nil {
		return err
	}
	tenant := ns.Name
	secrets, revoked := c.kube.CoreV1().Secrets(tenant), false
	for _, name := range []string{v1alpha1.TokenAnchorSecret, v1alpha1.KubeconfigSecretName} {
		err := secrets.Delete(ctx, name, metav1.DeleteOptions{})
		if revoked = revoked || err == nil; ignoreNotFound(err) != nil {
			return fmt.Errorf("revoke the credential of %s: %w", tenant, err)
		}
	}
	if revoked {
		audit(ctx, "credential revoked", "tenant", tenant)
	}
	return c.takeRights(ctx, tenant)
}

// takeRights takes the rights of a tenant in a namespace away.
func (e *Exporter) takeRights(ctx context.Context, namespace string) error {
	return e.unbind(ctx, namespace, v1alpha1.TenantServiceAccount)
}

func (e *Exporter) unbind(ctx context.Context, namespace, binding string) error {
	err := e.kube.RbacV1().RoleBindings(namespace).Delete(ctx, binding, metav1.DeleteOptions{})
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("take rights in %s away: %w", namespace, err)
	}
	return nil
}

// deleteAll deletes all objects of a resource in a namespace, and returns how many
// there were.
func (e *Exporter) deleteAll(ctx context.Context, gvr schema.GroupVersionResource, namespace string) (int, error) {
	objects := e.meta.Resource(gvr).Namespace(namespace)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list %s in %s: %w", gvr.Resource, namespace, err)
	}
	for _, o := range list.Items {
		if o.DeletionTimestamp != nil {
			continue
		}
		err := objects.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}})
		if ignoreNotFound(err) != nil {
			return 0, fmt.Errorf("delete %s %s/%s: %w", gvr.Resource, namespace, o.Name, err)
		}
	}
	return len(list.Items), nil
}

// deleteInstances deletes all objects of the APIs that were ever exported to the
// tenant of a service namespace, in that namespace.
func (c *control) deleteInstances(ctx context.Context, ns *corev1.Namespace) error {
	if err := c.takeRights(ctx, ns.Name); err != nil {
		return err
	}
	for _, name := range exported(ns) {
		gvr, err := c.resourceOf(ctx, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		n := 0
		if err == nil {
			n, err = c.deleteAll(ctx, gvr, ns.Name)
		}
		if err != nil {
			return err
		}
		if n > 0 {
			audit(ctx, "objects deleted", "tenant", ns.Labels[v1alpha1.TenantLabel], "namespace", ns.Name, "service", name, "count", n)
		}
	}
	return nil
}

// endNamespace deletes a service namespace when nothing is left in it. When its
// tenant is removed, what is left goes too, or stays without it; then the namespace
// stays, and kept is true.
func (c *control) endNamespace(ctx context.Context, ns *corev1.Namespace, tenant string) (kept bool, err error) {
	var policy v1alpha1.DeletionPolicy
	if binding, ok := c.removing(tenant); ok {
		policy = binding.Spec.DeletionPolicy
	}
	err = c.enter(ctx, ns.Name, v1alpha1.BackendOfferRole)
	if err == nil && policy == v1alpha1.DeletionPolicyDelete {
		err = c.deleteInstances(ctx, ns)
	}
	if err == nil {
		err = c.deleteEmpty(ctx, ns)
	}
	left, ok := errors.AsType[*refusal](err)
	if !ok || left.reason != reasonObjectsRemain || policy != v1alpha1.DeletionPolicyOrphan {
		return false, err
	}
	if err := c.forsake(ctx, ns.Name); err != nil {
		return false, err
	}
	audit(ctx, "service namespace kept", "tenant", tenant, "namespace", ns.Name)
	return true, nil
}

// forsake leaves a service namespace without caps, and without rights of its tenant
// and of the backend.
func (c *control) forsake(ctx context.Context, namespace string) error {
	err := errors.Join(c.takeRights(ctx, namespace), c.ensureRole(ctx, namespace, nil), c.writeQuota(ctx, namespace, nil))
	if err != nil {
		return err
	}
	return c.unbind(ctx, namespace, v1alpha1.BackendRoleBinding)
}
