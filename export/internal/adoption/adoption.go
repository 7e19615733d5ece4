// SPDX-License-Identifier: Apache-2.0

// Package adoption takes over tenants that Klutch's backend made, in place, and gives tenants
// back: their namespaces, exports and service namespaces stay. An administrator runs it, and
// sees each step before it is done. [Adopt] and [Release] list the steps; each can be done
// again, and one that is done already is not in the list.
//
// Klutch's backend knows a tenant by an annotation, "<subject>#<cluster>", and gives each a
// token without an end, and rights in the whole cluster. Marks on the namespaces are all that
// ours needs to keep such a tenant: it gives the rights by namespace, and then the wide ones
// can go. The token dies when the tenant's holder binds again.
package adoption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A Step is one change, and how it is made.
type Step struct {
	Text string
	Do   func(context.Context) error
}

// A Plan is what is to be done with one tenant. One with a Problem has no steps.
type Plan struct {
	Tenant, Holder string
	Steps          []Step
	Problem        string
	Note           string // what remains
}

// Options say which tenants of Klutch's are adopted, and how.
type Options struct {
	Issuer  string   // that all of them signed in with: Klutch's backend does not write it down
	Tenants []string // namespaces; none means all that Klutch's backend made
	Revoke  bool     // end the tokens without an end now: those App Clusters have to bind again
}

// clusterRoleOf is the name of what Klutch's backend binds to a tenant in the whole cluster.
func clusterRoleOf(namespace string) string { return v1alpha1.TenantServiceAccount + "-" + namespace }

