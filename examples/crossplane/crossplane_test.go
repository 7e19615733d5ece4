// SPDX-License-Identifier: Apache-2.0

//go:build unix

package crossplane_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/crossplane"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/tempdir"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

const (
	group    = "databases.example.org"
	patience = 2 * time.Minute
	soon     = 10 * time.Second // for a change of a claim to arrive
	atRest   = 60 * time.Second
)

var (
	managed = schema.GroupVersionResource{Group: "provider.example.org", Version: "v1", Resource: "managedservices"}
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	events  = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	xrds    = schema.GroupVersionResource{Group: "apiextensions.crossplane.io", Version: "v1", Resource: "compositeresourcedefinitions"}
	kinds   = []string{"postgresqlinstances", "servicebindings", "backups", "restores"}
)

func resource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
}

// A world is the whole system with Crossplane in its Control Plane Cluster.
type world struct {
	*testing.T
	s          *stack.Stack
	crossplane *stack.Process
	v2         bool // Crossplane 2: namespaced composite resources
	// namespace of the App Cluster. Crossplane 2 leaves an object alone for minutes after some
	// fifty events, though it is another of the same name: each round has its own namespace.
	namespace string
}

func (w world) in(namespace string) world {
	w.Helper()
	if err := stack.Apply(w.Context(), w.s.App, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}}); err != nil {
		w.Fatal(err)
	}
	w.namespace = namespace
	return w
}

func TestCrossplane(t *testing.T) {
	if os.Getenv("KLUTCH_TEST_CROSSPLANE") == "" {
		t.Skip("make test-crossplane runs it")
	}
	for name, p := range map[string]crossplane.Program{"1.20": crossplane.V1, "2.1": crossplane.V2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // either waits most of its time
			testWith(t, p)
		})
	}
}

func testWith(t *testing.T, p crossplane.Program) {
	t.Helper()
	s, err := stack.Start(t.Context(), stack.Options{Dir: tempdir.ForTest(t, "stack"), Log: os.Stderr})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	run, err := crossplane.Start(t.Context(), p, s.Control, s.Dir)
	if run != nil {
		t.Cleanup(func() { _ = run.Stop() })
	}
	var beside *stack.Process
	switch {
	case err == nil && p == crossplane.V2:
		beside, err = crossplane.StartPatchAndTransform(t.Context(), s.Control, s.Dir)
	case err == nil:
		beside, err = crossplane.StartKubernetes(t.Context(), s.Control, s.Dir)
	}
	if beside != nil {
		t.Cleanup(func() { _ = beside.Stop() })
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		do   func(world)
	}{
		{"README", world.readme},
		{"operator", world.operated},
		{"deletion", world.deletion},
		{"change while the deletion waits", world.decided},
		{"contested field", world.contested},
		{"XRD goes and is applied again", world.withdrawn},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.do(world{t, s, run, p == crossplane.V2, metav1.NamespaceDefault}) }) {
			for _, p := range []*stack.Process{run, beside, s.Konnector, s.Automation} {
				t.Logf("%s:\n%s", p.Name, p.LastWords())
			}
			world{T: t, s: s, v2: p == crossplane.V2}.tell()
			t.FailNow()
		}
	}
}

// tell logs how far each claim has come, on both sides and in Crossplane, and the warnings there.
func (w world) tell() {
	for _, e := range w.list(stack.Object{Cluster: w.s.Control, Resource: events}) {
		if e.Object["type"] == "Warning" {
			w.Logf("%v: %v", e.Object["involvedObject"], e.Object["message"])
		}
	}
	for _, gvr := range claimed() {
		all := []stack.Object{{Cluster: w.s.App, Resource: gvr}, {Cluster: w.s.Control, Resource: gvr}}
		if !w.v2 {
			all = append(all, stack.Object{Cluster: w.s.Control, Resource: resource("x" + gvr.Resource)})
		}
		for _, o := range all {
			client, err := o.Client()
			if err != nil {
				w.Fatal(err)
			}
			found, err := client.List(w.Context(), metav1.ListOptions{})
			if err != nil { // the kind may have gone with its XRD
				w.Logf("%s in %s: %v", o, o.Cluster.Name(), err)
				continue
			}
			for _, u := range found.Items {
				w.Logf("%s%s in %s: %v %v %v", o, u.GetName(), o.Cluster.Name(), u.Object["metadata"], u.Object["spec"], u.Object["status"])
			}
		}
	}
}

