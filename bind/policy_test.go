// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// TestP32AdmissionKnowsTheLists: the shipped policy of the konnector closes the
// namespaces, reserves the groups and lets pass the types of Secrets that the konnector
// does.
func TestP32AdmissionKnowsTheLists(t *testing.T) {
	data, err := os.ReadFile("../deploy/konnector/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policy := strings.Join(strings.Fields(string(data)), " ")
	types := klutchsync.DefaultSecretTypes()
	open := slices.IndexFunc(types, func(name string) bool { return strings.HasSuffix(name, "*") })
	prefix := strings.TrimSuffix(types[open], "*")
	for what, rule := range map[string]string{
		"closed namespaces": "!(" + closedExpression() + ")",
		"reserved groups":   "!" + celList(reserved[:]) + ".exists(g, object.spec.group == g || object.spec.group.endsWith('.' + g))",
		"types of Secrets":  "object.type.startsWith('" + prefix + "') || object.type in " + celList(slices.Delete(types, open, open+1)),
	} {
		if rule = strings.ReplaceAll(rule, `"`, "'"); !strings.Contains(policy, rule) {
			t.Errorf("%s: the policy does not say %s", what, rule)
		}
	}
}

// The closed namespaces are the same to a Sync, to RoleBindings and to policies.
func TestP30ClosedNamespaces(t *testing.T) {
	for _, pattern := range closedPatterns() {
		name := strings.Replace(pattern, "*", "system", 1)
		if !isClosed(name) || (reach{others: true}).covers(name) || !strings.Contains((reach{others: true}).expression(), strings.TrimSuffix(pattern, "*")) {
			t.Errorf("%s is not closed everywhere", name)
		}
	}
}

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

// P20: what is claimed is ordinary, or has to be named, or is no provider's to have.
func TestP20Standing(t *testing.T) {
	for name, want := range map[string]Standing{
		"secrets":                         StandingOrdinary,
		"configmaps":                      StandingOrdinary,
		"secrets.example.com":             StandingByName,
		"pods":                            StandingByName,
		"services":                        StandingByName,
		"endpoints":                       StandingByName,
		"events":                          StandingByName,
		"persistentvolumeclaims":          StandingByName,
		"daemonsets.apps":                 StandingByName,
		"cronjobs.batch":                  StandingByName,
		"ingresses.networking.k8s.io":     StandingByName,
		"applications.argoproj.io":        StandingByName,
		"things.policy.example.com":       StandingByName,
		"things.notklutch.anynines.com":   StandingByName,
		"serviceaccounts":                 StandingNever,
		"nodes":                           StandingNever,
		"namespaces":                      StandingNever,
		"persistentvolumes":               StandingNever,
		"componentstatuses":               StandingNever,
		"bindings":                        StandingNever,
		"roles.rbac.authorization.k8s.io": StandingNever,
		"clusterrolebindings.rbac.authorization.k8s.io":              StandingNever,
		"localsubjectaccessreviews.authorization.k8s.io":             StandingNever,
		"tokenreviews.authentication.k8s.io":                         StandingNever,
		"mutatingwebhookconfigurations.admissionregistration.k8s.io": StandingNever,
		"validatingadmissionpolicies.admissionregistration.k8s.io":   StandingNever,
		"customresourcedefinitions.apiextensions.k8s.io":             StandingNever,
		"apiservices.apiregistration.k8s.io":                         StandingNever,
		"certificatesigningrequests.certificates.k8s.io":             StandingNever,
		"leases.coordination.k8s.io":                                 StandingNever,
		"poddisruptionbudgets.policy":                                StandingNever,
		"apiservicebindings.klutch.anynines.com":                     StandingNever,
		"gates.example-backend.klutch.anynines.com":                  StandingNever,
		"pods/exec":     StandingNever,
		"*":             StandingNever,
		"*.example.com": StandingNever,
	} {
		resource, group, _ := strings.Cut(name, ".")
		got, why := standing(v1alpha1.GroupResource{Group: group, Resource: resource}, false)
		if got != want || (why == "") != (want == StandingOrdinary) {
			t.Errorf("%s is %s since %q, want %s", name, got, why, want)
		}
	}
	if got, _ := standing(v1alpha1.GroupResource{Group: "example.com", Resource: "continents"}, true); got != StandingNever {
		t.Errorf("cluster-scoped: %s", got)
	}
}

// P20: the API server of a cluster-scoped API looks for its objects in no namespace, so that
// a claim of it would be about all of them.
func TestP20ClusterScopedService(t *testing.T) {
	service := v1alpha1.GroupResource{Group: "example.org", Resource: "continents"}
	export := &v1alpha1.APIServiceExport{}
	export.Spec.Scope = v1alpha1.ClusterScope
	i := &installer{existing: map[string]*v1alpha1.APIServiceBinding{}, exports: map[string]*v1alpha1.APIServiceExport{service.String(): export}}
	claim := v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1"}
	if c, err := i.claim(service, claim); err != nil || c.Standing != StandingNever || c.State != v1alpha1.ClaimRejected {
		t.Errorf("%+v, %v", c, err)
	}
	claim.Required = true
	if _, err := i.claim(service, claim); !errors.Is(err, ErrPolicy) {
		t.Errorf("required: %v", err)
	}
}
