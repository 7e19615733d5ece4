// SPDX-License-Identifier: Apache-2.0

package servicebroker_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/tempdir"
)

var rest = flag.Duration("rest", 5*time.Second, "how long nothing may be written at rest")

// A reader follows the README on real API servers, with Klutch between them.
type reader struct {
	*testing.T
	stack.Reader
	p *platform
}

// TestReadme runs the commands of the README, and looks at what each one promises. The
// controller has the rights of its service account and no others.
func TestReadme(t *testing.T) {
	cluster.Long(t)
	s, err := stack.Start(t.Context(), stack.Options{Dir: tempdir.ForTest(t, "stack"), Log: os.Stderr, Offer: "."})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err == nil {
		err = s.Automation.Stop() // the broker is to do the work
	}
	if err != nil {
		t.Fatal(err)
	}
	w := reader{t, stack.Reader{Stack: s, Folder: ".", Namespace: "default"}, newPlatform(t, true)}
	w.p.secret, w.p.namespaces = "s3cret", "cluster-"
	for _, u := range catalog.Orders() {
		if spec, _ := u.Object["spec"].(map[string]any); spec["plan"] != nil {
			w.p.more += fmt.Sprintf(`,{"id":%[1]q,"name":%[1]q,"plans":[{"id":%[2]q,"name":%[2]q}]}`, spec["service"], spec["plan"])
		}
	}
	commands, err := w.Others("kubectl --context control-plane ") // typed before the broker came
	if err != nil {
		t.Fatal(err)
	}
	w.applyDeployment()
	ran := 0
	for _, line := range commands {
		t.Log(time.Now().Format(time.TimeOnly), line)
		deletes := strings.HasSuffix(line, "delete -f ../catalog/claims -f ../catalog/orders")
		if deletes {
			w.p.refuse("DELETE", "/service_bindings/")
			typed := make(chan error, 1)
			go func() { // it waits until all is gone
				_, err := w.Type(t.Context(), line)
				typed <- err
			}()
			w.refused()
			if err := <-typed; err != nil {
				t.Fatal(err)
			}
		} else if strings.HasPrefix(line, "BROKER_PASSWORD=… go run ./cmd/servicebroker ") {
			w.start(strings.Fields(line)[4:])
			ran++
		} else if _, err := w.Type(t.Context(), line); err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasSuffix(line, "apply -f ../catalog/claims -f ../catalog/orders"):
			w.served()
			w.madeAnew()
			ran++
		case deletes:
			w.clean()
			ran++
		}
	}
	if ran != 3 {
		t.Errorf("%d of 3 commands are in the README", ran)
	}
}

