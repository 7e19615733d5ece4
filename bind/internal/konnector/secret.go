// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A kubeconfigSecret is the Secret of the App Cluster that has the kubeconfig of a
// connection.
type kubeconfigSecret struct {
	name     cache.ObjectName
	informer cache.SharedIndexInformer // of this Secret alone
	calls    dynamic.Interface         // of the App Cluster

	rotations pace // of credentials that a platform offers
}

// errManyRotations is why a credential is not taken over yet.
var errManyRotations = errors.New("the platform offers another credential all the time")

// stored returns the Secret from the cache.
func (s *kubeconfigSecret) stored() *unstructured.Unstructured {
	return cluster.Stored(s.informer, s.name)
}

// read returns the kubeconfig, or nil and why there is none.
func (s *kubeconfigSecret) read() (*kubeconfig.Kubeconfig, v1alpha1.Condition) {
	u := s.stored()
	if u == nil {
		return nil, failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretNotFound,
			fmt.Sprintf("Secret %s is not there. %s.", s.name, cluster.Repair(nil)))
	}
	k, err := cluster.ReadSecret(u)
	if err != nil {
		return nil, s.invalid(err)
	}
	return k, v1alpha1.True(v1alpha1.ConditionSecretValid)
}

// boundTenant is the tenant that the Secret was bound to; empty if that is not known.
func (s *kubeconfigSecret) boundTenant() types.UID {
	if stored := s.stored(); stored != nil {
		return types.UID(stored.GetAnnotations()[v1alpha1.TenantUIDAnnotation])
	}
	return ""
}

// recordTenant records the tenant for the konnectors to come, unless one is recorded.
func (s *kubeconfigSecret) recordTenant(ctx context.Context, tenant types.UID) error {
	stored := s.stored()
	if stored == nil || tenant == "" || s.boundTenant() != "" {
		return nil
	}
	err := s.patch(ctx, map[string]any{"metadata": map[string]any{
		"uid": stored.GetUID(), "resourceVersion": stored.GetResourceVersion(), "annotations": map[string]string{v1alpha1.TenantUIDAnnotation: string(tenant)},
	}})
	if err != nil && !fates.Is(err, fates.Conflict) { // who was faster may have recorded it; else the next heartbeat does so
		return fmt.Errorf("record the tenant on Secret %s of the App Cluster: %w", s.name, err)
	}
	return nil
}

// replaceKubeconfig copies the offered kubeconfig to the App Cluster's Secret, from where it is
// taken up like any other change of it.
func (s *kubeconfigSecret) replaceKubeconfig(ctx context.Context, offered *unstructured.Unstructured) error {
	stored := s.stored()
	if stored == nil {
		return nil // a person has just deleted it, and that is a decision
	}
	if !s.rotations.TryAccept() {
		return errManyRotations
	}
	encoded, _, _ := unstructured.NestedString(offered.Object, "data", v1alpha1.KubeconfigKey)
	err := s.patch(ctx, map[string]any{
		"metadata": map[string]any{"uid": stored.GetUID(), "resourceVersion": stored.GetResourceVersion()},
		"data":     map[string]any{v1alpha1.KubeconfigKey: encoded},
	})
	if err != nil {
		return fmt.Errorf("write the rotated credential to Secret %s of the App Cluster: %w", s.name, err)
	}
	audit.Record(ctx, "credential rotated")
	return nil
}

// unkept is Heartbeating where a write to the Secret was refused, or has to wait.
func (s *kubeconfigSecret) unkept(err error) v1alpha1.Condition {
	if errors.Is(err, errManyRotations) {
		return warned(v1alpha1.ConditionHeartbeating, v1alpha1.ReasonStepFailed, fmt.Sprintf(
			"The platform offers another credential all the time. The konnector writes a new one to Secret %s once a minute at most, and objects are kept in step as long as the token in it is good.", s.name))
	}
	return warned(v1alpha1.ConditionHeartbeating, v1alpha1.ReasonKubeconfigSecretUpdateFailed, fmt.Sprintf(
		"The Secret %s of this cluster cannot be written: %s. Objects are kept in step as long as the token in it is good; the next one has to be written there. It is tried again by itself.", s.name, cluster.Explain(err)))
}

// annotate sets an annotation of the Secret, or removes it for "".
func (s *kubeconfigSecret) annotate(ctx context.Context, key, text string) error {
	stored := s.stored()
	if stored == nil {
		return errors.New("the kubeconfig Secret is not there")
	}
	var value any
	if text != "" {
		value = text
	}
	err := s.patch(ctx, map[string]any{"metadata": map[string]any{"uid": stored.GetUID(), "annotations": map[string]any{key: value}}})
	if err != nil {
		return fmt.Errorf("write annotation %s of Secret %s of the App Cluster: %w", key, s.name, err)
	}
	return nil
}

// patch merges into the kubeconfig Secret of the App Cluster. What an API server has against that is told
// without its words: an admission policy may quote the token.
func (s *kubeconfigSecret) patch(ctx context.Context, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = s.calls.Resource(cluster.Secrets).Namespace(s.name.Namespace).Patch(ctx, s.name.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	return fates.Withheld(err)
}

// samePlace tells whether two kubeconfigs differ in the token alone.
func samePlace(a, b *kubeconfig.Kubeconfig) bool {
	return a.Server == b.Server && a.Namespace == b.Namespace && a.TLSServerName == b.TLSServerName && bytes.Equal(a.CAData, b.CAData)
}

// invalid says why the kubeconfig is refused.
func (s *kubeconfigSecret) invalid(err error) v1alpha1.Condition {
	return failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretInvalid,
		fmt.Sprintf("The kubeconfig in Secret %s is refused: %v. %s.", s.name, err, cluster.Repair(s.stored())))
}
