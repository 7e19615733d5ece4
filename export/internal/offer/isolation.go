// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"slices"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	// ReasonClusterScoped is why a cluster-scoped API is not exported.
	ReasonClusterScoped = v1alpha1.ReasonClusterScoped
	// AdviceUnfit is what a person can do about an API that does not fit App Clusters.
	AdviceUnfit = "Ask the platform team to offer a namespaced API in its place."
)

// Prefixed are the names of the cluster-scoped APIs that the platform team has switched on:
// their objects bear the name of the tenant namespace in front, and RBAC cannot limit what a
// tenant reads to that.
type Prefixed []string

// Unfit says why App Clusters cannot have an API as it is offered; empty means that they can.
func (p Prefixed) Unfit(s Service) string {
	wide := s.Scope == v1alpha1.ClusterScope
	switch {
	case !wide && (s.Isolation == "" || s.Isolation == v1alpha1.IsolationNamespaced):
		return ""
	case !wide:
		return s.Name() + " is namespaced and asks for a clusterScopedIsolation that would let tenants read each other's objects: set it to Namespaced, or leave it out"
	case s.Isolation != v1alpha1.IsolationPrefixed:
		return s.Name() + " is cluster-scoped, and App Clusters can have namespaced APIs alone: what one tenant has could not be kept from the others; offer a namespaced one"
	case !slices.Contains(p, s.Name()):
		return s.Name() + " is cluster-scoped and asks for clusterScopedIsolation Prefixed, which would let its tenants read each other's objects: offer a namespaced API, " +
			"or switch it on by its name (--prefixed-apis of the backend, see deploy/prefixed)"
	}
	return ""
}

// Shared reports whether tenants can read each other's objects of an API that is served.
func (s Service) Shared() bool { return s.Scope == v1alpha1.ClusterScope }

// Wide reports whether an API is cluster-scoped in App Clusters.
func (s Service) Wide() bool { return s.Shared() || s.Isolation == v1alpha1.IsolationNamespaced }

// isolated is what App Clusters get to see of an API. Where a namespaced one stands for a
// cluster-scoped one, a tenant's rights are as ever those on its service namespaces.
func isolated(spec *v1alpha1.APIServiceExportCRDSpec, i v1alpha1.Isolation) *v1alpha1.APIServiceExportCRDSpec {
	if i != v1alpha1.IsolationNamespaced || spec.Scope != v1alpha1.NamespacedScope {
		return spec
	}
	wide := *spec
	wide.Scope = v1alpha1.ClusterScope
	return &wide
}
