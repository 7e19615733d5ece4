// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// testExisting uses a running cluster through its kubeconfig.
func testExisting(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	t.Setenv(cluster.AppEnv, c.Kubeconfig())
	other, err := cluster.From(t.Context(), cluster.AppEnv, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := uidOf(t, clientOf(t, other)), uidOf(t, clientOf(t, c)); got != want {
		t.Errorf("cluster is %s, want %s", got, want)
	}
	if other.Name() != c.Name() || other.URL() != c.URL() || other.Kubeconfig() != c.Kubeconfig() {
		t.Errorf("got %s at %s by %s", other.Name(), other.URL(), other.Kubeconfig())
	}
	for _, err := range []error{
		other.StopServer(), other.StartServer(t.Context()), other.Restart(t.Context()), other.RestartEmpty(t.Context()),
	} {
		if !errors.Is(err, cluster.ErrExisting) {
			t.Errorf("got %v, want %v", err, cluster.ErrExisting)
		}
	}
	if err := other.Stop(); err != nil {
		t.Error(err)
	}
	if err := c.Check(t.Context()); err != nil {
		t.Errorf("an existing cluster was stopped: %v", err)
	}
	testRefused(t, c)
}

func testRefused(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	tests := map[string]struct {
		change func(*clientcmdapi.Config)
		want   string
	}{
		"credentials": {func(k *clientcmdapi.Config) { k.AuthInfos[c.Name()].Token = "wrong" }, "provide credentials"},
		"trust":       {func(k *clientcmdapi.Config) { k.Clusters[c.Name()].CertificateAuthorityData = nil }, "certificate"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := clientcmd.LoadFromFile(c.Kubeconfig())
			if err != nil {
				t.Fatal(err)
			}
			tc.change(config)
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := clientcmd.WriteToFile(*config, path); err != nil {
				t.Fatal(err)
			}
			wantFromError(t, path, tc.want)
		})
	}
}

func TestWrongKubeconfig(t *testing.T) {
	dir := t.TempDir()
	tests := map[string]struct{ content, want string }{
		"missing":     {"", "no such file"},
		"not YAML":    {"{", "yaml"},
		"no context":  {"apiVersion: v1\nkind: Config\n", "no current-context"},
		"no cluster":  {kubeconfig("current-context: app"), "context was not found"},
		"unreachable": {kubeconfig(contexts, "clusters: [{name: app, cluster: {server: 'http://127.0.0.1:1'}}]"), "connection refused"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			if tc.content != "" {
				if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			wantFromError(t, path, tc.want)
		})
	}
}

const contexts = "contexts: [{name: app, context: {cluster: app}}]\ncurrent-context: app"

func kubeconfig(lines ...string) string {
	return "apiVersion: v1\nkind: Config\n" + strings.Join(lines, "\n") + "\n"
}

// wantFromError expects an error that names the variable and the file and says what is wrong.
func wantFromError(t *testing.T, path, want string) {
	t.Helper()
	t.Setenv(cluster.AppEnv, path)
	_, err := cluster.From(t.Context(), cluster.AppEnv, cluster.Options{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{cluster.AppEnv, path, want} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not say %q: %v", part, err)
		}
	}
}
