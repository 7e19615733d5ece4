// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// setUp makes an App Cluster from what stands in Git: the konnector's roles, the
// credential, the binding and its rights.
func (w *world) setUp(t *testing.T) {
	t.Helper()
	for _, file := range []string{"namespace.yaml", "rbac.yaml", "admission.yaml"} {
		w.app.apply(t, read(t, filepath.Join("..", "deploy", "konnector", file))...)
	}
	w.konnector = w.app.as(t, v1alpha1.Namespace, "konnector")
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)))
	w.app.apply(t, v1alpha1.CRDs()["apiservicebindings.klutch.anynines.com"])
	w.bind(t, widgets, secretsClaim)
	w.allow(t, widgets)
	w.app.apply(t, object("v1", "Namespace", "", "team", nil))
}

// An App Cluster is lost and set up again from Git. Nothing is touched until the platform
// says that the old cluster is gone, nor then until the owner of the binding agrees to what
// kubectl bind recover lists. Then what has a claim is that claim's within seconds, with its
// status and its credentials, and is written only where the claim asks for something else; what
// has none stays, and so does all of another tenant.
func TestP35LostAppCluster(t *testing.T) {
	w := newWorld(t)
	w.offer(t, read(t, filepath.Join("testdata", "widgets.yaml"))[0])
	w.setUp(t)
	stop := w.run(t, bind.Options{Version: "v1.2.3"})
	w.ready(t, widgets)
	service := ""
	for _, name := range []string{"a", "b", "c", "same"} {
		w.app.apply(t, widget("team", name, map[string]any{"size": int64(5)}))
		service = w.serveNamespace(t, "team", widgetRights)
		eventually(t, func() error {
			_, err := find[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name)
			return err
		})
	}
	w.controlPlane.apply(t, object("v1", "Secret", service, "a-creds", map[string]any{"stringData": map[string]any{"password": "swordfish"}}))
	w.controlPlane.patchStatus(t, widgetsGVR, service, "a", map[string]any{"secret": "a-creds"})
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, w.app, secretsGVR, "team", "a-creds")
		return err
	})
	stop()
	plugin := buildPlugin(t)
	target := func(name string) *unstructured.Unstructured {
		return get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name)
	}
	before, same := target("a"), target("same")
	neighbours := w.otherTenants(t, before)
	lost := get[unstructured.Unstructured](t, w.app, namespacesGVR, "", metav1.NamespaceSystem).GetUID()

	// Set up again, the platform has not said anything yet.
	w.app = newSide(t, "app-again")
	w.setUp(t)
	w.run(t, bind.Options{Version: "v1.2.3"})
	w.condition(t, widgets, v1alpha1.ConditionConnected, "TenantHeldByAnotherCluster", string(lost), "patch clusterbinding cluster", "kubectl bind recover")
	w.controlPlane.patchStatus(t, clustersGVR, tenant, v1alpha1.ClusterBindingName, map[string]any{"clusterUID": ""})
	began := time.Now()
	w.ready(t, widgets)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the konnector noticed the word of the platform after %s", took)
	}

	// The platform's word alone takes nothing up.
	w.app.apply(t, widget("team", "a", map[string]any{"size": int64(7)}), widget("team", "same", map[string]any{"size": int64(5)}))
	untouched := func(why string) {
		t.Helper()
		if from := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets).Annotations[v1alpha1.RecoverAnnotation]; from != "" {
			t.Errorf("consent to %q is given %s", from, why)
		}
		for _, was := range []*unstructured.Unstructured{before, same} {
			w.says(t, was.GetName(), string(klutchsync.ReasonConflict), "another source cluster")
			if diff := cmp.Diff(was, target(was.GetName())); diff != "" {
				t.Errorf("taken up %s (-before +after):\n%s", why, diff)
			}
		}
	}
	untouched("without consent")
	eventually(t, func() error {
		f, err := w.finding(t, "objects", widgets)
		if err != nil {
			return err
		}
		if f.OK || !strings.Contains(f.Message, "team/a for ") || !strings.Contains(f.Message, "TargetConflict") || !strings.HasSuffix(f.Hint, "kubectl bind recover "+widgets) {
			return fmt.Errorf("doctor says %+v", f)
		}
		return nil
	})
	want := []bind.Leftover{
		{Cluster: lost, Namespace: "team", Name: "a", Claimed: true, Differences: []string{"spec.size: 5 → 7"}},
		{Cluster: lost, Namespace: "team", Name: "b"},
		{Cluster: lost, Namespace: "team", Name: "c"},
		{Cluster: lost, Namespace: "team", Name: "same", Claimed: true},
	}
	if diff := cmp.Diff(want, plugin.leftovers(t, w.app)); diff != "" {
		t.Fatalf("leftovers (-want +got):\n%s", diff)
	}
	listed := []string{"spec.size: 5 → 7", "stays: it has no object here", fmt.Sprintf("Of App Cluster %s: 2 of 4 objects", lost)}
	if err := plugin.on(t, w.app, "recover", widgets, "--dry-run")(0, listed...); err != nil {
		t.Error(err)
	}
	untouched("by a list")

	// With the consent all comes back within seconds, once the API server admits the rights of claims,
	// which it does half a minute after the CRD was made.
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, w.app, roleBindingsGVR, "team", claimsOfWidgets)
		return err
	})
	if err := plugin.on(t, w.app, "recover", widgets, "--yes")(0, append(listed, "takes up what App Cluster "+string(lost)+" had ordered")...); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	eventually(t, func() error { return w.recovered(t, service, before) })
	eventually(t, func() error {
		claim, now := get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", "same"), target("same")
		if origin, _ := klutchsync.OriginOf(now); origin.UID != claim.GetUID() || claim.GetAnnotations()[klutchsync.MessageAnnotation] != "" {
			return fmt.Errorf("it is of %+v, and its claim says %v", origin, claim.GetAnnotations())
		}
		if now.GetUID() != same.GetUID() || now.GetGeneration() != same.GetGeneration() {
			t.Errorf("the spec of what is the same was written: generation %d, %d before", now.GetGeneration(), same.GetGeneration())
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("the status is back %s after the consent", took.Round(10*time.Millisecond))
	if took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, w.app, secretsGVR, "team", "a-creds")
		return err
	})
	took = time.Since(began)
	t.Logf("the credential is back %s after the consent", took.Round(10*time.Millisecond))
	if took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	for _, n := range neighbours {
		if diff := cmp.Diff(n, get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, n.GetNamespace(), n.GetName())); diff != "" {
			t.Errorf("another tenant's (-before +after):\n%s", diff)
		}
	}
	if diff := cmp.Diff(want[1:3], plugin.leftovers(t, w.app)); diff != "" {
		t.Errorf("leftovers afterwards (-want +got):\n%s", diff)
	}

	// What has no claim stays, and is taken up once its claim is made, be it soon or when it is counted.
	w.takenUp(t, service, "b")
	t.Run("ten minutes later", func(t *testing.T) {
		cluster.Long(t)
		counted := func() error {
			b := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets)
			return hasCondition(b.Status.Conditions, v1alpha1.ConditionDeletionsInSync, string(klutchsync.ReasonOrphaned), "1 objects in the Control Plane Cluster", "They stay")
		}
		for counted() != nil && time.Since(began) < 12*time.Minute {
			time.Sleep(time.Second)
		}
		eventually(t, counted)
		t.Logf("counted %s after the consent", time.Since(began).Round(time.Second))
		w.takenUp(t, service, "c")
		w.condition(t, widgets, v1alpha1.ConditionDeletionsInSync, "")
	})
	if left := plugin.leftovers(t, w.app); slices.ContainsFunc(left, func(l bind.Leftover) bool { return l.Name != "c" }) {
		t.Errorf("leftovers in the end: %v", left)
	}
}

