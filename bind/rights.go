// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// roleName is the name of a binding's ClusterRole.
func roleName(binding string) string { return "klutch-bind-konnector-" + binding }

// ClusterRole returns the rights that a konnector needs in its App Cluster for a
// binding, aggregated to the konnector's own by their label. Whoever creates it
// must hold them.
func ClusterRole(binding string, resource v1alpha1.GroupResource, claims []v1alpha1.AcceptablePermissionClaim) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   roleName(binding),
			Labels: map[string]string{v1alpha1.AggregateToKonnectorLabel: "true"},
		},
		Rules: rules(resource, claims),
	}
}

// rules are those of [ClusterRole]: the bound objects are read, get a finalizer and a
// status; copies of claimed objects are kept.
func rules(resource v1alpha1.GroupResource, claims []v1alpha1.AcceptablePermissionClaim) []rbacv1.PolicyRule {
	groups := []string{resource.Group}
	all := []rbacv1.PolicyRule{
		{APIGroups: groups, Resources: []string{resource.Resource}, Verbs: []string{"get", "list", "watch", "update", "patch"}},
		{APIGroups: groups, Resources: []string{resource.Resource + "/status"}, Verbs: []string{"update", "patch"}},
	}
	for _, c := range claims {
		if c.State != v1alpha1.ClaimAccepted {
			continue
		}
		verbs := []string{"get", "list", "watch"}
		if c.Selector.Owner != v1alpha1.OwnerConsumer {
			verbs = append(verbs, "create", "update", "patch", "delete")
		}
		all = append(all, rbacv1.PolicyRule{APIGroups: []string{c.Group}, Resources: []string{c.Resource}, Verbs: verbs})
	}
	return all
}

// missingRights returns, as "get, list resource.group", which of rules the konnector
// does not have.
func (a *appCluster) missingRights(ctx context.Context, rules []rbacv1.PolicyRule) ([]string, error) {
	var missing []string
	for _, rule := range rules {
		var verbs []string
		for _, verb := range rule.Verbs {
			resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
			allowed, err := may(ctx, a.calls, authorizationv1.ResourceAttributes{Verb: verb, Group: rule.APIGroups[0], Resource: resource, Subresource: subresource})
			if err != nil {
				return nil, err
			}
			if !allowed {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			gr := v1alpha1.GroupResource{Group: rule.APIGroups[0], Resource: rule.Resources[0]}
			missing = append(missing, strings.Join(verbs, ", ")+" "+gr.String())
		}
	}
	return slices.Compact(missing), nil
}

// may asks an API server whether we may do something.
func may(ctx context.Context, client dynamic.Interface, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
	}
	answer, err := client.Resource(authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")).Create(ctx, manifest(review), metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("own rights: %w", err)
	}
	allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed, err
}

func missingMessage(binding string, missing []string) string {
	return fmt.Sprintf("In this cluster the konnector may not %s. Create the ClusterRole %s with these rights and the label %s: \"true\"; kubectl bind does so for whoever has them.",
		strings.Join(missing, "; "), roleName(binding), v1alpha1.AggregateToKonnectorLabel)
}
