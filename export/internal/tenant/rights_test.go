// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/klutch-go/sdk/internal/fates"
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

// What RBAC denies the backend shows that its roles are not those of its version, and what admission denies
// does not. Either is of the kind of the answer, asks for the same pause, and is told in few words.
func TestRolesOutdated(t *testing.T) {
	long := strings.Repeat(" and more", 10_000)
	for said, outdated := range map[string]bool{
		`rolebindings.rbac.authorization.k8s.io "klutch-backend" is forbidden: User "backend" cannot create resource "rolebindings" in API group "rbac.authorization.k8s.io" in the namespace "x"`:  true,
		`rolebindings.rbac.authorization.k8s.io "klutch-backend" is forbidden: user "backend" (groups=["a"]) is attempting to grant RBAC permissions not currently held:`:                           true,
		`rolebindings.rbac.authorization.k8s.io "klutch-backend" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: User "backend" cannot create resource "rolebindings"`: false,
		`admission webhook "w.example.org" denied the request: rolebindings is forbidden: User "backend" cannot create resource "rolebindings"`:                                                     false,
		`rolebindings.rbac.authorization.k8s.io "klutch-backend" is forbidden: exceeded quota: q, requested: count/rolebindings=1, used: count/rolebindings=1, limited: count/rolebindings=1`:       false,
		`rolebindings.rbac.authorization.k8s.io "klutch-backend" is forbidden: an admission plugin says no`:                                                                                         false,
	} {
		kube := fake.NewClientset()
		kube.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			denies := a.GetVerb() == "create" && a.GetResource().Resource == "rolebindings"
			return denies, nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: said + long, Details: &metav1.StatusDetails{RetryAfterSeconds: 30},
			}}
		})
		r := &Rights{Clients: Clients{Kube: kube}}
		r.self.Store(&rbacv1.Subject{})
		err := r.Enter(t.Context(), "x", v1alpha1.BackendOfferRole)
		if fates.Of(err) != fates.Forbidden || fates.Asked(err) != 30*time.Second {
			t.Errorf("kind %d, to be asked again in %s: %.300v", fates.Of(err), fates.Asked(err), err)
		}
		told := Against("it", err)
		refused := AsRefusal(err)
		if refused != nil {
			told = refused.Message
		}
		if (refused != nil) != outdated || strings.Contains(told, "kubectl apply -k") != outdated || !strings.Contains(told, said) || len(told) > longestReason {
			t.Errorf("%d bytes are told: %.600s", len(told), told)
		}
	}
	lacking := &rightError{rule: rbacv1.PolicyRule{APIGroups: []string{"a"}, Resources: []string{"b"}}, refused: apierrors.NewForbidden(rbacv1.Resource("roles"), "a", errors.New("no"))}
	if !fates.Is(lacking, fates.Forbidden) || !fates.Is(AsRefusal(lacking), fates.Forbidden) {
		t.Error("a right that cannot be passed on is no refusal of an API server")
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