// leftovers are what kubectl bind recover lists of widgets for programs.
func (p plugin) leftovers(t *testing.T, s *side) (all []bind.Leftover) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), string(p), "recover", widgets, "-o", "json", "--kubeconfig", s.Kubeconfig()).Output()
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return all
}

// takenUp makes the claim of a target that has none, and has that follow it.
func (w *world) takenUp(t *testing.T, service, name string) {
	t.Helper()
	before := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name)
	w.app.apply(t, widget("team", name, map[string]any{"size": int64(7)}))
	eventually(t, func() error {
		target := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name)
		if target.GetUID() != before.GetUID() {
			t.Fatal("the target was made anew")
		}
		message := get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", name).GetAnnotations()[klutchsync.MessageAnnotation]
		if size, _, _ := unstructured.NestedInt64(target.Object, "spec", "size"); size != 7 || message != "" {
			return fmt.Errorf("size %d, message %q", size, message)
		}
		return nil
	})
	secret := map[string]any{"secret": name + "-new"}
	w.controlPlane.patchStatus(t, widgetsGVR, service, name, secret)
	eventually(t, func() error {
		claim := get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", name)
		if diff := cmp.Diff(secret, claim.Object["status"]); diff != "" {
			return fmt.Errorf("status (-want +got):\n%s", diff)
		}
		return nil
	})
}

