// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"encoding/base64"
	"flag"
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
	"github.com/klutch-go/sdk/examples/catalog/engine"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/tempdir"
)

var atRest = flag.Duration("rest", 5*time.Second, "how long nothing may be written at rest")

// TestReadme types the commands of the README, with PostgreSQL where it is installed, and looks
// at what each one promises.
func TestReadme(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real clusters")
	}
	data := tempdir.ForTest(t, "readme")                                                                            // t.TempDir is too long for a socket
	s, err := stack.Start(t.Context(), stack.Options{Dir: tempdir.ForTest(t, "stack"), Log: os.Stderr, Data: data}) // types the offers
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r := stack.Reader{Stack: s, Folder: ".", Namespace: "default"}
	commands, err := r.Others("kubectl --context control-plane ", "for ", "sed ", "go test . -") // the last three are for TestOnCluster
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		if flags, ok := strings.CutPrefix(command, "go run ./cmd/automation "); ok {
			for flag := range strings.FieldsSeq(flags) { // it runs, with these flags
				if strings.HasPrefix(flag, "-") && !slices.Contains(s.Automation.Args, flag) {
					t.Errorf("the automation runs without %s: %q", flag, s.Automation.Args)
				}
			}
		} else if _, err := r.Type(t.Context(), command); err != nil {
			t.Fatal(err)
		}
	}
	if len(commands) != 4 {
		t.Errorf("%q, want an automation, a bind, an apply and a get", commands)
	}
	served(t, r)
}

// served: all that the README orders is there, the credentials log in, and nothing is written at rest.
func served(t *testing.T, r stack.Reader) {
	t.Helper()
	await := func(gvr schema.GroupVersionResource, name string, c stack.Condition) *unstructured.Unstructured {
		t.Helper()
		u, err := stack.Object{Cluster: r.Stack.App, Resource: gvr, Namespace: r.Namespace, Name: name}.Await(t.Context(), patience, c)
		if err != nil {
			t.Fatalf("%v\nautomation:\n%s", err, r.Stack.Automation.LastWords())
		}
		return u
	}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	silent := []schema.GroupVersionResource{secrets, {Version: "v1", Resource: "configmaps"}}
	for _, u := range catalog.Claims() {
		await(resourceOf(u), u.GetName(), stack.True("Ready"))
		silent = append(silent, resourceOf(u))
	}
	await(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "orders-api", stack.There)
	if psql := engine.Psql(); psql == "" {
		t.Log("PostgreSQL is not installed: the instance is a page of text")
	} else {
		text, _, _ := unstructured.NestedString(await(secrets, "orders-api-service-binding", stack.There).Object, "data", "uri")
		uri, _ := base64.StdEncoding.DecodeString(text)
		out, err := exec.CommandContext(t.Context(), psql, "-X", "-A", "-t", "-c", "SELECT 42", string(uri)).CombinedOutput() //nolint:gosec // of our own server
		if err != nil || strings.TrimSpace(string(out)) != "42" {
			t.Errorf("%v: %s", err, out)
		}
	}
	written, err := r.Silent(t.Context(), *atRest, silent...)
	if err != nil || len(written) > 0 {
		t.Errorf("written at rest: %q, %v", written, err)
	}
	for _, u := range catalog.Claims() {
		client, err := stack.Object{Cluster: r.Stack.App, Resource: resourceOf(u), Namespace: r.Namespace}.Client()
		if err == nil {
			err = client.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{})
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, u := range catalog.Claims() {
		await(resourceOf(u), u.GetName(), stack.Gone)
	}
}
