// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/tempdir"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Start brings everything up. The Stack that it returns must be stopped also when
// there is an error.
func Start(ctx context.Context, opts Options) (*Stack, error) {
	if opts.Step == nil {
		opts.Step = func(string) {}
	}
	s := &Stack{Dir: opts.Dir, opts: opts, stopIssuer: func() {}}
	if s.Dir == "" {
		var err error
		if s.Dir, s.remove, err = tempdir.Make("stack"); err != nil {
			return nil, err
		}
	}
	for _, part := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"Starting two Kubernetes control planes, and building the programs.", s.startClusters},
		{"Installing: the backend's and the konnector's manifests, and the data services of the catalogue.", s.install},
		{"Starting the issuer, the backend, the konnector and the automation of the data services.", s.startPrograms},
	} {
		opts.Step(part.what)
		if err := part.do(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *Stack) startClusters(ctx context.Context) error {
	return together(
		func() (err error) { s.App, err = s.startCluster(ctx, cluster.AppEnv, "app"); return err },
		func() (err error) {
			s.Control, err = s.startCluster(ctx, cluster.ControlPlaneEnv, "control-plane")
			return err
		},
		func() error { return Build(ctx, filepath.Join(s.Dir, "bin")) },
	)
}

func (s *Stack) startCluster(ctx context.Context, env, name string) (*cluster.Cluster, error) {
	return cluster.From(ctx, env, cluster.Options{Name: name, Dir: filepath.Join(s.Dir, name), Log: s.opts.Log})
}

// Build compiles the programs into a folder, kubectl among them.
func Build(ctx context.Context, bin string) error {
	args := []string{"build", "-ldflags=-s -w", "-o", bin + string(filepath.Separator)}
	for _, p := range []string{"cmd/backend", "cmd/konnector", "cmd/kubectl-bind", "examples/catalog/cmd/automation"} {
		args = append(args, "github.com/klutch-go/sdk/"+p)
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return cluster.Kubectl(ctx, bin)
}

func (s *Stack) install(ctx context.Context) error {
	var types []*unstructured.Unstructured
	for _, crd := range v1alpha1.CRDs() {
		types = append(types, crd)
	}
	return together(
		func() error {
			if err := Apply(ctx, s.Control, append(types, deploy.Backend("backend")...)...); err != nil {
				return err
			}
			return s.offer(ctx)
		},
		func() error { return Apply(ctx, s.App, deploy.Konnector("konnector")...) },
	)
}

// offer offers the data services as a README says.
func (s *Stack) offer(ctx context.Context) error {
	if err := awaitKind(ctx, s.Control, "APIServiceExportTemplate"); err != nil {
		return err
	}
	_, here, _, _ := runtime.Caller(0)
	folder := cmp.Or(s.opts.Offer, filepath.Join(filepath.Dir(here), "..", "..", "..", "examples", "catalog"))
	reader := Reader{Stack: s, Folder: folder, Namespace: metav1.NamespaceDefault}
	commands, err := reader.Commands()
	for _, command := range commands {
		if err == nil && strings.HasPrefix(command, "kubectl --context control-plane ") {
			var out Output
			if out, err = reader.Type(ctx, command); strings.Contains(out.Stderr, "already exists") { // from a run before, on clusters that stay
				err = nil
			}
		}
	}
	return err
}

func (s *Stack) startPrograms(ctx context.Context) error {
	if err := s.newIssuer(ctx); err != nil {
		return err
	}
	backend, err := Account(ctx, s.Control, s.Dir, "klutch-backend", "backend")
	if err != nil {
		return err
	}
	automation, err := Account(ctx, s.Control, s.Dir, catalog.Namespace, "automation")
	if err != nil {
		return err
	}
	konnector, err := Account(ctx, s.App, s.Dir, v1alpha1.Namespace, "konnector")
	if err != nil {
		return err
	}
	secretFile := filepath.Join(s.Dir, "client-secret")
	if err := os.WriteFile(secretFile, []byte(s.clientSecret), 0o600); err != nil {
		return err
	}
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return err
	}
	if s.BackendCA, s.keyFile, err = writeCertificate(s.Dir); err != nil {
		return err
	}
	s.BackendURL = "https://" + ports[0]
	s.Backend = s.process("backend", "http://"+ports[1]+"/readyz",
		"--kubeconfig", backend, "--external-url", s.BackendURL, "--listen-address", ports[0], "--health-address", ports[1],
		"--tls-cert-file", s.BackendCA, "--tls-key-file", s.keyFile,
		"--oidc-issuer-url", s.Issuer.URL(), "--oidc-issuer-client-id", clientID, "--oidc-issuer-client-secret-file", secretFile,
		"--pretty-name", "Demo platform", "--namespace", "klutch-backend",
		"--external-address", s.Control.URL())
	s.Backend.Args = append(s.Backend.Args, s.opts.Backend...)
	s.Konnector = s.process("konnector", "http://"+ports[2]+"/healthz",
		"--kubeconfig", konnector, "--health-address", ports[2], "--lease-namespace", v1alpha1.Namespace)
	for _, p := range []*Process{s.Backend, s.Konnector} { // as a pod that is restarted in place
		p.Env = []string{"POD_NAME=" + p.Name + "-0"}
		if s.opts.Verbose {
			p.Args = append(p.Args, "-v", "10")
		}
	}
	s.Automation = s.process("automation", "", "-kubeconfig", automation, "-data", s.opts.Data, "-stop-after")
	s.Automation.Orphaned = syscall.SIGTERM // to stop its servers
	return together(
		func() error { return s.Backend.Start(ctx) },
		func() error { return s.Konnector.Start(ctx) },
		func() error { return s.Automation.Start(ctx) },
	)
}

func (s *Stack) process(name, ready string, args ...string) *Process {
	return &Process{Name: name, Path: filepath.Join(s.Dir, "bin", name), Args: args, Dir: s.Dir, Ready: ready}
}

// together runs all functions at once and joins their errors.
func together(fns ...func() error) error {
	errs := make([]error, len(fns))
	var wg sync.WaitGroup
	for i, fn := range fns {
		wg.Go(func() { errs[i] = fn() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// freePorts returns n loopback addresses that no process listens on.
func freePorts(ctx context.Context, n int) (addrs []string, err error) {
	for len(addrs) < n {
		address, err := cluster.FreeAddress(ctx)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(addrs, address) {
			addrs = append(addrs, address)
		}
	}
	return addrs, nil
}
