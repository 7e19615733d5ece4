// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Release returns what it takes to leave tenants to Klutch's backend: all that ours has put on
// them comes off, and what they have stays. None named means all.
func Release(ctx context.Context, c tenant.Clients, tenants []string) ([]Plan, error) {
	list, err := c.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.TenantLabel + ",!" + v1alpha1.AppNamespaceLabel})
	if err != nil {
		return nil, fmt.Errorf("list namespaces of tenants: %w", err)
	}
	var plans []Plan
	for i := range list.Items {
		ns := &list.Items[i]
		if len(tenants) > 0 && !slices.Contains(tenants, ns.Name) {
			continue
		}
		h, ok := tenant.HolderOf(ns)
		if !ok {
			continue
		}
		plan, err := release(ctx, c, h, ns)
		if err != nil {
			return nil, fmt.Errorf("tenant %s: %w", ns.Name, err)
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

func release(ctx context.Context, c tenant.Clients, h tenant.Holder, ns *corev1.Namespace) (Plan, error) {
	plan := Plan{Tenant: ns.Name, Holder: h.Subject + "#" + h.Cluster}
	asked, err := c.Dyn.Resource(tenant.NamespaceResource).Namespace(ns.Name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return plan, fmt.Errorf("list service namespaces: %w", err)
	}
	add := func(text string, do func(context.Context) error) { plan.Steps = append(plan.Steps, Step{text, do}) }
	add("take the marks off namespace "+ns.Name+", after which this backend leaves it alone", func(ctx context.Context) error {
		return unmark(ctx, c, ns.Name, map[string]any{v1alpha1.IdentityAnnotation: plan.Holder})
	})
	for i := range asked.Items {
		o := &asked.Items[i]
		name := tenant.ServiceNamespaceName(ns.Name, o.GetName())
		add("take marks, rights and caps of this backend out of namespace "+name, func(ctx context.Context) error {
			if err := unmark(ctx, c, name, nil); err != nil {
				return err
			}
			if err := unfurnish(ctx, c, name); err != nil {
				return err
			}
			return tenant.IgnoreNotFound(c.Kube.RbacV1().Roles(name).Delete(ctx, v1alpha1.TenantServiceAccount, metav1.DeleteOptions{}))
		})
		add("take finalizer and conditions off APIServiceNamespace "+ns.Name+"/"+o.GetName(), func(ctx context.Context) error {
			return strip(ctx, c.Dyn.Resource(tenant.NamespaceResource).Namespace(ns.Name), o.GetName(), v1alpha1.ServiceNamespaceFinalizer, func(string) bool { return false })
		})
	}
	exports, err := c.Dyn.Resource(tenant.ExportResource).Namespace(ns.Name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return plan, fmt.Errorf("list exports: %w", err)
	}
	for i := range exports.Items {
		name := exports.Items[i].GetName()
		add("take conditions of this backend off APIServiceExport "+ns.Name+"/"+name, func(ctx context.Context) error {
			return strip(ctx, c.Dyn.Resource(tenant.ExportResource).Namespace(ns.Name), name, "", func(t string) bool {
				return t != v1alpha1.ConditionOffered && t != v1alpha1.ConditionLoginCurrent
			})
		})
	}
	add("take finalizer and conditions off ClusterBinding "+ns.Name+"/"+v1alpha1.ClusterBindingName, func(ctx context.Context) error {
		return strip(ctx, c.Dyn.Resource(tenant.ClusterBindingResource).Namespace(ns.Name), v1alpha1.ClusterBindingName, v1alpha1.TenantFinalizer, func(t string) bool { return slices.Contains(theirs, t) })
	})
	add("take rights, caps and the record of this backend out of namespace "+ns.Name, func(ctx context.Context) error {
		if err := unfurnish(ctx, c, ns.Name); err != nil {
			return err
		}
		return tenant.IgnoreNotFound(c.Kube.CoreV1().Secrets(ns.Name).Delete(ctx, v1alpha1.TenantRecordSecret, metav1.DeleteOptions{}))
	})
	anchor, err := c.Kube.CoreV1().Secrets(ns.Name).Get(ctx, v1alpha1.TokenAnchorSecret, metav1.GetOptions{})
	if !fates.Is(err, fates.None, fates.Absent) {
		return plan, err
	}
	if err == nil && anchor.Type != corev1.SecretTypeServiceAccountToken {
		add(fmt.Sprintf("delete Secret %s/%s: the credential of this backend ends, and the App Cluster binds again at Klutch's", ns.Name, anchor.Name), func(ctx context.Context) error {
			return tenant.IgnoreNotFound(c.Kube.CoreV1().Secrets(ns.Name).Delete(ctx, anchor.Name, metav1.DeleteOptions{}))
		})
	}
	return plan, nil
}

// theirs are the conditions of a ClusterBinding that Klutch's programs write.
var theirs = []string{v1alpha1.ConditionHealthy, v1alpha1.ConditionSecretValid, v1alpha1.ConditionValidVersion, v1alpha1.ConditionReady}

// unmark takes labels and annotations of ours off a namespace.
func unmark(ctx context.Context, c tenant.Clients, name string, more map[string]any) error {
	annotations := map[string]any{v1alpha1.HolderAnnotation: nil, v1alpha1.AdoptedAnnotation: nil, v1alpha1.ExportedAnnotation: nil}
	maps.Copy(annotations, more)
	return patch(ctx, func(ctx context.Context, kind types.PatchType, data []byte) error {
		_, err := c.Kube.CoreV1().Namespaces().Patch(ctx, name, kind, data, metav1.PatchOptions{})
		return err
	}, map[string]any{"metadata": map[string]any{"annotations": annotations, "labels": map[string]any{
		v1alpha1.TenantLabel: nil, v1alpha1.SubjectLabel: nil, v1alpha1.AppClusterLabel: nil, v1alpha1.AppNamespaceLabel: nil, tenant.ManagedBy: nil,
	}}})
}

// unfurnish deletes role bindings and quota of ours from a namespace.
func unfurnish(ctx context.Context, c tenant.Clients, name string) error {
	for _, binding := range []string{v1alpha1.TenantServiceAccount, v1alpha1.BackendRoleBinding} {
		if err := c.Kube.RbacV1().RoleBindings(name).Delete(ctx, binding, metav1.DeleteOptions{}); tenant.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return tenant.IgnoreNotFound(c.Kube.CoreV1().ResourceQuotas(name).Delete(ctx, v1alpha1.TenantServiceAccount, metav1.DeleteOptions{}))
}

// strip takes a finalizer, annotations, and all conditions but those of the types to keep, off
// an object.
func strip(ctx context.Context, client dynamic.ResourceInterface, name, finalizer string, keep func(conditionType string) bool) error {
	u, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return tenant.IgnoreNotFound(err)
	}
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	left := slices.DeleteFunc(all, func(c any) bool {
		m, _ := c.(map[string]any)
		t, _ := m["type"].(string)
		return !keep(t)
	})
	finalizers := slices.DeleteFunc(slices.Clone(u.GetFinalizers()), func(f string) bool { return f == finalizer })
	seen := map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(), "finalizers": finalizers, "annotations": map[string]any{
		v1alpha1.AnchorAnnotation: nil, v1alpha1.DrainingAnnotation: nil, v1alpha1.SourceClaimsHashAnnotation: nil, v1alpha1.WithdrawnAnnotation: nil,
	}}
	err = patch(ctx, func(ctx context.Context, kind types.PatchType, data []byte) error {
		_, err := client.Patch(ctx, name, kind, data, metav1.PatchOptions{})
		return err
	}, map[string]any{"metadata": seen})
	if err != nil {
		return err
	}
	return patch(ctx, func(ctx context.Context, kind types.PatchType, data []byte) error {
		_, err := client.Patch(ctx, name, kind, data, metav1.PatchOptions{}, "status")
		return err
	}, map[string]any{"metadata": map[string]any{"uid": u.GetUID()}, "status": map[string]any{"conditions": left}})
}
