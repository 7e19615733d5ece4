// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// klutchCopies does what Klutch's konnector does with a Secret of the provider: one update of
// the whole object, with one annotation, under the manager konnector.
func klutchCopies(t *testing.T, s *side, namespace, name, password string) {
	t.Helper()
	u := object("v1", "Secret", namespace, name, map[string]any{
		"type": "Opaque", "data": map[string]any{
			"password": base64.StdEncoding.EncodeToString([]byte(password)), "old": base64.StdEncoding.EncodeToString([]byte("x")),
		},
	})
	u.SetLabels(map[string]string{"tier": "db"})
	u.SetAnnotations(map[string]string{"klutch.anynines.com/resource-owner": "Provider"})
	client, opts := s.dyn.Resource(secretsGVR).Namespace(namespace), metav1.UpdateOptions{FieldManager: "konnector"}
	_, err := client.Update(t.Context(), u, opts)
	if apierrors.IsNotFound(err) {
		_, err = client.Create(t.Context(), u, metav1.CreateOptions{FieldManager: "konnector"})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) password(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, func() error {
		u, err := find[unstructured.Unstructured](t, w.app, secretsGVR, "team", name)
		if err != nil {
			return err
		}
		data, _, _ := unstructured.NestedStringMap(u.Object, "data")
		if len(data) != 1 || data["password"] != base64.StdEncoding.EncodeToString([]byte(want)) {
			return fmt.Errorf("Secret %s has %d keys, password %q, want %q", name, len(data), data["password"], want)
		}
		return nil
	})
}

// Secrets that Klutch's konnector copied follow their originals under ours; what is neither
// ours nor its copy stays and is told, and all copies go with the consent (P20).
func TestP20KlutchCopies(t *testing.T) {
	w := newWorld(t)
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)), object("v1", "Namespace", "", "team", nil), object("v1", "Namespace", "", "other", nil))
	w.offer(t, read(t, "testdata/widgets.yaml")[0])
	for _, name := range []string{"same", "rotated", "leftover"} {
		klutchCopies(t, w.app, "team", name, "first")
	}
	w.app.apply(t, object("v1", "Secret", "team", "foreign", map[string]any{"stringData": map[string]any{"password": "mine"}}))
	marked := object("v1", "Secret", "team", "marked", map[string]any{"stringData": map[string]any{"password": "mine"}})
	marked.SetAnnotations(map[string]string{"klutch.anynines.com/resource-owner": "Provider"})
	w.app.apply(t, marked)

	stop := w.run(t, bind.Options{})
	eventually(t, func() error {
		_, err := w.app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	claim := map[string]any{
		"resource": "secrets", "version": "v1", "required": true, "state": "Accepted",
		"selector": map[string]any{"owner": "Provider", "names": []any{"*"}, "namespaces": []any{"*"}},
	}
	w.bind(t, widgets, claim)
	w.allow(t, widgets)
	w.app.apply(t, widget("team", "one", map[string]any{"size": int64(5)}))
	service := w.serveNamespace(t, "team", widgetRights)
	original := func(name, password string) {
		t.Helper()
		w.controlPlane.apply(t, object("v1", "Secret", service, name, map[string]any{"stringData": map[string]any{"password": password}}))
	}
	for name, password := range map[string]string{"same": "first", "rotated": "second", "foreign": "theirs", "marked": "theirs"} {
		original(name, password)
	}
	w.password(t, "same", "first")
	w.password(t, "rotated", "second")
	w.condition(t, widgets, v1alpha1.ConditionClaimsInSync, v1alpha1.ReasonCopiesLeftAlone, "secrets team/foreign", "secrets team/marked", "secrets team/leftover")
	for _, name := range []string{"foreign", "marked"} {
		if got := get[unstructured.Unstructured](t, w.app, secretsGVR, "team", name); len(got.GetLabels()) > 0 {
			t.Errorf("%s was touched: %v", name, got.GetLabels())
		}
	}

	// Once more each way: Klutch's konnector takes our marks off, and changes what it finds.
	original("same", "third")
	w.password(t, "same", "third")
	stop()
	klutchCopies(t, w.app, "team", "same", "third")
	klutchCopies(t, w.app, "team", "rotated", "third")
	original("same", "fourth")
	original("rotated", "fourth")
	w.foreseen(t, service)
	stop = w.run(t, bind.Options{})
	w.condition(t, gadgets, v1alpha1.ConditionConnected, v1alpha1.ReasonForeignCustomResourceDefinition)
	eventually(t, func() error {
		two := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "two")
		three := get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", "three")
		if _, taken := klutchsync.OriginOf(two); !taken || three.GetAnnotations()[klutchsync.MessageAnnotation] == "" {
			return fmt.Errorf("what was foreseen has not come: %v, %v", two.GetAnnotations(), three.GetAnnotations())
		}
		return nil
	})
	w.password(t, "same", "fourth")
	w.password(t, "rotated", "fourth")
	if err := w.controlPlane.dyn.Resource(secretsGVR).Namespace(service).Delete(t.Context(), "same", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return goneFrom(t, w.app, secretsGVR, "team", "same") })

	// A rejection removes what neither konnector has an original for, too.
	rejected := maps.Clone(claim)
	rejected["state"] = "Rejected"
	w.bind(t, widgets, rejected)
	for _, name := range []string{"rotated", "leftover"} {
		eventually(t, func() error { return goneFrom(t, w.app, secretsGVR, "team", name) })
	}
	get[unstructured.Unstructured](t, w.app, secretsGVR, "team", "foreign")
	get[unstructured.Unstructured](t, w.app, secretsGVR, "team", "marked")
	stop()
}

