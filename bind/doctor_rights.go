// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Names in deploy/konnector.
const (
	konnectorRole   = "klutch-bind-konnector"
	konnectorPolicy = "klutch-konnector"
)

// checkLocks looks whether the konnector that is shipped has more rights than it needs.
// What the person may not see is left out.
func (d *doctor) checkLocks(ctx context.Context) {
	role, err := get[metav1.PartialObjectMetadata](ctx, d.app.Resource(rolesResource), konnectorRole)
	if err != nil || role == nil {
		return
	}
	policy, err := get[metav1.PartialObjectMetadata](ctx, d.app.Resource(policiesResource), konnectorPolicy)
	if err == nil && policy == nil {
		d.note("rights", "konnector", "there is no ValidatingAdmissionPolicy "+konnectorPolicy+", so that it may write more than copies and CRDs of bindings", "",
			"Install it as it is shipped now: kubectl bind konnector manifests --help")
	}
}

// checkGrants looks whether a binding gives the konnector more than it needs.
func (d *doctor) checkGrants(ctx context.Context, b *v1alpha1.APIServiceBinding) {
	const hint = "Run kubectl bind again for this API: it writes the rights anew."
	role, err := get[rbacv1.ClusterRole](ctx, d.app.Resource(rolesResource), roleName(b.Name))
	if err == nil && role != nil {
		if wide := beyond(b.Name, role.Rules); len(wide) > 0 {
			d.note("rights", b.Name, fmt.Sprintf("the ClusterRole %s gives the konnector rights on %s in all namespaces", role.Name, strings.Join(wide, ", ")), "", hint)
		}
	}
	claims, err := get[metav1.PartialObjectMetadata](ctx, d.app.Resource(rolesResource), claimsName(b.Name))
	if err != nil || claims == nil {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(rightsResources)) {
		if found, err := get[metav1.PartialObjectMetadata](ctx, d.app.Resource(rightsResources[kind]), claims.Name); err == nil && found == nil {
			d.note("rights", b.Name, fmt.Sprintf("there is no %s %s, so that the konnector may take the rights of claims in any namespace", kind, claims.Name), "", hint)
		}
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
