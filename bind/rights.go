// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Rights returns what lets a konnector work on a binding in its App Cluster, of which
// spec says what is bound: a ClusterRole that is aggregated to the konnector's own by its
// label, for the bound kind in all namespaces. If claims are accepted, also a ClusterRole
// for the claimed kinds that the konnector may bind in a namespace, and a policy by which the API
// server admits that only where an object of the bound kind is. A person who creates
// the ClusterRoles must hold these rights. What narrows the rights comes before them, to be
// created in this order.
func Rights(spec v1alpha1.APIServiceExportSpec, claims []v1alpha1.AcceptablePermissionClaim) []*unstructured.Unstructured {
	return permission.Rights(spec, claims)
}

// AdoptionRights returns what lets a konnector, beside Rights, make claims for objects of the
// provider: see MaxAdoptedObjects of the binding.
func AdoptionRights(resource v1alpha1.GroupResource) *unstructured.Unstructured {
	return permission.AdoptionRights(resource)
}
