// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP20RightsToRemoveCopies: the konnector has the rights on what a claim is about for as long as
// that is accepted, and until the copies are gone.
func TestP20RightsToRemoveCopies(t *testing.T) {
	done := v1alpha1.True(v1alpha1.ConditionClaimsInSync)
	done.ObservedGeneration = 2
	before := v1alpha1.True(v1alpha1.ConditionClaimsInSync)
	before.ObservedGeneration = 1
	remain := v1alpha1.False(v1alpha1.ConditionClaimsInSync, v1alpha1.SeverityWarning, v1alpha1.ReasonRevokedCopiesRemain, "")
	remain.ObservedGeneration = 2
	service := v1alpha1.GroupResource{Group: "example.org", Resource: "widgets"}
	claim := v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1"}
	const accepted, rejected = v1alpha1.ClaimAccepted, v1alpha1.ClaimRejected
	for name, c := range map[string]struct {
		before, now v1alpha1.ClaimState
		said        v1alpha1.Condition
		has, want   bool // the right
	}{
		"accepted":                            {"", accepted, v1alpha1.Condition{}, false, true},
		"rejected":                            {"", rejected, v1alpha1.Condition{}, false, false},
		"revoked":                             {accepted, rejected, done, true, true},
		"revoked, and done":                   {rejected, rejected, done, true, false},
		"revoked, copies remain":              {rejected, rejected, remain, false, true},
		"revoked, no konnector ever":          {rejected, rejected, v1alpha1.Condition{}, true, false},
		"revoked, no konnector since":         {rejected, rejected, before, true, true},
		"revoked, no konnector, and no right": {rejected, rejected, before, false, false},
		"new, other copies remain":            {"", rejected, remain, false, false},
		"the platform has dropped it":         {accepted, "", done, true, true},
		"dropped, and was rejected":           {rejected, "", done, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(state v1alpha1.ClaimState) []v1alpha1.AcceptablePermissionClaim {
				if state == "" {
					return nil
				}
				return []v1alpha1.AcceptablePermissionClaim{{PermissionClaim: claim, State: state}}
			}
			b := &v1alpha1.APIServiceBinding{Spec: v1alpha1.APIServiceBindingSpec{PermissionClaims: answer(c.before)}, Status: v1alpha1.APIServiceBindingStatus{Conditions: []v1alpha1.Condition{c.said}}}
			b.Generation = 2
			a := &consents{
				existing: map[string]*v1alpha1.APIServiceBinding{service.String(): b},
				answers:  map[string][]v1alpha1.AcceptablePermissionClaim{service.String(): answer(c.now)},
				did:      func(string, ...any) {},
			}
			rules := func(has bool) []rbacv1.PolicyRule {
				if !has {
					return nil
				}
				return permission.ClaimRules(answer(accepted))
			}
			if diff := cmp.Diff(rules(c.want), permission.ClaimRules(a.needed(service, rules(c.has)))); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
}
