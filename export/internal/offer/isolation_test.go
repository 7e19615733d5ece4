// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"testing"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A namespaced API stands for a cluster-scoped one by the word of its template alone, and no
// isolation is served that would let tenants read each other's objects.
func TestP12Isolation(t *testing.T) {
	for isolation, served := range map[v1alpha1.Isolation]bool{"": true, v1alpha1.IsolationNamespaced: true, v1alpha1.IsolationPrefixed: false, v1alpha1.IsolationNone: false} {
		widgets, none := widgetService(), Prefixed{}
		widgets.Scope, widgets.Isolation = v1alpha1.NamespacedScope, isolation
		if unfit := none.Unfit(widgets); (unfit == "") != served || widgets.Shared() {
			t.Errorf("%q is not served: %q", isolation, unfit)
		}
		// A cluster-scoped API is, where both its template and the platform say so.
		widgets.Scope = v1alpha1.ClusterScope
		for listed, served := range map[*Prefixed]bool{&none: false, {"gadgets.example.org"}: false, {widgets.Name()}: isolation == v1alpha1.IsolationPrefixed} {
			if unfit := listed.Unfit(widgets); (unfit == "") != served {
				t.Errorf("cluster-scoped with %q where %v are switched on: %q", isolation, *listed, unfit)
			}
		}
		for _, scope := range []v1alpha1.Scope{v1alpha1.NamespacedScope, v1alpha1.ClusterScope} {
			spec := &v1alpha1.APIServiceExportCRDSpec{Group: "example.org", Scope: scope}
			want := scope
			if isolation == v1alpha1.IsolationNamespaced {
				want = v1alpha1.ClusterScope
			}
			if got := isolated(spec, isolation); got.Scope != want || got.Group != spec.Group || spec.Scope != scope {
				t.Errorf("%s with %q: %s, and was made %s", scope, isolation, got.Scope, spec.Scope)
			}
		}
	}
}
