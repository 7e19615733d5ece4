// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"strings"
	"testing"
)

// FuzzP26Prefix: the name of a tenant is the same each time, and no name of one
// tenant, or of a service namespace of it, begins like those of another.
func FuzzP26Prefix(f *testing.F) {
	f.Add("https://issuer", "ada", "c1", "c10", "team-a")
	f.Add("", "-", "a", "-a", "x-y")
	f.Add("i", "ada#c1", "", "c1", strings.Repeat("x", 63))
	f.Fuzz(func(t *testing.T, issuer, subject, cluster, other, namespace string) {
		one, two := Holder{issuer, subject, cluster}.Namespace("cluster"), Holder{issuer, subject, other}.Namespace("cluster")
		if one != (Holder{issuer, subject, cluster}).Namespace("cluster") {
			t.Error("another name for the same tenant")
		}
		if cluster == other {
			return
		}
		if strings.HasPrefix(serviceNamespaceName(one, namespace), two) || strings.HasPrefix(two, one) {
			t.Errorf("%q and %q: %s and %s", cluster, other, one, two)
		}
	})
}
