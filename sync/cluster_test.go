// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

func TestIdentity(t *testing.T) {
	fake := fakecluster.New()
	c, err := NewClusterForClients(fake.Client(), nil)
	if err != nil {
		t.Fatal(err)
	}
	spaces := fake.Client().Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	for _, tc := range []struct {
		of        *Cluster
		namespace string
	}{{c, metav1.NamespaceSystem}, {c.IdentifiedBy("default"), "default"}, {c, metav1.NamespaceSystem}} {
		want, err := spaces.Get(t.Context(), tc.namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := tc.of.uid(t.Context(), func(error) {})
		if err != nil || got == "" || got != want.GetUID() {
			t.Errorf("identity is %q, %v, want that of %s, %s", got, err, tc.namespace, want.GetUID())
		}
		if again, err := tc.of.readUID(t.Context()); err != nil || again != got {
			t.Errorf("identity is %q, %v at the second look, %q at the first", again, err, got)
		}
	}
	if got, err := c.IdentifiedBy("hidden").uid(t.Context(), func(error) {}); err != nil || got != "" {
		t.Errorf("identity by what cannot be read is %q, %v", got, err)
	}
}
