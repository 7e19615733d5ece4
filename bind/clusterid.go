// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/big"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ClusterID returns what tells the App Cluster of config apart from other clusters
// of the same person. It is made from the namespace klutch-bind, which is created
// where it is not there yet.
func ClusterID(ctx context.Context, config *rest.Config) (string, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", err
	}
	spaces := client.Resource(spacesResource)
	u, err := spaces.Get(ctx, v1alpha1.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		u, err = spaces.Create(ctx, namespaceManifest(), metav1.CreateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return "", fmt.Errorf("namespace %s: %w", v1alpha1.Namespace, err)
	}
	return clusterID(u.GetUID()), nil
}

// clusterID names a cluster after its namespace klutch-bind, as every program of
// Klutch does: base62(SHA-224(UID)), cut to 6 characters.
func clusterID(namespace types.UID) string {
	sum := sha256.Sum224([]byte(namespace))
	text := new(big.Int).SetBytes(sum[:]).Text(62)
	return text[:min(len(text), 6)]
}

func namespaceManifest() *unstructured.Unstructured {
	return manifest(&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}})
}
