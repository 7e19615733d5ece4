// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// newBehind is a world with a binding of widgets whose service namespace takes one of them.
func newBehind(t *testing.T) (w *world, service string, stop func()) {
	t.Helper()
	w = newWorld(t)
	w.offer(t, read(t, filepath.Join("testdata", "widgets.yaml"))[0])
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)), object("v1", "Namespace", "", "team", nil))
	stop = w.run(t, bind.Options{NamespaceGrace: 2 * time.Second})
	w.bind(t, widgets)
	w.allow(t, widgets)
	w.ready(t, widgets)
	w.app.apply(t, widget("team", "one", map[string]any{"size": int64(1)}))
	service = w.serveNamespace(t, "team", widgetRights)
	w.travelled(t, service, "one")
	return w, service, stop
}

func (w *world) travelled(t *testing.T, service, name string) {
	t.Helper()
	eventually(t, func() error {
		_, err := w.controlPlane.dyn.Resource(widgetsGVR).Namespace(service).Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
}

// told are the Events of a widget, each with how often it was made.
func (w *world) told(t *testing.T, name string) map[string]int32 {
	t.Helper()
	uid := types.UID("")
	if u, err := w.app.dyn.Resource(widgetsGVR).Namespace("team").Get(t.Context(), name, metav1.GetOptions{}); err == nil {
		uid = u.GetUID()
	}
	events, err := w.app.kube.CoreV1().Events("team").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int32{}
	for _, e := range events.Items {
		if e.InvolvedObject.UID != uid {
			t.Errorf("an Event of UID %s, the widget has %s", e.InvolvedObject.UID, uid)
		}
		all[e.Type+" "+e.Reason] += e.Count
	}
	return all
}

// hears waits for Events of a widget, one each.
func (w *world) hears(t *testing.T, name string, want ...string) {
	t.Helper()
	counts := map[string]int32{}
	for _, event := range want {
		counts[event] = 1
	}
	eventually(t, func() error {
		if diff := cmp.Diff(counts, w.told(t, name)); diff != "" {
			return fmt.Errorf("events (-want +got):\n%s", diff)
		}
		return nil
	})
}

// mentions waits for an Event of a widget, among others.
func (w *world) mentions(t *testing.T, name, event string) {
	t.Helper()
	eventually(t, func() error {
		if told := w.told(t, name); told[event] == 0 {
			return fmt.Errorf("told %v", told)
		}
		return nil
	})
}

// finding is what doctor says, as one line.
func (w *world) finding(t *testing.T, check, about string) (bind.Finding, error) {
	t.Helper()
	return w.findingAt(t, time.Now(), check, about)
}

func (w *world) findingAt(t *testing.T, now time.Time, check, about string) (bind.Finding, error) {
	t.Helper()
	var checks []string
	for _, f := range bind.Doctor(t.Context(), quick(w.app.Config()), now) {
		if f.Check == check && (about == "" || strings.HasSuffix(f.About, about)) {
			return f, nil
		}
		checks = append(checks, f.Check)
	}
	return bind.Finding{}, fmt.Errorf("no finding of %s %s among %v", check, about, checks)
}

// A claim over quota has an Event, counts in a condition that leaves Ready alone, and is
// found by doctor and status; all of that ends with the cause, and a restart is no news.
func TestBehindQuota(t *testing.T) {
	w, service, stop := newBehind(t)
	w.controlPlane.apply(t, object("v1", "ResourceQuota", service, "few", map[string]any{"spec": map[string]any{"hard": map[string]any{"count/" + widgets: "1"}}}))
	counts := func(n string) map[string]any { return map[string]any{"count/" + widgets: n} }
	w.controlPlane.patchStatus(t, quotasGVR, service, "few", map[string]any{"hard": counts("1"), "used": counts("1")})
	w.refuses(t, service, "two")
	began := time.Now()
	w.app.apply(t, widget("team", "two", map[string]any{"size": int64(1)}), widget("team", "three", map[string]any{"size": int64(1)}))
	w.hears(t, "two", "Warning TargetForbidden")
	w.hears(t, "three", "Warning TargetForbidden")
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, v1alpha1.ReasonObjectsNotSynced, "2 not in step: 2 TargetForbidden", "kubectl bind status "+widgets)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("told after %s", took)
	}
	b := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets)
	ready := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	if ready.Status != metav1.ConditionTrue || !strings.Contains(ready.Message, "2 TargetForbidden") || bind.OutOfStep(*b) != 2 {
		t.Errorf("Ready is %+v, %d out of step", ready, bind.OutOfStep(*b))
	}
	objects, all, err := bind.Objects(t.Context(), quick(w.app.Config()), widgets, time.Now())
	if err != nil || !all || len(objects) != 2 || objects[0].Reason != "TargetForbidden" || !strings.Contains(objects[0].Message, "exceeded quota") || time.Since(objects[0].Since) > time.Minute {
		t.Errorf("%+v, all %t, %v", objects, all, err)
	}
	f, err := w.finding(t, "objects", widgets)
	if err != nil || f.OK || !strings.Contains(f.Message, "team/two for ") || !strings.Contains(f.Message, "TargetForbidden") || !strings.Contains(f.Hint, "kubectl bind status "+widgets) {
		t.Errorf("%+v, %v", f, err)
	}

	stop()
	w.run(t, bind.Options{})
	w.app.apply(t, widget("team", "four", map[string]any{"size": int64(1)}))
	w.hears(t, "four", "Warning TargetForbidden")
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, v1alpha1.ReasonObjectsNotSynced, "3 not in step")
	w.hears(t, "two", "Warning TargetForbidden") // once

	if err := w.controlPlane.dyn.Resource(quotasGVR).Namespace(service).Delete(t.Context(), "few", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.hears(t, "two", "Warning TargetForbidden", "Normal InStep")
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, "")
	w.condition(t, widgets, v1alpha1.ConditionReady, "")
}

