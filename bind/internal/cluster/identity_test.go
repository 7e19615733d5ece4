// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
)

// The identifier is that of other programs for the same namespace.
func TestClusterID(t *testing.T) {
	a, b := ID("0f3ab1c2-0000-4000-8000-000000000001"), ID("0f3ab1c2-0000-4000-8000-000000000002")
	if len(a) != 6 || a == b || a != ID("0f3ab1c2-0000-4000-8000-000000000001") {
		t.Errorf("clusterID = %q and %q", a, b)
	}
}
