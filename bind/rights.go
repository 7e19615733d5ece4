// SPDX-License-Identifier: Apache-2.0

package bind

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ClusterRoleName is the name of the ClusterRole that lets the konnector handle
// what the binding of the given name is about.
func ClusterRoleName(binding string) string { return "klutch-bind-konnector-" + binding }

// ClusterRole returns the rights that a konnector needs in its App Cluster for a
// binding, aggregated to the konnector's own by their label. Whoever creates it
// must hold them.
func ClusterRole(binding string, resource v1alpha1.GroupResource, claims []v1alpha1.AcceptablePermissionClaim) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   ClusterRoleName(binding),
			Labels: map[string]string{v1alpha1.AggregateToKonnectorLabel: "true"},
		},
		Rules: Rules(resource, claims),
	}
}

// Rules returns the rules of [ClusterRole]: the bound objects are read, get a
// finalizer and a status; copies of claimed objects are kept.
func Rules(resource v1alpha1.GroupResource, claims []v1alpha1.AcceptablePermissionClaim) []rbacv1.PolicyRule {
	groups := []string{resource.Group}
	rules := []rbacv1.PolicyRule{
		{APIGroups: groups, Resources: []string{resource.Resource}, Verbs: []string{"get", "list", "watch", "update", "patch"}},
		{APIGroups: groups, Resources: []string{resource.Resource + "/status"}, Verbs: []string{"update", "patch"}},
	}
	for _, c := range claims {
		if c.State == v1alpha1.ClaimAccepted {
			rules = append(rules, rbacv1.PolicyRule{
				APIGroups: []string{c.Group}, Resources: []string{c.Resource},
				Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
			})
		}
	}
	return rules
}
