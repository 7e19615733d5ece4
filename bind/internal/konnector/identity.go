// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// boundTenant is the tenant that the Secret was bound to; empty if that is not known.
func (h *heartbeat) boundTenant() types.UID {
	if held := h.session.connection.secret(); held != nil {
		return types.UID(held.GetAnnotations()[v1alpha1.TenantUIDAnnotation])
	}
	return ""
}

// recordTenant records the tenant for the konnectors to come, unless one is recorded.
func (h *heartbeat) recordTenant(ctx context.Context, tenant types.UID) error {
	held := h.session.connection.secret()
	if held == nil || tenant == "" || h.boundTenant() != "" {
		return nil
	}
	err := h.patchSecret(ctx, map[string]any{"metadata": map[string]any{
		"uid": held.GetUID(), "annotations": map[string]string{v1alpha1.TenantUIDAnnotation: string(tenant)},
	}})
	if err != nil {
		return fmt.Errorf("record the tenant on Secret %s of the App Cluster: %w", h.session.connection.name, err)
	}
	return nil
}

// refusal is Connected if nothing may be changed on either side; else it is empty.
func (h *heartbeat) refusal(f found) v1alpha1.Condition {
	switch bound := h.boundTenant(); {
	case bound != "" && f.tenant != "" && bound != f.tenant:
		return failed(v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneReplaced, fmt.Sprintf(
			"%s is not the Control Plane Cluster that Secret %s was bound to: its tenant namespace %s has the UID %s, not %s. Nothing is changed on either side. "+
				"If it has been replaced for good, run kubectl bind again: claims are then carried out anew there. Or remove the annotation %s of the Secret.",
			h.session.place.Server, h.session.connection.name, h.session.place.Namespace, f.tenant, bound, v1alpha1.TenantUIDAnnotation))
	case f.binding != nil && h.heldElsewhere(f.binding):
		return failed(v1alpha1.ConditionConnected, v1alpha1.ReasonTenantHeldByAnotherCluster, fmt.Sprintf(
			"The tenant %[1]s is held by another App Cluster (its namespace kube-system has the UID %[2]s) that uses the same credential; nothing is changed on either side. "+
				"Run kubectl bind for a tenant of this cluster's own. If the other cluster is gone for good, the platform says so by: "+
				`kubectl -n %[1]s patch clusterbinding %[3]s --subresource=status --type=merge -p '{"status":{"clusterUID":""}}'`+
				", and then kubectl bind recover takes up here what it had ordered.",
			h.session.place.Namespace, f.binding.Status.ClusterUID, v1alpha1.ClusterBindingName))
	}
	return v1alpha1.Condition{}
}
