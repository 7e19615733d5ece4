// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crossplane_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/crossplane"
	"github.com/klutch-go/sdk/internal/test/stack"
)

const (
	group    = "databases.example.org"
	patience = 3 * time.Minute
	atRest   = 60 * time.Second
)

var (
	managed = schema.GroupVersionResource{Group: "provider.example.org", Version: "v1", Resource: "managedservices"}
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	xrds    = schema.GroupVersionResource{Group: "apiextensions.crossplane.io", Version: "v1", Resource: "compositeresourcedefinitions"}
	kinds   = []string{"postgresqlinstances", "servicebindings", "backups", "restores"}
)

func resource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
}

// A world is the whole system with Crossplane in its Control Plane Cluster.
type world struct {
	*testing.T
	s *stack.Stack
}

func TestCrossplane(t *testing.T) {
	if os.Getenv("KLUTCH_TEST_CROSSPLANE") == "" {
		t.Skip("make test-crossplane runs it")
	}
	s, err := stack.Start(t.Context(), stack.Options{Dir: t.TempDir(), Log: os.Stderr})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	run, err := crossplane.Start(t.Context(), crossplane.V1, s.Control, s.Dir)
	if run != nil {
		t.Cleanup(func() { _ = run.Stop() })
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		do   func(world)
	}{
		{"README", world.readme},
		{"deletion", world.deletion},
		{"XRD goes", world.withdrawn},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.do(world{t, s}) }) {
			t.Fatalf("crossplane:\n%s\nkonnector:\n%s", run.LastWords(), s.Konnector.LastWords())
		}
	}
}

// readme runs the commands of the README and looks at what each one promises.
func (w world) readme() {
	after := map[string]func(){
		"apply -f claims":  func() { w.served(); w.silent() },
		"delete -f claims": w.clean,
	}
	ran := 0
	for _, line := range w.commands() {
		w.run(line)
		for words, look := range after {
			if strings.HasSuffix(line, words) {
				look()
				ran++
			}
		}
	}
	if ran != len(after) {
		w.Fatalf("%d of %d commands are in the README", ran, len(after))
	}
}

// served waits until all claims are, with status and credentials in the App Cluster.
func (w world) served() {
	for claim, state := range map[[2]string]string{
		{"postgresqlinstances", "orders"}: "Running", {"servicebindings", "orders-api"}: "Created",
		{"backups", "orders-before"}: "Completed", {"restores", "orders-undo"}: "Completed",
	} {
		app := w.app(resource(claim[0]), claim[1])
		w.await(app, stack.Field(state, "status", "managed", "state"))
		w.await(app, stack.True("Ready"))
	}
	theirs := w.composed("account")
	if plan, _, _ := unstructured.NestedString(w.composed("server").Object, "spec", "forProvider", "plan"); plan != "postgresql-single-nano" {
		w.Errorf("composed with plan %q", plan)
	}
	secret := w.await(w.app(secrets, "orders-api-credentials"), stack.There)
	password, _, _ := unstructured.NestedString(secret.Object, "data", "password")
	if want := base64.StdEncoding.EncodeToString([]byte(theirs.GetUID())); password != want {
		w.Errorf("the password is %q, want %q", password, want)
	}
}

// composed is the one object of that kind that Crossplane made.
func (w world) composed(kind string) *unstructured.Unstructured {
	w.Helper()
	for _, u := range w.list(stack.Object{Cluster: w.s.Control, Resource: managed}) {
		if is, _, _ := unstructured.NestedString(u.Object, "spec", "forProvider", "kind"); is == kind {
			return &u
		}
	}
	w.Fatalf("no %s is composed", kind)
	return nil
}

// silent fails the test if a claim or a Secret is written while nobody wants anything.
func (w world) silent() {
	settled := w.versions()
	for quiet := time.Now(); time.Since(quiet) < 5*time.Second; time.Sleep(500 * time.Millisecond) {
		if now := w.versions(); !equal(now, settled) {
			settled, quiet = now, time.Now()
		}
	}
	time.Sleep(atRest) // the measurement
	for object, version := range w.versions() {
		if settled[object] != version {
			w.Errorf("%s was written at rest: %s, then %s", object, settled[object], version)
		}
	}
}

