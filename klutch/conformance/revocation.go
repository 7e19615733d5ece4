// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// revocation is how long a token may be good for after its tenant was removed: some
// seconds of grace, and twenty for what API servers remember.
const revocation = 30 * time.Second

func revocationChecks() []check {
	return []check{{"a removed tenant's token is dead in time", "P13", checkRevocation}}
}

// checkRevocation removes a tenant of its own, as an operator does.
func checkRevocation(c checker) {
	if c.ControlPlane == nil {
		c.Skip("Options.ControlPlane is nil")
	}
	t, err := c.newTenant(c.Context(), c.Login, "conformance-3")
	c.must("log in", err)
	admin, err := dynamic.NewForConfig(c.ControlPlane)
	c.must("client of an administrator", err)
	bindings := admin.Resource(v1alpha1.Resource("clusterbindings")).Namespace(t.namespace)
	_, err = bindings.Patch(c.Context(), v1alpha1.ClusterBindingName, types.MergePatchType, []byte(`{"spec":{"deletionPolicy":"Delete"}}`), metav1.PatchOptions{})
	c.must("choose what becomes of a removed tenant", err)
	_, err = read[v1alpha1.ClusterBinding](c.Context(), t, "clusterbindings", v1alpha1.ClusterBindingName)
	c.must("the credential works", err)
	c.must("remove the tenant", bindings.Delete(c.Context(), v1alpha1.ClusterBindingName, metav1.DeleteOptions{}))

	ctx, cancel := context.WithTimeout(c.Context(), revocation)
	defer cancel()
	if !c.eventually(ctx, func(ctx context.Context) bool {
		_, err = t.kube.CoreV1().Namespaces().Get(ctx, t.namespace, metav1.GetOptions{})
		return fates.Is(err, fates.Unauthorized)
	}) {
		c.violated("the token is good %s after its tenant was removed: %v", min(revocation, c.Patience), err)
	}
}
