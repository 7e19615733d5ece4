// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"strconv"
	"testing"

	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
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

// Bindings to one place share a Secret, and one that lost its own gets it back.
func TestBestSecret(t *testing.T) {
	target := &kubeconfig.Kubeconfig{Server: "https://a", Namespace: "n"}
	made := secretName(target)
	for _, c := range []struct {
		name    string
		secrets map[string]bool // whether they lead to the target
		bound   []string        // Secrets of bindings that are there
		want    string
	}{
		{"nothing there", nil, nil, made},
		{"others only", map[string]bool{"other": false}, nil, made},
		{"one by another name", map[string]bool{"mine": true, "other": false}, nil, "mine"},
		{"several", map[string]bool{"b": true, "a": true}, nil, "a"},
		{"several, one in use", map[string]bool{"b": true, "a": true}, []string{"b"}, "b"},
		{"lost", nil, []string{"lost"}, "lost"},
		{"lost, but there is another", map[string]bool{"mine": true}, []string{"lost"}, "mine"},
		{"in use by one that leads elsewhere", map[string]bool{"other": false}, []string{"other"}, made},
		{"two that differ", map[string]bool{"b": true, "a": true}, []string{"b", "a"}, "b"},
	} {
		i := &installer{target: target, existing: map[string]*v1alpha1.APIServiceBinding{}}
		for n, secret := range c.bound {
			service := v1alpha1.GroupResource{Group: "example.com", Resource: "s" + strconv.Itoa(n)}
			b := &v1alpha1.APIServiceBinding{}
			b.Spec.KubeconfigSecretRef = v1alpha1.ClusterSecretKeyRef{LocalSecretKeyRef: v1alpha1.LocalSecretKeyRef{Name: secret}, Namespace: v1alpha1.Namespace}
			i.services, i.existing[service.String()] = append(i.services, service), b
		}
		if got := i.bestSecret(c.secrets); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
