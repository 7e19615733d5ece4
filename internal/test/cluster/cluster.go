// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/tempdir"
)

// Options say what cluster to start. The zero value is ready to use.
type Options struct {
	Name          string    // of the kubeconfig's context; "" means "klutch"
	Dir           string    // for data, keys and logs, kept by Stop; "" means a temporary one that Stop removes
	NoControllers bool      // leave kube-controller-manager out: less memory, but nothing is cleaned up
	Log           io.Writer // is told of the minutes of the first build and of servers that end at their start; may be nil
}

// A Cluster is a Kubernetes cluster and the administrator's way into it.
type Cluster struct {
	name       string
	kubeconfig string
	config     *rest.Config
	servers    *servers // nil if the cluster is not ours
	began      *memory  // of a cluster for tests, unless it cannot be read
}

// Start starts a cluster and returns when it is ready, which includes its controllers. The cluster runs until Stop or the
// end of this process; ctx is for the start alone. In a directory that an earlier cluster has used, it has that cluster's
// data and credentials, but another port.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	bin, err := Build(ctx, opts.Log)
	if err != nil {
		return nil, err
	}
	c, err := prepare(bin, opts)
	if err != nil {
		return nil, fmt.Errorf("prepare cluster %q: %w", opts.Name, err)
	}
	if err := c.startAnywhere(ctx); err != nil {
		return nil, fmt.Errorf("start cluster %q: %w", c.name, errors.Join(err, c.giveUp()))
	}
	return c, nil
}

func prepare(bin string, opts Options) (*Cluster, error) {
	s := &servers{bin: bin, dir: opts.Dir, controllers: !opts.NoControllers, told: opts.Log}
	c := &Cluster{name: opts.Name, servers: s}
	if c.name == "" {
		c.name = "klutch"
	}
	var err error
	if s.dir == "" {
		s.dir, s.remove, err = tempdir.Make(c.name)
	} else {
		s.dir, err = filepath.Abs(s.dir)
	}
	if err != nil {
		return nil, err
	}
	return c, writeFiles(s.dir)
}

// startAnywhere starts the cluster on a port that no other program takes in the meantime.
func (c *Cluster) startAnywhere(ctx context.Context) (err error) {
	for range 5 {
		if err = c.choosePort(ctx); err != nil {
			return err
		}
		if err = c.start(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

func (c *Cluster) choosePort(ctx context.Context) (err error) {
	if c.servers.port, err = freePort(ctx); err != nil {
		return err
	}
	url := "https://" + net.JoinHostPort(host, strconv.Itoa(c.servers.port))
	if c.kubeconfig, err = writeKubeconfig(c.servers.dir, c.name, url); err != nil {
		return err
	}
	_, c.config, err = load(c.kubeconfig)
	return err
}

// giveUp stops a cluster that did not become ready, says where its logs are, and removes what is of no more use.
func (c *Cluster) giveUp() error {
	c.servers.stop()
	if c.servers.remove == nil {
		return errors.New("logs are in " + filepath.Join(c.servers.dir, logsDir))
	}
	return errors.Join(errors.New(c.keepLogs()), c.servers.remove())
}

// Name returns the name of the cluster, which is that of its kubeconfig's context.
func (c *Cluster) Name() string { return c.name }

// Kubeconfig returns the path of the administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Config returns a copy of the administrator's client configuration. It has no rate limit.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// URL returns the address of the API server. It stays the same through restarts.
func (c *Cluster) URL() string { return c.config.Host }

// Stop ends the cluster and removes its temporary files. It leaves an existing cluster alone.
func (c *Cluster) Stop() error {
	if c.servers == nil {
		return nil
	}
	c.servers.stop()
	if c.servers.remove == nil {
		return nil
	}
	return c.servers.remove()
}

// StopServer ends the API server as a crash would: connections break, new ones are refused, the data stays.
func (c *Cluster) StopServer() error {
	if c.servers == nil {
		return ErrExisting
	}
	c.servers.stopServer()
	return nil
}

// StartServer starts the API server again after StopServer, at the same address. It returns when the cluster is ready.
func (c *Cluster) StartServer(ctx context.Context) error {
	if c.servers == nil {
		return ErrExisting
	}
	c.servers.stopServer()
	return c.start(ctx)
}

// Restart ends the whole cluster as a power cut would and starts it again, at the same address and with the same data.
func (c *Cluster) Restart(ctx context.Context) error {
	if c.servers == nil {
		return ErrExisting
	}
	c.servers.stop()
	return c.start(ctx)
}

// RestartEmpty replaces the cluster by a new one at the same address that accepts the same credentials of the
// administrator and has no data: a cluster that was lost and set up again.
func (c *Cluster) RestartEmpty(ctx context.Context) error {
	if c.servers == nil {
		return ErrExisting
	}
	c.servers.stop()
	if err := os.RemoveAll(filepath.Join(c.servers.dir, dataDir)); err != nil {
		return fmt.Errorf("empty cluster %q: %w", c.name, err)
	}
	return c.start(ctx)
}

// Backup copies what the cluster has stored into the new directory dir, and starts the cluster again.
func (c *Cluster) Backup(ctx context.Context, dir string) error {
	if c.servers == nil {
		return ErrExisting
	}
	c.servers.stop()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(c.servers.dir, dataDir))); err != nil {
		return fmt.Errorf("back up cluster %q: %w", c.name, err)
	}
	return c.start(ctx)
}

// Restore takes the cluster back to a backup, at the same address.
func (c *Cluster) Restore(ctx context.Context, dir string) error {
	if c.servers == nil {
		return ErrExisting
	}
	c.servers.stop()
	data := filepath.Join(c.servers.dir, dataDir)
	if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(dir))); err != nil {
		return fmt.Errorf("restore cluster %q: %w", c.name, err)
	}
	return c.start(ctx)
}

// SaveLogs copies what the servers have logged into the new directory dir. An existing cluster has nothing to copy.
func (c *Cluster) SaveLogs(dir string) error {
	if c.servers == nil {
		return nil
	}
	return os.CopyFS(dir, os.DirFS(filepath.Join(c.servers.dir, logsDir)))
}

// keepLogs saves the logs where Stop does not remove them, for a day, and says where that is.
func (c *Cluster) keepLogs() string {
	dir, err := tempdir.Logs(c.name)
	if err == nil {
		err = c.SaveLogs(dir)
	}
	if err != nil {
		_ = os.Remove(dir)
		return "logs of cluster " + c.name + " are lost: " + err.Error()
	}
	return "logs of cluster " + c.name + " are in " + dir
}

func (c *Cluster) start(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	c.servers.starts++
	return c.servers.start(ctx, client)
}

func (c *Cluster) client() (kubernetes.Interface, error) { return kubernetes.NewForConfig(c.Config()) }