// readme runs the commands of the README and looks at what each one promises.
func (w world) readme() {
	after := map[string]func(){
		"-f offer":         w.offered,
		"apply -f claims":  func() { w.served(); w.silent() },
		"delete -f claims": w.clean,
	}
	commands, err := w.reader().Commands()
	if err != nil {
		w.Fatal(err)
	}
	ran := 0
	for _, line := range commands {
		if isOperators(line) || w.isOthers(line) {
			continue
		}
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

// offered waits until the kinds of all XRDs are served. Crossplane 1.20.0 never looks at the composite
// resources of an XRD, and leaves its claims Waiting, if the CRD of the claims was served before theirs.
// It says so in an Event, once, and is well when it is started anew (crossplane/crossplane#6884).
func (w world) offered() {
	w.Helper()
	for _, u := range w.list(stack.Object{Cluster: w.s.Control, Resource: xrds}) {
		xrd := stack.Object{Cluster: w.s.Control, Resource: xrds, Name: u.GetName()}
		w.await(xrd, stack.True("Established"))
		if !w.v2 {
			w.await(xrd, stack.True("Offered"))
		}
	}
	blind := false
	for _, e := range w.list(stack.Object{Cluster: w.s.Control, Resource: events}) {
		if said, _, _ := unstructured.NestedString(e.Object, "message"); strings.Contains(said, "cannot start composite resource claim controller watches") {
			w.Log("Crossplane is started anew: ", said)
			w.delete(stack.Object{Cluster: w.s.Control, Resource: events, Namespace: e.GetNamespace(), Name: e.GetName()})
			blind = true
		}
	}
	if !blind {
		return
	}
	if err := w.crossplane.Stop(); err != nil {
		w.Error(err)
	}
	if err := w.crossplane.Start(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func isOperators(line string) bool {
	return strings.Contains(line, "-f operator") || strings.Contains(line, "--service caches")
}

// isOthers says whether a command is for the other version of Crossplane.
func (w world) isOthers(line string) bool {
	if w.v2 {
		return strings.Contains(line, " -f provider ") || strings.Contains(line, " -f operator/v1 ")
	}
	return strings.Contains(line, " -f v2 ") || strings.Contains(line, " -f operator/v2 ")
}

// operated: Crossplane has an operator work, and the operator's object goes with the claim.
func (w world) operated() {
	commands, err := w.reader().Commands()
	if err != nil {
		w.Fatal(err)
	}
	caches := resource("caches")
	operators := w.mirror(schema.GroupVersionResource{Group: "anynines.com", Version: "v1", Resource: "keyvalueinstances"}, "")
	ran := 0
	for _, line := range slices.DeleteFunc(commands, func(line string) bool { return !isOperators(line) || w.isOthers(line) }) {
		w.run(line)
		ran++
		switch {
		case strings.HasSuffix(line, " -f operator"):
			w.offered()
		case strings.HasSuffix(line, " apply -f operator/claim"):
			w.await(w.app(caches, "sessions"), stack.Field("Running", "status", "managed", "state"))
			w.await(w.app(caches, "sessions"), stack.True("Ready"))
			if n := len(w.list(operators)); n != 1 {
				w.Errorf("%d objects of the operator", n)
			}
			written, err := w.reader().Silent(w.Context(), atRest, caches)
			if err != nil || len(written) > 0 {
				w.Errorf("written at rest: %q, %v", written, err)
			}
		case strings.HasSuffix(line, " delete -f operator/claim"):
			w.await(w.app(caches, "sessions"), stack.Gone)
			w.await(w.mirror(caches, "sessions"), stack.Gone)
			w.until("the operator's object is gone", func() bool { return len(w.list(operators)) == 0 })
		}
	}
	if ran != 4 {
		w.Fatalf("%d of 4 commands are in the README", ran)
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
	if name, _, _ := unstructured.NestedString(theirs.Object, "spec", "writeConnectionSecretToRef", "name"); w.v2 {
		w.provide(theirs, name)
	}
	if plan, _, _ := unstructured.NestedString(w.composed("server").Object, "spec", "forProvider", "plan"); plan != "postgresql-single-nano" {
		w.Errorf("composed with plan %q", plan)
	}
	secret := w.await(w.app(secrets, "orders-api-credentials"), stack.There)
	if want := base64.StdEncoding.EncodeToString([]byte(theirs.GetUID())); password(secret) != want {
		w.Errorf("the password is %q, want %q", password(secret), want)
	}
}

// provide writes the Secret that a provider would.
func (w world) provide(account *unstructured.Unstructured, name string) {
	w.Helper()
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"password": string(account.GetUID())}}}
	secret.SetName(name)
	secret.SetNamespace(account.GetNamespace())
	secret.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: account.GetAPIVersion(), Kind: account.GetKind(), Name: account.GetName(), UID: account.GetUID()}})
	if err := stack.Apply(w.Context(), w.s.Control, secret); err != nil {
		w.Fatal(err)
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

// silent fails the test if a claim or a Secret is written while no user changes anything.
func (w world) silent() {
	written, err := w.reader().Silent(w.Context(), atRest, append(claimed(), secrets)...)
	if err != nil || len(written) > 0 {
		w.Errorf("written at rest: %q, %v", written, err)
	}
}

func (w world) reader() stack.Reader {
	return stack.Reader{Stack: w.s, Folder: ".", Namespace: w.namespace}
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
		all := []stack.Object{w.app(resource(plural), ""), w.mirror(resource(plural), "")}
		if !w.v2 {
			all = append(all, stack.Object{Cluster: w.s.Control, Resource: resource("x" + plural)})
		}
		for _, o := range all {
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
		for i, order := range [][]string{kinds, reversed(kinds)} {
			w := w.in(fmt.Sprint(strings.ToLower(policy), i))
			w.run("kubectl --context app apply -f claims")
			for plural, name := range map[string]string{"postgresqlinstances": "orders", "servicebindings": "orders-api"} {
				if w.v2 { // has no such policy
					break
				}
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

// decided: what a user changes while the deletion waits goes up, and the status comes down.
func (w world) decided() {
	if w.v2 {
		w.Skip("Crossplane 2 has no claims")
	}
	w = w.in("decided")
	orders, theirs, server := w.held()
	w.patch(orders, `{"spec":{"plan":"postgresql-single-small"}}`)
	w.within(soon, theirs, stack.Field("postgresql-single-small", "spec", "plan"))
	w.patch(theirs, `{"status":{"managed":{"state":"WaitsForBackup"}}}`, "status")
	w.within(soon, orders, stack.Field("WaitsForBackup", "status", "managed", "state"))
	w.patch(server, `{"metadata":{"finalizers":null}}`)
	w.await(orders, stack.Gone)
	w.clean()

	orders, theirs, server = w.held()
	w.patch(orders, `{"spec":{"compositeDeletePolicy":"Background"}}`) // Crossplane waits no longer
	w.within(soon, theirs, stack.Gone)
	w.within(soon, orders, stack.Gone)
	w.await(server, stack.There)
	w.patch(server, `{"metadata":{"finalizers":null}}`)
	w.clean()
}

// held orders an instance and deletes it, which waits for what is composed.
func (w world) held() (orders, theirs, server stack.Object) {
	w.Helper()
	orders, theirs = w.instance()
	server = stack.Object{Cluster: w.s.Control, Resource: managed, Name: w.composed("server").GetName()}
	w.patch(server, `{"metadata":{"finalizers":["provider.example.org/backup"]}}`)
	w.delete(orders)
	w.await(server, func(u *unstructured.Unstructured) bool { return u != nil && u.GetDeletionTimestamp() != nil })
	w.within(soon, orders, func(u *unstructured.Unstructured) bool { return u != nil && !stack.True("Ready")(u) })
	return orders, theirs, server
}

// instance orders one, and returns the claims of both clusters.
func (w world) instance() (orders, theirs stack.Object) {
	w.Helper()
	w.run("kubectl --context app apply -f claims/instance.yaml")
	orders = w.app(resource("postgresqlinstances"), "orders")
	w.await(orders, stack.True("Ready"))
	return orders, w.mirror(orders.Resource, orders.Name)
}

// contested: Crossplane keeps a claim at the newest revision of its composition. A user who pins
// one is told who changes it, and whatever else the user changes goes up at once.
func (w world) contested() {
	if w.v2 {
		w.Skip("Crossplane 2 has no claims")
	}
	w = w.in("contested")
	orders, theirs := w.instance()
	revision := ""
	begin := w.await(theirs, func(u *unstructured.Unstructured) bool {
		if u != nil {
			revision, _, _ = unstructured.NestedString(u.Object, "spec", "compositionRevisionRef", "name")
		}
		return revision != ""
	})
	w.patch(orders, fmt.Sprintf(`{"spec":{"compositionRevisionRef":{"name":%q}}}`, revision))
	composition := stack.Object{Cluster: w.s.Control, Resource: xrds.GroupVersion().WithResource("compositions"), Name: "postgresql"}
	began := time.Now()
	w.patch(composition, `{"metadata":{"annotations":{"example.org/edition":"2"}}}`)
	w.within(soon, orders, func(u *unstructured.Unstructured) bool {
		if u == nil {
			return false
		}
		said := u.GetAnnotations()[klutchsync.MessageAnnotation]
		return strings.HasPrefix(said, string(klutchsync.ReasonContested)) && strings.Contains(said, " by crossplane") && strings.Contains(said, "(.spec.compositionRevisionRef.name)")
	})
	const again = 5 // the next time is after sixteen seconds
	w.await(theirs, func(u *unstructured.Unstructured) bool {
		return u != nil && u.GetGeneration() > begin.GetGeneration()+2*again
	})
	if took := time.Since(began); took < 14*time.Second {
		w.Errorf("put right %d times within %v", again, took)
	}
	for _, plan := range []string{"postgresql-single-small", "postgresql-replica-small"} {
		began = time.Now()
		w.patch(orders, fmt.Sprintf(`{"spec":{"plan":%q}}`, plan))
		w.within(soon, theirs, stack.Field(plan, "spec", "plan"))
		w.Logf("%s is there after %v", plan, time.Since(began).Round(time.Millisecond))
	}
	w.delete(orders)
	w.within(soon, theirs, stack.Gone)
	w.clean()
}

// withdrawn: an XRD that is deleted takes its kind with it, and nothing is made anew. The
// claim in the App Cluster stays, also when the XRD is applied again.
func (w world) withdrawn() {
	w = w.in("withdrawn")
	w.ordered()
	xrd := stack.Object{Cluster: w.s.Control, Resource: xrds, Name: "xpostgresqlinstances." + group}
	crd := stack.Object{Cluster: w.s.Control, Resource: stack.CRDs, Name: "postgresqlinstances." + group}
	if w.v2 { // such an XRD waits for its instances
		xrd.Name = "postgresqlinstances." + group
		w.delete(xrd)
		w.delete(w.app(resource("postgresqlinstances"), "orders"))
		w.await(w.app(resource("postgresqlinstances"), "orders"), stack.Gone)
		w.await(xrd, stack.Gone)
		w.await(crd, stack.Gone)
		w.appliedAgain("v2")
		w.in("again").ordered()
		return
	}
	w.delete(xrd)
	w.await(xrd, stack.Gone)
	w.await(crd, stack.Gone)
	w.until("what was composed is gone", func() bool { return len(w.list(stack.Object{Cluster: w.s.Control, Resource: managed})) == 3 })
	w.await(w.app(resource("postgresqlinstances"), "orders"), stack.There)
	w.await(w.app(resource("servicebindings"), "orders-api"), func(u *unstructured.Unstructured) bool { return u != nil && !stack.True("Ready")(u) })
	w.appliedAgain("xrds")
	w.lost()
	w.unfought(xrd, crd)
}

// appliedAgain has the XRDs of a folder served once more.
func (w world) appliedAgain(folder string) {
	w.Helper()
	w.run("kubectl --context control-plane apply -f " + folder)
	w.await(stack.Object{Cluster: w.s.Control, Resource: stack.CRDs, Name: "postgresqlinstances." + group}, stack.True("Established"))
	w.offered()
}

func (w world) ordered() {
	w.Helper()
	w.run("kubectl --context app apply -f claims")
	w.served()
}

// lost: an instance that went with its XRD is not silently an empty one. The claim says so until
// the owner of the App Cluster wants another, which has credentials of its own.
func (w world) lost() {
	w.Helper()
	dead := w.await(w.app(secrets, "orders-api-credentials"), stack.There)
	orders := w.app(resource("postgresqlinstances"), "orders")
	w.await(orders, func(u *unstructured.Unstructured) bool {
		return u != nil && strings.HasPrefix(u.GetAnnotations()[klutchsync.MessageAnnotation], string(klutchsync.ReasonLost))
	})
	if made := w.list(w.mirror(orders.Resource, "")); len(made) > 0 {
		w.Errorf("made anew: %s", made[0].GetName())
	}
	w.patch(stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: orders.Resource.GroupResource().String()},
		`{"spec":{"lostInstances":"Recreate"}}`)
	w.await(w.mirror(orders.Resource, "orders"), stack.True("Ready"))
	w.await(orders, func(u *unstructured.Unstructured) bool {
		return u != nil && u.GetAnnotations()[klutchsync.MessageAnnotation] == ""
	})
	w.await(w.app(resource("servicebindings"), "orders-api"), stack.True("Ready"))
	w.await(w.app(secrets, "orders-api-credentials"), func(u *unstructured.Unstructured) bool {
		return u != nil && password(u) != password(dead)
	})
}

// unfought: an XRD goes also while lost instances are made anew. Crossplane deletes its claims first, one
// after the other until there is none, and only then the kind.
func (w world) unfought(xrd, crd stack.Object) {
	w.Helper()
	orders, claim := w.mirror(resource("postgresqlinstances"), "orders"), w.app(resource("postgresqlinstances"), "orders")
	client, err := orders.Client()
	if err != nil {
		w.Fatal(err)
	}
	var made atomic.Int64
	stop, err := cluster.Follow(w.Context(), client, func(change watch.EventType, u *unstructured.Unstructured) {
		if change == watch.Added && u.GetName() == orders.Name {
			made.Add(1)
		}
	})
	if err != nil {
		w.Fatal(err)
	}
	defer stop()
	w.delete(xrd)
	w.await(xrd, stack.Gone)
	w.await(crd, stack.Gone)
	stop()
	w.Logf("%s was made anew %d times while its kind was taken away", orders, made.Load())
	if made.Load() > 3 { // the pauses double: a fourth would come fifteen seconds after the first loss
		w.Error("Crossplane was fought")
	}
	w.await(claim, func(u *unstructured.Unstructured) bool {
		return u != nil && strings.HasPrefix(u.GetAnnotations()[klutchsync.MessageAnnotation], string(klutchsync.ReasonVanished))
	})
	w.appliedAgain("xrds")
	w.await(orders, stack.True("Ready"))
	w.await(claim, func(u *unstructured.Unstructured) bool {
		return u != nil && u.GetAnnotations()[klutchsync.MessageAnnotation] == ""
	})
}

func password(secret *unstructured.Unstructured) string {
	value, _, _ := unstructured.NestedString(secret.Object, "data", "password")
	return value
}

// run does what a command says.
func (w world) run(line string) {
	w.Helper()
	if _, err := w.reader().Type(w.Context(), line); err != nil {
		w.Fatal(err)
	}
}

func (w world) app(gvr schema.GroupVersionResource, name string) stack.Object {
	return stack.Object{Cluster: w.s.App, Resource: gvr, Namespace: w.namespace, Name: name}
}

func (w world) mirror(gvr schema.GroupVersionResource, name string) stack.Object {
	w.Helper()
	namespace, err := w.s.ServiceNamespace(w.Context(), w.namespace)
	if err != nil {
		w.Fatal(err)
	}
	return stack.Object{Cluster: w.s.Control, Resource: gvr, Namespace: namespace, Name: name}
}

func (w world) await(o stack.Object, cond stack.Condition) *unstructured.Unstructured {
	w.Helper()
	return w.within(patience, o, cond)
}

func (w world) within(limit time.Duration, o stack.Object, cond stack.Condition) *unstructured.Unstructured {
	w.Helper()
	u, err := o.Await(w.Context(), limit, cond)
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

func (w world) patch(o stack.Object, json string, subresources ...string) {
	w.Helper()
	client, err := o.Client()
	if err == nil {
		_, err = client.Patch(w.Context(), o.Name, types.MergePatchType, []byte(json), metav1.PatchOptions{}, subresources...)
	}
	if err != nil {
		w.Fatalf("patch %s: %v", o, err)
	}
}
