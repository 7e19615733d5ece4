// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var (
	readVerbs  = []string{"get", "list", "watch"}
	writeVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	drainVerbs = []string{"get", "list", "watch", "delete"}
)

// rules are the rights of a tenant in its service namespaces: to write what is
// exported to it, to read what the exports claim for the provider, and to write
// what they claim for the App Cluster. Of what is withdrawn nothing can be made or
// changed any more, but what there is can be deleted to the end: an App Cluster lets
// go of an object only when it has seen that its target is gone. One rule a resource,
// in order.
func rules(exports []*v1alpha1.APIServiceExport, withdrawn ...*v1alpha1.APIServiceExport) []rbacv1.PolicyRule {
	verbs := map[schema.GroupResource][]string{}
	grant := func(r v1alpha1.GroupResource, wanted, most []string) {
		if len(wanted) > len(most) {
			wanted = most
		}
		if key := schema.GroupResource(r); len(wanted) > len(verbs[key]) { // each list has all verbs of the shorter ones
			verbs[key] = wanted
		}
	}
	for i, export := range slices.Concat(exports, withdrawn) {
		most := writeVerbs
		if i >= len(exports) {
			most = drainVerbs
		}
		grant(v1alpha1.GroupResource{Group: export.Spec.Group, Resource: export.Spec.Names.Plural}, writeVerbs, most)
		for _, claim := range export.Spec.PermissionClaims {
			grant(claim.GroupResource, claimVerbs(claim), most)
		}
	}
	granted := make([]rbacv1.PolicyRule, 0, len(verbs))
	for r, v := range verbs {
		granted = append(granted, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: v})
	}
	slices.SortFunc(granted, func(a, b rbacv1.PolicyRule) int { return strings.Compare(ruleName(a), ruleName(b)) })
	return granted
}

func claimVerbs(claim v1alpha1.PermissionClaim) []string {
	if claim.Selector.Owner == v1alpha1.OwnerConsumer {
		return writeVerbs
	}
	return readVerbs
}

func ruleName(rule rbacv1.PolicyRule) string {
	return schema.GroupResource{Group: rule.APIGroups[0], Resource: rule.Resources[0]}.String()
}

// A rightError says that the backend may not pass on a right.
type rightError struct{ rule rbacv1.PolicyRule }

func (m *rightError) Error() string {
	return fmt.Sprintf("the backend may not pass on %s on %s: the platform operator has to give it a ClusterRole with this rule and the label %s: \"true\"",
		strings.Join(m.rule.Verbs, ", "), ruleName(m.rule), v1alpha1.AggregateToBackendLabel)
}

// checkRights returns a *rightError if the backend itself has not all of rules,
// without which the API server refuses to let it pass them on, and those that it has.
func (e *Exporter) checkRights(ctx context.Context, rules []rbacv1.PolicyRule) (held []rbacv1.PolicyRule, err error) {
	for _, rule := range rules {
		has, lacking := rule, rule
		has.Verbs, lacking.Verbs = nil, nil
		for _, verb := range rule.Verbs {
			switch allowed, err := e.may(ctx, verb, rule); {
			case err != nil:
				return nil, err
			case allowed:
				has.Verbs = append(has.Verbs, verb)
			default:
				lacking.Verbs = append(lacking.Verbs, verb)
			}
		}
		if len(has.Verbs) > 0 {
			held = append(held, has)
		}
		if len(lacking.Verbs) > 0 && err == nil {
			err = &rightError{lacking}
		}
	}
	return held, err
}

func (e *Exporter) may(ctx context.Context, verb string, rule rbacv1.PolicyRule) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0]},
	}}
	got, err := e.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review own rights: %w", err)
	}
	return got.Status.Allowed, nil
}

// ensureRights gives a tenant rules in one of its service namespaces, and takes all
// others: what the backend may not pass on any more does not keep what is less.
func (e *Exporter) ensureRights(ctx context.Context, namespace, tenant string, rules []rbacv1.PolicyRule) error {
	err := e.ensureRole(ctx, namespace, rules)
	if escalation(err) {
		held, missing := e.checkRights(ctx, rules)
		if _, ok := errors.AsType[*rightError](missing); ok {
			return errors.Join(missing, e.ensureRole(ctx, namespace, held))
		}
	}
	if err != nil {
		return err
	}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: v1alpha1.TenantServiceAccount}
	return e.ensureRoleBinding(ctx, namespace, tenant, role)
}

func (e *Exporter) ensureRole(ctx context.Context, namespace string, rules []rbacv1.PolicyRule) error {
	roles := e.kube.RbacV1().Roles(namespace)
	got, err := roles.Get(ctx, v1alpha1.TenantServiceAccount, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = roles.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantServiceAccount}, Rules: rules}, metav1.CreateOptions{})
	case err == nil && !equality.Semantic.DeepEqual(got.Rules, rules):
		got.Rules = rules
		_, err = roles.Update(ctx, got, metav1.UpdateOptions{})
	}
	return ensured(err, "role", namespace)
}

// escalation reports whether the API server refused to let us pass on rights that
// we have not.
func escalation(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held")
}