// otherTenants have an object that says the same of its origin as ours.
func (w *world) otherTenants(t *testing.T, ours *unstructured.Unstructured) (all []*unstructured.Unstructured) {
	t.Helper()
	for _, namespace := range []string{"cluster-xyz-team", "team"} {
		theirs := widget(namespace, ours.GetName(), map[string]any{"size": int64(1)})
		theirs.SetAnnotations(map[string]string{klutchsync.SourceAnnotation: ours.GetAnnotations()[klutchsync.SourceAnnotation]})
		w.controlPlane.apply(t, object("v1", "Namespace", "", namespace, nil), theirs)
		all = append(all, get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, namespace, ours.GetName()))
	}
	return all
}

// recovered reports what claim a still lacks.
func (w *world) recovered(t *testing.T, service string, before *unstructured.Unstructured) error {
	t.Helper()
	claim := get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", "a")
	target := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "a")
	size, _, _ := unstructured.NestedInt64(target.Object, "spec", "size")
	name, _, _ := unstructured.NestedString(claim.Object, "status", "secret")
	message := claim.GetAnnotations()[klutchsync.MessageAnnotation]
	switch {
	case target.GetUID() != before.GetUID():
		t.Fatal("the target was made anew")
	case size != 7 || name != "a-creds" || message != "":
		return fmt.Errorf("size %d, status %q, message %q", size, name, message)
	}
	return nil
}

// What vanished from the Control Plane Cluster is made anew, or not, as the binding says,
// and where that says nothing, as the provider advises.
func TestLostInstances(t *testing.T) {
	w := newWorld(t)
	export := read(t, filepath.Join("testdata", "widgets.yaml"))[0]
	w.offer(t, export)
	w.setUp(t)
	advise := func(policy v1alpha1.LostInstances) {
		w.controlPlane.patch(t, exportsGVR, cache.NewObjectName(tenant, widgets), map[string]any{"spec": map[string]any{"lostInstances": policy}})
	}
	advise(v1alpha1.LostInstancesReport)
	w.run(t, bind.Options{Version: "v1.2.3"})
	w.ready(t, widgets)
	w.app.apply(t, widget("team", "a", map[string]any{"size": int64(5)}))
	service := w.serveNamespace(t, "team", widgetRights)
	there := func() error {
		_, err := find[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "a")
		return err
	}
	says := func(words string) {
		t.Helper()
		eventually(t, func() error {
			a, err := find[unstructured.Unstructured](t, w.app, widgetsGVR, "team", "a")
			if err == nil && !strings.Contains(a.GetAnnotations()[klutchsync.MessageAnnotation], words) {
				err = fmt.Errorf("the claim says %q, want %q", a.GetAnnotations()[klutchsync.MessageAnnotation], words)
			}
			return err
		})
	}
	eventually(t, there)
	eventually(t, func() error { // the target is on record
		a, err := find[unstructured.Unstructured](t, w.app, widgetsGVR, "team", "a")
		if err == nil && a.GetAnnotations()[klutchsync.TargetAnnotation] == "" {
			err = fmt.Errorf("the claim does not name its target: %v", a.GetAnnotations())
		}
		return err
	})
	if err := w.controlPlane.dyn.Resource(widgetsGVR).Namespace(service).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	says(string(klutchsync.ReasonLost))
	if there() == nil {
		t.Error("made anew against the provider's advice")
	}
	w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"spec": map[string]any{"lostInstances": v1alpha1.LostInstancesRecreate}})
	eventually(t, there)
	eventually(t, func() error { // it is told as the new one that it is
		if told := w.told(t, "a"); told["Warning TargetRecreated"] == 0 {
			return fmt.Errorf("told %v", told)
		}
		return nil
	})

	// What goes after its offer was withdrawn is not made anew, although the konnector may still.
	w.withdraw(t, widgets+" is not on offer any more")
	w.controlPlane.delete(t, widgetsGVR, service, "a")
	time.Sleep(10 * time.Second) // what is made in this time stays
	if there() == nil {
		t.Error("made anew although it is not on offer any more")
	}
	says(string(klutchsync.ReasonVanished))
	says("the provider says: " + widgets + " is not on offer any more")
	vanished := func() {
		t.Helper()
		w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, v1alpha1.ReasonObjectsNotSynced, "1 not in step: 1 "+string(klutchsync.ReasonVanished), "kubectl bind status "+widgets)
	}
	vanished()
	w.offerAgain(t)
	eventually(t, there)
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, "")

	// So it is with what goes with its kind. A finalizer keeps the kind until that was seen: of a kind that is
	// not served no one can say what has become of its objects.
	kind := cache.NewObjectName("", widgets)
	w.controlPlane.patch(t, crdsGVR, kind, map[string]any{"metadata": map[string]any{"finalizers": []string{"example.org/hold"}}})
	w.controlPlane.delete(t, crdsGVR, "", widgets)
	says(string(klutchsync.ReasonVanished))
	w.controlPlane.patch(t, crdsGVR, kind, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.absent(t, crdsGVR, "", widgets)
	vanished()
	w.controlPlane.serve(t, export)
	eventually(t, there)
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, "")
}