// A deletion that waits is found, and so is one of the instance alone. An instance that was lost
// and made anew is told on the claim and on what refers to it, also if no konnector ran meanwhile.
func TestBehindLost(t *testing.T) {
	w, service, stop := newBehind(t)
	hold := map[string]any{"metadata": map[string]any{"finalizers": []any{"example.org/hold"}}}
	w.controlPlane.patch(t, widgetsGVR, cache.NewObjectName(service, "one"), hold)
	w.app.delete(t, widgetsGVR, "team", "one")
	w.changedWhileDeleted(t, service, "one")
	w.app.apply(t, widget("team", "two", map[string]any{"size": int64(1)}))
	w.travelled(t, service, "two")
	w.controlPlane.patch(t, widgetsGVR, cache.NewObjectName(service, "two"), hold)
	began := time.Now()
	w.controlPlane.delete(t, widgetsGVR, service, "two")
	w.mentions(t, "two", "Warning TargetTerminating")
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, v1alpha1.ReasonObjectsNotSynced, "2 TargetTerminating")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("told after %s", took)
	}
	w.controlPlane.patch(t, widgetsGVR, cache.NewObjectName(service, "two"), map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.mentions(t, "two", "Warning TargetRecreated")
	w.travelled(t, service, "two")

	w.app.apply(t, widget("team", "three", map[string]any{"size": int64(1)}))
	w.travelled(t, service, "three")
	w.controlPlane.patchStatus(t, widgetsGVR, service, "three", map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}})
	eventually(t, func() error {
		u, err := w.app.dyn.Resource(widgetsGVR).Namespace("team").Get(t.Context(), "three", metav1.GetOptions{})
		if err == nil && u.Object["status"] == nil {
			err = errors.New("no status")
		}
		return err
	})
	stop()
	w.controlPlane.delete(t, widgetsGVR, service, "three")
	w.run(t, bind.Options{})
	w.mentions(t, "three", "Warning TargetRecreated")
	w.travelled(t, service, "three")
	eventually(t, func() error {
		f, err := w.finding(t, "objects", widgets)
		if err == nil && !strings.Contains(f.Message, "team/one for ") {
			err = errors.New(f.Message)
		}
		return err
	})
	w.controlPlane.patch(t, widgetsGVR, cache.NewObjectName(service, "one"), map[string]any{"metadata": map[string]any{"finalizers": nil}})
	eventually(t, func() error { return goneFrom(t, w.app, widgetsGVR, "team", "one") })
	w.absent(t, widgetsGVR, service, "one")
	w.lostWithBindings(t)
}

