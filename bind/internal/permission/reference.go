// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"strings"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// HandedOver are the paths by which objects name what the App Cluster hands over.
func HandedOver(claims []v1alpha1.AcceptablePermissionClaim) (paths [][]string) {
	for _, c := range claims {
		if c.State != v1alpha1.ClaimAccepted || c.Selector.Owner != v1alpha1.OwnerConsumer {
			continue
		}
		for _, r := range c.Selector.References {
			paths = append(paths, pathOf(r))
		}
	}
	return paths
}

func pathOf(r v1alpha1.Reference) []string {
	return strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.Path, "$"), "."), ".")
}
