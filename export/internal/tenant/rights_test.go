// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestRules(t *testing.T) {
	got := Rules([]*v1alpha1.APIServiceExport{
		exportedAPI("example.org", "widgets", claimed("secrets", v1alpha1.OwnerProvider), claimed("configmaps", v1alpha1.OwnerConsumer)),
		exportedAPI("example.org", "gadgets", claimed("secrets", ""), claimed("configmaps", v1alpha1.OwnerProvider)),
	})
	write := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: write},
		{APIGroups: []string{"example.org"}, Resources: []string{"gadgets"}, Verbs: write},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"example.org"}, Resources: []string{"widgets"}, Verbs: write},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	withdrawn := exportedAPI("example.org", "widgets", claimed("secrets", v1alpha1.OwnerProvider), claimed("configmaps", v1alpha1.OwnerConsumer))
	drain, read := []string{"get", "list", "watch", "delete"}, []string{"get", "list", "watch"}
	for name, test := range map[string]struct{ got, want []rbacv1.PolicyRule }{
		"withdrawn": {Rules(nil, withdrawn), []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: drain},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: read},
			{APIGroups: []string{"example.org"}, Resources: []string{"widgets"}, Verbs: drain},
		}},
		"another still claims it": {Rules([]*v1alpha1.APIServiceExport{exportedAPI("example.org", "gadgets", claimed("configmaps", v1alpha1.OwnerConsumer))}, withdrawn), []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: write},
			{APIGroups: []string{"example.org"}, Resources: []string{"gadgets"}, Verbs: write},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: read},
			{APIGroups: []string{"example.org"}, Resources: []string{"widgets"}, Verbs: drain},
		}},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := Rules(nil); got == nil || len(got) != 0 {
		t.Errorf("no exports: %v", got)
	}
}

func exportedAPI(group, plural string, claims ...v1alpha1.PermissionClaim) *v1alpha1.APIServiceExport {
	e := &v1alpha1.APIServiceExport{}
	e.Spec.Group, e.Spec.Names.Plural, e.Spec.PermissionClaims = group, plural, claims
	return e
}

func claimed(resource string, owner v1alpha1.Owner) v1alpha1.PermissionClaim {
	return v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: resource}, Version: "v1", Selector: v1alpha1.ResourceSelector{Owner: owner}}
}