// Adopt returns what it takes to adopt tenants of Klutch's backend.
func Adopt(ctx context.Context, c tenant.Clients, opts Options) ([]Plan, error) {
	all, err := c.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	var plans []Plan
	for i := range all.Items {
		ns := &all.Items[i]
		adopted := ns.Annotations[v1alpha1.AdoptedAnnotation] != ""
		if ns.Annotations[v1alpha1.IdentityAnnotation] == "" || ns.Labels[v1alpha1.TenantLabel] != "" && !adopted ||
			len(opts.Tenants) > 0 && !slices.Contains(opts.Tenants, ns.Name) {
			continue
		}
		plan, err := adopt(ctx, c, opts, ns, all.Items)
		if err != nil {
			return nil, fmt.Errorf("tenant %s: %w", ns.Name, err)
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

func adopt(ctx context.Context, c tenant.Clients, opts Options, ns *corev1.Namespace, all []corev1.Namespace) (Plan, error) {
	identity := ns.Annotations[v1alpha1.IdentityAnnotation]
	at := strings.LastIndex(identity, "#")
	plan := Plan{Tenant: ns.Name, Holder: identity}
	if at <= 0 || at == len(identity)-1 {
		plan.Problem = fmt.Sprintf("its identity %q is not of the form <subject>#<cluster>", identity)
		return plan, nil
	}
	if others := holding(all, identity, ns.Name); len(others) > 0 {
		plan.Problem = fmt.Sprintf("%s has the same identity: delete the one that is not used", strings.Join(others, ", "))
		return plan, nil
	}
	h := tenant.Holder{Issuer: opts.Issuer, Subject: identity[:at], Cluster: identity[at+1:]}
	exports, err := c.Dyn.Resource(tenant.ExportResource).Namespace(ns.Name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return plan, fmt.Errorf("list exports: %w", err)
	}
	var services []string
	for i := range exports.Items {
		services = append(services, exports.Items[i].GetName())
		if scope, _, _ := unstructured.NestedString(exports.Items[i].Object, "spec", "scope"); scope != string(v1alpha1.NamespacedScope) {
			plan.Problem = fmt.Sprintf("%s is cluster-scoped, and this backend gives no rights on such an API: unbind it first", exports.Items[i].GetName())
			return plan, nil
		}
	}
	spaces, problem, err := serviceNamespaces(ctx, c, h, ns.Name)
	if plan.Problem = problem; problem != "" || err != nil {
		return plan, err
	}
	plan.Steps = append(plan.Steps, spaces.adopt...)
	if step, err := writeRecord(ctx, c, h, ns.Name, services); err != nil {
		return plan, err
	} else if step != nil {
		plan.Steps = append(plan.Steps, *step)
	}
	if ns.Labels[v1alpha1.TenantLabel] == "" {
		plan.Steps = append(plan.Steps, Step{"mark namespace " + ns.Name + " as a tenant of this backend", func(ctx context.Context) error {
			return mark(ctx, c, ns.Name, func(ns *corev1.Namespace) { h.Adopt(ns) })
		}})
	}
	wide, err := revokeWide(ctx, c, ns.Name, spaces.names)
	if err != nil {
		return plan, err
	}
	plan.Steps = append(plan.Steps, wide...)
	err = endToken(ctx, c, opts, &plan)
	return plan, err
}

// holding are the other namespaces with an identity.
func holding(all []corev1.Namespace, identity, but string) (names []string) {
	for _, ns := range all {
		if ns.Annotations[v1alpha1.IdentityAnnotation] == identity && ns.Name != but {
			names = append(names, "namespace "+ns.Name)
		}
	}
	return names
}

// services are the service namespaces of a tenant, and the steps that mark them.
type services struct {
	names []string
	adopt []Step
}

func serviceNamespaces(ctx context.Context, c tenant.Clients, h tenant.Holder, namespace string) (s services, problem string, err error) {
	asked, err := c.Dyn.Resource(tenant.NamespaceResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, "", fmt.Errorf("list service namespaces: %w", err)
	}
	for i := range asked.Items {
		app := asked.Items[i].GetName()
		name, _, _ := unstructured.NestedString(asked.Items[i].Object, "status", "namespace")
		if name == "" {
			continue
		}
		ns, err := c.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if fates.Is(err, fates.Absent) {
			continue
		}
		if err != nil {
			return s, "", fmt.Errorf("read namespace %s: %w", name, err)
		}
		if name != tenant.ServiceNamespaceName(namespace, app) || ns.Annotations[v1alpha1.ServiceNamespaceAnnotation] != namespace+"/"+app {
			return s, fmt.Sprintf("namespace %s is not one that Klutch's backend made for %s", name, app), nil
		}
		s.names = append(s.names, name)
		switch owner := ns.Labels[v1alpha1.TenantLabel]; {
		case owner != "" && owner != namespace:
			return s, fmt.Sprintf("namespace %s belongs to tenant %s", name, owner), nil
		case owner == "":
			s.adopt = append(s.adopt, Step{fmt.Sprintf("mark namespace %s as that of %s", name, app), func(ctx context.Context) error {
				return mark(ctx, c, name, func(ns *corev1.Namespace) { h.AdoptService(ns, namespace, app) })
			}})
		}
	}
	return s, "", nil
}

func mark(ctx context.Context, c tenant.Clients, name string, change func(*corev1.Namespace)) error {
	ns, err := c.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		change(ns)
		_, err = c.Kube.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
	}
	return err
}

// writeRecord says who holds a tenant, and what was bound; nil if that is written already.
func writeRecord(ctx context.Context, c tenant.Clients, h tenant.Holder, namespace string, services []string) (*Step, error) {
	_, err := c.Kube.CoreV1().Secrets(namespace).Get(ctx, v1alpha1.TenantRecordSecret, metav1.GetOptions{})
	if !fates.Is(err, fates.Absent) {
		return nil, err
	}
	data, err := json.Marshal(tenant.Record{
		Identity: auth.Identity{Issuer: h.Issuer, Subject: h.Subject}, Cluster: h.Cluster, Services: services, Adopted: true, LoggedIn: time.Now().UTC().Truncate(time.Second),
	})
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("write Secret %s/%s: held by %s of %s, bound: %s", namespace, v1alpha1.TenantRecordSecret, h.Subject, h.Issuer, strings.Join(services, ", "))
	return &Step{text, func(ctx context.Context) error {
		_, err := c.Kube.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantRecordSecret, Namespace: namespace}, Data: map[string][]byte{tenant.RecordKey: data},
		}, metav1.CreateOptions{})
		return err
	}}, nil
}