// applyDeployment: the API server takes it as it is.
func (w reader) applyDeployment() {
	w.Helper()
	objects, err := stack.Read("deploy/2-deployment.yaml")
	if err == nil {
		err = stack.Apply(w.Context(), w.Stack.Control, objects...)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// start runs the program with the arguments of the README, in the test's places.
func (w reader) start(args []string) {
	w.Helper()
	path := filepath.Join(w.Stack.Dir, "bin", "servicebroker")
	if out, err := exec.CommandContext(w.Context(), "go", "build", "-o", path, "./cmd/servicebroker").CombinedOutput(); err != nil {
		w.Fatalf("%v\n%s", err, out)
	}
	kubeconfig, err := stack.Account(w.Context(), w.Stack.Control, w.Stack.Dir, catalog.Namespace, "servicebroker")
	if err != nil {
		w.Fatal(err)
	}
	for i, arg := range args {
		args[i] = strings.NewReplacer("servicebroker.kubeconfig", kubeconfig, "https://broker.example", w.p.broker.URL).Replace(arg)
	}
	program := &stack.Process{Name: "servicebroker", Path: path, Args: args, Env: []string{"BROKER_PASSWORD=" + w.p.secret}, Dir: w.Stack.Dir}
	if err := program.Start(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := program.Stop(); err != nil {
			w.Error(err)
		}
		log, err := os.ReadFile(program.Log())
		if w.Logf("the controller said %s", log); err != nil || strings.Contains(string(log), "forbidden") {
			w.Errorf("without a right: %v", err)
		}
	})
}

// samples are the claims and orders of the catalogue in the App Cluster.
func (w reader) samples() (all []stack.Object) {
	for _, u := range slices.Concat(catalog.Claims(), catalog.Orders()) {
		gvr := instances.GroupVersion().WithResource(strings.ToLower(u.GetKind()) + "s")
		all = append(all, stack.Object{Cluster: w.Stack.App, Resource: gvr, Namespace: w.Namespace, Name: u.GetName()})
	}
	return all
}

// served waits until all claims are, and leaves them at rest.
func (w reader) served() {
	w.Helper()
	resources := []schema.GroupVersionResource{secrets, {Version: "v1", Resource: "configmaps"}}
	for _, o := range w.samples() {
		state := "Running"
		switch o.Resource {
		case bindings:
			state = "Created"
			secret := o
			secret.Resource, secret.Name = secrets, o.Name+"-service-binding"
			w.await(secret, stack.Field("aHVzaC1odXNo", "data", "password"))
		case backups, restores:
			state = "Completed"
		}
		w.await(o, stack.Field(state, "status", "managed", "state"))
		w.await(o, stack.True("Ready"))
		resources = append(resources, o.Resource)
	}
	began := time.Now()
	written, err := w.Silent(w.Context(), *rest, resources...)
	if err != nil || len(written) > 0 {
		w.Errorf("written at rest: %q, %v", written, err)
	}
	w.Logf("%d samples, at rest after %s", len(w.samples()), time.Since(began)-*rest)
}

// madeAnew has the instance of the binding deleted and ordered again: the credentials of the
// one that is gone go, and the binding says what it waits for.
func (w reader) madeAnew() {
	w.Helper()
	i := slices.IndexFunc(catalog.Claims(), func(u *unstructured.Unstructured) bool { return u.GetKind() == "PostgresqlInstance" })
	claim := catalog.Claims()[i]
	instance := stack.Object{Cluster: w.Stack.App, Resource: instances, Namespace: w.Namespace, Name: claim.GetName()}
	binding, secret := instance, instance
	binding.Resource, binding.Name = bindings, "orders-api"
	secret.Resource, secret.Name = secrets, "orders-api-service-binding"
	before := w.await(secret, stack.There)
	client, err := instance.Client()
	if err == nil {
		err = client.Delete(w.Context(), instance.Name, metav1.DeleteOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	w.await(instance, stack.Gone)
	w.await(binding, says("the instance orders is not running"))
	w.await(secret, stack.Gone)
	claim.SetNamespace(w.Namespace)
	if err := stack.Apply(w.Context(), w.Stack.App, claim); err != nil {
		w.Fatal(err)
	}
	w.await(instance, stack.True("Ready"))
	w.await(binding, stack.True("Ready"))
	w.await(secret, func(u *unstructured.Unstructured) bool {
		return u != nil && !equality.Semantic.DeepEqual(u.Object["data"], before.Object["data"])
	})
}

// says holds for a claim that is not ready, with this message of its condition Synced.
func says(message string) stack.Condition {
	return func(u *unstructured.Unstructured) bool {
		return u != nil && !stack.True("Ready")(u) && strings.Contains(fmt.Sprint(u.Object["status"]), "message:"+message)
	}
}

// refused: the broker does not unbind, and its reason stands on the claim that is being
// deleted, and why the instance waits on that one; then the broker does.
func (w reader) refused() {
	w.Helper()
	for name, message := range map[string]string{
		"servicebindings/orders-api": "422: ConcurrencyError a backup runs", "postgresqlinstances/orders": "waits until the credentials of the ServiceBinding orders-api are deleted at the broker",
	} {
		resource, name, _ := strings.Cut(name, "/")
		claim := stack.Object{Cluster: w.Stack.App, Resource: instances.GroupVersion().WithResource(resource), Namespace: w.Namespace, Name: name}
		w.await(claim, func(u *unstructured.Unstructured) bool { return says(message)(u) && u.GetDeletionTimestamp() != nil })
	}
	w.p.refuse("DELETE", "")
}

// clean waits until nothing is left of any claim, anywhere.
func (w reader) clean() {
	w.Helper()
	for _, o := range w.samples() {
		w.await(o, stack.Gone)
		if o.Resource == bindings {
			o.Resource, o.Name = secrets, o.Name+"-service-binding"
			w.await(o, stack.Gone)
		}
	}
	w.p.wantNothing()
}

func (w reader) await(o stack.Object, c stack.Condition) *unstructured.Unstructured {
	w.Helper()
	u, err := o.Await(w.Context(), 2*time.Minute, c)
	if err != nil {
		w.Fatal(err)
	}
	return u
}
