// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/identity"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A Grant is how the konnector takes the rights of a binding's claims: by a RoleBinding
// to itself in each namespace where it needs them.
type Grant struct {
	client  dynamic.Interface // of the App Cluster
	binding string
	claimed Namespaces
	Rules   []rbacv1.PolicyRule
}

// NewGrant is how the rights of the claims of a binding are taken; nil if they need none.
func NewGrant(client dynamic.Interface, binding string, claims []v1alpha1.AcceptablePermissionClaim) *Grant {
	rules := ClaimRules(claims)
	if len(rules) == 0 {
		return nil
	}
	return &Grant{client: client, binding: binding, claimed: NamespacesOf(claims), Rules: rules}
}

// Access is the RelatedAccess of a Sync.
func (g *Grant) Access(ctx context.Context, namespace string, wanted bool) (bool, error) {
	switch {
	case !wanted:
		return false, GiveBack(ctx, g.client, g.binding, namespace)
	case !g.Covers(namespace):
		return false, nil
	}
	bindings := g.client.Resource(cluster.RoleBindings).Namespace(namespace)
	found, err := cluster.Get[metav1.PartialObjectMetadata](ctx, bindings, ClaimsName(g.binding))
	if err != nil {
		return false, g.whyNot(err)
	}
	if found != nil && found.DeletionTimestamp == nil {
		return true, nil
	}
	self, err := self(ctx, g.client)
	if err != nil {
		return false, err
	}
	_, err = bindings.Create(ctx, cluster.Manifest(RoleBinding(g.binding, namespace, self)), metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil && !fates.Is(err, fates.Exists) {
		return false, g.whyNot(err)
	}
	audit.Record(ctx, "rights of claims taken in a namespace", "binding", g.binding, "namespace", namespace)
	return true, g.inForce(ctx, namespace)
}

// Covers tells whether the claims are about related objects in a namespace. A nil Grant
// covers all: with rights everywhere, the Sync sees to that.
func (g *Grant) Covers(namespace string) bool { return g == nil || g.claimed.Covers(namespace) }

// whyNot is err in the API server's own words, without the ones that all its
// refusals begin with.
func (g *Grant) whyNot(err error) error {
	why, denial := fates.WhyDenied(err)
	if denial == fates.ParamKindUnknown {
		why = "the API server does not know " + g.binding + " yet, half a minute after the CRD was made it does"
	}
	if denial == fates.ParamsMissing {
		why = "the API server does not see an object of " + g.binding + " there"
	}
	return fates.Reworded(err, cluster.Clip(why))
}

// RoleBinding gives a subject the rights of a binding's claims in a namespace.
func RoleBinding(binding, namespace string, subject rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ClaimsName(binding)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ClaimsName(binding)},
		Subjects:   []rbacv1.Subject{subject},
	}
}

// inForce waits a moment for the API server to know what it was told.
func (g *Grant) inForce(ctx context.Context, namespace string) error {
	rule := g.Rules[0]
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Second, true, func(ctx context.Context) (bool, error) {
		return cluster.May(ctx, g.client, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]})
	})
	if err != nil {
		return fmt.Errorf("the RoleBinding %s gives no rights yet", ClaimsName(g.binding))
	}
	return nil
}

// GiveBack ends the rights of a binding's claims in a namespace.
func GiveBack(ctx context.Context, client dynamic.Interface, binding, namespace string) error {
	err := client.Resource(cluster.RoleBindings).Namespace(namespace).Delete(ctx, ClaimsName(binding), metav1.DeleteOptions{})
	if fates.Is(err, fates.Absent, fates.Unserved) {
		return nil
	}
	if err == nil {
		audit.Record(ctx, "rights of claims given back in a namespace", "binding", binding, "namespace", namespace)
	}
	return err
}

// self is who the API server takes the konnector for.
func self(ctx context.Context, client dynamic.Interface) (rbacv1.Subject, error) {
	review := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectReview"}}
	answer, err := client.Resource(authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews")).Create(ctx, cluster.Manifest(review), metav1.CreateOptions{})
	if err != nil {
		return rbacv1.Subject{}, fmt.Errorf("who the konnector is: %w", err)
	}
	user, _, err := unstructured.NestedString(answer.Object, "status", "userInfo", "username")
	if err != nil {
		return rbacv1.Subject{}, fmt.Errorf("who the konnector is: %w", err)
	}
	return identity.Subject(user), nil
}
