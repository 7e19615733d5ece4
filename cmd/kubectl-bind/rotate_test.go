// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// boundToken is one that dies with the Secret of that UID.
func boundToken(uid string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"kubernetes.io":{"secret":{"name":"klutch-binder","uid":%q}}}`, uid)) + ".x"
}

func credentialTo(t *testing.T, server *httptest.Server, namespace, uid string) []byte {
	t.Helper()
	k := &kubeconfig.Kubeconfig{Server: server.URL, CAData: pemOf(server), Namespace: namespace, Token: boundToken(uid)}
	data, err := k.Write()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A credential is replaced by one from a login, and by no other: with that of another
// place nothing is written, and with one that does not end what was stolen the person
// is told.
func TestP13Rotate(t *testing.T) {
	const secret = "/api/v1/namespaces/klutch-bind/secrets/kubeconfig-"
	for name, test := range map[string]struct {
		args   []string
		to     string // where the login leads
		anchor string // of the new token
		code   int
		says   string
		writes []string
	}{
		"one":            {[]string{"kubeconfig-a"}, "tenant-a", "new", exitOK, "Replaced the credential in secret klutch-bind/kubeconfig-a", []string{"PATCH " + secret + "a"}},
		"which":          {nil, "tenant-a", "new", exitUsage, `name one of the Secrets ["kubeconfig-a" "kubeconfig-b"]`, nil},
		"none":           {[]string{"kubeconfig-copy"}, "tenant-a", "new", exitError, "no such credential", nil},
		"not replaced":   {[]string{"kubeconfig-a"}, "tenant-a", "old", exitError, "has not replaced the credential", []string{"PATCH " + secret + "a"}},
		"another tenant": {[]string{"kubeconfig-a"}, "tenant-x", "new", exitConflict, "log in as the one who bound it", nil},
		"which backend":  {[]string{"kubeconfig-b"}, "tenant-b", "new", exitUsage, "name that with --backend", nil},
		"too much":       {[]string{"kubeconfig-b", "--all"}, "", "", exitUsage, "--all goes neither with", nil},
	} {
		t.Run(name, func(t *testing.T) {
			backend := newFakeBackend(t)
			backend.grants = []string{"things.example.com"}
			held := func(letter string, annotations map[string]any) map[string]any {
				return map[string]any{
					"kind": "Secret", "apiVersion": "v1", "metadata": map[string]any{"name": "kubeconfig-" + letter, "namespace": "klutch-bind", "uid": letter, "annotations": annotations},
					"data": map[string]any{"kubeconfig": credentialTo(t, backend.Server, "tenant-"+letter, "old")},
				}
			}
			uses := func(name, secret string) any {
				return map[string]any{
					"kind": "APIServiceBinding", "apiVersion": "klutch.anynines.com/v1alpha1", "metadata": map[string]any{"name": name, "namespace": "klutch-bind"},
					"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"name": secret, "namespace": "klutch-bind", "key": "kubeconfig"}},
				}
			}
			app := newFakeAPI(t, map[string]any{
				group: served(true),
				bindingsPath: list("APIServiceBindingList", "klutch.anynines.com/v1alpha1",
					uses("things.example.com", "kubeconfig-a"), uses("others.example.com", "kubeconfig-b"), uses("copied.example.com", "kubeconfig-copy")),
				"/api/v1/namespaces/klutch-bind": map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "klutch-bind", "uid": "u"}},
				secret + "a":                     held("a", map[string]any{"klutch.anynines.com/backend": backend.URL}),
				secret + "b":                     held("b", nil),
				secret + "copy":                  held("copy", map[string]any{"klutch.anynines.com/source": "{}"}),
			})
			if test.to != "" {
				backend.kubeconfig = credentialTo(t, backend.Server, test.to, test.anchor)
			}
			args := append([]string{"rotate", "--kubeconfig", app.kubeconfig(t), "--backend-certificate-authority", backend.authority(t)}, test.args...)
			r := backend.browser(t, "").run(t.Context(), args...)
			if r.code != test.code || !strings.Contains(r.errOut, test.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s", r.code, test.code, test.says, r)
			}
			if got := app.writes(); fmt.Sprint(got) != fmt.Sprint(test.writes) {
				t.Errorf("wrote %v, want %v", got, test.writes)
			}
			if strings.Contains(r.String(), boundToken(test.anchor)) {
				t.Error("the token is shown")
			}
		})
	}
}

// A login renews what its own backend handed out, and nothing else: a backend that says
// that its kubeconfig leads to the tenant at another platform does not replace that one's.
func TestP13RenewsOwnCredentials(t *testing.T) {
	const secret = "/api/v1/namespaces/klutch-bind/secrets/kubeconfig-a"
	backend := newFakeBackend(t)
	for from, want := range map[string][]string{backend.URL + "/export": {"PATCH " + secret}, "https://another.example.com/export": nil, "": {"PATCH " + secret}} {
		backend.kubeconfig = credentialTo(t, backend.Server, "tenant-a", "new")
		app := newFakeAPI(t, map[string]any{
			group: served(true),
			bindingsPath: list("APIServiceBindingList", "klutch.anynines.com/v1alpha1", map[string]any{
				"kind": "APIServiceBinding", "apiVersion": "klutch.anynines.com/v1alpha1", "metadata": map[string]any{"name": "things.example.com", "namespace": "klutch-bind"},
				"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"name": "kubeconfig-a", "namespace": "klutch-bind", "key": "kubeconfig"}},
			}),
			"/api/v1/namespaces/klutch-bind": map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "klutch-bind", "uid": "u"}},
			secret: map[string]any{
				"kind": "Secret", "apiVersion": "v1", "metadata": map[string]any{"name": "kubeconfig-a", "namespace": "klutch-bind", "uid": "a", "annotations": map[string]any{"klutch.anynines.com/backend": from}},
				"data": map[string]any{"kubeconfig": credentialTo(t, backend.Server, "tenant-a", "old")},
			},
		})
		r := backend.browser(t, "").run(t.Context(), backend.URL+"/export", "--kubeconfig", app.kubeconfig(t), "--skip-konnector", "--backend-certificate-authority", backend.authority(t))
		if got := app.writes(); fmt.Sprint(got) != fmt.Sprint(want) || !strings.Contains(r.errOut, "no service was chosen") {
			t.Errorf("%q: wrote %v, want %v\n%s", from, got, want, r)
		}
	}
}

// Klutch's konnector was off until its token ended: what it wrote last says True for ever.
func TestStatusOfEndedToken(t *testing.T) {
	clock := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for expiry, want := range map[time.Time]int{clock.Add(-time.Minute): exitNotReady, clock.Add(time.Hour): exitOK} {
		token := "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expiry.Unix())) + ".x"
		k := &kubeconfig.Kubeconfig{Server: "https://platform.example.com", Namespace: "tenant", Token: token}
		data, err := k.Write()
		if err != nil {
			t.Fatal(err)
		}
		app := newFakeAPI(t, map[string]any{
			group: served(true),
			bindingsPath: list("APIServiceBindingList", "klutch.anynines.com/v1alpha1",
				binding("things.example.com", "Old", condition("Ready", "True", "", ""), condition("Connected", "True", "", ""))),
			"/api/v1/namespaces/klutch-bind/secrets/kubeconfig-abcde": map[string]any{
				"kind": "Secret", "apiVersion": "v1", "metadata": map[string]any{"name": "kubeconfig-abcde", "namespace": "klutch-bind", "uid": "a"},
				"data": map[string]any{"kubeconfig": data},
			},
		})
		r := terminal{}.run(t.Context(), "status", "--kubeconfig", app.kubeconfig(t))
		if told := strings.Contains(r.errOut, "of things.example.com ended at"); r.code != want || told != (want == exitNotReady) {
			t.Errorf("token until %s: %v", expiry, r)
		}
	}
}
