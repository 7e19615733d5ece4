// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A grant is how the konnector takes the rights of a binding's claims: by a RoleBinding
// to itself in each namespace where it needs them.
type grant struct {
	app     *appCluster
	binding string
	reach   reach
	rules   []rbacv1.PolicyRule
}

// access is the RelatedAccess of a Sync.
func (g *grant) access(ctx context.Context, namespace string, wanted bool) (bool, error) {
	switch {
	case !wanted:
		return false, g.giveBack(ctx, namespace)
	case !g.reach.covers(namespace):
		return false, nil
	}
	bindings := g.app.calls.Resource(roleBindingsResource).Namespace(namespace)
	found, err := get[metav1.PartialObjectMetadata](ctx, bindings, claimsName(g.binding))
	if err != nil {
		return false, g.whyNot(err)
	}
	if found != nil && found.DeletionTimestamp == nil {
		return true, nil
	}
	self, err := g.app.self(ctx)
	if err != nil {
		return false, err
	}
	_, err = bindings.Create(ctx, manifest(g.roleBinding(namespace, self)), metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return false, g.whyNot(err)
	}
	audit(ctx, "rights of claims taken in a namespace", "binding", g.binding, "namespace", namespace)
	return true, g.inForce(ctx, namespace)
}

// whyNot says what the API server has against it, without the words that all its
// refusals begin with.
func (g *grant) whyNot(err error) error {
	text := explain(err)
	switch _, why, refused := strings.Cut(text, " denied request: "); {
	case strings.Contains(why, "paramKind"):
		text = "the API server does not know " + g.binding + " yet, half a minute after the CRD was made it does"
	case strings.Contains(why, "no params found"):
		text = "the API server does not see an object of " + g.binding + " there"
	case refused:
		text = why
	}
	return errors.New(text)
}

func (g *grant) roleBinding(namespace string, self rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claimsName(g.binding)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: claimsName(g.binding)},
		Subjects:   []rbacv1.Subject{self},
	}
}

// inForce waits a moment for the API server to know what it was told.
func (g *grant) inForce(ctx context.Context, namespace string) error {
	rule := g.rules[0]
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Second, true, func(ctx context.Context) (bool, error) {
		return may(ctx, g.app.calls, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]})
	})
	if err != nil {
		return fmt.Errorf("the RoleBinding %s gives no rights yet", claimsName(g.binding))
	}
	return nil
}

func (g *grant) giveBack(ctx context.Context, namespace string) error {
	err := g.app.calls.Resource(roleBindingsResource).Namespace(namespace).Delete(ctx, claimsName(g.binding), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		audit(ctx, "rights of claims given back in a namespace", "binding", g.binding, "namespace", namespace)
	}
	return err
}

// self is who the API server takes the konnector for.
func (a *appCluster) self(ctx context.Context) (rbacv1.Subject, error) {
	review, err := a.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return rbacv1.Subject{}, fmt.Errorf("who the konnector is: %w", err)
	}
	user := review.Status.UserInfo.Username
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, nil
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}, nil
}
