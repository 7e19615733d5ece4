// SPDX-License-Identifier: Apache-2.0

package permission

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

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Rights are what Rights of package bind returns.
func Rights(spec v1alpha1.APIServiceExportSpec, claims []v1alpha1.AcceptablePermissionClaim) []*unstructured.Unstructured {
	resource := v1alpha1.GroupResource{Group: spec.Group, Resource: spec.Names.Plural}
	binding := resource.String()
	claimed := ClaimRules(claims)
	rules := BoundRules(resource)
	if len(claimed) > 0 {
		rules = append(rules, PassingRules(binding)...)
	}
	var all []*unstructured.Unstructured
	if len(claimed) > 0 {
		all = append(all, claimsPolicy(spec, claims), claimsPolicyBinding(binding), clusterRole(ClaimsName(binding), nil, claimed))
	}
	return append(all, clusterRole(RoleName(binding), map[string]string{v1alpha1.AggregateToKonnectorLabel: "true"}, rules))
}

// AdoptionRights are what AdoptionRights of package bind returns.
func AdoptionRights(resource v1alpha1.GroupResource) *unstructured.Unstructured {
	return clusterRole(AdoptionName(resource.String()), map[string]string{v1alpha1.AggregateToKonnectorLabel: "true"}, []rbacv1.PolicyRule{
		{APIGroups: []string{resource.Group}, Resources: []string{resource.Resource}, Verbs: []string{"create"}},
	})
}

func clusterRole(name string, labels map[string]string, rules []rbacv1.PolicyRule) *unstructured.Unstructured {
	return cluster.Manifest(&rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Rules:      rules,
	})
}

// BoundRules are for the bound objects: they are read, get a finalizer and a status.
func BoundRules(resource v1alpha1.GroupResource) []rbacv1.PolicyRule {
	groups := []string{resource.Group}
	return []rbacv1.PolicyRule{
		{APIGroups: groups, Resources: []string{resource.Resource}, Verbs: []string{"get", "list", "watch", "update", "patch"}},
		{APIGroups: groups, Resources: []string{resource.Resource + "/status"}, Verbs: []string{"update", "patch"}},
	}
}

// ClaimRules are for claimed objects: copies are kept, or originals read.
func ClaimRules(claims []v1alpha1.AcceptablePermissionClaim) []rbacv1.PolicyRule {
	var all []rbacv1.PolicyRule
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

// PassingRules are those by which the konnector takes the rights of a binding's claims, one namespace at
// a time, and gives them back.
func PassingRules(binding string) []rbacv1.PolicyRule {
	group, names := []string{rbacv1.GroupName}, []string{ClaimsName(binding)}
	return []rbacv1.PolicyRule{
		{APIGroups: group, Resources: []string{"clusterroles"}, ResourceNames: names, Verbs: []string{"bind"}},
		{APIGroups: group, Resources: []string{"rolebindings"}, ResourceNames: names, Verbs: []string{"get", "list", "delete"}},
		{APIGroups: group, Resources: []string{"rolebindings"}, Verbs: []string{"create"}}, // which has no name yet
	}
}

// MissingRights returns, as "get, list resource.group", which of rules the konnector
// does not have.
func MissingRights(ctx context.Context, client dynamic.Interface, rules []rbacv1.PolicyRule) ([]string, error) {
	var missing []string
	for _, rule := range rules {
		var verbs []string
		for _, verb := range rule.Verbs {
			resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
			allowed, err := cluster.May(ctx, client, authorizationv1.ResourceAttributes{
				Verb: verb, Group: rule.APIGroups[0], Resource: resource, Subresource: subresource, Name: strings.Join(rule.ResourceNames, ""),
			})
			if err != nil {
				return nil, err
			}
			if !allowed {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			gr := v1alpha1.GroupResource{Group: rule.APIGroups[0], Resource: rule.Resources[0]}
			missing = append(missing, strings.TrimSpace(strings.Join(verbs, ", ")+" "+gr.String()+" "+strings.Join(rule.ResourceNames, "")))
		}
	}
	return slices.Compact(missing), nil
}

// Lacking is MissingRights, which takes a request for each verb, where one review of all
// rules does not show that all is there.
func Lacking(ctx context.Context, client dynamic.Interface, rules []rbacv1.PolicyRule) ([]string, error) {
	review := &authorizationv1.SelfSubjectRulesReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectRulesReview"},
		Spec:     authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault},
	}
	u, err := client.Resource(authorizationv1.SchemeGroupVersion.WithResource("selfsubjectrulesreviews")).Create(ctx, cluster.Manifest(review), metav1.CreateOptions{})
	if err == nil {
		review, err = cluster.Decode[authorizationv1.SelfSubjectRulesReview](u)
	}
	if err != nil || !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return !grants(review.Status.ResourceRules, r) }) {
		return nil, err
	}
	return MissingRights(ctx, client, rules)
}

// grants reports whether one of the rules has all verbs of r on its first resource.
func grants(rules []authorizationv1.ResourceRule, r rbacv1.PolicyRule) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, one) || slices.Contains(all, "*") }
	return slices.ContainsFunc(rules, func(g authorizationv1.ResourceRule) bool {
		return len(g.ResourceNames) == 0 && has(g.APIGroups, r.APIGroups[0]) && has(g.Resources, r.Resources[0]) &&
			!slices.ContainsFunc(r.Verbs, func(v string) bool { return !has(g.Verbs, v) })
	})
}

// MissingMessage says what the konnector may not do, and what gives it the rights.
func MissingMessage(binding string, missing []string, claimed []rbacv1.PolicyRule) string {
	and := ""
	if len(claimed) > 0 {
		var rights []string
		for _, r := range claimed {
			rights = append(rights, strings.Join(r.Verbs, ", ")+" "+v1alpha1.GroupResource{Group: r.APIGroups[0], Resource: r.Resources[0]}.String())
		}
		and = fmt.Sprintf(", and for its claims the ClusterRole %s with %s, without that label, and the ValidatingAdmissionPolicy of that name", ClaimsName(binding), strings.Join(rights, "; "))
	}
	return fmt.Sprintf("In this cluster the konnector may not %s. Create the ClusterRole %s with these rights and the label %s: \"true\"%s; kubectl bind repair does so, run by a person who has them.",
		strings.Join(missing, "; "), RoleName(binding), v1alpha1.AggregateToKonnectorLabel, and)
}