// changedWhileDeleted: what the user of a claim that is being deleted changes reaches the target that
// is held, and its status comes back: the provider may wait for the one and say so in the other.
func (w *world) changedWhileDeleted(t *testing.T, service, name string) {
	t.Helper()
	eventually(t, func() error {
		if get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name).GetDeletionTimestamp() == nil {
			return errors.New("the target is not being deleted")
		}
		return nil
	})
	w.app.patch(t, widgetsGVR, cache.NewObjectName("team", name), map[string]any{"metadata": map[string]any{"labels": map[string]any{"backup": "none"}}, "spec": map[string]any{"plan": "big"}})
	eventually(t, func() error {
		u := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name)
		if plan, _, _ := unstructured.NestedString(u.Object, "spec", "plan"); plan != "big" || u.GetLabels()["backup"] != "none" {
			return fmt.Errorf("plan %q, labels %v", plan, u.GetLabels())
		}
		return nil
	})
	w.controlPlane.patchStatus(t, widgetsGVR, service, name, map[string]any{"secret": "the-last"})
	eventually(t, func() error {
		u := get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", name)
		if secret, _, _ := unstructured.NestedString(u.Object, "status", "secret"); secret != "the-last" {
			return fmt.Errorf("status %v", u.Object["status"])
		}
		return nil
	})
}

// lostWithBindings loses an instance to which a ServiceBinding of another bound API refers.
func (w *world) lostWithBindings(t *testing.T) {
	t.Helper()
	instances, bindings := widgetsGVR.GroupVersion().WithResource("widgetinstances"), widgetsGVR.GroupVersion().WithResource("servicebindings")
	service := w.serveNamespace(t, "team", append(slices.Clone(widgetRights), rbacv1.PolicyRule{
		APIGroups: []string{"example.org"}, Resources: []string{"widgetinstances", "widgetinstances/status", "servicebindings", "servicebindings/status"}, Verbs: []string{"*"},
	}))
	for _, kind := range []string{"WidgetInstance", "ServiceBinding"} {
		export := kin(t, kind)
		w.offer(t, export)
		w.bind(t, export.GetName())
		w.allow(t, export.GetName())
		w.ready(t, export.GetName())
	}
	of := func(instance string) map[string]any {
		return map[string]any{"spec": map[string]any{"instanceRef": instance, "serviceInstanceType": "widget"}}
	}
	w.app.apply(t, object("example.org/v1", "WidgetInstance", "team", "orders", map[string]any{"spec": map[string]any{}}),
		object("example.org/v1", "ServiceBinding", "team", "its-access", of("orders")), object("example.org/v1", "ServiceBinding", "team", "another", of("invoices")))
	there := func() error {
		_, err := find[unstructured.Unstructured](t, w.controlPlane, instances, service, "orders")
		_, err2 := find[unstructured.Unstructured](t, w.controlPlane, bindings, service, "its-access")
		return errors.Join(err, err2)
	}
	eventually(t, there)
	w.controlPlane.delete(t, instances, service, "orders")
	want := map[string]string{"WidgetInstance orders": "vanished, with what it held", "ServiceBinding its-access": "What stood for WidgetInstance orders"}
	eventually(t, func() error {
		events, err := w.app.kube.CoreV1().Events("team").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=TargetRecreated"})
		if err != nil {
			return err
		}
		missing := maps.Clone(want)
		for _, e := range events.Items {
			about := e.InvolvedObject.Kind + " " + e.InvolvedObject.Name
			if about == "ServiceBinding another" {
				t.Fatalf("it is told what another instance has lost: %s", e.Message)
			}
			if strings.Contains(e.Message, want[about]) {
				delete(missing, about)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("no Event of %v", missing)
		}
		return nil
	})
	eventually(t, there)
}

// kin is the export of another kind like widgets, in the words of Klutch's data services.
func kin(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	u := read(t, filepath.Join("testdata", "widgets.yaml"))[0]
	word := strings.ToLower(kind)
	u.SetName(word + "s.example.org")
	spec := u.Object["spec"].(map[string]any)
	spec["names"] = map[string]any{"kind": kind, "listKind": kind + "List", "plural": word + "s", "singular": word}
	text := map[string]any{"type": "string"}
	version := spec["versions"].([]any)[0].(map[string]any)
	for _, field := range []string{"instanceRef", "serviceInstanceType"} {
		if err := unstructured.SetNestedMap(version, text, "schema", "openAPIV3Schema", "properties", "spec", "properties", field); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// A manager of the Control Plane Cluster that puts a field back each time is named in the
// message and in the Event, be its change put right or only reported.
func TestBehindContested(t *testing.T) {
	w, service, stop := newBehind(t)
	targets := w.controlPlane.dyn.Resource(widgetsGVR).Namespace(service)
	events, err := targets.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	plan := func(u *unstructured.Unstructured) string {
		p, _, _ := unstructured.NestedString(u.Object, "spec", "plan")
		return p
	}
	insist := func() {
		_, _ = targets.Patch(t.Context(), "one", types.MergePatchType, []byte(`{"spec":{"plan":"big"}}`), metav1.PatchOptions{FieldManager: "composer"}) // or at the next event
	}
	go func() {
		for e := range events.ResultChan() {
			if u, ok := e.Object.(*unstructured.Unstructured); ok && plan(u) != "big" {
				insist()
			}
		}
	}()
	insist()
	began := time.Now()
	w.blames(t, "one", klutchsync.ReasonContested, "composer", "spec.plan")
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("told after %s", took)
	}
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, v1alpha1.ReasonObjectsNotSynced, "1 not in step: 1 TargetContested")

	// Where it is only reported, it is told with the same name.
	stop()
	w.run(t, bind.Options{Sync: func(_ string, opts *klutchsync.Options) { opts.Drift = klutchsync.DriftReport }})
	w.blames(t, "one", klutchsync.ReasonDrifted, "composer", "spec.plan")
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, v1alpha1.ReasonObjectsNotSynced, "1 not in step: 1 TargetDrifted")
}