func equal(a, b map[string]string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func (w world) versions() map[string]string {
	all := map[string]string{}
	for _, gvr := range append([]schema.GroupVersionResource{secrets}, claimed()...) {
		for _, o := range []stack.Object{w.app(gvr, ""), w.mirror(gvr, "")} {
			for _, u := range w.list(o) {
				all[fmt.Sprint(o.Cluster.Name(), " ", gvr.Resource, " ", u.GetName())] = u.GetResourceVersion()
			}
		}
	}
	return all
}

func claimed() (all []schema.GroupVersionResource) {
	for _, plural := range kinds {
		all = append(all, resource(plural))
	}
	return all
}

// clean waits until nothing is left of any claim on either side.
func (w world) clean() {
	for _, plural := range kinds {
		for _, o := range []stack.Object{w.app(resource(plural), ""), w.mirror(resource(plural), ""), {Cluster: w.s.Control, Resource: resource("x" + plural)}} {
			w.until(o.String()+" are gone", func() bool { return len(w.list(o)) == 0 })
		}
	}
	w.await(w.app(secrets, "orders-api-credentials"), stack.Gone)
	w.await(w.mirror(secrets, "orders-api-credentials"), stack.Gone)
	w.until("what was composed is gone", func() bool { return len(w.list(stack.Object{Cluster: w.s.Control, Resource: managed})) == 0 })
}

// deletion: instance or credentials first, by either policy of Crossplane.
func (w world) deletion() {
	for _, policy := range []string{"Foreground", "Background"} {
		for _, order := range [][]string{kinds, reversed(kinds)} {
			w.run("kubectl --context app apply -f claims")
			for plural, name := range map[string]string{"postgresqlinstances": "orders", "servicebindings": "orders-api"} {
				o := w.app(resource(plural), name)
				w.patch(o, fmt.Sprintf(`{"spec":{"compositeDeletePolicy":%q}}`, policy))
				w.await(w.mirror(o.Resource, name), stack.Field(policy, "spec", "compositeDeletePolicy"))
			}
			w.served()
			for _, plural := range order {
				for _, u := range w.list(w.app(resource(plural), "")) {
					w.delete(w.app(resource(plural), u.GetName()))
				}
			}
			w.clean()
		}
	}
}

func reversed(all []string) []string {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}

// withdrawn: an XRD that is deleted takes its kind with it, and nothing is made anew. The
// claim in the App Cluster stays.
func (w world) withdrawn() {
	w.run("kubectl --context app apply -f claims")
	w.served()
	xrd := stack.Object{Cluster: w.s.Control, Resource: xrds, Name: "xpostgresqlinstances." + group}
	crd := stack.Object{Cluster: w.s.Control, Resource: stack.CRDs, Name: "postgresqlinstances." + group}
	w.delete(xrd)
	w.await(xrd, stack.Gone)
	w.await(crd, stack.Gone)
	w.until("what was composed is gone", func() bool { return len(w.list(stack.Object{Cluster: w.s.Control, Resource: managed})) == 3 })
	w.await(w.app(resource("postgresqlinstances"), "orders"), stack.There)
	w.await(w.app(resource("servicebindings"), "orders-api"), stack.True("Ready"))
}

// commands are the lines of the README that are typed.
func (w world) commands() (lines []string) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			lines = append(lines, strings.TrimSpace(command))
		}
	}
	return lines
}

// run does what a command says, by the same requests as kubectl.
func (w world) run(line string) {
	w.Helper()
	args := strings.Fields(line)[1:]
	if args[0] == "bind" {
		if out := w.s.Bind(w.Context(), stack.Developer, args[4:]...); out.Code != 0 { // all but URL and context
			w.Fatalf("%s: exit code %d\n%s%s", line, out.Code, out.Stdout, out.Stderr)
		}
		return
	}
	c := map[string]*cluster.Cluster{"app": w.s.App, "control-plane": w.s.Control}[args[1]]
	switch args = args[2:]; {
	case args[0] == "apply":
		if err := stack.Apply(w.Context(), c, w.files(args[1:])...); err != nil {
			w.Fatalf("%s: %v", line, err)
		}
	case args[0] == "delete":
		for _, u := range w.files(args[1:]) {
			w.delete(w.app(resource(strings.ToLower(u.GetKind())+"s"), u.GetName()))
		}
	case args[0] == "get" && args[1] == "secret":
		w.await(w.app(secrets, args[2]), stack.There)
	case len(args) == 7 && args[2] == "create" && args[3] == "rolebinding":
		w.bindRole(c, args[1], args[4], strings.TrimPrefix(args[5], "--role="), strings.TrimPrefix(args[6], "--group="))
	default:
		w.Fatalf("the test cannot run %q", line)
	}
}

func (w world) bindRole(c *cluster.Cluster, namespace, name, role, subjects string) {
	w.Helper()
	const rbac = "rbac.authorization.k8s.io"
	err := stack.Apply(w.Context(), c, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": rbac + "/v1", "kind": "RoleBinding",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"roleRef":  map[string]any{"apiGroup": rbac, "kind": "Role", "name": role},
		"subjects": []any{map[string]any{"apiGroup": rbac, "kind": "Group", "name": subjects}},
	}})
	if err != nil {
		w.Fatal(err)
	}
}

func (w world) files(args []string) (all []*unstructured.Unstructured) {
	for _, folder := range args {
		if folder == "-f" {
			continue
		}
		objects, err := crossplane.Read(folder)
		if err != nil || len(objects) == 0 {
			w.Fatalf("%s: %d objects, %v", folder, len(objects), err)
		}
		all = append(all, objects...)
	}
	return all
}

func (w world) app(gvr schema.GroupVersionResource, name string) stack.Object {
	return stack.Object{Cluster: w.s.App, Resource: gvr, Namespace: metav1.NamespaceDefault, Name: name}
}

func (w world) mirror(gvr schema.GroupVersionResource, name string) stack.Object {
	w.Helper()
	namespace, err := w.s.ServiceNamespace(w.Context(), metav1.NamespaceDefault)
	if err != nil {
		w.Fatal(err)
	}
	return stack.Object{Cluster: w.s.Control, Resource: gvr, Namespace: namespace, Name: name}
}

func (w world) await(o stack.Object, cond stack.Condition) *unstructured.Unstructured {
	w.Helper()
	u, err := o.Await(w.Context(), patience, cond)
	if err != nil {
		w.Fatal(err)
	}
	return u
}

func (w world) until(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("never: %s", what)
		}
	}
}

func (w world) list(o stack.Object) []unstructured.Unstructured {
	w.Helper()
	client, err := o.Client()
	if err != nil {
		w.Fatal(err)
	}
	all, err := client.List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatalf("list %s: %v", o, err)
	}
	return all.Items
}

func (w world) delete(o stack.Object) {
	w.Helper()
	client, err := o.Client()
	if err == nil {
		err = client.Delete(w.Context(), o.Name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatalf("delete %s: %v", o, err)
	}
}

func (w world) patch(o stack.Object, json string) {
	w.Helper()
	client, err := o.Client()
	if err == nil {
		_, err = client.Patch(w.Context(), o.Name, types.MergePatchType, []byte(json), metav1.PatchOptions{})
	}
	if err != nil {
		w.Fatalf("patch %s: %v", o, err)
	}
}
