// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP20RightsToRemoveCopies: the konnector has the rights on what a claim is about for as long as
// that is accepted, and until the copies are gone.
func TestP20RightsToRemoveCopies(t *testing.T) {
	remain := []v1alpha1.Condition{v1alpha1.False(v1alpha1.ConditionClaimsInSync, v1alpha1.SeverityWarning, v1alpha1.ReasonRevokedCopiesRemain, "")}
	service := v1alpha1.GroupResource{Group: "example.org", Resource: "widgets"}
	claim := v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1"}
	for name, c := range map[string]struct {
		before, now v1alpha1.ClaimState
		said        []v1alpha1.Condition
		want        v1alpha1.ClaimState
	}{
		"accepted":                 {"", v1alpha1.ClaimAccepted, nil, v1alpha1.ClaimAccepted},
		"rejected":                 {"", v1alpha1.ClaimRejected, nil, v1alpha1.ClaimRejected},
		"revoked":                  {v1alpha1.ClaimAccepted, v1alpha1.ClaimRejected, nil, v1alpha1.ClaimAccepted},
		"revoked, and done":        {v1alpha1.ClaimRejected, v1alpha1.ClaimRejected, []v1alpha1.Condition{v1alpha1.True(v1alpha1.ConditionClaimsInSync)}, v1alpha1.ClaimRejected},
		"revoked, copies remain":   {v1alpha1.ClaimRejected, v1alpha1.ClaimRejected, remain, v1alpha1.ClaimAccepted},
		"new, other copies remain": {"", v1alpha1.ClaimRejected, remain, v1alpha1.ClaimRejected},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(state v1alpha1.ClaimState) []v1alpha1.AcceptablePermissionClaim {
				if state == "" {
					return nil
				}
				return []v1alpha1.AcceptablePermissionClaim{{PermissionClaim: claim, State: state}}
			}
			b := &v1alpha1.APIServiceBinding{Spec: v1alpha1.APIServiceBindingSpec{PermissionClaims: answer(c.before)}, Status: v1alpha1.APIServiceBindingStatus{Conditions: c.said}}
			a := &consents{
				existing: map[string]*v1alpha1.APIServiceBinding{service.String(): b},
				answers:  map[string][]v1alpha1.AcceptablePermissionClaim{service.String(): answer(c.now)},
				did:      func(string, ...any) {},
			}
			if diff := cmp.Diff(answer(c.want), a.needed(service)); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
}
