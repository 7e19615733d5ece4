// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/identity"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// IsPrefixed tells whether the objects of an export are cluster-scoped in the Control Plane
// Cluster. Of them RBAC gives all or none: admission holds a tenant's writes to names that
// begin with its own, and nothing holds its reads.
func IsPrefixed(export *v1alpha1.APIServiceExport) bool {
	return export.Spec.Scope == v1alpha1.ClusterScope && export.Spec.ClusterScopedIsolation != v1alpha1.IsolationNamespaced
}

// CheckExports returns an error for the tenant to know if the backend may not pass on what
// exports need.
func (r *Rights) CheckExports(ctx context.Context, exports []*v1alpha1.APIServiceExport) error {
	for _, export := range exports {
		if IsPrefixed(export) {
			if err := r.checkPrefixed(ctx, schema.GroupResource{Group: export.Spec.Group, Resource: export.Spec.Names.Plural}); err != nil {
				return err
			}
		}
	}
	_, err := r.Check(ctx, Rules(exports))
	return err
}

// checkPrefixed tells whether the platform team has made the ClusterRoles of a cluster-scoped API.
func (r *Rights) checkPrefixed(ctx context.Context, api schema.GroupResource) error {
	for prefix, verbs := range map[string][]string{v1alpha1.PrefixedReadRole: DrainVerbs, v1alpha1.PrefixedWriteRole: {"create", "update", "patch"}} {
		role, err := r.Kube.RbacV1().ClusterRoles().Get(ctx, prefix+api.String(), metav1.GetOptions{})
		if !fates.Is(err, fates.None, fates.Absent, fates.Forbidden) {
			return fmt.Errorf("read what tenants may get of %s: %w", api, err)
		}
		wanted := rbacv1.PolicyRule{APIGroups: []string{api.Group}, Resources: []string{api.Resource}}
		if err != nil || slices.ContainsFunc(verbs, func(verb string) bool { return !offers(role, verb, wanted) }) {
			return RefuseForNow(v1alpha1.ReasonMissingRights, fmt.Sprintf(
				"the backend may not pass on rights to the cluster-scoped %s: the platform operator has to make its ClusterRoles of deploy/prefixed/kind.yaml", api), err)
		}
	}
	return nil
}

// prefixed gives tenants their rights to cluster-scoped objects, and takes them.
type prefixed struct {
	Clients

	opts   *Options
	rights *Rights
	caches *Caches
	gates  *gates
	locks  *tenantLocks
}

// Reconcile gives a tenant the ClusterRoleBindings that its exports need, and takes all others.
func (p *prefixed) Reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	tenant := key.Name
	if _, ok, err := p.caches.HolderIn(ctx, tenant); !ok {
		return 0, err
	}
	exports := slices.DeleteFunc(inNamespace(p.caches.Exports, tenant), func(e *v1alpha1.APIServiceExport) bool { return !IsPrefixed(e) })
	ns, err := p.caches.namespace(ctx, tenant)
	if err != nil || len(exports) == 0 && ns.GetAnnotations()[v1alpha1.ExportedAnnotation] == "" {
		return 0, IgnoreNotFound(err)
	}
	defer p.locks.lock(tenant)()
	if p.caches.Leaving(tenant) {
		return 0, nil
	}
	closed := p.gates.whyClosed(ctx, tenant)
	if closed != nil && !errors.Is(closed, ErrGateClosed) {
		return 0, closed
	}
	if err := p.give(ctx, ns, exports, closed == nil); err != nil {
		return 0, err
	}
	if closed != nil && p.opts.Gate != nil { // no event tells that it opens
		return namespaceRetry, nil
	}
	return wait.Jitter(p.opts.ReviewInterval, ReviewSpread), nil // no event tells what others do to them
}

// give has a tenant have exactly the rights that it should have.
func (p *prefixed) give(ctx context.Context, ns metav1.Object, exports []*v1alpha1.APIServiceExport, open bool) error {
	live, err := p.Kube.CoreV1().Namespaces().Get(ctx, ns.GetName(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read namespace %s: %w", ns.GetName(), err)
	}
	if _, err := noteExports(ctx, p.Clients, live, names(exports)); err != nil {
		return err
	}
	has, err := p.rights.clusterWide(ctx, ns.GetName())
	if err != nil {
		return err
	}
	roles := p.wanted(exports, has, open)
	for _, role := range roles {
		if !slices.Contains(has, role) {
			err = errors.Join(err, p.rights.widen(ctx, role, ns))
		}
	}
	gone := slices.DeleteFunc(has, func(role string) bool { return slices.Contains(roles, role) })
	return errors.Join(err, p.rights.takeRoles(ctx, ns.GetName(), gone))
}

// retain gives an adopted tenant the rights to its cluster-scoped APIs that are switched on, so
// that its konnector writes without a pause.
func (t *Tenants) retain(ctx context.Context, tenant string) error {
	ns, err := t.Kube.CoreV1().Namespaces().Get(ctx, tenant, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read tenant namespace: %w", err)
	}
	list, err := t.Dyn.Resource(ExportResource).Namespace(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list exports of %s: %w", tenant, err)
	}
	for _, u := range list.Items {
		export := &v1alpha1.APIServiceExport{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, export); err != nil {
			return fmt.Errorf("read export %s/%s: %w", tenant, u.GetName(), err)
		}
		if !IsPrefixed(export) || !t.Opts.Prefixed(export.Name) || t.Rights.CheckExports(ctx, []*v1alpha1.APIServiceExport{export}) != nil {
			continue // the export says what is missing
		}
		for _, role := range []string{v1alpha1.PrefixedReadRole, v1alpha1.PrefixedWriteRole} {
			if err := t.Rights.widen(ctx, role+export.Name, ns); err != nil {
				return err
			}
		}
	}
	return nil
}

// wanted are the roles that a tenant should have, of which it has some. Of what is withdrawn,
// and behind a gate that closed again, it can delete what there is.
func (p *prefixed) wanted(exports []*v1alpha1.APIServiceExport, has []string, open bool) (roles []string) {
	for _, export := range exports {
		read, write := v1alpha1.PrefixedReadRole+export.Name, v1alpha1.PrefixedWriteRole+export.Name
		listed := open && p.opts.Prefixed(export.Name)
		if listed || slices.Contains(has, read) {
			roles = append(roles, read)
		}
		if listed && !metav1.HasAnnotation(export.ObjectMeta, v1alpha1.WithdrawnAnnotation) {
			roles = append(roles, write)
		}
	}
	return roles
}

// clusterWide are the roles that a tenant has in the whole cluster.
func (r *Rights) clusterWide(ctx context.Context, tenant string) (roles []string, err error) {
	list, err := r.Kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.TenantLabel + "=" + tenant})
	if err != nil {
		return nil, fmt.Errorf("list the cluster role bindings of tenant %s: %w", tenant, err)
	}
	for _, b := range list.Items {
		if role, ours := strings.CutSuffix(b.Name, ":"+tenant); ours && role == b.RoleRef.Name {
			roles = append(roles, role)
		}
	}
	return roles, nil
}

