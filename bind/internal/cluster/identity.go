// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/big"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// UIDOf reads the UID of an object from the API server. One that no API server of Kubernetes would give is
// an error: it ends in annotations and conditions.
func UIDOf(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, name cache.ObjectName) (types.UID, error) {
	u, err := client.Resource(gvr).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if uid := u.GetUID(); len(uid) > kubeconfig.LongestUID {
		return "", &kubeconfig.ExcessError{What: fmt.Sprintf("the UID of %s %s has %d bytes, and %d is the most", gvr.Resource, name, len(uid), kubeconfig.LongestUID)}
	}
	return u.GetUID(), nil
}

// TenantUID reads the UID of a tenant namespace.
func TenantUID(ctx context.Context, client dynamic.Interface, name string) (types.UID, error) {
	uid, err := UIDOf(ctx, client, NamespacesResource, cache.NewObjectName("", name))
	if err != nil {
		return "", fmt.Errorf("identify the tenant namespace: %w", err)
	}
	return uid, nil
}

// IsHidden tells whether an API server has no such object or resource, or does not let us see it.
func IsHidden(err error) bool {
	return fates.Is(err, fates.Absent, fates.Unserved, fates.Forbidden, fates.Terminating)
}

// ID names a cluster after its namespace klutch-bind, as every program of
// Klutch does: base62(SHA-224(UID)), cut to 6 characters.
func ID(namespace types.UID) string {
	sum := sha256.Sum224([]byte(namespace))
	text := new(big.Int).SetBytes(sum[:]).Text(62)
	return text[:min(len(text), 6)]
}
