// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A backend is given no rights on what was in the App Cluster before it.
func TestP21CheckService(t *testing.T) {
	for name, want := range map[string]bool{
		"postgresqlinstances.anynines.com":       true,
		"things.example.com":                     true,
		"things.k8s.io.example.com":              true,
		"secrets":                                false,
		"deployments.apps":                       false,
		"clusterroles.rbac.authorization.k8s.io": false,
		"things.k8s.io":                          false,
		"things.x.kubernetes.io":                 false,
		"apiservicebindings.klutch.anynines.com": false,
		"things.sub.klutch.anynines.com":         false,
		"*.example.com":                          false,
		"things.*":                               false,
		"things/status.example.com":              false,
		"Things.example.com":                     false,
		"things.example.com.":                    false,
		"things.\x1b[2J.com":                     false,
	} {
		resource, group, _ := strings.Cut(name, ".")
		err := checkService(v1alpha1.GroupResource{Group: group, Resource: resource})
		if (err == nil) != want || err != nil && !errors.Is(err, ErrPolicy) {
			t.Errorf("checkService(%q) = %v", name, err)
		}
	}
}

func TestP21CheckClaim(t *testing.T) {
	claim := func(group, resource string, names ...string) Claim {
		return Claim{AcceptablePermissionClaim: v1alpha1.AcceptablePermissionClaim{PermissionClaim: v1alpha1.PermissionClaim{
			GroupResource: v1alpha1.GroupResource{Group: group, Resource: resource}, Selector: v1alpha1.ResourceSelector{Names: names},
		}}}
	}
	in := func(namespaces ...string) Claim {
		c := claim("", "secrets")
		c.Selector.Namespaces = namespaces
		return c
	}
	for _, c := range []struct {
		claim Claim
		ok    bool
	}{
		{claim("", "secrets"), true},
		{claim("", "secrets", "*"), true},
		{claim("example.com", "things", "a", "b.c"), true},
		{claim("*", "secrets"), false},
		{claim("", "*"), false},
		{claim("", "pods/exec"), false},
		{claim("", "secrets", "a", ""), false},
		{claim("", "secrets", "a*"), false},
		{claim("", "secrets", slices.Repeat([]string{"a"}, mostParts)...), true},
		{claim("", "secrets", slices.Repeat([]string{"a"}, mostParts+1)...), false},
		{in("team", "*"), true},
		{in("team\" and no other"), false},
	} {
		if err := checkClaim(c.claim); (err == nil) != c.ok {
			t.Errorf("checkClaim(%v) = %v", c.claim.PermissionClaim, err)
		}
	}
}

// P20: the API server of a cluster-scoped API looks for its objects in no namespace, so that
// a claim of it is about all of them, and takes an answer that names it.
func TestP20ClusterScopedService(t *testing.T) {
	service := v1alpha1.GroupResource{Group: "example.org", Resource: "continents"}
	export := &v1alpha1.APIServiceExport{}
	export.Spec.Scope = v1alpha1.ClusterScope
	a := &consents{existing: map[string]*v1alpha1.APIServiceBinding{}, exports: map[string]*v1alpha1.APIServiceExport{service.String(): export}}
	claim := v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1"}
	if c, err := a.claim(t.Context(), service, claim); err != nil || c.Standing != StandingNever || c.State != v1alpha1.ClaimRejected {
		t.Errorf("%+v, %v", c, err)
	}
	export.Spec.ClusterScopedIsolation = v1alpha1.IsolationPrefixed
	if c, err := a.claim(t.Context(), service, claim); err != nil || !c.Wide || c.Standing != StandingByName || c.State != "" || !strings.Contains(c.Why, "each namespace") {
		t.Errorf("with a prefix: %+v, %v", c, err)
	}
	export.Spec.ClusterScopedIsolation = v1alpha1.IsolationNamespaced
	claim.Required = true
	if _, err := a.claim(t.Context(), service, claim); !errors.Is(err, ErrPolicy) {
		t.Errorf("required: %v", err)
	}
}