// blames waits until the message of a claim and the Event of it give this reason, and both have these words.
func (w *world) blames(t *testing.T, name string, why klutchsync.Reason, words ...string) {
	t.Helper()
	eventually(t, func() error {
		claim, err := find[unstructured.Unstructured](t, w.app, widgetsGVR, "team", name)
		if err != nil {
			return err
		}
		message := claim.GetAnnotations()[klutchsync.MessageAnnotation]
		list, err := w.app.kube.CoreV1().Events("team").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + string(why)})
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("no Event yet, message %q", message)
		}
		if err != nil {
			return err
		}
		for _, said := range []string{list.Items[0].Message, message} {
			for _, word := range words {
				if !strings.Contains(said, word) {
					return fmt.Errorf("%q, without %q", said, word)
				}
			}
		}
		return nil
	})
}

// A role that was taken away is told on each object that waits for it, be it on nothing that the
// konnector has ever written to, and by status and doctor; when it is back all goes on in seconds.
func TestRightsTakenAway(t *testing.T) {
	w, service, stop := newBehind(t)
	stop()
	w.run(t, bind.Options{}) // one that has learnt the schema lists all anew, which it may not any more
	w.app.patch(t, widgetsGVR, cache.NewObjectName("team", "one"), map[string]any{"spec": map[string]any{"size": int64(2)}})
	w.travels(t, service, "one", "size", int64(2))
	konnector, err := kubernetes.NewForConfig(quick(rest.CopyConfig(w.konnector)))
	if err != nil {
		t.Fatal(err)
	}
	w.app.delete(t, rolesGVR, "", "klutch-bind-konnector-"+widgets)
	eventually(t, func() error {
		review, err := konnector.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Group: "example.org", Resource: "widgets"},
		}}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed {
			err = errors.New("the konnector may patch widgets still")
		}
		return err
	})
	began := time.Now()
	w.app.apply(t, widget("team", "two", map[string]any{"size": int64(1)}))
	w.controlPlane.patchStatus(t, widgetsGVR, service, "one", map[string]any{"secret": "creds"})
	w.hears(t, "two", "Warning AccessDenied")
	w.hears(t, "one", "Warning AccessDenied")
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("told after %s", took)
	}
	w.condition(t, widgets, v1alpha1.ConditionInformersSynced, v1alpha1.ReasonMissingRights, "kubectl bind")
	objects, all, err := bind.Objects(t.Context(), quick(w.app.Config()), widgets, time.Now())
	if err != nil || !all || len(objects) != 2 || objects[0].Reason != "AccessDenied" || objects[1].Reason != "AccessDenied" || !strings.Contains(objects[0].Message, "kubectl bind repair") {
		t.Errorf("%+v, all %t, %v", objects, all, err)
	}
	f, err := w.finding(t, "objects", widgets)
	if err != nil || f.OK || !strings.Contains(f.Message, "team/one for ") || !strings.Contains(f.Message, "team/two for ") || !strings.Contains(f.Hint, "run kubectl bind repair") {
		t.Errorf("%+v, %v", f, err)
	}
	w.allow(t, widgets)
	began = time.Now()
	w.travelled(t, service, "two")
	w.hears(t, "two", "Warning AccessDenied", "Normal InStep")
	w.hears(t, "one", "Warning AccessDenied", "Normal InStep")
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, "")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it goes on after %s", took)
	}
	if objects, _, err := bind.Objects(t.Context(), quick(w.app.Config()), widgets, time.Now()); err != nil || len(objects) > 0 {
		t.Errorf("%+v, %v", objects, err)
	}
}

