// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/examples/catalog/automation"
	"github.com/klutch-go/sdk/examples/catalog/engine"
	"github.com/klutch-go/sdk/internal/test/tempdir"
)

// testServed goes through the sample claims with the servers that are installed, and the
// clients that people use.
func (w *world) testServed(t *testing.T) {
	dir := tempdir.ForTest(t, "served") // t.TempDir is too long for a socket
	engines, err := engine.Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	stop := w.automate(t, engines)
	t.Cleanup(func() {
		stop()
		if err := engine.Stop(context.WithoutCancel(t.Context()), dir); err != nil {
			t.Error(err)
		}
	})
	a9s := func(kind string, spec fields) fields {
		return with(spec, fields{"compositionRef": composition("a9s-" + kind)})
	}
	t.Run("postgresql", func(t *testing.T) {
		if engines["postgresql"] == nil {
			t.Skip("PostgreSQL is not installed")
		}
		w.shop(t).testLife(catalog.Claims(), "CREATE TABLE orders (n int); INSERT INTO orders VALUES (42)", "SELECT n FROM orders", "DROP TABLE orders")
	})
	t.Run("keyvalue", func(t *testing.T) {
		if engines["keyvalue"] == nil {
			t.Skip("neither Valkey nor Redis is installed")
		}
		w.shop(t).testLife([]*unstructured.Unstructured{
			named("KeyvalueInstance", "orders", keyvalue("keyvalue-single-nano-ssl")),
			named("ServiceBinding", "orders-api", a9s("servicebinding", instanceOf("keyvalue"))),
			named("Backup", "b", a9s("backup", instanceOf("keyvalue"))),
			named("Restore", "undo", a9s("restore", fields{"backupRef": "b", "serviceInstanceType": "keyvalue"})),
		}, "SET orders 42", "GET orders", "FLUSHALL")
	})
	t.Run("orders", func(t *testing.T) { w.shop(t).testOrders() })
	for _, service := range []string{"postgresql", "keyvalue"} {
		for _, folder := range []string{dir + "/" + service, dir + "/" + service + "/backups"} {
			if left := w.leftIn(t, folder); len(left) > 0 {
				t.Errorf("left behind in %s: %v", folder, left)
			}
		}
	}
}

// leftIn are the names in a folder that are of no object any more: other tests have some.
func (w *world) leftIn(t *testing.T, folder string) []string {
	t.Helper()
	names := map[string]bool{}
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		names[e.Name()] = true
	}
	delete(names, "backups")
	for _, kind := range []string{"PostgresqlInstance", "KeyvalueInstance", "Backup"} {
		all, err := w.dyn.Resource(resource(kind)).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range all.Items {
			delete(names, string(u.GetUID()))
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (s *shop) testLife(claims []*unstructured.Unstructured, write, read, lose string) {
	s.order(automation.Running, claims[0])
	s.order(automation.Created, claims[1])
	use := s.client("orders-api-service-binding")
	use(write)
	wantAnswer(s.t, use, read, "42")
	s.order(automation.Completed, claims[2])
	use(lose)
	s.order(automation.Completed, claims[3])
	wantAnswer(s.t, use, read, "42")

	s.delete(s.t, resource("ServiceBinding"), s.namespace, claims[1].GetName())
	s.awaitGone(resource("ServiceBinding"), claims[1].GetName())
	if got := use(read); !strings.Contains(got, "authentication failed") && !strings.Contains(got, "WRONGPASS") {
		s.t.Errorf("after the binding: %q", got)
	}
	// Nothing is left of a namespace that goes as a whole, whatever goes first.
	s.apply(s.t, s.namespace, claims[1])
	s.awaitState(automation.Created, "ServiceBinding", claims[1].GetName())
	use = s.client("orders-api-service-binding")
	if err := s.core.CoreV1().Namespaces().Delete(s.t.Context(), s.namespace, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.await(s.t, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", s.namespace, func(u *unstructured.Unstructured) bool { return u == nil })
	if got := use(read); !strings.Contains(got, "refused") {
		s.t.Errorf("after the namespace: %q", got)
	}
}

func wantAnswer(t *testing.T, use func(string) string, ask, want string) {
	t.Helper()
	if got := use(ask); got != want {
		t.Errorf("%s: %q, want %q", ask, got, want)
	}
}

// client returns an application that uses the credentials of a Secret.
func (s *shop) client(secret string) func(command string) string {
	data := s.secret(secret).Data
	return func(command string) string {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, engine.Psql(), "-X", "-A", "-t", "-q", string(data["uri"]))
		if strings.HasPrefix(string(data["uri"]), "redis") {
			cli := "redis-cli"
			if _, err := exec.LookPath(cli); err != nil {
				cli = "valkey-cli"
			}
			cmd = exec.CommandContext(ctx, cli, "--no-auth-warning", "-u", string(data["uri"]))
		}
		cmd.Stdin = strings.NewReader(command + "\n")
		out, err := cmd.CombinedOutput()
		if err != nil && len(out) == 0 {
			return fmt.Sprint(err)
		}
		return strings.TrimSpace(string(out))
	}
}
