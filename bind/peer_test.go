// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// peerBindings is the CRD of APIServiceBindings as a peer's konnector of a released
// version installs it: cluster-scoped, conditions are a plain array and have no
// observedGeneration.
func peerBindings(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	crd := v1alpha1.CRDs()["apiservicebindings.klutch.anynines.com"]
	crd.Object["spec"].(map[string]any)["scope"] = "Cluster"
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	conditions, ok, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", "conditions")
	if err != nil || !ok {
		t.Fatalf("no conditions in the CRD: %v", err)
	}
	delete(conditions, "x-kubernetes-list-type")
	delete(conditions, "x-kubernetes-list-map-keys")
	unstructured.RemoveNestedField(conditions, "items", "properties", "observedGeneration")
	if err := unstructured.SetNestedMap(versions[0].(map[string]any), conditions, "schema", "openAPIV3Schema", "properties", "status", "properties", "conditions"); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	return crd
}

// left makes a widget as a peer's konnector left it, written under its name.
func (s *side) left(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := s.dyn.Resource(widgetsGVR).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{FieldManager: "konnector"})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// TestTakesOverFromPeer: an App Cluster in which a peer's konnector ran until now.
// Nothing is made anew, and nothing is lost.
func TestTakesOverFromPeer(t *testing.T) {
	w := newWideWorld(t)
	w.secret, w.bindings = "kubeconfig-x7k2p", ""
	crd := peerBindings(t)
	w.app.apply(t, crd, object("v1", "Namespace", "", "team", nil), secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)))
	w.app.apply(t, object(v1alpha1.GroupVersion.String(), "APIServiceBinding", "", widgets, map[string]any{
		"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"namespace": v1alpha1.Namespace, "name": w.secret, "key": v1alpha1.KubeconfigKey}},
	}))
	w.app.patchStatus(t, bindingsGVR, "", widgets, map[string]any{"conditions": []any{
		map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
		map[string]any{"type": "Connected", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
	}})
	w.offer(t, read(t, filepath.Join("testdata", "widgets.yaml"))[0])
	binding := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, "", widgets)
	theirs := get[unstructured.Unstructured](t, w.controlPlane, crdsGVR, "", widgets)
	installed := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", widgets, map[string]any{"spec": theirs.Object["spec"]})
	yes := true
	installed.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceBinding", Name: widgets, UID: binding.UID, Controller: &yes}})
	w.app.apply(t, installed)
	w.controlPlane.apply(t, object(v1alpha1.GroupVersion.String(), "APIServiceNamespace", tenant, "team", nil))
	service := w.serveNamespace(t, "team", widgetRights)

	claim, target := widget("team", "one", map[string]any{"size": int64(5)}), widget(service, "one", map[string]any{"size": int64(5)})
	claim.SetFinalizers([]string{v1alpha1.SyncerFinalizer})
	for _, u := range []*unstructured.Unstructured{claim, target} {
		u.SetAnnotations(map[string]string{v1alpha1.BoundAnnotation: "true"})
	}
	eventually(t, func() error {
		_, err := w.app.dyn.Resource(widgetsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	w.app.left(t, claim)
	made := w.controlPlane.left(t, target)
	before := []*unstructured.Unstructured{
		get[unstructured.Unstructured](t, w.app, crdsGVR, "", crd.GetName()), get[unstructured.Unstructured](t, w.app, crdsGVR, "", widgets),
	}

	w.allow(t, widgets)
	w.run(t, bind.Options{})
	w.condition(t, widgets, v1alpha1.ConditionSchemaInSync, "")
	w.ready(t, widgets)
	w.app.patch(t, widgetsGVR, cache.NewObjectName("team", "one"), map[string]any{"spec": map[string]any{"size": int64(7)}})
	eventually(t, func() error {
		u := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "one")
		if size, _, _ := unstructured.NestedInt64(u.Object, "spec", "size"); size != 7 || u.GetUID() != made.GetUID() {
			return fmt.Errorf("size is %d, UID %s, was %s", size, u.GetUID(), made.GetUID())
		}
		return nil
	})
	w.controlPlane.patchStatus(t, widgetsGVR, service, "one", map[string]any{"secret": "some"})
	eventually(t, func() error {
		u := get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", "one")
		if name, _, _ := unstructured.NestedString(u.Object, "status", "secret"); name != "some" {
			return errors.New("the status has not come down")
		}
		return nil
	})
	for _, was := range before {
		is := get[unstructured.Unstructured](t, w.app, crdsGVR, "", was.GetName())
		if diff := cmp.Diff(was.Object["spec"], is.Object["spec"]); diff != "" || is.GetUID() != was.GetUID() {
			t.Errorf("CRD %s is not what it was (-before +after):\n%s", was.GetName(), diff)
		}
	}
	w.unwritten(t)

	if err := w.app.dyn.Resource(widgetsGVR).Namespace("team").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return goneFrom(t, w.app, widgetsGVR, "team", "one") })
	if err := goneFrom(t, w.controlPlane, widgetsGVR, service, "one"); err != nil {
		t.Error(err)
	}
}

// unwritten fails the test if the binding is written although nothing happens: what
// a peer's CRD does not know is dropped from each write.
func (w *world) unwritten(t *testing.T) {
	t.Helper()
	before := get[unstructured.Unstructured](t, w.app, bindingsGVR, "", widgets).GetResourceVersion()
	<-time.After(3 * time.Second)
	if after := get[unstructured.Unstructured](t, w.app, bindingsGVR, "", widgets).GetResourceVersion(); after != before {
		t.Errorf("the binding was written: version %s, was %s", after, before)
	}
}
