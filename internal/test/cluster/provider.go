// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"context"
	"errors"
	"path/filepath"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/klient"
	"sigs.k8s.io/e2e-framework/support"
)

// A Provider gives clusters of this package to e2e-framework:
//
//	env.Setup(envfuncs.CreateCluster(&cluster.Provider{Env: cluster.AppEnv}, "app"))
//	env.Finish(envfuncs.DestroyCluster("app"))
//
// Its With methods return copies, so one Provider may stand for several clusters.
type Provider struct {
	Env     string  // names the environment variable that may hold the kubeconfig of a cluster to use; optional
	Options Options // of clusters that are started

	cluster *Cluster // nil before Create
}

var _ support.E2EClusterProvider = (*Provider)(nil)

// Cluster returns the cluster that Create made, or nil.
func (p *Provider) Cluster() *Cluster { return p.cluster }

// SetDefaults returns p: the zero value is ready to use.
func (p *Provider) SetDefaults() support.E2EClusterProvider { return p }

// WithName returns a provider of a cluster of that name.
func (p *Provider) WithName(name string) support.E2EClusterProvider {
	other := Provider{Env: p.Env, Options: p.Options}
	other.Options.Name = name
	return &other
}

// WithVersion returns p: the version of Kubernetes is the one that the SDK is tested with.
func (p *Provider) WithVersion(string) support.E2EClusterProvider { return p }

// WithPath returns p: the program is the one that Build makes.
func (p *Provider) WithPath(string) support.E2EClusterProvider { return p }

// WithOpts returns a provider changed by opts.
func (p *Provider) WithOpts(opts ...support.ClusterOpts) support.E2EClusterProvider {
	other := Provider{Env: p.Env, Options: p.Options}
	for _, o := range opts {
		o(&other)
	}
	return &other
}

// Create starts the cluster, or takes an existing one as [From] does, and returns the path of its kubeconfig.
func (p *Provider) Create(ctx context.Context, _ ...string) (string, error) {
	if p.cluster != nil {
		return p.GetKubeconfig(), nil
	}
	c, err := From(ctx, p.Env, p.Options)
	if err != nil {
		return "", err
	}
	p.cluster = c
	return p.GetKubeconfig(), nil
}

// CreateWithConfig always returns an error: there is no configuration file for a cluster of this package.
func (p *Provider) CreateWithConfig(context.Context, string) (string, error) {
	return "", errors.New("clusters take no configuration file: use Create")
}

// GetKubeconfig returns the path of the kubeconfig, "" before Create.
func (p *Provider) GetKubeconfig() string {
	if p.cluster == nil {
		return ""
	}
	return p.cluster.Kubeconfig()
}

// GenerateKubeconfig returns the path of the kubeconfig, which never changes.
func (p *Provider) GenerateKubeconfig(...string) (string, error) {
	if p.cluster == nil {
		return "", errors.New("no cluster: call Create first")
	}
	return p.GetKubeconfig(), nil
}

// GetKubectlContext returns the context of the kubeconfig, "" before Create.
func (p *Provider) GetKubectlContext() string {
	if p.cluster == nil {
		return ""
	}
	return p.cluster.Name()
}

// ExportLogs copies the logs of the servers to a new directory in dest, named as the cluster.
func (p *Provider) ExportLogs(_ context.Context, dest string) error {
	if p.cluster == nil {
		return nil
	}
	return p.cluster.SaveLogs(filepath.Join(dest, p.cluster.Name()))
}

// Destroy stops the cluster if Create started it.
func (p *Provider) Destroy(context.Context) error {
	if p.cluster == nil {
		return nil
	}
	return p.cluster.Stop()
}

// WaitForControlPlane checks the cluster, which Create has left ready.
func (p *Provider) WaitForControlPlane(ctx context.Context, _ klient.Client) error {
	if p.cluster == nil {
		return errors.New("no cluster: call Create first")
	}
	return p.cluster.Check(ctx)
}

// KubernetesRestConfig returns the client configuration of the administrator, nil before Create.
func (p *Provider) KubernetesRestConfig() *rest.Config {
	if p.cluster == nil {
		return nil
	}
	return p.cluster.Config()
}
