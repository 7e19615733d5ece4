// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export"
)

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
clusters: [{name: x, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: x, user: {token: t}}]}`

func file(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func noenv(string) string { return "" }

func TestExitCodes(t *testing.T) {
	required := []string{"--external-url", "http://127.0.0.1:1", "--oidc-issuer-url", "http://127.0.0.1:1", "--oidc-issuer-client-id", "x", "--kubeconfig", file(t, kubeconfig)}
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"help":            {[]string{"--help"}, 0, "backend --external-url https://bind.example.com"},
		"unknown flag":    {[]string{"--x"}, 2, "flag provided but not defined"},
		"argument":        {[]string{"x"}, 2, `unknown argument "x"`},
		"nothing":         {nil, 2, "is required: see backend --help"},
		"missing file":    {append([]string{"--external-ca-file", "/nowhere"}, required...), 1, "/nowhere"},
		"no certificate":  {append([]string{"--oidc-issuer-ca-file", file(t, "x")}, required...), 1, "holds no certificate"},
		"plain http":      {append([]string{"--listen-address", ":8080"}, required...), 1, "needs a certificate"},
		"short key":       {append([]string{"--session-key-file", file(t, "x")}, required...), 1, "sealing key 1: has 1 bytes"},
		"cluster is down": {required, 1, "session keys"},
		"proxy":           {[]string{"--trusted-proxy", "gateway"}, 2, "trusted-proxy"},
		"no API":          {[]string{"--prefixed-apis", "continents"}, 2, `"continents" is not the name of an API`},
		"no tenants":      {[]string{"--max-tenants", "0"}, 2, "must be a number of at least 1, or -1 for any number"},
		"no number":       {[]string{"--removals-at-once", "few"}, 2, "must be a number of at least 1"},
		"gate":            {append([]string{"--gate", "a b", "--session-key-file", file(t, strings.Repeat("x", 32))}, required...), 1, `gate "a b"`},
		"issuer file":     {append([]string{"--oidc-issuer-file", "/nowhere"}, required...), 1, "/nowhere"},
		"further issuer": {
			append([]string{"--oidc-issuer-file", file(t, "{name: a, url: 'http://a.example', clientID: x}"), "--session-key-file", file(t, strings.Repeat("x", 32))}, required...),
			1, "login with a: issuer URL",
		},
		"login age":        {append([]string{"--max-login-age", "30m", "--session-key-file", file(t, strings.Repeat("x", 32))}, required...), 1, "must be at least that of a token"},
		"scope alone":      {append([]string{"--machine-scope", "x"}, required...), 2, "--machine-audience is required"},
		"P4 the login's":   {append([]string{"--machine-audience", "x", "--session-key-file", file(t, strings.Repeat("x", 32))}, required...), 1, "machines need one of their own"},
		"claim alone":      {append([]string{"--machine-claim", "gty=x"}, required...), 2, "--machine-audience is required"},
		"no claim":         {append([]string{"--machine-claim", "gty"}, required...), 2, "must be NAME=VALUE"},
		"machine issuer":   {append([]string{"--machine-audience", "x", "--machine-issuer-url", "http://x", "--session-key-file", file(t, strings.Repeat("x", 32))}, required...), 1, "machines: issuer URL"},
		"issuer is no URL": {append(slices.Clip(required), "--oidc-issuer-url", "http://issuer.example", "--session-key-file", file(t, strings.Repeat("x", 32))), 1, "issuer URL"},
	} {
		var stderr bytes.Buffer
		code := exit(run(t.Context(), test.args, noenv, &stderr), &stderr)
		if code != test.code || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%s: exit %d\n%s", name, code, &stderr)
		}
	}
}

func TestFlags(t *testing.T) {
	f, err := parse([]string{
		"--external-url", "https://bind.example.com", "--external-address", "https://api.example.com", "--external-ca-file", file(t, "ca"),
		"--oidc-issuer-url", "https://login.example.com", "--oidc-issuer-client-id", "klutch", "--oidc-issuer-client-secret-file", file(t, "secret\n"),
		"--session-key-file", file(t, "1"), "--session-key-file", file(t, "2"), "--oidc-scope", "openid", "--oidc-scope", "roles", "--kubeconfig", file(t, kubeconfig),
		"--machine-audience", "machines", "--machine-audience", "bind", "--machine-scope", "klutch/bind", "--machine-claim", "gty=a=b", "--requests-per-address", "7", "--binds-per-subject", "-1",
		"--max-login-age", "720h", "--connections", "-1", "--connections-per-address", "9", "--trusted-proxy", "10.0.0.7", "--trusted-proxy", "10.1.2.3/8",
	}, func(name string) string { return "of " + name }, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.complete(noenv); err != nil {
		t.Fatal(err)
	}
	b := f.backend
	got := map[string]any{
		"secret": b.Login.ClientSecret, "scopes": b.Login.Scopes, "ca": string(b.Options.APIServer.CAData), "keys": b.SessionKeys,
		"host": b.Config.Host, "identity": b.Identity, "namespace": b.Namespace,
		"machines": b.Machines[0].Audiences, "machine claim": b.Machines[0].MachineClaim, "machine scopes": b.Options.Handshake.MachineScopes, "limits": b.Options.Handshake.Limits,
		"login age": b.Options.MaxLoginAge, "connections": []int{b.Connections, b.ConnectionsPerAddress},
		"proxies": fmt.Sprint(b.Options.Handshake.TrustedProxies),
	}
	want := map[string]any{
		"secret": "secret", "scopes": []string{"openid", "roles"}, "ca": "ca", "keys": [][]byte{[]byte("1"), []byte("2")},
		"host": "https://127.0.0.1:1", "identity": "of POD_NAME", "namespace": "of POD_NAMESPACE",
		"machines": []string{"machines", "bind"}, "machine claim": auth.Claim{Name: "gty", Value: "a=b"}, "machine scopes": []string{"klutch/bind"}, "limits": export.Limits{PerAddress: 7, PerSubject: -1},
		"login age": 720 * time.Hour, "connections": []int{-1, 9},
		"proxies": "[10.0.0.7/32 10.0.0.0/8]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// No flag takes a secret: process lists show flags.
func TestNoSecretFlag(t *testing.T) {
	var stderr bytes.Buffer
	if _, err := parse([]string{"--help"}, noenv, &stderr); err == nil {
		t.Fatal("no help")
	}
	for line := range strings.Lines(stderr.String()) {
		name := strings.TrimSpace(line)
		if strings.HasPrefix(name, "-") && (strings.Contains(name, "secret") || strings.Contains(name, "key")) && !strings.Contains(name, "-file") && !strings.Contains(name, "-lifetime") {
			t.Errorf("flag %s", name)
		}
	}
}
