// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// stolenToken: it dies by itself within the hour; and within twenty seconds of the
// tenant's removal, while objects that do not go keep all the rest of it there.
func stolenToken(t *testing.T, c *tenantClient) {
	t.Helper()
	w := c.w
	if left := time.Until(expiry(t, c.config.BearerToken)); left > time.Hour {
		t.Errorf("the token is good for %s", left)
	}
	own := w.dyn.Resource(widgets).Namespace(c.namespace + "-team-a")
	if _, err := own.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.org/held"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.remove(t, v1alpha1.DeletionPolicyDelete)
	w.eventually("its anchor is gone", func(ctx context.Context) (bool, error) {
		_, err := w.admin.CoreV1().Secrets(c.namespace).Get(ctx, v1alpha1.TokenAnchorSecret, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := c.kube.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
		return apierrors.IsUnauthorized(err), nil
	})
	if err != nil {
		t.Error("a stolen token is good for longer")
	}
	if ns, err := w.admin.CoreV1().Namespaces().Get(t.Context(), c.namespace, metav1.GetOptions{}); err != nil || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("the tenant namespace: %v, %v", ns.Status.Phase, err)
	}
	if _, err := w.admin.RbacV1().RoleBindings(c.namespace).Get(t.Context(), v1alpha1.TenantRoleBinding, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("rights of one who gets another token: %v", err)
	}
	if _, err := own.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.isGone(c.namespace)
}
