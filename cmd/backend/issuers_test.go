// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/klutch"
)

// issuers parses files with these contents.
func issuers(t *testing.T, contents ...string) ([]klutch.Issuer, error) {
	t.Helper()
	var args []string
	for _, content := range contents {
		args = append(args, "--oidc-issuer-file", file(t, content))
	}
	f, err := parse(args, noenv, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	err = f.readIssuers()
	return f.backend.Issuers, err
}

func TestIssuers(t *testing.T) {
	got, err := issuers(t, `# ours
--- # and theirs
name: partners
title: Partners
url: https://login.partners.example.com
clientID: klutch
clientSecretFile: `+file(t, "secret\n")+`
callbackURL: https://bind.example.com/callback/partners
scopes: [openid, roles]
groupsClaim: roles
usernameClaim: email
usernamePrefix: "partners:"
groupsPrefix: "-"
--- {name: guests, url: "https://guests.example.com", clientID: x}
`, `{"name": "staff", "url": "https://staff.example.com", "clientID": "y"}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []klutch.Issuer{
		{
			Name: "partners", Title: "Partners",
			Login: auth.Config{
				Issuer: "https://login.partners.example.com", ClientID: "klutch", ClientSecret: "secret",
				RedirectURL: "https://bind.example.com/callback/partners", Scopes: []string{"openid", "roles"}, GroupsClaim: "roles",
			},
			Users: export.Users{UsernameClaim: "email", UsernamePrefix: "partners:", GroupsPrefix: "-"},
		},
		{Name: "guests", Login: auth.Config{Issuer: "https://guests.example.com", ClientID: "x"}},
		{Name: "staff", Login: auth.Config{Issuer: "https://staff.example.com", ClientID: "y"}},
	}
	ignoreClock := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Now" }, cmp.Ignore())
	if diff := cmp.Diff(want, got, ignoreClock); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadIssuers(t *testing.T) {
	const valid = "{name: a, url: https://a.example.com, clientID: x"
	for name, test := range map[string]struct{ content, says string }{
		"empty":           {"# nothing\n", "holds no issuer"},
		"no YAML":         {"{", "yaml"},
		"a list":          {"[" + valid + "}]", "cannot unmarshal array"},
		"unknown field":   {valid + ", clientSecret: hidden}", `unknown field "clientSecret"`},
		"twice":           {"name: a\nname: b\n", `"name" already set`},
		"no name":         {"url: https://a.example.com", `issuer "": name is required`},
		"no URL":          {"name: a", `issuer "a": url is required`},
		"no client":       {"{name: a, url: https://a.example.com}", `issuer "a": clientID is required`},
		"no secret":       {valid + ", clientSecretFile: /nowhere}", `issuer "a": open /nowhere`},
		"no certificate":  {valid + ", caFile: " + file(t, "x") + "}", "holds no certificate"},
		"second document": {valid + "}\n...\n---\nname: b\n", `issuer "b": url is required`},
	} {
		_, err := issuers(t, test.content)
		if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