// foreseen has doctor say what this konnector would take over: beside what it knows from before, a
// claim that Klutch's konnector has brought up, one whose name is taken, a CRD that is no binding's,
// and Klutch's Deployment. Nothing is changed.
func (w *world) foreseen(t *testing.T, service string) {
	t.Helper()
	for name, bound := range map[string]map[string]string{"two": {v1alpha1.BoundAnnotation: "true"}, "three": nil} {
		source := widget("team", name, map[string]any{"size": int64(5)})
		source.SetFinalizers([]string{klutchsync.DefaultFinalizer})
		w.app.apply(t, source)
		target := widget(service, name, map[string]any{"size": int64(5)})
		target.SetAnnotations(bound)
		if _, err := w.controlPlane.dyn.Resource(widgetsGVR).Namespace(service).Create(t.Context(), target, metav1.CreateOptions{FieldManager: "konnector"}); err != nil {
			t.Fatal(err)
		}
	}
	foreign := renamed(read(t, "testdata/widgets.yaml")[0], "gadgets", "Gadget")
	w.offer(t, foreign.DeepCopy())
	spec := foreign.Object["spec"].(map[string]any)
	delete(spec, "informerScope")
	w.app.apply(t, object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", gadgets, map[string]any{"spec": spec}))
	w.bind(t, gadgets)
	w.allow(t, gadgets)
	labels := map[string]any{"app": "konnector"}
	deployment := object("apps/v1", "Deployment", v1alpha1.Namespace, "konnector", map[string]any{"spec": map[string]any{
		"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
			"serviceAccountName": "konnector",
			"containers":         []any{map[string]any{"name": "konnector", "image": "example.com/klutch/konnector:v1.5.0"}},
		}},
	}})
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	if _, err := w.app.dyn.Resource(deployments).Namespace(v1alpha1.Namespace).Create(t.Context(), deployment, metav1.CreateOptions{FieldManager: "klutch"}); err != nil {
		t.Fatal(err)
	}
	before := w.app.versionsOf(t, widgetsGVR, secretsGVR, crdsGVR, deployments)
	found := bind.Takeover(t.Context(), quick(w.app.Config()), time.Now(), deploy.Konnector("example.org/konnector:v1"))
	for _, want := range []struct {
		check, about string
		ok           bool
		words        []string
	}{
		{"konnector", "klutch-bind/konnector", true, nil},
		{"fields", "Deployment konnector", false, []string{".image", "klutch (.spec"}},
		{"fields", "Namespace klutch-bind", true, []string{"becomes restricted"}},
		{"secret", "klutch-bind/" + w.secret, true, nil},
		{"token", "klutch-bind/" + w.secret, true, nil},
		{"crd", widgets, true, []string{"stays with its objects"}},
		{"crd", gadgets, false, []string{"ForeignCustomResourceDefinition"}},
		{"rights", widgets, true, nil},
		{"objects", widgets, false, []string{"1 left alone", "team/three", "1 stay, this konnector made them: team/one", "1 taken over as they are: team/two"}},
		{"copies", widgets, false, []string{"2 left alone", "team/foreign, team/marked", "1 left as they are", "team/leftover", "2 taken over as they are: team/rotated, team/same"}},
	} {
		at := slices.IndexFunc(found, func(f bind.Finding) bool { return f.Check == want.check && f.About == want.about })
		if at < 0 || found[at].OK != want.ok || slices.ContainsFunc(want.words, func(word string) bool { return !strings.Contains(found[at].Message, word) }) {
			t.Errorf("want %+v in\n%+v", want, found)
		}
	}
	if diff := cmp.Diff(before, w.app.versionsOf(t, widgetsGVR, secretsGVR, crdsGVR, deployments)); diff != "" {
		t.Errorf("doctor has changed something (-before +after):\n%s", diff)
	}
}

