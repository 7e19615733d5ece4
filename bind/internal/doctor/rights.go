// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Names in deploy/konnector.
const (
	konnectorRole   = "klutch-bind-konnector"
	konnectorPolicy = "klutch-konnector"
	konnectorUser   = "system:serviceaccount:" + v1alpha1.Namespace + ":konnector"
)

// checkLocks looks whether the konnector that is shipped has more rights than it needs.
// What the person may not see is left out.
func (d *doctor) checkLocks(ctx context.Context) {
	role, err := cluster.Get[metav1.PartialObjectMetadata](ctx, d.app.Resource(cluster.ClusterRoles), konnectorRole)
	if err != nil || role == nil {
		return
	}
	if lacks := d.lacks(ctx, konnectorPolicy); lacks != "" {
		d.note("rights", "konnector", lacks+", so that it may write more than copies and CRDs of bindings", "",
			"Install it as it is shipped now: kubectl bind konnector upgrade --help")
	}
}

// lacks says what keeps a policy from being in force; empty if nothing that the person
// may see.
func (d *doctor) lacks(ctx context.Context, policy string) string {
	p, err := cluster.Get[admissionregistrationv1.ValidatingAdmissionPolicy](ctx, d.app.Resource(cluster.Policies), policy)
	if err != nil {
		return ""
	}
	b, err := cluster.Get[admissionregistrationv1.ValidatingAdmissionPolicyBinding](ctx, d.app.Resource(cluster.PolicyBindings), policy)
	switch {
	case p == nil:
		return "there is no ValidatingAdmissionPolicy " + policy
	case p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy != admissionregistrationv1.Fail:
		return "the ValidatingAdmissionPolicy " + policy + " is ignored where it fails"
	case err != nil:
		return ""
	case b == nil:
		return "there is no ValidatingAdmissionPolicyBinding " + policy
	case b.Spec.PolicyName != policy || b.Spec.MatchResources != nil || !slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny):
		return "the ValidatingAdmissionPolicyBinding " + policy + " does not deny all that the policy is about"
	}
	return ""
}

// checkGrants looks whether a binding gives the konnector more than it needs.
func (d *doctor) checkGrants(ctx context.Context, b *v1alpha1.APIServiceBinding) {
	const hint = "Run kubectl bind repair: it writes the rights anew."
	role, err := cluster.Get[rbacv1.ClusterRole](ctx, d.app.Resource(cluster.ClusterRoles), permission.RoleName(b.Name))
	if err == nil && role != nil {
		if wide := beyond(b.Name, role.Rules); len(wide) > 0 {
			d.note("rights", b.Name, fmt.Sprintf("the ClusterRole %s gives the konnector rights on %s in all namespaces", role.Name, strings.Join(wide, ", ")), "", hint)
		}
	}
	claims, err := cluster.Get[metav1.PartialObjectMetadata](ctx, d.app.Resource(cluster.ClusterRoles), permission.ClaimsName(b.Name))
	if err != nil || claims == nil {
		return
	}
	if lacks := d.lacks(ctx, claims.Name); lacks != "" {
		d.note("rights", b.Name, lacks+", so that the konnector may take the rights of claims in any namespace", "", hint)
	}
}

// checkKind looks whether the konnector that is shipped has its rights on a bound kind.
// What the person may not see is left out.
func (d *doctor) checkKind(ctx context.Context, b *v1alpha1.APIServiceBinding) {
	role, err := cluster.Get[metav1.PartialObjectMetadata](ctx, d.app.Resource(cluster.ClusterRoles), konnectorRole)
	if err != nil || role == nil {
		return
	}
	var missing []string
	for _, rule := range permission.BoundRules(v1alpha1.GroupResource(schema.ParseGroupResource(b.Name))) {
		for _, verb := range rule.Verbs {
			resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
			may, err := cluster.MayUser(ctx, d.app, konnectorUser, authorizationv1.ResourceAttributes{Verb: verb, Group: rule.APIGroups[0], Resource: resource, Subresource: subresource})
			if err != nil {
				return
			}
			if !may {
				missing = append(missing, verb+" "+rule.Resources[0])
			}
		}
	}
	if len(missing) > 0 {
		d.note("rights", b.Name, "the konnector may not "+strings.Join(missing, ", "), "", "Run kubectl bind repair: it writes the rights anew.")
	}
}

// beyond are the resources that rules are about and the binding is not.
func beyond(binding string, rules []rbacv1.PolicyRule) (wide []string) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				gr := v1alpha1.GroupResource{Group: group, Resource: strings.TrimSuffix(resource, "/status")}
				if gr.String() != binding && group != rbacv1.GroupName && !slices.Contains(wide, gr.String()) {
					wide = append(wide, gr.String())
				}
			}
		}
	}
	return wide
}
