// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// foreseeTenants says what would become of each tenant of the legacy backend if this platform's
// adopted it, where the cluster is a Control Plane Cluster and the person may read it, and
// reports whether there are any.
func (d *doctor) foreseeTenants(ctx context.Context) bool {
	all, err := cluster.Listed[corev1.Namespace](ctx, d.app.Resource(cluster.NamespacesResource))
	if err != nil {
		return false // in an App Cluster no person needs that right
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
		objects, withdrawn := inheritance(ctx, d.app, ns.Name)
		hint := "As it is, this platform's backend leaves it alone."
		if wrong == "" && len(withdrawn) > 0 {
			wrong, hint = "adopted, it would lose "+some(withdrawn)+": their objects stay, and nothing of them is kept in step",
				"Offer them first, cluster-scoped ones by --prefixed-apis and deploy/prefixed, or have the tenant give them up."
		}
		d.note("tenant", ns.Name, wrong, fmt.Sprintf("adopted with --adopt-klutch-tenants=%s when %s binds again; %d objects follow", ns.Name, identity, len(objects)), hint)
		d.found[len(d.found)-1].Objects = objects
	}
	return found
}

// unadoptable says why a backend would not adopt a tenant; it has the same rules.
func unadoptable(ctx context.Context, app *cluster.App, ns *corev1.Namespace) string {
	role, err := cluster.Get[rbacv1.ClusterRole](ctx, app.Resource(cluster.ClusterRoles), v1alpha1.LegacyTenantRole+"-"+ns.Name)
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
		return "no ClusterRole " + v1alpha1.LegacyTenantRole + "-" + ns.Name + " of it shows that Klutch's backend has made it"
	case binding == nil || binding.DeletionTimestamp != nil:
		return "it has no ClusterBinding, or that is being deleted"
	case binding.Spec.KubeconfigSecretRef.Name != v1alpha1.KubeconfigSecretName:
		return "its ClusterBinding names the Secret " + binding.Spec.KubeconfigSecretRef.Name + ", not " + v1alpha1.KubeconfigSecretName
	}
	return ""
}

// inheritance is what a tenant has, and what becomes of it; withdrawn are its exports that would end.
func inheritance(ctx context.Context, app *cluster.App, tenant string) (objects, withdrawn []string) {
	templates, err := templatesIn(ctx, app)
	if err != nil {
		return []string{"templates: " + cluster.Explain(err)}, nil
	}
	exports := eachOf(ctx, app.Resource(cluster.APIServiceExports).Namespace(tenant), func(e *v1alpha1.APIServiceExport) string {
		outcome, goesOn := exportOutcome(ctx, app, e, templates)
		if !goesOn {
			withdrawn = append(withdrawn, e.Name)
		}
		return "APIServiceExport " + e.Name + ": " + outcome
	})
	spaces := eachOf(ctx, app.Resource(cluster.APIServiceNamespaces).Namespace(tenant), func(n *v1alpha1.APIServiceNamespace) string {
		return "Namespace " + n.Status.Namespace + ": stays with what is in it; its RoleBinding " + v1alpha1.TenantRoleBinding + " becomes ours"
	})
	return slices.Concat(exports, spaces, []string{
		"Secret " + tenant + "/" + v1alpha1.TokenAnchorSecret + ": replaced; Klutch's token, which never ends, is refused from then on",
		"ClusterRoleBinding " + v1alpha1.LegacyTenantRole + "-" + tenant + ": deleted, with the rights in the whole cluster",
	}), withdrawn
}

// exportOutcome is what becomes of an export of an adopted tenant, and whether it goes on.
func exportOutcome(ctx context.Context, app *cluster.App, e *v1alpha1.APIServiceExport, templates []template) (outcome string, goesOn bool) {
	n := slices.IndexFunc(templates, func(t template) bool {
		return t.Spec.APIServiceSelector.String() == e.Name
	})
	switch {
	case n < 0:
		return "withdrawn, since no template offers it; its objects stay", false
	case e.Spec.Scope != v1alpha1.ClusterScope:
		return "stays", true
	}
	ready := v1alpha1.FindCondition(templates[n].Status.Conditions, v1alpha1.ConditionReady)
	why := switchedOff(ctx, app, &templates[n].APIServiceExportTemplate)
	switch {
	case ready != nil && ready.Reason == v1alpha1.ReasonClusterScoped:
		why = cmp.Or(why, "the backend's --prefixed-apis do not name it")
	case ready != nil && ready.Status == metav1.ConditionTrue && why == "":
		return "stays", true
	}
	if why != "" {
		return "withdrawn, since it is cluster-scoped and not switched on (" + why + "); its objects stay where they are, and nothing of them is kept in step", false
	}
	return "stays where --prefixed-apis of the backend name it", true
}

// switchedOff says what a cluster-scoped API lacks in this cluster to be served.
func switchedOff(ctx context.Context, app *cluster.App, t *v1alpha1.APIServiceExportTemplate) string {
	if t.Spec.ClusterScopedIsolation != v1alpha1.IsolationPrefixed {
		return "its template does not say clusterScopedIsolation: Prefixed"
	}
	name := v1alpha1.PrefixedReadRole + t.Spec.APIServiceSelector.String()
	role, err := cluster.Get[metav1.PartialObjectMetadata](ctx, app.Resource(cluster.ClusterRoles), name)
	if err == nil && role == nil {
		return "there is no ClusterRole " + name
	}
	return cluster.Trouble(err)
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
