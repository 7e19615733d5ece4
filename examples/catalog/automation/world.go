// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/examples/catalog/engine"
)

// A key names a claim.
type key struct {
	resource string
	cache.ObjectName
}

// A world is the cluster in which claims are carried out.
type world struct {
	dyn    dynamic.Interface
	core   corev1client.CoreV1Interface
	claims map[string]cache.SharedIndexInformer // by resource
	// engines run data services in earnest, by serviceInstanceType.
	engines map[string]engine.Engine
	// orders of one instance's server are given one after the other, by its UID.
	orders engine.Locks
}

// Claim returns a copy of the claim as the cache has it.
func (w *world) claim(k key) (claim, bool, error) {
	obj, found, err := w.claims[k.resource].GetStore().GetByKey(k.String())
	if err != nil || !found {
		return claim{}, false, err
	}
	u, err := unstructuredOf(obj)
	if err != nil {
		return claim{}, false, err
	}
	of, _ := kindOf(k.resource)
	return claim{of, u.DeepCopy()}, true, nil
}

// setFinalizers fails with a conflict unless c is as the cache has it.
func (w *world) setFinalizers(ctx context.Context, c claim, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": c.GetUID(), "resourceVersion": c.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	_, err = w.dyn.Resource(c.gvr()).Namespace(c.GetNamespace()).
		Patch(ctx, c.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set finalizers: %w", err)
	}
	return nil
}

func claimInformers(dyn dynamic.Interface) map[string]cache.SharedIndexInformer {
	out := map[string]cache.SharedIndexInformer{}
	for _, k := range kinds() {
		out[k.resource] = dynamicinformer.NewFilteredDynamicInformer(dyn, k.gvr(), metav1.NamespaceAll, resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, references: referencesOf}, nil).Informer()
	}
	return out
}

func unstructuredOf(obj any) (*unstructured.Unstructured, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is not a claim", obj)
	}
	return u, nil
}
