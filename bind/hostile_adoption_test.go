// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// provide makes an object of the provider in a service namespace, as an operator does.
func (w *world) provide(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	made, err := w.controlPlane.dyn.Resource(widgetsGVR).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{FieldManager: "operator"})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// agree has up to limit objects of the provider become claims.
func (w *world) agree(t *testing.T, limit int) {
	t.Helper()
	w.app.apply(t, bind.AdoptionRights(v1alpha1.GroupResource{Group: "example.org", Resource: "widgets"}))
	w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"spec": map[string]any{"maxAdoptedObjects": limit}})
}

func (w *world) offerAdoption(t *testing.T) {
	t.Helper()
	w.controlPlane.patch(t, exportsGVR, cache.NewObjectName(tenant, widgets), map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1alpha1.SourceClaimsHashAnnotation: "x"}}, "spec": map[string]any{"adoption": "Offer"},
	})
}

// adopted returns the claim of that name once it is in step with its object.
func (w *world) adopted(t *testing.T, object *unstructured.Unstructured) (claim *unstructured.Unstructured) {
	t.Helper()
	eventually(t, func() (err error) {
		if claim, err = find[unstructured.Unstructured](t, w.app, widgetsGVR, "team", object.GetName()); err != nil {
			return err
		}
		now := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, object.GetNamespace(), object.GetName())
		origin, _ := klutchsync.OriginOf(now)
		switch {
		case now.GetUID() != object.GetUID():
			t.Fatal("the object was made anew")
		case origin.UID != claim.GetUID() || len(claim.GetFinalizers()) != 1 || claim.GetAnnotations()[klutchsync.MessageAnnotation] != "":
			return fmt.Errorf("origin %v, finalizers %v, annotations %v", origin, claim.GetFinalizers(), claim.GetAnnotations())
		}
		return nil
	})
	return claim
}

func (w *world) noClaim(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := find[unstructured.Unstructured](t, w.app, widgetsGVR, "team", name); !apierrors.IsNotFound(err) {
			t.Errorf("claim %s: %v", name, err)
		}
	}
}

