// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"context"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Why rights are not to be had is said in few words, and is of the kind of the answer, by which it
// is paced.
func TestAccessRefused(t *testing.T) {
	claim := v1alpha1.AcceptablePermissionClaim{
		PermissionClaim: v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1", Selector: v1alpha1.ResourceSelector{Names: []string{"*"}}},
		State:           v1alpha1.ClaimAccepted,
	}
	for message, want := range map[string]string{
		`rolebindings "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not there`:                              "not there",
		`rolebindings "a" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to find resource referenced by paramKind`:         "the API server does not know widgets.example.org yet, half a minute after the CRD was made it does",
		`rolebindings "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no params found for policy binding`:     "the API server does not see an object of widgets.example.org there",
		`rolebindings.rbac.authorization.k8s.io "a" is forbidden: User "konnector" cannot get resource "rolebindings" in the namespace "team"`: `User "konnector" cannot get resource`,
	} {
		app := fakecluster.New(fakecluster.Resource{GroupVersionResource: cluster.RoleBindings, Kind: "RoleBinding"})
		team := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}}}
		if _, err := app.Client().Resource(cluster.NamespacesResource).Create(t.Context(), team, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		answer := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}}
		app.Intercept(func(context.Context, fakecluster.Request, func() error) error { return answer })
		granted, err := NewGrant(app.Client(), "widgets.example.org", []v1alpha1.AcceptablePermissionClaim{claim}).Access(t.Context(), "team", true)
		if granted || fates.Of(err) != fates.Forbidden || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "denied request") {
			t.Errorf("granted %t, kind %d: %v", granted, fates.Of(err), err)
		}
	}
}
