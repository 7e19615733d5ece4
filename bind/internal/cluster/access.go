// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// May asks an API server whether we may do something.
func May(ctx context.Context, client dynamic.Interface, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
	}
	answer, err := client.Resource(authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")).Create(ctx, Manifest(review), metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("own rights: %w", err)
	}
	allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed, err
}

// MayUser asks an API server whether a user may do something.
func MayUser(ctx context.Context, client dynamic.Interface, user string, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec:     authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &what},
	}
	answer, err := client.Resource(authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")).Create(ctx, Manifest(review), metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("rights of %s: %w", user, err)
	}
	allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed, err
}