func (w *world) delete(t *testing.T, s *side, namespace, name string) {
	t.Helper()
	if err := s.dyn.Resource(widgetsGVR).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// What a provider makes in a service namespace becomes a claim with the word of both sides,
// without any metadata of the other side, up to the number that was agreed to. The provider's
// object outlives the claim, and does not come back empty when the provider deletes it (P36).
func TestP36Adoption(t *testing.T) {
	w := newWorld(t)
	w.offer(t, read(t, "testdata/widgets.yaml")[0])
	w.offerAdoption(t)
	w.setUp(t)
	w.run(t, bind.Options{Version: "v1.2.3"})
	w.ready(t, widgets)
	w.app.apply(t, widget("team", "own", map[string]any{"size": int64(5)}))
	service := w.serveNamespace(t, "team", widgetRights)
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "own")
		return err
	})

	// Without the consent it is told and left alone.
	first := widget(service, "first", map[string]any{"size": int64(7), "plan": "big"})
	first.SetLabels(map[string]string{"argocd.argoproj.io/instance": "x", "tier": "gold"})
	first.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "theirs"})
	first.SetFinalizers([]string{"example.org/operator"})
	first.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: service, UID: get[unstructured.Unstructured](t, w.controlPlane, namespacesGVR, "", service).GetUID()}})
	first = w.provide(t, first)
	w.condition(t, widgets, v1alpha1.ConditionObjectsAdopted, v1alpha1.ReasonAdoptionNotAgreed, "team/first", "kubectl bind claims "+widgets+" --adopt")
	w.ready(t, widgets)
	w.noClaim(t, "first")

	// With it, it is a claim.
	w.agree(t, 2)
	claim := w.adopted(t, first)
	want := map[string]any{"size": int64(7), "plan": "big"}
	if diff := cmp.Diff(want, claim.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{klutchsync.AdoptedLabel: "true"}, claim.GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{klutchsync.BoundAnnotation: "true", klutchsync.TargetAnnotation: string(first.GetUID())}, claim.GetAnnotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if o, f := claim.GetOwnerReferences(), claim.GetFinalizers(); len(o) > 0 || len(f) != 1 || f[0] != klutchsync.DefaultFinalizer {
		t.Errorf("owners %v, finalizers %v", o, f)
	}
	w.hears(t, "first", "Normal Adopted")
	now := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "first")
	if len(now.GetOwnerReferences()) != 1 || len(now.GetFinalizers()) != 1 || now.GetLabels()["tier"] != "gold" || now.GetAnnotations()["note"] != "theirs" {
		t.Errorf("the provider's metadata: %v", now.Object["metadata"])
	}
	w.controlPlane.patchStatus(t, widgetsGVR, service, "first", map[string]any{"secret": "s"})
	w.app.patch(t, widgetsGVR, cache.NewObjectName("team", "first"), map[string]any{"spec": map[string]any{"size": 8}})
	eventually(t, func() error {
		up, _, _ := unstructured.NestedInt64(get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "first").Object, "spec", "size")
		down, _, _ := unstructured.NestedString(get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", "first").Object, "status", "secret")
		if up != 8 || down != "s" {
			return fmt.Errorf("size %d, status %q", up, down)
		}
		return nil
	})

	// A platform that makes many has just as many claims as were agreed to. What is not sane,
	// or was another's already, is none.
	for n := range 12 {
		w.provide(t, widget(service, fmt.Sprintf("many-%d", n), map[string]any{"size": int64(1)}))
	}
	w.condition(t, widgets, v1alpha1.ConditionObjectsAdopted, v1alpha1.ReasonAdoptionLimit, "At most 2")
	eventually(t, func() error {
		list, err := w.app.dyn.Resource(widgetsGVR).List(t.Context(), metav1.ListOptions{LabelSelector: klutchsync.AdoptedLabel})
		if err == nil && len(list.Items) != 2 {
			err = fmt.Errorf("%d claims", len(list.Items))
		}
		return err
	})
	huge := widget(service, "huge", map[string]any{"size": int64(1), "parameters": map[string]any{"x": strings.Repeat("x", 300<<10)}})
	marked := widget(service, "marked", map[string]any{"size": int64(1)})
	marked.SetAnnotations(map[string]string{klutchsync.BoundAnnotation: "true"})
	w.provide(t, huge)
	w.provide(t, marked)
	w.agree(t, 30)
	w.condition(t, widgets, v1alpha1.ConditionObjectsAdopted, v1alpha1.ReasonAdoptionRefused, "team/huge", "is the most")
	for _, name := range []string{"many-11", "many-3", "many-4"} { // of which the rest of this test is
		w.adopted(t, get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name))
	}
	w.noClaim(t, "huge", "marked")
	w.ready(t, widgets)

	// The claim goes, the object stays, and is not adopted again.
	w.delete(t, w.app, "team", "first")
	eventually(t, func() error { return goneFrom(t, w.app, widgetsGVR, "team", "first") })
	left := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "first")
	if left.GetUID() != first.GetUID() || left.GetDeletionTimestamp() != nil || left.GetAnnotations()[klutchsync.OrphanedAnnotation] == "" {
		t.Errorf("the provider's object: %v", left.Object["metadata"])
	}
	// The object goes, the claim stays and says so, and nothing empty takes its place; nor
	// does another object of that name.
	w.delete(t, w.controlPlane, service, "many-3")
	says := func(reason klutchsync.Reason) {
		t.Helper()
		eventually(t, func() error {
			m := get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", "many-3").GetAnnotations()[klutchsync.MessageAnnotation]
			if !strings.HasPrefix(m, string(reason)) {
				return fmt.Errorf("message %q", m)
			}
			return nil
		})
	}
	says(klutchsync.ReasonLost)
	if err := goneFrom(t, w.controlPlane, widgetsGVR, service, "many-3"); err != nil {
		t.Error(err)
	}
	other := w.provide(t, widget(service, "many-3", map[string]any{"size": int64(9)}))
	says(klutchsync.ReasonConflict)
	if diff := cmp.Diff(other, get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "many-3")); diff != "" {
		t.Errorf("another object of the name (-before +after):\n%s", diff)
	}
	// Without the label a claim is one like any other, and so is its deletion.
	w.app.patch(t, widgetsGVR, cache.NewObjectName("team", "many-4"), map[string]any{"metadata": map[string]any{"labels": map[string]any{klutchsync.AdoptedLabel: nil}}})
	w.delete(t, w.app, "team", "many-4")
	eventually(t, func() error { return goneFrom(t, w.controlPlane, widgetsGVR, service, "many-4") })
	w.noClaim(t, "first")
}
