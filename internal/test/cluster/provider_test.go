// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/e2e-framework/klient"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

func TestProvider(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	ctx := t.Context()
	provider := &cluster.Provider{Options: cluster.Options{Log: os.Stderr}}
	app := provider.SetDefaults().WithName("app").WithOpts()
	kubeconfig, err := app.Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.Destroy(context.WithoutCancel(ctx)) })
	if provider.Cluster() != nil {
		t.Error("the provider that stands for several clusters has become one of them")
	}
	if app.GetKubectlContext() != "app" || app.GetKubeconfig() != kubeconfig {
		t.Errorf("context %q, kubeconfig %q; want app, %q", app.GetKubectlContext(), app.GetKubeconfig(), kubeconfig)
	}
	client, err := klient.NewWithKubeConfigFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.WaitForControlPlane(ctx, client); err != nil {
		t.Error(err)
	}
	if got, want := client.RESTConfig().Host, app.KubernetesRestConfig().Host; got != want {
		t.Errorf("clients talk to %s, want %s", got, want)
	}

	logs := t.TempDir()
	if err := app.ExportLogs(ctx, logs); err != nil {
		t.Error(err)
	}
	if files, err := filepath.Glob(filepath.Join(logs, "app", "*.log")); err != nil || len(files) != 3 {
		t.Errorf("logs are %q, %v; want three", files, err)
	}
	if err := app.Destroy(ctx); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(app.GetKubeconfig()); !os.IsNotExist(err) {
		t.Errorf("kubeconfig of a destroyed cluster: %v, want it gone", err)
	}
}

func TestProviderBeforeCreate(t *testing.T) {
	t.Parallel()
	p := (&cluster.Provider{}).SetDefaults().WithName("app").WithOpts()
	if got := p.GetKubeconfig() + p.GetKubectlContext(); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
	if p.KubernetesRestConfig() != nil {
		t.Error("a client configuration before Create")
	}
	if _, err := p.GenerateKubeconfig(); err == nil {
		t.Error("a kubeconfig before Create")
	}
	if err := p.WaitForControlPlane(t.Context(), nil); err == nil {
		t.Error("a control plane before Create")
	}
	for what, call := range map[string]func(context.Context) error{
		"destroy": p.Destroy,
		"logs":    func(ctx context.Context) error { return p.ExportLogs(ctx, t.TempDir()) },
	} {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s before Create: %v", what, err)
		}
	}
}
