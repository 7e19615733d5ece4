// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package crossplane builds Crossplane from its Go modules and runs it beside a cluster of
// package cluster, as plain processes, without containers and without packages.
//
// Nothing of Crossplane is in the module graph of the SDK: each program is built as the main
// module that it was released as, by its own go.mod and go.sum, from sources whose sum is
// pinned here. The programs stay in the user's cache directory.
package crossplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
)

// Namespace is that of Crossplane.
const Namespace = "crossplane-system"

// A Program is one of Crossplane's, as it was released.
type Program struct {
	Module, Version string
	Sum             string // of the module, as in go.sum
	Package         string // of the program, in the module
}

// V1 has claims, and compositions that need no function.
var V1 = Program{"github.com/crossplane/crossplane", "v1.20.0", "h1:Wr3+/CilaMbRQ7u4e+m4XBmoARahBpENIYClGzIXpS8=", "./cmd/crossplane"}

// sources downloads the module once a machine and returns where it is.
func (p Program) sources(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", p.Module+"@"+p.Version)
	cmd.Dir, cmd.Env = os.TempDir(), append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	var module struct{ Dir, Sum, Error string }
	if unread := json.Unmarshal(out, &module); unread != nil || module.Error != "" {
		return "", fmt.Errorf("download %s@%s: %w %s", p.Module, p.Version, errors.Join(err, unread), module.Error)
	}
	if module.Sum != p.Sum {
		return "", fmt.Errorf("%s@%s has the sum %s, want %s", p.Module, p.Version, module.Sum, p.Sum)
	}
	return module.Dir, nil
}

// Build returns the path of the program and that of its sources. It compiles once a machine,
// on two cores at most: minutes.
func (p Program) Build(ctx context.Context) (bin, sources string, err error) {
	sources, err = p.sources(ctx)
	if err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	bin = filepath.Join(cache, "klutch", strings.Join([]string{filepath.Base(p.Package), p.Version, runtime.Version()}, "-"))
	if _, err := os.Stat(bin); err == nil {
		return bin, sources, nil
	}
	unfinished := fmt.Sprintf("%s.%d", bin, os.Getpid())
	cmd := exec.CommandContext(ctx, "nice", "go", "build", "-p=2", "-mod=readonly", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w", "-gcflags=all=-dwarf=false", "-gcflags=std=", "-o", unfinished, p.Package)
	cmd.Dir, cmd.Env = sources, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("build %s@%s: %w\n%s", p.Module, p.Version, err, out)
	}
	return bin, sources, os.Rename(unfinished, bin)
}

// Start installs Crossplane in a cluster and runs it with the administrator's rights until
// its process is stopped. What it says is in dir.
func Start(ctx context.Context, p Program, c *cluster.Cluster, dir string) (*stack.Process, error) {
	bin, sources, err := p.Build(ctx)
	if err != nil {
		return nil, err
	}
	crds, err := Read(filepath.Join(sources, "cluster", "crds"))
	if err != nil {
		return nil, err
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	namespace.SetName(Namespace)
	if err := stack.Apply(ctx, c, append(crds, namespace)...); err != nil {
		return nil, err
	}
	certificates, err := writeCertificates(c, dir)
	if err != nil {
		return nil, err
	}
	run := &stack.Process{Name: "crossplane", Path: bin, Dir: dir, Args: []string{
		"core", "start", "--package-runtime=External", "--enable-webhooks=false", "--namespace=" + Namespace,
		"--tls-client-certs-dir=" + certificates, "--tls-server-certs-dir=" + certificates, "--cache-dir=" + dir,
	}, Env: []string{"KUBECONFIG=" + c.Kubeconfig()}}
	for _, port := range []string{"health-probe", "metrics", "webhook"} {
		address, err := cluster.FreeAddress(ctx)
		if err != nil {
			return nil, err
		}
		if port == "health-probe" {
			run.Ready = "http://" + address + "/readyz"
		}
		run.Args = append(run.Args, "--"+port+"-port="+address[strings.LastIndex(address, ":")+1:])
	}
	return run, run.Start(ctx)
}

// writeCertificates gives Crossplane the certificate with which it would meet functions.
func writeCertificates(c *cluster.Cluster, dir string) (string, error) {
	to, from := filepath.Join(dir, "crossplane-tls"), filepath.Dir(c.Kubeconfig())
	if err := os.MkdirAll(to, 0o700); err != nil {
		return "", err
	}
	for name, source := range map[string]string{"ca.crt": "tls.crt", "tls.crt": "tls.crt", "tls.key": "tls.key"} {
		data, err := os.ReadFile(filepath.Join(from, source))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	return to, nil
}

// Read returns the objects of all YAML files of a folder, in the order of their names.
func Read(folder string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(bytes.TrimPrefix(document, []byte("---\n")), &u.Object); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if u.Object != nil {
				all = append(all, u)
			}
		}
	}
	return all, nil
}
