// SPDX-License-Identifier: Apache-2.0

// Package identity says who a program is to an API server. The konnector and the
// backend grant rights to themselves in namespaces that they make, and for that they
// need the name under which RBAC knows them; the API server tells it by a
// SelfSubjectReview, which every identity may create.
package identity

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Self returns the subject that the API server takes the owner of kube for: a
// ServiceAccount or a user.
func Self(ctx context.Context, kube kubernetes.Interface) (rbacv1.Subject, error) {
	review, err := kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return rbacv1.Subject{}, fmt.Errorf("review own identity: %w", err)
	}
	return Subject(review.Status.UserInfo.Username), nil
}

// Subject returns the user of that name as the subject of a binding: a ServiceAccount if the
// name is that of one.
func Subject(username string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(username, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return ServiceAccount(namespace, name)
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: username}
}

// ServiceAccount returns a ServiceAccount as the subject of a binding.
func ServiceAccount(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}
