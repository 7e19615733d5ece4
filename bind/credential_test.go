// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"testing"

	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// Everyone who binds to one place finds the same Secret; other places have others.
func TestSecretName(t *testing.T) {
	a := secretName(&kubeconfig.Kubeconfig{Server: "https://a", Namespace: "n", Token: "1"})
	seen := map[string]bool{a: true}
	for _, k := range []kubeconfig.Kubeconfig{{Server: "https://a", Namespace: "m"}, {Server: "https://b", Namespace: "n"}, {Server: "https://a n", Namespace: ""}} {
		seen[secretName(&k)] = true
	}
	if len(seen) != 4 || a != secretName(&kubeconfig.Kubeconfig{Server: "https://a", Namespace: "n", Token: "2"}) || len(a) != len("kubeconfig-xxxxx") {
		t.Errorf("names %v", seen)
	}
}
