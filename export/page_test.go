// SPDX-License-Identifier: Apache-2.0

package export

import (
	"testing"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestClaimWords(t *testing.T) {
	named := claim("secrets", v1alpha1.OwnerConsumer)
	named.Selector.Names = []string{"a", "b"}
	all := claim("configmaps", "")
	all.Required = true
	for want, c := range map[string]v1alpha1.PermissionClaim{
		"Reads secrets of your namespaces: only those called a, b. You may refuse.":   named,
		"Writes configmaps into your namespaces: any of them that the service makes.": all,
	} {
		if got := claimWords(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
