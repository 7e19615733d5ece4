// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// May asks an API server whether we may do something.
func May(ctx context.Context, client dynamic.Interface, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
	}
	return allowed(ctx, client, "selfsubjectaccessreviews", review, "own rights")
}

// MayUser asks an API server whether a user may do something.
func MayUser(ctx context.Context, client dynamic.Interface, user string, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec:     authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &what},
	}
	return allowed(ctx, client, "subjectaccessreviews", review, "rights of "+user)
}

func allowed(ctx context.Context, client dynamic.Interface, resource string, review runtime.Object, what string) (bool, error) {
	answer, err := client.Resource(authorizationv1.SchemeGroupVersion.WithResource(resource)).Create(ctx, Manifest(review), metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed, err
}
