// SPDX-License-Identifier: Apache-2.0

package permission

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// claimsPolicy says in which namespaces the konnector may take the rights of a
// binding's claims: where there is an object of the bound kind. That object is the policy's parameter,
// which the API server looks for in the namespace of the request, or anywhere if the kind
// is cluster-scoped; a cluster-scoped kind is refused unless the person who agreed was told so. The policy matches one
// name of a RoleBinding, so that, while its kind is not served or not known to the API server yet, it refuses nothing else. It holds
// for every user who writes that name, so that a person can see whether it is in force.
func claimsPolicy(spec v1alpha1.APIServiceExportSpec, claims []v1alpha1.AcceptablePermissionClaim) *unstructured.Unstructured {
	binding := v1alpha1.GroupResource{Group: spec.Group, Resource: spec.Names.Plural}.String()
	validations := []admissionregistrationv1.Validation{{Message: "no claim of " + binding + " is about this namespace", Expression: NamespacesOf(claims).expression()}}
	if !IsWide(&spec) {
		validations = append(validations, admissionregistrationv1.Validation{
			Message: binding + " has no namespaces", Expression: "has(params.metadata.namespace) && params.metadata.namespace == request.namespace",
		})
	}
	return cluster.Manifest(&admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: ClaimsName(binding)},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			ParamKind:     &admissionregistrationv1.ParamKind{APIVersion: crd.SyncVersion(&spec, "").GroupVersion().String(), Kind: spec.Names.Kind},
			MatchConstraints: wholly([]admissionregistrationv1.NamedRuleWithOperations{{
				ResourceNames: []string{ClaimsName(binding)},
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{rbacv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"rolebindings"}, Scope: new(admissionregistrationv1.AllScopes),
					},
				},
			}}),
			Validations: validations,
		},
	})
}

// wholly writes out what API servers fill in: the constraints are one value to them, on which
// two managers agree only to the letter.
func wholly(rules []admissionregistrationv1.NamedRuleWithOperations) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, ResourceRules: rules,
	}
}

func claimsPolicyBinding(binding string) *unstructured.Unstructured {
	return cluster.Manifest(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: ClaimsName(binding)},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        ClaimsName(binding),
			ParamRef:          &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)},
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
}
