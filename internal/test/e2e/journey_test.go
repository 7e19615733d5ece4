// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// step makes a step of a feature from a function of a world.
func step(namespace string, do func(w world)) features.Func {
	return func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
		t.Helper()
		do(enter(ctx, t, namespace))
		return ctx
	}
}

// sample returns a claim of the catalogue for the world's namespace.
func (w world) sample(kind string) *unstructured.Unstructured {
	w.Helper()
	for _, u := range catalog.Claims() {
		if u.GetKind() == kind {
			u.SetNamespace(w.namespace)
			return u
		}
	}
	w.Fatalf("the catalogue has no %s", kind)
	return nil
}

func TestJourney(t *testing.T) {
	const ns = "journey"
	f := features.New("a proxy claim travels").
		Assess("the API is served with the schema of the Control Plane Cluster", step(ns, schemaTravels)).
		Assess("an instance is ordered", step(ns, instanceOrdered)).
		Assess("metadata of the developer travels, and can be taken back", step(ns, metadataTravels)).
		Assess("credentials arrive, and no other object's", step(ns, credentialsArrive)).
		Assess("a backup and a restore", step(ns, backupAndRestore)).
		Assess("a lost restore does not overwrite again", step(ns, lostRestore)).
		Assess("the plan grows", step(ns, planGrows)).
		Assess("the plan does not shrink: the App Cluster says so itself", step(ns, planDoesNotShrink)).
		Assess("drift is corrected, what others own is left", step(ns, driftCorrected)).
		Assess("a lost instance is told, and made again where the binding says so", step(ns, lostInstance)).
		Assess("credentials go with their binding", step(ns, credentialsGo)).
		Assess("the claim waits until the instance is really gone", step(ns, deletionWaits)).
		Feature()
	testenv.Test(t, f)
}

func schemaTravels(w world) {
	for _, name := range services {
		there := w.await(stack.Object{Cluster: w.s.App, Resource: stack.CRDs, Name: name}, stack.True("Established"))
		origin := w.get(stack.Object{Cluster: w.s.Control, Resource: stack.CRDs, Name: name})
		for _, path := range [][]string{{"spec", "versions"}, {"spec", "names"}, {"spec", "scope"}} {
			want, _, _ := unstructured.NestedFieldCopy(origin.Object, path...)
			got, _, _ := unstructured.NestedFieldCopy(there.Object, path...)
			if diff := cmp.Diff(want, got); diff != "" {
				w.Errorf("%s %s (-control plane +app):\n%s", name, strings.Join(path, "."), diff)
			}
		}
		w.await(stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: name}, stack.True("Ready"))
	}
}

func instanceOrdered(w world) {
	claim := w.sample("PostgresqlInstance")
	w.apply(w.s.App, claim)
	mirror := w.await(w.mirror(instances, "orders"), stack.There)
	if diff := cmp.Diff(w.get(w.app(instances, "orders")).Object["spec"], mirror.Object["spec"]); diff != "" {
		w.Errorf("spec (-app +control plane):\n%s", diff)
	}
	w.awaitState(instances, "orders", "Running")
	w.await(w.app(instances, "orders"), stack.True("Ready"))
	got, want := w.get(w.app(instances, "orders")), w.get(w.mirror(instances, "orders"))
	gotID, _, _ := unstructured.NestedString(got.Object, "status", "managed", "serviceInstanceID")
	wantID, _, _ := unstructured.NestedString(want.Object, "status", "managed", "serviceInstanceID")
	if gotID == "" || gotID != wantID {
		w.Errorf("serviceInstanceID %q in the App Cluster, %q in the Control Plane Cluster", gotID, wantID)
	}
}

func metadataTravels(w world) {
	if err := w.patch(w.app(instances, "orders"), `{"metadata":{"labels":{"team":"checkout"},"annotations":{"argocd.argoproj.io/tracking-id":"x"}}}`); err != nil {
		w.Fatal(err)
	}
	u := w.await(w.mirror(instances, "orders"), stack.Field("checkout", "metadata", "labels", "team"))
	if _, ok := u.GetAnnotations()["argocd.argoproj.io/tracking-id"]; ok {
		w.Error("tracking metadata of another tool travelled")
	}
	if err := w.patch(w.app(instances, "orders"), `{"metadata":{"labels":{"team":null},"annotations":{"argocd.argoproj.io/tracking-id":null}}}`); err != nil {
		w.Fatal(err)
	}
	w.await(w.mirror(instances, "orders"), stack.Field(nil, "metadata", "labels", "team"))
}

func credentialsArrive(w world) {
	neighbour := object("v1", "Secret", w.mirror(secrets, "").Namespace, "neighbour", map[string]any{"stringData": map[string]any{"password": "not yours"}})
	w.apply(w.s.Control, neighbour)
	w.apply(w.s.App, w.sample("ServiceBinding"))
	w.awaitState(bindings, "orders-api", "Created")
	name, _, _ := unstructured.NestedString(w.get(w.app(bindings, "orders-api")).Object, "status", "managed", "secret", "name")
	copied := w.await(w.app(secrets, name), stack.There)
	if diff := cmp.Diff(w.get(w.mirror(secrets, name)).Object["data"], copied.Object["data"]); diff != "" {
		w.Error("the credentials are not those of the Control Plane Cluster")
	}
	if _, err := w.app(secrets, "neighbour").Get(w.ctx); err == nil {
		w.Error("a Secret that no claim names has travelled")
	}
	w.remove(w.app(secrets, name))
	w.await(w.app(secrets, name), stack.There)
}