// A tenant is removed on the platform with all that it had, and the App Cluster is bound again.
// What its claims have lost is told and not made anew, until the owner of the binding says that it
// is meant, whether a konnector saw the removal or not. New claims are carried out meanwhile.
func TestLostWithTenant(t *testing.T) {
	for name, seen := range map[string]bool{"seen": true, "unseen": false} {
		t.Run(name, func(t *testing.T) { lostWithTenant(t, seen) })
	}
}

func lostWithTenant(t *testing.T, seen bool) {
	t.Helper()
	w := newWorld(t)
	export := read(t, filepath.Join("testdata", "widgets.yaml"))[0]
	w.offer(t, export)
	export.Object["spec"].(map[string]any)["lostInstances"] = string(v1alpha1.LostInstancesReport)
	w.controlPlane.apply(t, export)
	stop := w.run(t, bind.Options{})
	eventually(t, func() error { // bindings are served
		_, err := w.app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	w.install(t, w.kubeconfig(t))
	w.ready(t, widgets)
	w.app.apply(t, object("v1", "Namespace", "", "team", nil), widget("team", "a", written("first")))
	service := w.serveNamespace(t, "team", widgetRights)
	w.travelled(t, service, "a")
	eventually(t, func() error { // the target is on record
		if get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", "a").GetAnnotations()[klutchsync.TargetAnnotation] == "" {
			return errors.New("the claim does not name its target")
		}
		return nil
	})
	if !seen {
		stop()
	}
	w.removeTenant(t, service)
	if seen {
		eventually(t, func() error {
			b := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets)
			if c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionReady); c.Status == metav1.ConditionTrue {
				return errors.New("the binding is ready without a tenant")
			}
			return nil
		})
	}

	w.controlPlane.apply(t, read(t, filepath.Join("testdata", "tenant.yaml"))...)
	w.controlPlane.apply(t, export)
	w.install(t, w.kubeconfig(t))
	if !seen {
		w.run(t, bind.Options{})
	}
	w.ready(t, widgets)
	w.serveNamespace(t, "team", widgetRights)
	w.app.apply(t, widget("team", "b", written("second")))
	w.travelled(t, service, "b")
	// What the konnector says from here on, it says of the new tenant.
	w.app.patch(t, widgetsGVR, cache.NewObjectName("team", "a"), map[string]any{"metadata": map[string]any{"annotations": map[string]any{klutchsync.MessageAnnotation: nil}}})
	w.says(t, "a", string(klutchsync.ReasonLost))
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, v1alpha1.ReasonObjectsNotSynced, "1 not in step: 1 "+string(klutchsync.ReasonLost))
	if text := w.controlPlane.parameter(t, service, "a"); text != "" {
		t.Errorf("made anew in silence, with %q", text)
	}
	w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"spec": map[string]any{"lostInstances": v1alpha1.LostInstancesRecreate}})
	w.travelled(t, service, "a")
	w.mentions(t, "a", "Warning TargetRecreated")
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, "")
}