// What becomes of a connection is told at once, and counted: a token that was revoked, a tenant
// that the platform removes.
func TestConnectionTold(t *testing.T) {
	w, _, _ := newBehind(t)
	up := func(want bool) { // klutch_control_plane_up
		t.Helper()
		eventually(t, func() error {
			all, ok := w.census()
			if !ok || len(all) != 1 || all[0].Up != want {
				return fmt.Errorf("want up %t: %t %+v", want, ok, all)
			}
			return nil
		})
	}
	up(true)
	within := func(most time.Duration, reason string, words ...string) {
		t.Helper()
		began := time.Now()
		w.condition(t, widgets, v1alpha1.ConditionConnected, reason, words...)
		up(false)
		if took := time.Since(began); took > most {
			t.Errorf("%s told after %s", reason, took)
		}
	}
	taken := time.Now()
	rights := get[rbacv1.ClusterRole](t, w.app, rolesGVR, "", "klutch-bind-konnector-"+widgets)
	if err := w.app.dyn.Resource(rolesGVR).Delete(t.Context(), rights.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.condition(t, widgets, v1alpha1.ConditionInformersSynced, v1alpha1.ReasonMissingRights, widgets)
	if took := time.Since(taken); took > 45*time.Second { // it is asked twice a minute
		t.Errorf("rights that were taken are told after %s", took)
	}
	w.allow(t, widgets)
	w.ready(t, widgets)

	tokens := w.controlPlane.dyn.Resource(accountsGVR).Namespace(tenant)
	account, err := tokens.Get(t.Context(), v1alpha1.TenantServiceAccount, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tokens.Delete(t.Context(), account.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	within(25*time.Second, v1alpha1.ReasonTokenRevoked, "does not accept the token") // API servers believe a token for ten seconds more
	f, err := w.finding(t, "control-plane", "")
	if err != nil || f.OK || !strings.Contains(f.Message, "does not accept the token") {
		t.Errorf("%+v, %v", f, err)
	}
	w.controlPlane.apply(t, object("v1", "ServiceAccount", tenant, v1alpha1.TenantServiceAccount, nil))
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)))
	w.ready(t, widgets)
	up(true)

	w.controlPlane.patch(t, clustersGVR, cache.NewObjectName(tenant, "cluster"), map[string]any{"metadata": map[string]any{"finalizers": []any{"example.org/hold"}}})
	if err := w.controlPlane.dyn.Resource(clustersGVR).Namespace(tenant).Delete(t.Context(), "cluster", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		f, err := w.finding(t, "control-plane", "")
		if err == nil && (f.OK || !strings.Contains(f.Message, "removes this cluster's tenant")) {
			err = errors.New(f.Message)
		}
		return err
	})
	if err := tokens.Delete(t.Context(), account.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	within(25*time.Second, v1alpha1.ReasonTenantGone, "removed this cluster's tenant")
	w.hears(t, "one", "Warning TenantGone")
}

// A konnector that was killed is found as soon as it would have lost its Lease, one that was
// stopped at once.
func TestKonnectorLease(t *testing.T) {
	app := newSide(t, "app")
	app.apply(t, object("v1", "Namespace", "", v1alpha1.Namespace, nil))
	lease := func(holder string, ago time.Duration) {
		app.apply(t, object("coordination.k8s.io/v1", "Lease", v1alpha1.Namespace, v1alpha1.LeaseName, map[string]any{"spec": map[string]any{
			"holderIdentity": holder, "leaseDurationSeconds": int64(15), "renewTime": time.Now().Add(-ago).UTC().Format("2006-01-02T15:04:05.000000Z"),
		}}))
	}
	for _, c := range []struct {
		holder string
		ago    time.Duration
		want   string
	}{{"one", time.Second, ""}, {"one", 11 * time.Second, "it does not work: it has not renewed its Lease for 11s"}, {"", time.Second, "it was stopped: no replica holds its Lease"}} {
		lease(c.holder, c.ago)
		if got := bind.KonnectorTrouble(t.Context(), quick(app.Config()), time.Now()); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
