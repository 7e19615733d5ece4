// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/kubeconfig"
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

// adopt copies the offered kubeconfig to the App Cluster's Secret, from where it is
// taken up like any other change of it.
func (h *heartbeat) adopt(ctx context.Context, offered *unstructured.Unstructured) error {
	held := h.session.connection.secret()
	if held == nil {
		return nil // a person has just deleted it, and that is a decision
	}
	encoded, _, _ := unstructured.NestedString(offered.Object, "data", v1alpha1.KubeconfigKey)
	err := h.patchSecret(ctx, map[string]any{
		"metadata": map[string]any{"uid": held.GetUID(), "resourceVersion": held.GetResourceVersion()},
		"data":     map[string]any{v1alpha1.KubeconfigKey: encoded},
	})
	if err != nil {
		return fmt.Errorf("write the rotated credential to Secret %s of the App Cluster: %w", h.session.connection.name, err)
	}
	audit.Record(ctx, "credential rotated")
	return nil
}

// patchSecret merges into the kubeconfig Secret of the App Cluster.
func (h *heartbeat) patchSecret(ctx context.Context, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	name := h.session.connection.name
	_, err = h.session.agent.app.calls.Resource(cluster.Secrets).Namespace(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	return err
}

// leadsTo tells whether k differs from the session's kubeconfig in the token alone.
func (s *session) leadsTo(k *kubeconfig.Kubeconfig) bool {
	return s.place.Server == k.Server && s.place.Namespace == k.Namespace &&
		s.place.TLSServerName == k.TLSServerName && bytes.Equal(s.place.CAData, k.CAData)
}
