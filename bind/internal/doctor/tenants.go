// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// foreseeTenants says what would become of each tenant of Klutch's backend if this platform's
// adopted it, where the cluster is a Control Plane Cluster and the person may read it, and
// reports whether there are any.
func (d *doctor) foreseeTenants(ctx context.Context) bool {
	all, err := cluster.Listed[corev1.Namespace](ctx, d.app.Resource(cluster.NamespacesResource))
	if err != nil {
		return false // of an App Cluster nobody needs that right
	}
	holders := map[string][]string{}
	for _, ns := range all {
		if identity := ns.Annotations[v1alpha1.IdentityAnnotation]; identity != "" {
			holders[identity] = append(holders[identity], ns.Name)
		}
	}
	found := false
	for n := range all {
		ns := &all[n]
		identity := ns.Annotations[v1alpha1.IdentityAnnotation]
		if identity == "" || ns.Labels[v1alpha1.TenantLabel] != "" { // it is ours
			continue
		}
		found = true
		wrong := unadoptable(ctx, d.app, ns)
		if others := holders[identity]; len(others) > 1 {
			wrong = "several namespaces have its identity, so neither backend serves it: " + strings.Join(others, ", ")
		}
		objects := inheritance(ctx, d.app, ns.Name)
		d.note("tenant", ns.Name, wrong, fmt.Sprintf("adopted with --adopt-klutch-tenants=%s when %s binds again; %d objects follow", ns.Name, identity, len(objects)),
			"As it is, this platform's backend leaves it alone.")
		d.found[len(d.found)-1].Objects = objects
	}
	return found
}

// unadoptable says why a backend would not adopt a tenant; it has the same rules.
func unadoptable(ctx context.Context, app *cluster.App, ns *corev1.Namespace) string {
	role, err := cluster.Get[rbacv1.ClusterRole](ctx, app.Resource(cluster.ClusterRoles), v1alpha1.TenantServiceAccount+"-"+ns.Name)
	if err != nil {
		return cluster.Trouble(err)
	}
	binding, err := cluster.Get[v1alpha1.ClusterBinding](ctx, app.Resource(cluster.ClusterBindings).Namespace(ns.Name), v1alpha1.ClusterBindingName)
	switch {
	case err != nil:
		return cluster.Trouble(err)
	case ns.DeletionTimestamp != nil:
		return "it is being deleted"
	case role == nil || !slices.ContainsFunc(role.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Namespace" && o.UID == ns.UID }):
		return "no ClusterRole " + v1alpha1.TenantServiceAccount + "-" + ns.Name + " of it shows that Klutch's backend has made it"
	case binding == nil || binding.DeletionTimestamp != nil:
		return "it has no ClusterBinding, or that is being deleted"
	case binding.Spec.KubeconfigSecretRef.Name != v1alpha1.KubeconfigSecretName:
		return "its ClusterBinding names the Secret " + binding.Spec.KubeconfigSecretRef.Name + ", not " + v1alpha1.KubeconfigSecretName
	}
	return ""
}

// inheritance is what a tenant has, and what becomes of it.
func inheritance(ctx context.Context, app *cluster.App, tenant string) (objects []string) {
	templates, err := cluster.Listed[v1alpha1.APIServiceExportTemplate](ctx, app.Resource(v1alpha1.Resource("apiserviceexporttemplates")))
	if err != nil && !fates.Is(err, fates.Absent, fates.Unserved) {
		return []string{"templates: " + cluster.Explain(err)}
	}
	offered := func(name string) bool {
		return slices.ContainsFunc(templates, func(t v1alpha1.APIServiceExportTemplate) bool {
			return t.Spec.APIServiceSelector.String() == name
		})
	}
	exports := eachOf(ctx, app.Resource(cluster.APIServiceExports).Namespace(tenant), func(e *v1alpha1.APIServiceExport) string {
		if !offered(e.Name) {
			return "APIServiceExport " + e.Name + ": withdrawn, since no template offers it; its objects stay"
		}
		return "APIServiceExport " + e.Name + ": stays"
	})
	spaces := eachOf(ctx, app.Resource(cluster.APIServiceNamespaces).Namespace(tenant), func(n *v1alpha1.APIServiceNamespace) string {
		return "Namespace " + n.Status.Namespace + ": stays with what is in it; its RoleBinding klutch-binder becomes ours"
	})
	return slices.Concat(exports, spaces, []string{
		"Secret " + tenant + "/" + v1alpha1.TokenAnchorSecret + ": replaced; Klutch's token, which never ends, is refused from then on",
		"ClusterRoleBinding " + v1alpha1.TenantServiceAccount + "-" + tenant + ": deleted, with the rights in the whole cluster",
	})
}

// eachOf has a line on each object of a list, or on why there is none.
func eachOf[T any](ctx context.Context, from dynamic.ResourceInterface, line func(*T) string) (lines []string) {
	all, err := cluster.Listed[T](ctx, from)
	if err != nil {
		return []string{cluster.Explain(err)}
	}
	for n := range all {
		lines = append(lines, line(&all[n]))
	}
	return lines
}
