// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// InstallCRDs applies the CustomResourceDefinitions of Klutch to a cluster and waits
// until they are served or ctx is done. Backend and konnector have no right to do so:
// it is for installers. A CRD that is there with another scope is an error.
func InstallCRDs(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	crds := client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	all := v1alpha1.CRDs()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if _, err := crds.Apply(ctx, name, all[name], metav1.ApplyOptions{FieldManager: v1alpha1.FieldManager, Force: true}); err != nil {
			return fmt.Errorf("apply CRD %s: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := awaitEstablished(ctx, crds, name); err != nil {
			return fmt.Errorf("wait for CRD %s: %w", name, err)
		}
	}
	return nil
}

func awaitEstablished(ctx context.Context, crds dynamic.ResourceInterface, name string) error {
	const interval = 50 * time.Millisecond
	return wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		crd, err := crds.Get(ctx, name, metav1.GetOptions{})
		return err == nil && established(crd), err
	})
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		fields, ok := c.(map[string]any)
		return ok && fields["type"] == "Established" && fields["status"] == "True"
	})
}
