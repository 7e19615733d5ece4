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
	"path"
	"path/filepath"
	"runtime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// V2 has namespaced composite resources in place of claims, and composes by functions.
var V2 = Program{"github.com/crossplane/crossplane/v2", "v2.1.0", "h1:7RFel1CeIWQytwtHz1st7lZiycYXUIcS0LkaetCJa4Q=", "./cmd/crossplane"}

// Kubernetes is a provider that drives objects of any kind, such as those of an operator.
var Kubernetes = Program{"github.com/crossplane-contrib/provider-kubernetes", "v1.2.0", "h1:EBqBykO5YbP0A/DJQsd1Rl+L/0tjfKpwf8C7zEsBwsg=", "./cmd/provider"}

// PatchAndTransform is the function of the compositions for V2.
var PatchAndTransform = Program{"github.com/crossplane-contrib/function-patch-and-transform", "v0.5.0", "h1:VwpJ9ulIGA0EI3U6am+JimNU+uKzK1dTXFrRfsZxqvM=", "."}

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
	name := path.Base(path.Join(p.Module, p.Package))
	bin = filepath.Join(cache, "klutch", strings.Join([]string{name, p.Version, runtime.Version()}, "-"))
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
	tls, err := writeCertificates(c, dir)
	if err != nil {
		return nil, err
	}
	run := &stack.Process{Name: "crossplane", Path: bin, Dir: dir, Args: []string{
		"core", "start", "--package-runtime=External", "--enable-webhooks=false", "--namespace=" + Namespace,
		"--tls-client-certs-dir=" + tls, "--tls-server-certs-dir=" + tls, "--cache-dir=" + dir,
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

// StartPatchAndTransform runs the function beside the Crossplane that was started with the same
// dir, and makes it known as the package manager would.
func StartPatchAndTransform(ctx context.Context, c *cluster.Cluster, dir string) (*stack.Process, error) {
	bin, _, err := PatchAndTransform.Build(ctx)
	if err != nil {
		return nil, err
	}
	address, err := cluster.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	const name = "function-patch-and-transform"
	run := &stack.Process{Name: name, Path: bin, Dir: dir, Args: []string{"--address=" + address, "--tls-certs-dir=" + filepath.Join(dir, certificates)}}
	if err := run.Start(ctx); err != nil {
		return nil, err
	}
	revision := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "pkg.crossplane.io/v1", "kind": "FunctionRevision",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"pkg.crossplane.io/package": name}},
		"spec":     map[string]any{"desiredState": "Active", "image": "example.org/" + name + ":v0", "revision": int64(1), "packagePullPolicy": "Never"},
	}}
	if err := stack.Apply(ctx, c, revision); err != nil {
		return run, err
	}
	client, err := stack.Object{Cluster: c, Resource: schema.GroupVersionResource{Group: "pkg.crossplane.io", Version: "v1", Resource: "functionrevisions"}}.Client()
	if err != nil {
		return run, err
	}
	status := fmt.Appendf(nil, `{"status":{"endpoint":%q,"capabilities":["composition"]}}`, address)
	_, err = client.Patch(ctx, name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	return run, err
}

// StartKubernetes runs provider-kubernetes with the administrator's rights, beside the Crossplane
// that was started with the same dir, with a ProviderConfig "default" for the same cluster. Its
// metrics are on port 8080, which it lets no flag change: one runs at a time on a machine.
func StartKubernetes(ctx context.Context, c *cluster.Cluster, dir string) (*stack.Process, error) {
	bin, sources, err := Kubernetes.Build(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := Read(filepath.Join(sources, "package", "crds"))
	if err != nil {
		return nil, err
	}
	for _, crd := range objects { // the package manager would have its versions converted by the provider
		unstructured.RemoveNestedField(crd.Object, "spec", "conversion")
	}
	kubeconfig, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	const name = "kubernetes"
	objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": Namespace},
		"stringData": map[string]any{"kubeconfig": string(kubeconfig)},
	}}, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubernetes.crossplane.io/v1alpha1", "kind": "ProviderConfig", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"credentials": map[string]any{
			"source": "Secret", "secretRef": map[string]any{"name": name, "namespace": Namespace, "key": "kubeconfig"},
		}},
	}})
	if err := stack.Apply(ctx, c, objects...); err != nil {
		return nil, err
	}
	health, err := cluster.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	run := &stack.Process{
		Name: "provider-kubernetes", Path: bin, Dir: dir, Ready: "http://" + health + "/readyz",
		Args: []string{"--health-probe-bind-addr=" + health, "--enable-watches"},
		Env:  []string{"KUBECONFIG=" + c.Kubeconfig(), "TLS_SERVER_CERTS_DIR=" + filepath.Join(dir, certificates)},
	}
	return run, run.Start(ctx)
}

// certificates is the folder, in that of the logs, of the certificate of all programs.
const certificates = "crossplane-tls"

// writeCertificates gives Crossplane the certificate with which it would meet functions.
func writeCertificates(c *cluster.Cluster, dir string) (string, error) {
	to, from := filepath.Join(dir, certificates), filepath.Dir(c.Kubeconfig())
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
