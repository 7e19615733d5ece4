// SPDX-License-Identifier: Apache-2.0

package offer

import "github.com/klutch-go/sdk/klutch/v1alpha1"

// UnservedIsolation follows the name of a service whose template asks for an isolation that is
// not served.
const UnservedIsolation = " asks for a clusterScopedIsolation that would let tenants read each other's objects: set it to Namespaced, or leave it out"

// Serves reports whether a service may ask for an isolation.
func Serves(i v1alpha1.Isolation) bool { return i == "" || i == v1alpha1.IsolationNamespaced }

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
