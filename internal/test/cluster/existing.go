// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Environment variables that name the kubeconfig of a cluster to use instead of starting one.
const (
	AppEnv          = "KLUTCH_APP_KUBECONFIG"
	ControlPlaneEnv = "KLUTCH_CONTROL_PLANE_KUBECONFIG"
)

// ErrExisting is returned by methods that would stop or restart a cluster that this package did not start.
var ErrExisting = errors.New("this cluster was not started here")

// Existing returns the cluster that the current context of a kubeconfig file points to. It is not contacted; see Check.
func Existing(kubeconfig string) (*Cluster, error) {
	path, err := filepath.Abs(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w", kubeconfig, err)
	}
	name, config, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w", kubeconfig, err)
	}
	return &Cluster{name: name, kubeconfig: path, config: config}, nil
}

// From returns the cluster whose kubeconfig the environment variable env names, or starts one if env is not set.
func From(ctx context.Context, env string, opts Options) (*Cluster, error) {
	kubeconfig := os.Getenv(env)
	if kubeconfig == "" {
		return Start(ctx, opts)
	}
	c, err := Existing(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", env, err)
	}
	if err := c.Check(ctx); err != nil {
		return nil, fmt.Errorf("%s: kubeconfig %q: %w", env, kubeconfig, err)
	}
	return c, nil
}

// Check reports why the cluster cannot be used now: unreachable, not trusted, credentials refused, not ready. It gives up
// after ten seconds.
func (c *Cluster) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := c.client()
	if err != nil {
		return err
	}
	return ready(ctx, client)
}

func load(path string) (name string, _ *rest.Config, _ error) {
	raw, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return "", nil, err
	}
	if raw.CurrentContext == "" {
		return "", nil, errors.New("no current-context")
	}
	if err := clientcmd.ResolveLocalPaths(raw); err != nil {
		return "", nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return "", nil, err
	}
	config.QPS = -1 // tests and benchmarks wait for the API server, not for the client
	return raw.CurrentContext, config, nil
}