// versionsOf are the generations of all objects of some resources; of Secrets the versions.
func (s *side) versionsOf(t *testing.T, resources ...schema.GroupVersionResource) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range resources {
		list, err := s.dyn.Resource(r).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list.Items {
			version := fmt.Sprint(u.GetGeneration())
			if r == secretsGVR {
				version = u.GetResourceVersion()
			}
			all[r.Resource+" "+u.GetNamespace()+"/"+u.GetName()] = version
		}
	}
	return all
}

// klutchOwns is what Klutch's programs demand of the CRD of a binding.
func (w *world) klutchOwns(t *testing.T, b *v1alpha1.APIServiceBinding) error {
	t.Helper()
	crd, err := find[apiextensionsv1.CustomResourceDefinition](t, w.app, crdsGVR, "", b.Name)
	if err != nil {
		return err
	}
	want := metav1.OwnerReference{APIVersion: "klutch.anynines.com/v1alpha1", Kind: "APIServiceBinding", Name: b.Name, UID: b.UID, Controller: new(true)}
	if diff := cmp.Diff([]metav1.OwnerReference{want}, crd.OwnerReferences); diff != "" {
		return fmt.Errorf("CRD %s is not owned by klutch-bind:\n%s\n%+v", b.Name, diff, get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, b.Name).Status.Conditions)
	}
	return nil
}