const rolesWithin = 2 * time.Minute // of an adoption

// revokeWide takes the rights in the whole cluster, once those by namespace are there.
func revokeWide(ctx context.Context, c tenant.Clients, namespace string, spaces []string) ([]Step, error) {
	name := clusterRoleOf(namespace)
	binding, err := c.Kube.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
	if !fates.Is(err, fates.None, fates.Absent) {
		return nil, err
	}
	bound := err == nil && binding.RoleRef.Name == name
	_, err = c.Kube.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
	if !fates.Is(err, fates.None, fates.Absent) {
		return nil, err
	}
	var steps []Step
	if bound || err == nil {
		steps = append(steps, Step{"wait until this backend has given " + namespace + " its rights by namespace", func(ctx context.Context) error {
			return narrowed(ctx, c, namespace, spaces)
		}})
	}
	if bound {
		steps = append(steps, Step{"delete ClusterRoleBinding " + name + ": rights of the tenant in all namespaces", func(ctx context.Context) error {
			return tenant.IgnoreNotFound(c.Kube.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &binding.UID}}))
		}})
	}
	if err == nil {
		steps = append(steps, Step{"delete ClusterRole " + name, func(ctx context.Context) error {
			return tenant.IgnoreNotFound(c.Kube.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}))
		}})
	}
	return steps, nil
}

// narrowed waits for the backend to have replaced the role bindings of Klutch's.
func narrowed(ctx context.Context, c tenant.Clients, namespace string, spaces []string) error {
	want := map[string]rbacv1.RoleRef{namespace: {APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.TenantRole}}
	for _, name := range spaces {
		want[name] = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: v1alpha1.TenantServiceAccount}
	}
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, rolesWithin, true, func(ctx context.Context) (bool, error) {
		for name, role := range want {
			got, err := c.Kube.RbacV1().RoleBindings(name).Get(ctx, v1alpha1.TenantServiceAccount, metav1.GetOptions{})
			if err != nil || got.RoleRef != role {
				return false, tenant.IgnoreNotFound(err)
			}
		}
		return true, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return errors.New("the backend has not given the tenant its rights: see that it runs and what the conditions of the APIServiceNamespaces say, then run this again")
	}
	return err
}

// endToken notes that the token of Klutch's backend is good until the next bind, or ends it.
func endToken(ctx context.Context, c tenant.Clients, opts Options, plan *Plan) error {
	name := v1alpha1.TokenAnchorSecret
	secret, err := c.Kube.CoreV1().Secrets(plan.Tenant).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return tenant.IgnoreNotFound(err)
	}
	switch {
	case secret.Type != corev1.SecretTypeServiceAccountToken:
	case opts.Revoke:
		plan.Steps = append(plan.Steps, Step{fmt.Sprintf("delete Secret %s/%s: its token, which has no end; the App Cluster has to bind again", plan.Tenant, name), func(ctx context.Context) error {
			return tenant.IgnoreNotFound(c.Kube.CoreV1().Secrets(plan.Tenant).Delete(ctx, name, metav1.DeleteOptions{}))
		}})
	default:
		plan.Note = fmt.Sprintf("the token in Secret %s/%s has no end; it is revoked when the holder binds again, or by --revoke-tokens", plan.Tenant, name)
	}
	return nil
}

// patch merges into an object; one that is gone is none to change.
func patch(ctx context.Context, do func(ctx context.Context, kind types.PatchType, data []byte) error, change map[string]any) error {
	data, err := json.Marshal(change)
	if err == nil {
		err = do(ctx, types.MergePatchType, data)
	}
	return tenant.IgnoreNotFound(err)
}