// widen gives the account of a tenant a role in the whole cluster, until its namespace goes.
func (r *Rights) widen(ctx context.Context, role string, tenant metav1.Object) error {
	name := tenant.GetName()
	_, err := r.Kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: role + ":" + name, Labels: map[string]string{v1alpha1.TenantLabel: name, ManagedBy: UserAgent},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: name, UID: tenant.GetUID()}},
		},
		RoleRef: clusterRole(role), Subjects: []rbacv1.Subject{identity.ServiceAccount(name, v1alpha1.TenantServiceAccount)},
	}, metav1.CreateOptions{})
	return ensured(err, "cluster role binding "+role, name)
}

// takeRoles takes roles that a tenant has in the whole cluster.
func (r *Rights) takeRoles(ctx context.Context, tenant string, roles []string) error {
	for _, role := range roles {
		err := r.Kube.RbacV1().ClusterRoleBindings().Delete(ctx, role+":"+tenant, metav1.DeleteOptions{})
		if IgnoreNotFound(err) != nil {
			return fmt.Errorf("take %s from tenant %s: %w", role, tenant, err)
		}
	}
	return nil
}

// takeClusterWide takes all rights that a tenant has in the whole cluster.
func (r *Rights) takeClusterWide(ctx context.Context, ns *corev1.Namespace) error {
	if len(exported(ns)) == 0 {
		return nil
	}
	roles, err := r.clusterWide(ctx, ns.Name)
	if err != nil {
		return err
	}
	return r.takeRoles(ctx, ns.Name, roles)
}

// isTenant tells a tenant namespace from a service namespace.
func isTenant(ns *corev1.Namespace) bool { return ns.Labels[v1alpha1.TenantLabel] == ns.Name }

// OwnsPrefixed tells whether a cluster-scoped object is a tenant's: its annotation and its name say so.
func OwnsPrefixed(tenant string, o metav1.Object) bool {
	return o.GetAnnotations()[v1alpha1.ClusterNamespaceAnnotation] == tenant && strings.HasPrefix(o.GetName(), tenant+"-")
}

// drainPrefixed deletes the cluster-scoped objects of a tenant that goes, or keeps them, as its
// policy says; it returns what is left and has to go. The tenant has no rights any more.
func (c *contents) drainPrefixed(ctx context.Context, ns *corev1.Namespace, policy v1alpha1.DeletionPolicy) (*waiting, error) {
	if len(exported(ns)) == 0 {
		return nil, nil //nolint:nilnil // nothing is waited for
	}
	if policy == v1alpha1.DeletionPolicyOrphan {
		return c.orphanable(ns), nil
	}
	if policy == v1alpha1.DeletionPolicyDelete {
		if err := c.deleteExported(ctx, ns); err != nil {
			return nil, err
		}
	}
	err := c.checkEmpty(ctx, ns)
	if left, ok := errors.AsType[*RefusalError](err); ok {
		return &waiting{left.Reason, left.Message}, nil
	}
	return nil, err
}

// orphanable returns what a tenant namespace waits for that is to leave its cluster-scoped
// objects: of a kind that it does not know yet, the garbage collector leaves none.
func (c *contents) orphanable(ns *corev1.Namespace) *waiting {
	for _, name := range exported(ns) {
		if left := c.unknown(name); left > 0 {
			return &waiting{v1alpha1.ReasonDraining, fmt.Sprintf("the garbage collector may not know the new %s for %s, and would delete the objects", name, left.Round(time.Second))}
		}
	}
	return nil
}

// deleteOptions have Kubernetes leave the cluster-scoped objects of a tenant where they are if its policy
// says so: their owner is its namespace.
func deleteOptions(ns *corev1.Namespace, policy v1alpha1.DeletionPolicy) metav1.DeleteOptions {
	if policy != v1alpha1.DeletionPolicyOrphan || len(exported(ns)) == 0 {
		return metav1.DeleteOptions{}
	}
	return metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}
}
