// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestRefersTo: credentials of a lost instance are told, and nothing else is: the advice to make it
// anew would cost a Backup.
func TestRefersTo(t *testing.T) {
	for _, tc := range []struct {
		kind, service, instance string
		want                    bool
	}{
		{"ServiceBinding", "postgresql", "orders", true},
		{"ServiceBinding", "Postgresql", "orders", true},
		{"ServiceBinding", "postgresql", "other", false},
		{"ServiceBinding", "mongodb", "orders", false},
		{"ServiceBinding", "post", "orders", false},
		{"ServiceBinding", "", "orders", false},
		{"Backup", "postgresql", "orders", false},
		{"Restore", "postgresql", "orders", false},
		{"Report", "", "orders", false},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"kind": tc.kind, "spec": map[string]any{"instanceRef": tc.instance, "serviceInstanceType": tc.service}}}
		if got := refersTo(u, "PostgresqlInstance", "orders"); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
}
