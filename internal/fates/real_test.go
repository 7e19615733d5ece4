// SPDX-License-Identifier: Apache-2.0

//go:build unix

package fates

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// A real API server says what the table takes from causes and texts, which no type has.
func TestRealTexts(t *testing.T) {
	t.Parallel()
	config := cluster.ForTest(t, "fates").Config()
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	maps := admin.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	apply := func(manager, value string, uid types.UID) error {
		m := applycorev1.ConfigMap("a", metav1.NamespaceDefault).WithData(map[string]string{"x": value})
		if uid != "" {
			m = m.WithUID(uid)
		}
		_, err := maps.Apply(ctx, m, metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	if err := apply("one", "1", ""); err != nil {
		t.Fatal(err)
	}
	held := apply("two", "2", "")
	if got := strings.Join(Holders(held), ", "); Of(held) != Contested || got != "one (.data.x)" {
		t.Errorf("fields are held by %s: kind %d, %v", got, Of(held), held)
	}
	if err := apply("one", "1", "11111111-1111-1111-1111-111111111111"); Of(err) != Replaced {
		t.Errorf("an object of another UID: kind %d, %v", Of(err), err)
	}
	if err := escalate(ctx, admin, config); !Escalates(err) {
		t.Errorf("what a user is told who passes on rights without having them: %v", err)
	}
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = `a "nobody"`
	if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !LacksRight(err) {
		t.Errorf("what a user is told who has no rights: %v", err)
	}
	if err := deny(ctx, admin); err != nil {
		t.Fatal(err)
	}
	var denied error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, denied = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return DeniedBy(denied, "no-more"), nil
	})
	if err != nil || DeniedBy(denied, "no") {
		t.Errorf("a policy denies: %v, %v", err, denied)
	}
	if why, denial := WhyDenied(denied); LacksRight(denied) || denial != Denied || why != "failed expression: false" {
		t.Errorf("a policy denies: %q, %d", why, denial)
	}
}

// escalate has a user who may write Roles make one with more rights.
func escalate(ctx context.Context, admin kubernetes.Interface, config *rest.Config) error {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "writer"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"create"}}}}
	if _, err := admin.RbacV1().Roles(metav1.NamespaceDefault).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "writer"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "writer"}},
	}
	if _, err := admin.RbacV1().RoleBindings(metav1.NamespaceDefault).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = "writer"
	writer, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	more := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}}
	var answer error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, answer = writer.RbacV1().Roles(metav1.NamespaceDefault).Create(ctx, more, metav1.CreateOptions{})
		return answer == nil || Escalates(answer), nil // the API server takes a moment to know the writer's own rights
	})
	if err != nil && answer == nil {
		return err
	}
	return answer
}

// deny has a policy called no-more refuse ConfigMaps.
func deny(ctx context.Context, admin kubernetes.Interface) error {
	policies := admin.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-more"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-more"},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "no-more", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}, metav1.CreateOptions{})
	return err
}
