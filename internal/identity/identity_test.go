// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

func TestSubject(t *testing.T) {
	for username, want := range map[string]rbacv1.Subject{
		"system:serviceaccount:ns:name": {Kind: "ServiceAccount", Namespace: "ns", Name: "name"},
		"admin":                         {Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "admin"},
		"system:serviceaccount":         {Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "system:serviceaccount"},
	} {
		if got := Subject(username); got != want {
			t.Errorf("%s: %+v", username, got)
		}
	}
}
