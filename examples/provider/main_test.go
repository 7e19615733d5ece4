// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/conformance"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestConformance runs the example on a real API server, and against it all that a
// backend has to keep. The services on offer are those of the catalogue, by
// their labels alone.
func TestConformance(t *testing.T) {
	control := cluster.ForTest(t, "provider")
	objects := deploy.Backend("backend")
	for _, crd := range v1alpha1.CRDs() {
		objects = append(objects, crd)
	}
	for _, crd := range catalog.CRDs() {
		crd.SetLabels(map[string]string{"klutch.anynines.com/exported": "true"})
		objects = append(objects, crd)
	}
	if err := stack.Apply(t.Context(), control, append(objects, catalog.Roles()...)...); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := stack.Account(t.Context(), control, t.TempDir(), "klutch-backend", "backend")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	database := testissuer.User{Password: "secret", Groups: []string{"postgresqlinstances"}}
	issuer := testissuer.Start(t, testissuer.Options{Users: map[string]testissuer.User{"ada": database, "grace": database}})
	conformance.Run(t, conformance.Options{
		URL: start(t, issuer.URL()), Login: person("ada"), OtherLogin: person("grace"), ControlPlane: control.Config(),
		Service: "postgresqlinstances.anynines.com", Refused: "keyvalueinstances.anynines.com", Object: database14(),
	})
}

func database14() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "anynines.com/v1", "kind": "PostgresqlInstance",
		"spec": map[string]any{"service": "a9s-postgresql14", "plan": "postgresql-single-nano"},
	}}
}

func person(name string) conformance.Login {
	return func(ctx context.Context, url string) error {
		_, err := testissuer.NewBrowser(testissuer.BrowserOptions{Username: name, Password: "secret"}).Visit(ctx, url)
		return err
	}
}

// start runs the example until the test ends, and returns its URL.
func start(t *testing.T, issuer string) string {
	t.Helper()
	address, err := cluster.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{address, issuer, "klutch"}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", http.NoBody)
		if err != nil {
			return false, err
		}
		resp, err := http.DefaultClient.Do(req)
		return err == nil && resp.Body.Close() == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	return "http://" + address
}

func TestUsage(t *testing.T) {
	if err := run(t.Context(), nil); err == nil {
		t.Error("no arguments will do")
	}
}
