// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

func TestRelated(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	claim := func(change func(*v1alpha1.AcceptablePermissionClaim)) v1alpha1.AcceptablePermissionClaim {
		c := v1alpha1.AcceptablePermissionClaim{
			PermissionClaim: v1alpha1.PermissionClaim{
				GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1",
				Selector: v1alpha1.ResourceSelector{Names: []string{"*"}, Namespaces: []string{"*"}}, // the schema's defaults
			},
			State: v1alpha1.ClaimAccepted,
		}
		if change != nil {
			change(&c)
		}
		return c
	}
	type C = v1alpha1.AcceptablePermissionClaim
	for name, tc := range map[string]struct {
		change   func(*C)
		scope    v1alpha1.Scope
		want     []klutchsync.Related
		problems []string
	}{
		"all":         {want: []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}}}},
		"of provider": {change: func(c *C) { c.Selector.Owner = v1alpha1.OwnerProvider }, want: []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}}}},
		"by name":     {change: func(c *C) { c.Selector.Names = []string{"ca"} }, want: []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"ca"}}}},
		"by namespace": {
			change: func(c *C) { c.Selector.Namespaces = []string{"team"} },
			want:   []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}, Namespaces: []string{"team"}}},
		},
		"by reference": {
			change: func(c *C) { c.Selector.References = []v1alpha1.Reference{{Path: "status.secret"}} },
			want:   []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, References: []string{"status.secret"}}},
		},
		"rejected":           {change: func(c *C) { c.State = v1alpha1.ClaimRejected }},
		"not answered":       {change: func(c *C) { c.State = "" }},
		"required, rejected": {change: func(c *C) { c.State, c.Required = v1alpha1.ClaimRejected, true }, problems: []string{"The claim on secrets is required and was rejected."}},
		"of consumer":        {change: func(c *C) { c.Selector.Owner = v1alpha1.OwnerConsumer }, want: []klutchsync.Related{{Resource: secrets, From: klutchsync.SourceSide, Names: []string{"*"}}}},
		"labels": {
			change: func(c *C) { c.Selector.LabelSelectors = []map[string]string{{"a": "b", "c": "d"}, {"e": "f"}} },
			want: []klutchsync.Related{
				{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}, Labels: "a=b,c=d", KeepLabels: []string{"a", "c", "e"}},
				{Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}, Labels: "e=f", KeepLabels: []string{"a", "c", "e"}},
			},
		},
		"fields": {change: func(c *C) { c.Selector.FieldSelectors = []string{"type=x"} }, problems: []string{"The claim on secrets is not kept: selector.fieldSelectors is not supported."}},
		"names and references": {change: func(c *C) {
			c.Selector.Names, c.Selector.References = []string{"ca"}, []v1alpha1.Reference{{Path: "status.secret"}}
		}, problems: []string{"The claim on secrets is not kept: selector.names and selector.references together are not supported."}},
		"labels of others": {
			change: func(c *C) {
				c.Selector.LabelSelectors = []map[string]string{{"sidecar.istio.io/inject": "true"}}
				c.Update = &v1alpha1.UpdateOptions{
					Labels:      []v1alpha1.Pattern{{Pattern: "tier"}, {Pattern: "*"}, {Pattern: "t*"}, {Pattern: "example.org/*"}, {Pattern: "*/x"}, {Pattern: "*.example.org/x"}, {Pattern: "x.example.org/*/*"}},
					Annotations: []v1alpha1.Pattern{{Pattern: "db.example.org/note"}, {Pattern: "myexample.org/note"}, {Pattern: "cert-manager.io/inject-ca-from"}, {Pattern: "example.org/"}, {Pattern: ""}},
				}
				c.Read = v1alpha1.ReadOptions{Labels: []v1alpha1.Pattern{{Pattern: "not-this-way"}}}
			},
			want: []klutchsync.Related{{
				Resource: secrets, From: klutchsync.TargetSide, Names: []string{"*"}, Labels: "sidecar.istio.io/inject=true",
				KeepLabels: []string{"example.org/*", "tier"}, KeepAnnotations: []string{"db.example.org/note"},
			}},
		},
		"of nodes": {change: func(c *C) { c.Resource = "nodes" }, problems: []string{
			"The claim on nodes was accepted and is refused all the same, since it is cluster-scoped: no provider gets it. kubectl bind claims rejects it.",
		}},
		"adopted":        {change: func(c *C) { c.AutoAdopt = true }, problems: []string{"The claim on secrets is not kept: autoAdopt and autoDonate are not supported."}},
		"cluster-scoped": {scope: v1alpha1.ClusterScope, problems: []string{"The claim on secrets is not kept: claims of a cluster-scoped API are not supported."}},
	} {
		t.Run(name, func(t *testing.T) {
			scope := tc.scope
			if scope == "" {
				scope = v1alpha1.NamespacedScope
			}
			got, problems, _ := claimant{group: "example.org", scope: scope}.related([]C{claim(tc.change)})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("related (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestP32Rights(t *testing.T) {
	accepted := v1alpha1.AcceptablePermissionClaim{State: v1alpha1.ClaimAccepted, PermissionClaim: v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}}}
	rejected := v1alpha1.AcceptablePermissionClaim{State: v1alpha1.ClaimRejected, PermissionClaim: v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "pods"}}}
	spec := v1alpha1.APIServiceExportSpec{}
	spec.Group, spec.Names.Plural, spec.Names.Kind = "example.org", "widgets", "Widget"
	spec.Versions = []v1alpha1.APIServiceExportVersion{{Name: "v0"}, {Name: "v1", Served: true}}
	var got []string
	for _, u := range Rights(spec, []v1alpha1.AcceptablePermissionClaim{accepted, rejected}) {
		got = append(got, u.GetKind()+" "+u.GetName()+" "+u.GetLabels()[v1alpha1.AggregateToKonnectorLabel])
		rules, _, _ := unstructured.NestedSlice(u.Object, "rules")
		for _, r := range rules {
			got = append(got, fmt.Sprint(r))
		}
		if kind, ok, _ := unstructured.NestedMap(u.Object, "spec", "paramKind"); ok {
			got = append(got, fmt.Sprint(kind))
		}
	}
	want := []string{
		"ValidatingAdmissionPolicy klutch-bind-claims-widgets.example.org ",
		"map[apiVersion:example.org/v1 kind:Widget]",
		"ValidatingAdmissionPolicyBinding klutch-bind-claims-widgets.example.org ",
		"ClusterRole klutch-bind-claims-widgets.example.org ",
		"map[apiGroups:[] resources:[secrets] verbs:[get list watch create update patch delete]]",
		"ClusterRole klutch-bind-konnector-widgets.example.org true",
		"map[apiGroups:[example.org] resources:[widgets] verbs:[get list watch update patch]]",
		"map[apiGroups:[example.org] resources:[widgets/status] verbs:[update patch]]",
		"map[apiGroups:[rbac.authorization.k8s.io] resourceNames:[klutch-bind-claims-widgets.example.org] resources:[clusterroles] verbs:[bind]]",
		"map[apiGroups:[rbac.authorization.k8s.io] resourceNames:[klutch-bind-claims-widgets.example.org] resources:[rolebindings] verbs:[get list delete]]",
		"map[apiGroups:[rbac.authorization.k8s.io] resources:[rolebindings] verbs:[create]]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	if n := len(Rights(spec, []v1alpha1.AcceptablePermissionClaim{rejected})); n != 1 {
		t.Errorf("%d objects without claims", n)
	}
}

