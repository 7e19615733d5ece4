// SPDX-License-Identifier: Apache-2.0

package export

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/auth"
)

func TestUsers(t *testing.T) {
	id := &auth.Identity{Issuer: "https://issuer", Subject: "s-1", Email: "ada@example.org", Groups: []string{"dev", "system:masters", ""}}
	for name, test := range map[string]struct {
		users  Users
		id     *auth.Identity
		user   string
		groups []string
	}{
		"default":        {Users{}, id, "oidc:s-1", []string{EveryoneGroup, "oidc:dev", "oidc:system:masters"}},
		"email":          {Users{UsernameClaim: "email", UsernamePrefix: "-"}, id, "ada@example.org", []string{EveryoneGroup, "oidc:dev", "oidc:system:masters"}},
		"no email":       {Users{UsernameClaim: "email"}, &auth.Identity{Subject: "s"}, "", []string{EveryoneGroup}},
		"no prefix":      {Users{GroupsPrefix: "-"}, id, "oidc:s-1", []string{EveryoneGroup, "dev"}},
		"system user":    {Users{UsernamePrefix: "-"}, &auth.Identity{Subject: "system:admin"}, "", []string{EveryoneGroup}},
		"system by half": {Users{UsernamePrefix: "system"}, &auth.Identity{Subject: ":admin"}, "", []string{EveryoneGroup}},
	} {
		if got := test.users.user(test.id); got != test.user {
			t.Errorf("%s: user %q, want %q", name, got, test.user)
		}
		if diff := cmp.Diff(test.groups, test.users.groups(test.id)); diff != "" {
			t.Errorf("%s: groups (-want +got):\n%s", name, diff)
		}
	}
}
