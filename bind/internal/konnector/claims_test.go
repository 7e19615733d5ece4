// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"testing"

	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestUnansweredClaims(t *testing.T) {
	claim := func(resource string, required bool, names ...string) v1alpha1.PermissionClaim {
		return v1alpha1.PermissionClaim{
			GroupResource: v1alpha1.GroupResource{Resource: resource}, Version: "v1", Required: required,
			Selector: v1alpha1.ResourceSelector{Names: names},
		}
	}
	answers := []v1alpha1.AcceptablePermissionClaim{
		{PermissionClaim: claim("secrets", true, "ca"), State: v1alpha1.ClaimAccepted},
		{PermissionClaim: claim("configmaps", false), State: v1alpha1.ClaimRejected},
	}
	for name, tc := range map[string]struct {
		claims []v1alpha1.PermissionClaim
		want   string
	}{
		"answered":            {[]v1alpha1.PermissionClaim{claim("secrets", true, "ca"), claim("configmaps", false)}, "True"},
		"taken back":          {nil, "True"},
		"new, required":       {[]v1alpha1.PermissionClaim{claim("secrets", true, "ca"), claim("pods", true)}, "FalseNewClaims"},
		"new, not required":   {[]v1alpha1.PermissionClaim{claim("pods", false)}, "TrueNewClaims"},
		"wider than answered": {[]v1alpha1.PermissionClaim{claim("secrets", true, "*")}, "FalseNewClaims"},
	} {
		got := claimsInSync(v1alpha1.ReasonUnsupportedClaim, nil, permission.Unanswered(tc.claims, answers))
		if string(got.Status)+got.Reason != tc.want || (got.Reason == "") != (got.Message == "") {
			t.Errorf("%s: %+v, want %s", name, got, tc.want)
		}
	}
}