// The CRD of a binding that Klutch's tool made, or of any if the konnector is told so, has the
// owner reference that Klutch's programs demand. The garbage collector reports it, and leaves
// the CRD and its objects, also when the binding is gone; a new binding has its own reference.
func TestCRDOwnerReferences(t *testing.T) {
	w := newWorld(t)
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)), object("v1", "Namespace", "", "team", nil))
	w.offer(t, read(t, "testdata/widgets.yaml")[0])
	stop := w.run(t, bind.Options{})
	eventually(t, func() error {
		_, err := w.app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	made := func() *v1alpha1.APIServiceBinding {
		t.Helper()
		u := object(v1alpha1.GroupVersion.String(), "APIServiceBinding", w.bindings, widgets, map[string]any{"spec": map[string]any{
			"kubeconfigSecretRef": map[string]any{"namespace": v1alpha1.Namespace, "name": w.secret, "key": v1alpha1.KubeconfigKey},
		}})
		eventually(t, func() error {
			_, err := w.app.dyn.Resource(bindingsGVR).Namespace(w.bindings).Create(t.Context(), u, metav1.CreateOptions{FieldManager: "kubectl-bind"})
			return err
		})
		return get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets)
	}
	b := made()
	w.allow(t, widgets)
	w.ready(t, widgets)
	if err := w.klutchOwns(t, b); err != nil {
		t.Error(err)
	}
	crd := get[apiextensionsv1.CustomResourceDefinition](t, w.app, crdsGVR, "", widgets)
	w.app.apply(t, widget("team", "one", map[string]any{"size": int64(5)}))

	w.unbindAndCollect(t, b)
	w.stays(t, crd)
	b = made()
	eventually(t, func() error { return w.klutchOwns(t, b) })
	w.unbindAndCollect(t, b)
	w.stays(t, crd)

	w.bind(t, widgets)
	w.ready(t, widgets)
	b = get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets)
	if err := w.klutchOwns(t, b); err == nil {
		t.Error("the CRD of an applied binding has an owner reference without being asked for")
	}
	stop()
	w.run(t, bind.Options{CRDOwnerReferences: true})
	eventually(t, func() error { return w.klutchOwns(t, b) })
	w.stays(t, crd)
}

// unbindAndCollect deletes the binding and waits until the garbage collector has reported the
// CRD's owner, and collected another object that the binding owns.
func (w *world) unbindAndCollect(t *testing.T, b *v1alpha1.APIServiceBinding) {
	t.Helper()
	eventually(t, func() error {
		events, err := w.app.kube.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "OwnerRefInvalidNamespace" && e.InvolvedObject.Name == b.Name && strings.Contains(e.Message, string(b.UID))
		}) {
			err = fmt.Errorf("the garbage collector has not reported the CRD of binding %s", b.UID)
		}
		return err
	})
	owned := object("v1", "ConfigMap", b.Namespace, "owned-"+string(b.UID), nil)
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "klutch.anynines.com/v1alpha1", Kind: "APIServiceBinding", Name: b.Name, UID: b.UID}})
	w.app.apply(t, owned)
	if err := w.app.dyn.Resource(bindingsGVR).Namespace(b.Namespace).Delete(t.Context(), b.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		return goneFrom(t, w.app, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, b.Namespace, owned.GetName())
	})
}

// stays fails the test if the CRD, or the widget under it, is not the one that it was.
func (w *world) stays(t *testing.T, was *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	now := get[apiextensionsv1.CustomResourceDefinition](t, w.app, crdsGVR, "", was.Name)
	if now.UID != was.UID || now.DeletionTimestamp != nil {
		t.Fatalf("the CRD has UID %s, was %s, deleted %v", now.UID, was.UID, now.DeletionTimestamp)
	}
	get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", "one")
}

// The CRD of bindings that Klutch's konnector left gets the fields that it lacks at the next bind,
// which writes one of them.
func TestInstallOverKlutchsCRD(t *testing.T) {
	w := newWorld(t)
	name := "apiservicebindings.klutch.anynines.com"
	crd := v1alpha1.CRDs()[name].DeepCopy()
	version := crd.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "maxAdoptedObjects")
	if _, err := w.app.dyn.Resource(crdsGVR).Create(t.Context(), crd, metav1.CreateOptions{FieldManager: "konnector"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := w.app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	w.offer(t, read(t, "testdata/widgets.yaml")[0])
	w.install(t, w.kubeconfig(t), func(opts *bind.InstallOptions) { opts.MaxAdopted = new(int32(5)) })
	if b := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets); b.Spec.MaxAdoptedObjects != 5 {
		t.Errorf("the binding lost what was said: %+v", b.Spec)
	}
}
