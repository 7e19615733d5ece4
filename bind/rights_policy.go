// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// claimsPolicy says in which namespaces the konnector may take the rights of a
// binding's claims: that one object of the bound kind is there is said by the parameter,
// which the API server looks for in the namespace of the request, or anywhere if the kind
// turns out to be cluster-scoped. The name keeps a policy whose kind is not served, or not
// known to the API server yet, from refusing what is not about it. It holds for all who
// write that name, so that a person can see whether it is in force.
func claimsPolicy(spec v1alpha1.APIServiceExportSpec, claims []v1alpha1.AcceptablePermissionClaim) *unstructured.Unstructured {
	binding := v1alpha1.GroupResource{Group: spec.Group, Resource: spec.Names.Plural}.String()
	return manifest(&admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: claimsName(binding)},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail),
			ParamKind:     &admissionregistrationv1.ParamKind{APIVersion: syncVersion(&spec, "").GroupVersion().String(), Kind: spec.Names.Kind},
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				ResourceNames: []string{claimsName(binding)},
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{rbacv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"rolebindings"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{
				{Message: "no claim of " + binding + " is about this namespace", Expression: reachOf(claims).expression()},
				{Message: binding + " has no namespaces", Expression: "has(params.metadata.namespace) && params.metadata.namespace == request.namespace"},
			},
		},
	})
}

func claimsPolicyBinding(binding string) *unstructured.Unstructured {
	return manifest(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: claimsName(binding)},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        claimsName(binding),
			ParamRef:          &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)},
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
}

// A reach is where the claims of a binding are about related objects.
type reach struct {
	named  []string
	others bool // all namespaces but those of Kubernetes and of Klutch
}

func reachOf(claims []v1alpha1.AcceptablePermissionClaim) (r reach) {
	for _, c := range claims {
		if c.State != v1alpha1.ClaimAccepted {
			continue
		}
		r.others = r.others || len(c.Selector.Namespaces) == 0 || slices.Contains(c.Selector.Namespaces, anyName)
		r.named = append(r.named, c.Selector.Namespaces...)
	}
	r.named = slices.DeleteFunc(r.named, func(n string) bool { return n == anyName })
	slices.Sort(r.named)
	r.named = slices.Compact(r.named)
	return r
}

// The namespaces that are closed to related objects, unless a claim that was agreed to
// has the very name: those of Kubernetes, and of the programs of Klutch, where the
// credentials of all platforms are. The shipped policy of the konnector closes the same.
const closedPrefix = "kube-"

var closedNames = []string{v1alpha1.Namespace, "klutch-backend"}

// closedPatterns are the closed namespaces as a Sync takes them.
func closedPatterns() []string { return append([]string{closedPrefix + "*"}, closedNames...) }

func isClosed(namespace string) bool {
	return strings.HasPrefix(namespace, closedPrefix) || slices.Contains(closedNames, namespace)
}

// closedExpression is isClosed in CEL.
func closedExpression() string {
	return fmt.Sprintf("request.namespace.startsWith(%q) || request.namespace in %s", closedPrefix, celList(closedNames))
}

// celList is a list of strings in CEL.
func celList(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = strconv.Quote(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func (r reach) covers(namespace string) bool {
	return slices.Contains(r.named, namespace) || r.others && !isClosed(namespace)
}

// expression is covers in CEL.
func (r reach) expression() string {
	text := "request.namespace in " + celList(r.named)
	if r.others {
		text += " || !(" + closedExpression() + ")"
	}
	return text
}

// awaitPolicy returns when the API server holds who takes the rights of a binding's claims
// to the policy: a thief of the konnector's credential could be faster, and keep what it
// got. It tries where the policy admits nothing.
func (i *installer) awaitPolicy(ctx context.Context, binding string, r reach) error {
	nowhere := slices.DeleteFunc([]string{v1alpha1.Namespace, metav1.NamespacePublic, metav1.NamespaceSystem}, r.covers)
	if i.opts.DryRun != "" || len(nowhere) == 0 {
		return nil
	}
	probe := manifest((&grant{binding: binding}).roleBinding(nowhere[0], rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.Namespace, Name: konnectorAccount}))
	bindings := i.app.Resource(roleBindingsResource).Namespace(nowhere[0])
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := bindings.Create(ctx, probe, metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), fmt.Sprintf("ValidatingAdmissionPolicy '%s'", claimsName(binding))), nil
	})
	if err != nil {
		return fmt.Errorf("the ValidatingAdmissionPolicy %s is not in force: %w", claimsName(binding), err)
	}
	return nil
}
