// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/tempdir"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// People at the issuer. Developers may bind the data services; guests may log in.
const (
	Developer = "dana"
	Guest     = "gus"
	Colleague = "cleo" // may do what the developer may
	Password  = "demo"

	developers = "developers"
	clientID   = "klutch"
)

// Resources that everybody needs.
var (
	CRDs       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	Namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// Options of a Stack. The zero value works, in silence.
type Options struct {
	Dir  string            // for programs, logs and kubeconfigs; empty means a temporary one, which Remove removes
	Step func(what string) // called as each part comes up
	Log  io.Writer         // gets the progress of a first build
	// Verbose makes the programs say all that they can be asked to say.
	Verbose bool
	Backend []string // further flags of the backend
	// Data is a folder for the servers of data services; without it there are none.
	Data string
	// Offer is the folder of an example whose README says how to offer the data services; empty
	// means examples/catalog. Its commands for the control plane are typed.
	Offer string
}

// A Stack is the whole system.
type Stack struct {
	App, Control *cluster.Cluster
	Issuer       *testissuer.Issuer

	Backend, Konnector, Automation *Process

	BackendURL string
	BackendCA  string // path of its certificate
	Dir        string

	opts         Options
	keyFile      string
	issuerAddr   string
	clientSecret string
	stopIssuer   func()
	remove       func() error // of Dir; nil if it is the caller's
}

// ServiceNamespace waits for the mirror, in the Control Plane Cluster, of a
// namespace of the App Cluster.
func (s *Stack) ServiceNamespace(ctx context.Context, namespace string) (string, error) {
	tenant, err := s.Tenant(ctx)
	if err != nil {
		return "", err
	}
	if _, err := (Object{Cluster: s.App, Resource: Namespaces, Name: namespace}).Get(ctx); err != nil {
		return "", err
	}
	u, err := Object{Cluster: s.Control, Resource: v1alpha1.Resource("apiservicenamespaces"), Namespace: tenant, Name: namespace}.
		Await(ctx, patience, func(u *unstructured.Unstructured) bool {
			return u != nil && nested(u, "status", "namespace") != ""
		})
	if err != nil {
		return "", err
	}
	return nested(u, "status", "namespace"), nil
}

// Tenant returns the tenant namespace that the App Cluster's binding leads to. There
// must be just one tenant.
func (s *Stack) Tenant(ctx context.Context) (string, error) {
	c, err := Object{Cluster: s.Control, Resource: v1alpha1.Resource("clusterbindings"), Namespace: metav1.NamespaceAll}.Client()
	if err != nil {
		return "", err
	}
	list, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	if len(list.Items) != 1 {
		return "", fmt.Errorf("%d tenants, want one", len(list.Items))
	}
	return list.Items[0].GetNamespace(), nil
}

// Stop ends everything that Start began and returns when it is gone. Dir is left.
func (s *Stack) Stop() error {
	var errs []error
	for _, p := range []*Process{s.Konnector, s.Backend, s.Automation} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	s.stopIssuer()
	for _, c := range []*cluster.Cluster{s.App, s.Control} {
		if c != nil {
			errs = append(errs, c.Stop())
		}
	}
	return errors.Join(errs...)
}

// KeepLogs copies all logs to where they stay for a day, and says where that is.
func (s *Stack) KeepLogs() string {
	dir, err := tempdir.Logs("stack")
	if err == nil {
		err = s.copyLogs(dir)
	}
	if err != nil {
		return "logs of the stack are lost: " + err.Error()
	}
	return "logs of the stack are in " + dir
}

func (s *Stack) copyLogs(dir string) error {
	var errs []error
	for _, pattern := range []string{"*.log", filepath.Join("*", "logs", "*.log")} { // of the programs, and of the clusters' servers
		paths, err := filepath.Glob(filepath.Join(s.Dir, pattern))
		errs = append(errs, err)
		for _, path := range paths {
			name := strings.ReplaceAll(strings.TrimPrefix(path, s.Dir+string(filepath.Separator)), string(filepath.Separator), "-")
			log, err := os.ReadFile(path)
			errs = append(errs, err, os.WriteFile(filepath.Join(dir, name), log, 0o600))
		}
	}
	return errors.Join(errs...)
}

// Remove removes a temporary Dir. The Stack must have been stopped.
func (s *Stack) Remove() error {
	if s.remove == nil {
		return nil
	}
	return s.remove()
}

func nested(u *unstructured.Unstructured, path ...string) string {
	text, _, _ := unstructured.NestedString(u.Object, path...)
	return text
}
