// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/big"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// uidOf reads the UID of an object from the API server.
func uidOf(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, name cache.ObjectName) (types.UID, error) {
	u, err := client.Resource(gvr).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return u.GetUID(), nil
}

// tenantUID reads the UID of a tenant namespace.
func tenantUID(ctx context.Context, client dynamic.Interface, name string) (types.UID, error) {
	uid, err := uidOf(ctx, client, spacesResource, cache.NewObjectName("", name))
	if err != nil {
		return "", fmt.Errorf("identify the tenant namespace: %w", err)
	}
	return uid, nil
}

// isHidden tells whether a backend does not let its tenants see something.
func isHidden(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// clusterID names a cluster after its namespace klutch-bind, as every program of
// Klutch does: base62(SHA-224(UID)), cut to 6 characters.
func clusterID(namespace types.UID) string {
	sum := sha256.Sum224([]byte(namespace))
	text := new(big.Int).SetBytes(sum[:]).Text(62)
	return text[:min(len(text), 6)]
}