func backupAndRestore(w world) {
	w.apply(w.s.App, w.sample("Backup"))
	w.awaitState(backups, "orders-before-migration", "Completed")
	w.apply(w.s.App, w.sample("Restore"))
	w.awaitState(restores, "orders-undo-migration", "Completed")
}

// lostRestore: a Restore that is lost in the Control Plane Cluster is told, and what was written
// since it was carried out stays.
func lostRestore(w world) {
	state := w.mirror(configMaps, "orders-state")
	w.must(w.patch(state, `{"data":{"contents":"written since"}}`))
	w.remove(w.mirror(restores, "orders-undo-migration"))
	w.await(w.app(restores, "orders-undo-migration"), mentions(string(klutchsync.ReasonLost)))
	w.await(w.mirror(restores, "orders-undo-migration"), stack.Gone)
	w.await(state, stack.Field("written since", "data", "contents"))
}

func planGrows(w world) {
	const plan = "postgresql-single-big"
	if err := w.patch(w.app(instances, "orders"), `{"spec":{"plan":"`+plan+`"}}`); err != nil {
		w.Fatal(err)
	}
	w.await(w.mirror(instances, "orders"), stack.Field(plan, "spec", "plan"))
	u := w.await(w.app(instances, "orders"), func(u *unstructured.Unstructured) bool {
		return stack.Field(plan, "status", "managed", "plan")(u) || stack.True("Ready")(u)
	})
	if u.GetGeneration() < 2 {
		w.Errorf("generation %d after a change", u.GetGeneration())
	}
	w.awaitState(instances, "orders", "Running")
}

func planDoesNotShrink(w world) {
	err := w.patch(w.app(instances, "orders"), `{"spec":{"plan":"postgresql-single-nano"}}`)
	if err == nil || !strings.Contains(err.Error(), "plan") {
		w.Errorf("a smaller plan: %v", err)
	}
	err = w.patch(w.app(instances, "orders"), `{"spec":{"service":"a9s-postgresql13"}}`)
	if err == nil || !strings.Contains(err.Error(), "Service is an immutable field") {
		w.Errorf("another service: %v", err)
	}
	err = w.patch(w.app(instances, "orders"), `{"spec":{"plan":"postgresql-gigantic"}}`)
	if err == nil || !strings.Contains(err.Error(), "Unsupported value") {
		w.Errorf("a plan that is not offered: %v", err)
	}
}

func driftCorrected(w world) {
	if err := w.patch(w.mirror(instances, "orders"), `{"spec":{"parameters":{"maxConnections":77}},"metadata":{"labels":{"provider":"note"}}}`); err != nil {
		w.Fatal(err)
	}
	u := w.await(w.mirror(instances, "orders"), stack.Field(int64(40), "spec", "parameters", "maxConnections"))
	if u.GetLabels()["provider"] != "note" {
		w.Error("a label of the platform team is gone")
	}
}

// lostInstance: the template says that a lost instance is told, and the App Cluster's
// binding may say that it is made again, empty.
func lostInstance(w world) {
	claim, mirror := w.app(instances, "lost"), w.mirror(instances, "lost")
	binding := stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: services[0]}
	w.apply(w.s.App, instance(w.namespace, "lost", "postgresql-single-nano"))
	w.awaitState(instances, "lost", "Running")
	before := w.get(mirror).GetUID()
	w.remove(mirror)
	w.await(claim, mentions(string(klutchsync.ReasonLost)))
	w.await(mirror, stack.Gone)
	w.must(w.patch(binding, `{"spec":{"lostInstances":"Recreate"}}`))
	w.await(mirror, func(u *unstructured.Unstructured) bool { return u != nil && u.GetUID() != before })
	w.awaitState(instances, "lost", "Running")
	w.await(claim, stack.True("Ready"))
	w.must(w.patch(binding, `{"spec":{"lostInstances":null}}`))
	w.remove(claim)
	w.await(claim, stack.Gone)
	w.await(mirror, stack.Gone)
}

func credentialsGo(w world) {
	name, _, _ := unstructured.NestedString(w.get(w.app(bindings, "orders-api")).Object, "status", "managed", "secret", "name")
	w.remove(w.app(bindings, "orders-api"))
	w.await(w.mirror(bindings, "orders-api"), stack.Gone)
	w.await(w.app(bindings, "orders-api"), stack.Gone)
	w.await(w.app(secrets, name), stack.Gone)
}

func deletionWaits(w world) {
	const hold = "example.org/deprovisioning"
	mirror, claim := w.mirror(instances, "orders"), w.app(instances, "orders")
	w.edit(mirror, func(u *unstructured.Unstructured) { u.SetFinalizers(append(u.GetFinalizers(), hold)) })
	w.remove(claim)
	w.await(mirror, func(u *unstructured.Unstructured) bool { return u != nil && u.GetDeletionTimestamp() != nil })
	u := w.await(claim, mentions(hold)) // it says what it waits for
	if u.GetDeletionTimestamp() == nil {
		w.Error("the claim is not being deleted")
	}
	w.edit(mirror, func(u *unstructured.Unstructured) {
		var rest []string
		for _, f := range u.GetFinalizers() {
			if f != hold {
				rest = append(rest, f)
			}
		}
		u.SetFinalizers(rest)
	})
	w.await(mirror, stack.Gone)
	w.await(claim, stack.Gone)
}
