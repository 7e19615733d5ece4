// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const certificate = "-----BEGIN CERTIFICATE-----\nTWFkZSB1cC4=\n-----END CERTIFICATE-----\n"

// good is a kubeconfig of a backend, to be spoiled.
func good() string {
	return strings.ReplaceAll(`apiVersion: v1
kind: Config
clusters:
- name: default
  cluster:
    server: https://api.example.com:6443
    certificate-authority-data: CA
    tls-server-name: kubernetes.default
users:
- name: default
  user:
    token: abc.def-ghi
contexts:
- name: default
  context:
    cluster: default
    user: default
    namespace: cluster-abc
current-context: default
`, "CA", base64.StdEncoding.EncodeToString([]byte(certificate)))
}

func TestRead(t *testing.T) {
	want := &Kubeconfig{
		Server: "https://api.example.com:6443", CAData: []byte(certificate), TLSServerName: "kubernetes.default",
		Namespace: "cluster-abc", Token: "abc.def-ghi",
	}
	for name, data := range map[string]string{
		"as written":         good(),
		"nothing meant":      strings.Replace(good(), "    token:", "    exec: null\n    token-file: \"\"\n    token:", 1) + "preferences: {}\n",
		"secure, said so":    strings.Replace(good(), "    server:", "    insecure-skip-tls-verify: false\n    server:", 1),
		"without apiVersion": strings.Replace(good(), "apiVersion: v1\n", "", 1),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read([]byte(data))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// Write is read back as it was.
func TestReadsWhatIsWritten(t *testing.T) {
	want := &Kubeconfig{Server: "https://[2001:db8::1]:6443/k8s", CAData: []byte(certificate), Namespace: "cluster-abc", Token: "abc"}
	data, err := want.Write()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(data)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestP16ReadRefuses(t *testing.T) {
	const cluster, user, context = "clusters[0].cluster", "users[0].user", "contexts[0].context"
	add := func(before, line string) string { return strings.Replace(good(), before, line+"\n"+before, 1) }
	swap := func(old, text string) string { return strings.Replace(good(), old, text, 1) }
	server := func(s string) string { return swap("https://api.example.com:6443", s) }
	for name, tc := range map[string]struct{ data, field string }{
		"empty":        {"", "kubeconfig"},
		"not YAML":     {"{", "kubeconfig"},
		"a list":       {"- a", "kubeconfig"},
		"huge":         {good() + "#" + strings.Repeat("x", maxSize), "kubeconfig"},
		"twice":        {good() + "kind: Config\n", "kubeconfig"},
		"kind":         {swap("kind: Config", "kind: Secret"), "kind"},
		"version":      {swap("apiVersion: v1", "apiVersion: v2"), "apiVersion"},
		"preferences":  {good() + "preferences: {colors: true}\n", "preferences"},
		"extensions":   {good() + "extensions: [{name: x}]\n", `"extensions"`},
		"no clusters":  {swap("clusters:\n", "others:\n"), `"others"`},
		"two clusters": {swap("users:\n", "- {name: other, cluster: {server: https://other}}\nusers:\n"), "clusters"},
		"no user":      {swap("  user:\n    token: abc.def-ghi\n", ""), "users[0].user"},
		"no name":      {swap("- name: default\n  cluster:\n    server", "- cluster:\n    server"), "clusters[0].name"},

		"exec":                 {add("    token:", "    exec: {command: id}"), user + ".exec"},
		"auth-provider":        {add("    token:", "    auth-provider: {name: gcp}"), user + ".auth-provider"},
		"tokenFile":            {add("    token:", "    tokenFile: /etc/passwd"), user + ".tokenFile"},
		"token-file":           {add("    token:", "    token-file: /etc/passwd"), user + ".token-file"},
		"client-certificate":   {add("    token:", "    client-certificate: /a"), user + ".client-certificate"},
		"client-key":           {add("    token:", "    client-key: /a"), user + ".client-key"},
		"client-key-data":      {add("    token:", "    client-key-data: YQ=="), user + ".client-key-data"},
		"username":             {add("    token:", "    username: admin"), user + ".username"},
		"password":             {add("    token:", "    password: swordfish"), user + ".password"},
		"as":                   {add("    token:", "    as: system:admin"), user + ".as"},
		"as-groups":            {add("    token:", "    as-groups: [system:masters]"), user + ".as-groups"},
		"as-uid":               {add("    token:", "    as-uid: \"1\""), user + ".as-uid"},
		"as-user-extra":        {add("    token:", "    as-user-extra: {a: [b]}"), user + ".as-user-extra"},
		"other case":           {add("    token:", "    Exec: {command: id}"), user + `."Exec"`},
		"escape sequence":      {add("    token:", "    \"\\e[31m\": x"), user + `."\x1b[31m"`},
		"no token":             {swap("abc.def-ghi", `""`), user + ".token"},
		"token of two lines":   {swap("abc.def-ghi", `"abc\r\nX-Other: 1"`), user + ".token"},
		"number for a token":   {swap("abc.def-ghi", "123"), user + ".token"},
		"endless token":        {swap("abc.def-ghi", strings.Repeat("a", maxToken+1)), user + ".token"},
		"ca file":              {add("    server:", "    certificate-authority: /etc/passwd"), cluster + ".certificate-authority"},
		"proxy":                {add("    server:", "    proxy-url: http://evil.example"), cluster + ".proxy-url"},
		"insecure":             {add("    server:", "    insecure-skip-tls-verify: true"), cluster + ".insecure-skip-tls-verify"},
		"insecure as text":     {add("    server:", "    insecure-skip-tls-verify: \"false\""), cluster + ".insecure-skip-tls-verify"},
		"ca not base64":        {swap(base64.StdEncoding.EncodeToString([]byte(certificate)), "'!'"), cluster + ".certificate-authority-data"},
		"ca without any":       {swap(base64.StdEncoding.EncodeToString([]byte(certificate)), "YWJj"), cluster + ".certificate-authority-data"},
		"server name":          {swap("kubernetes.default", "'a b'"), cluster + ".tls-server-name"},
		"namespace missing":    {swap("    namespace: cluster-abc\n", ""), context + ".namespace"},
		"namespace climbs":     {swap("cluster-abc", "../kube-system"), context + ".namespace"},
		"other context":        {swap("current-context: default", "current-context: other"), "current-context"},
		"no context":           {swap("current-context: default", ""), "current-context"},
		"context's cluster":    {swap("    cluster: default", "    cluster: other"), context + ".cluster"},
		"context's user":       {swap("    user: default", "    user: other"), context + ".user"},
		"context's extensions": {add("    namespace:", "    extensions: [{name: x}]"), context + `."extensions"`},

		"no server":        {swap("    server: https://api.example.com:6443\n", ""), cluster + ".server"},
		"http":             {server("http://api.example.com"), cluster + ".server"},
		"no scheme":        {server("api.example.com:6443"), cluster + ".server"},
		"unix":             {server("unix:///run/docker.sock"), cluster + ".server"},
		"userinfo":         {server("https://a:b@api.example.com"), cluster + ".server"},
		"query":            {server("https://api.example.com/?x=1"), cluster + ".server"},
		"fragment":         {server("'https://api.example.com/#'"), cluster + ".server"},
		"no host":          {server("https:///api"), cluster + ".server"},
		"empty port":       {server("'https://api.example.com:'"), cluster + ".server"},
		"port 0":           {server("https://api.example.com:0"), cluster + ".server"},
		"port 99999":       {server("https://api.example.com:99999"), cluster + ".server"},
		"link-local":       {server("https://169.254.169.254"), cluster + ".server"},
		"link-local v6":    {server("'https://[fe80::1%25eth0]:6443'"), cluster + ".server"},
		"link-local in v6": {server("'https://[::ffff:169.254.169.254]'"), cluster + ".server"},
		"unspecified":      {server("https://0.0.0.0:6443"), cluster + ".server"},
		"multicast":        {server("https://224.0.0.1"), cluster + ".server"},
		"octal":            {server("https://0251.0376.0251.0376"), cluster + ".server"},
		"hexadecimal":      {server("https://0xA9FEA9FE"), cluster + ".server"},
		"one number":       {server("https://2852039166"), cluster + ".server"},
		"short":            {server("https://169.16689662"), cluster + ".server"},
		"backslash":        {server(`https://api.example.com\@evil.example`), cluster + ".server"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read([]byte(tc.data))
			var field *FieldError
			if got != nil || !errors.As(err, &field) || field.Field != tc.field {
				t.Errorf("got %v, %v; want an error about %s", got, err, tc.field)
			}
			if err != nil && (strings.Contains(err.Error(), "swordfish") || strings.Contains(err.Error(), "abc.def")) {
				t.Errorf("error shows a secret: %v", err)
			}
		})
	}
}

// FuzzP16Read: whatever is accepted has five fields, and what it leads to is https.
func FuzzP16Read(f *testing.F) {
	f.Add([]byte(good()))
	f.Add([]byte(strings.Replace(good(), "    token:", "    exec: {command: id}\n    token:", 1)))
	f.Add([]byte("&a [*a, *a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := Read(data)
		if err != nil {
			return
		}
		u, err := url.Parse(k.Server)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || k.Token == "" || k.Namespace == "" {
			t.Fatalf("accepted %+v", k)
		}
		want := &rest.Config{Host: k.Server, BearerToken: k.Token, TLSClientConfig: rest.TLSClientConfig{CAData: k.CAData, ServerName: k.TLSServerName}}
		if diff := cmp.Diff(want, k.RESTConfig(), cmpopts.IgnoreFields(rest.Config{}, "Dial", "WrapTransport", "WarningHandlerWithContext"), cmpopts.IgnoreUnexported(rest.Config{})); diff != "" {
			t.Fatalf("config (-want +got):\n%s", diff)
		}
		again, err := k.Write()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Read(again)
		if diff := cmp.Diff(k, back); diff != "" || err != nil {
			t.Fatalf("not read back: %v\n%s", err, diff)
		}
	})
}

// A program named in a kubeconfig does not run, even against a server that would
// make a client ask for credentials.
func TestP16NothingRuns(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	data := strings.Replace(good(), "https://api.example.com:6443", server.URL, 1)
	data = strings.Replace(data, "    token:", fmt.Sprintf("    exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: [%q], interactiveMode: Never}\n    token:", ran), 1)
	if k, err := Read([]byte(data)); err == nil {
		client, err := kubernetes.NewForConfig(k.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = client.Discovery().ServerVersion()
		t.Error("accepted")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the program has run")
	}
}
