// SPDX-License-Identifier: Apache-2.0

// The programs that show package sync, and a konnector of one's own, run against real clusters.
package examples_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/tempdir"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Each program has a resource of its own.
const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: NAMEs.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: NAMEs, kind: NAMEKind}
  versions:
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// A side is a cluster and what a test does to it.
type side struct {
	testing.TB
	*cluster.Cluster
	objects dynamic.ResourceInterface
}

// newSide installs the resource of a program.
func newSide(t *testing.T, c *cluster.Cluster, name, namespace string) side {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(crd, "NAME", name)), &u.Object); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(c.Config())
	if err == nil {
		err = stack.Apply(t.Context(), c, u)
	}
	if err != nil {
		t.Fatal(err)
	}
	gvr := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: name + "s"}
	s := side{t, c, client.Resource(gvr).Namespace(namespace)}
	s.until("resource is served", func() bool {
		_, err := client.Resource(gvr).Namespace("default").List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	return s
}

func (s side) create(kind, text string) {
	s.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("{apiVersion: example.org/v1, kind: "+kind+"Kind, metadata: {name: a}, "+text+"}"), &u.Object); err != nil {
		s.Fatal(err)
	}
	if _, err := s.objects.Create(s.Context(), u, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// field is one of the object's spec.
func (s side) field(name string) string {
	u, err := s.objects.Get(s.Context(), "a", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	value, _, _ := unstructured.NestedString(u.Object, "spec", name)
	return value
}

func (s side) until(what string, ok func() bool) {
	s.Helper()
	err := wait.PollUntilContextTimeout(s.Context(), 50*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		s.Fatalf("never: %s", what)
	}
}

// A journal is what a program says.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(text []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(text)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// start runs a program until stop ends it.
func start(t *testing.T, programs, name string, args ...string) (out *journal, stop func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, name), args...)
	out = &journal{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return out, func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func flags(app, control side, resource string) []string {
	return []string{"-source", app.Kubeconfig(), "-target", control.Kubeconfig(), "-resource", resource + ".v1.example.org"}
}

func TestPrograms(t *testing.T) {
	ada, bob, control := cluster.ForTest(t, "ada"), cluster.ForTest(t, "bob"), cluster.ForTest(t, "control")
	programs := tempdir.ForTest(t, "examples")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", programs, "./mirror", "./tenants", "./adopt", "./observe", "./embed")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("mirror", func(t *testing.T) {
		app, there := newSide(t, ada, "mirror", "default"), newSide(t, control, "mirror", "default")
		_, stop := start(t, programs, "mirror", flags(app, there, "mirrors")...)
		app.create("mirror", "spec: {size: small}")
		there.until("mirrored", func() bool { return there.field("size") == "small" })
		stop()
	})
	t.Run("tenants", func(t *testing.T) {
		adas, bobs := newSide(t, ada, "tenant", "default"), newSide(t, bob, "tenant", "default")
		adas.create("tenant", "spec: {of: ada}")
		bobs.create("tenant", "spec: {of: bob}")
		forAda, forBob := newSide(t, control, "tenant", "ada-default"), newSide(t, control, "tenant", "bob-default")
		_, stop := start(t, programs, "tenants", control.Kubeconfig(), "tenants.v1.example.org", "ada="+ada.Kubeconfig(), "bob="+bob.Kubeconfig())
		forAda.until("ada's is there", func() bool { return forAda.field("of") == "ada" })
		forBob.until("bob's is there", func() bool { return forBob.field("of") == "bob" })
		stop()
	})
	t.Run("adopt", func(t *testing.T) {
		app, there := newSide(t, ada, "adopt", "default"), newSide(t, control, "adopt", "default")
		there.create("adopt", "spec: {size: large, place: north}")
		app.create("adopt", "spec: {size: small}")
		_, stop := start(t, programs, "adopt", append(flags(app, there, "adopts"), "-keep")...)
		there.until("taken over", func() bool { return there.field("size") == "small" })
		if place := there.field("place"); place != "north" {
			t.Errorf("what the source does not say is %q", place)
		}
		if err := app.objects.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		app.until("released", func() bool { return strings.Contains(app.field("size"), "not found") })
		if size := there.field("size"); size != "small" {
			t.Errorf("the value to keep is %q", size)
		}
		stop()
	})
	t.Run("observe", func(t *testing.T) {
		app, there := newSide(t, ada, "observe", "default"), newSide(t, control, "observe", "default")
		out, stop := start(t, programs, "observe", flags(app, there, "observes")...)
		app.create("observe", "spec: {size: small}")
		there.until("mirrored", func() bool { return there.field("size") == "small" })
		for _, want := range []string{`"side":"Source","step":"add-finalizer","object":"default/a"`, `"side":"Target","step":"create","object":"default/a"`} {
			there.until(want, func() bool { return strings.Contains(out.String(), want) })
		}
		stop()
	})
	t.Run("embed", func(t *testing.T) { embeds(t, programs, ada) })
	for name, args := range map[string][]string{"mirror": nil, "tenants": nil, "adopt": nil, "observe": nil, "embed": {"-kubeconfig=/nowhere"}} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(programs, name), args...).CombinedOutput()
		if err == nil || !strings.HasPrefix(string(out), name+": ") {
			t.Errorf("%s without a cluster: %v\n%s", name, err, out)
		}
	}
}

// embeds: the program of 40 lines is a konnector that leads, is healthy and has metrics.
func embeds(t *testing.T, programs string, app *cluster.Cluster) {
	t.Helper()
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	namespace.SetName(v1alpha1.Namespace)
	if err := stack.Apply(t.Context(), app, append(slices.Collect(maps.Values(v1alpha1.CRDs())), namespace)...); err != nil {
		t.Fatal(err)
	}
	address, err := cluster.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, stop := start(t, programs, "embed", "-kubeconfig", app.Kubeconfig(), "-health", address)
	defer stop()
	get := func(path string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		text, _ := io.ReadAll(answer.Body)
		return answer.Status + string(text) + fmt.Sprint(answer.Body.Close())
	}
	lease := stack.Object{Cluster: app, Resource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, Namespace: v1alpha1.Namespace, Name: v1alpha1.LeaseName}
	if _, err := lease.Await(t.Context(), time.Minute, stack.There); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	side{t, app, nil}.until("healthy, with metrics", func() bool {
		return strings.HasPrefix(get("/healthz"), "200") && strings.Contains(get("/metrics"), "klutch_")
	})
	main, err := os.ReadFile("embed/main.go")
	if n := strings.Count(string(main), "\n"); err != nil || n > 40 {
		t.Errorf("%d lines, %v", n, err)
	}
}