// P32: claims are about namespaces of Kubernetes and of Klutch only where they name them.
func TestP32Reach(t *testing.T) {
	claim := func(state v1alpha1.ClaimState, namespaces ...string) v1alpha1.AcceptablePermissionClaim {
		return v1alpha1.AcceptablePermissionClaim{State: state, PermissionClaim: v1alpha1.PermissionClaim{Selector: v1alpha1.ResourceSelector{Namespaces: namespaces}}}
	}
	for name, c := range map[string]struct {
		claims []v1alpha1.AcceptablePermissionClaim
		want   []string
	}{
		"all":          {[]v1alpha1.AcceptablePermissionClaim{claim("Accepted")}, []string{"team", "payroll"}},
		"star":         {[]v1alpha1.AcceptablePermissionClaim{claim("Accepted", "*", "kube-public")}, []string{"team", "payroll", "kube-public"}},
		"named":        {[]v1alpha1.AcceptablePermissionClaim{claim("Accepted", "team"), claim("Accepted", "klutch-bind")}, []string{"team", "klutch-bind"}},
		"not rejected": {[]v1alpha1.AcceptablePermissionClaim{claim("Accepted", "team"), claim("Rejected")}, []string{"team"}},
	} {
		var got []string
		for _, namespace := range []string{"team", "payroll", "kube-system", "kube-public", "klutch-bind", "klutch-backend"} {
			if reachOf(c.claims).covers(namespace) {
				got = append(got, namespace)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: namespaces (-want +got):\n%s", name, diff)
		}
	}
}

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
		got := claimsInSync(v1alpha1.ReasonUnsupportedClaim, nil, unanswered(tc.claims, answers))
		if string(got.Status)+got.Reason != tc.want || (got.Reason == "") != (got.Message == "") {
			t.Errorf("%s: %+v, want %s", name, got, tc.want)
		}
	}
}
