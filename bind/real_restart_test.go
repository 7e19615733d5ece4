// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// I15: a konnector with its shipped rights writes what it deletes to the kubeconfig Secret,
// and the next one goes on to count from there.
func TestDeletionsAreCountedOverRestarts(t *testing.T) {
	w := newWorld(t)
	w.offer(t, read(t, filepath.Join("testdata", "widgets.yaml"))[0])
	w.setUp(t)
	opts := bind.Options{Version: "v1.2.3", Sync: func(_ string, o *klutchsync.Options) { o.DeletionLimit = 2 }}
	stop := w.run(t, opts)
	w.ready(t, widgets)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		w.app.apply(t, widget("team", name, map[string]any{"size": int64(5)}))
	}
	service := w.serveNamespace(t, "team", widgetRights)
	for _, name := range names {
		eventually(t, func() error {
			_, err := find[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name)
			return err
		})
	}
	del := func(name string) {
		if err := w.app.dyn.Resource(widgetsGVR).Namespace("team").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names[:2] {
		del(name)
		eventually(t, func() error { return goneFrom(t, w.app, widgetsGVR, "team", name) })
	}
	stop()
	key := v1alpha1.DeletionsAnnotationPrefix + widgets
	if text := get[unstructured.Unstructured](t, w.app, secretsGVR, v1alpha1.Namespace, w.secret).GetAnnotations()[key]; text == "" {
		t.Error("nothing is kept of the deletions")
	}
	stop = w.run(t, opts)
	for _, name := range names[2:] {
		del(name)
	}
	held := func(why string) {
		t.Helper()
		w.condition(t, widgets, v1alpha1.ConditionDeletionsInSync, v1alpha1.ReasonDeletionsHeld, "2 deleted objects")
		for _, name := range names[2:] {
			if _, err := find[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name); err != nil {
				t.Fatalf("%s: %v", why, err)
			}
		}
	}
	release := func(word string) {
		t.Helper()
		w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"metadata": map[string]any{"annotations": map[string]any{klutchsync.ReleaseAnnotation: word}}})
	}
	gone := func() {
		t.Helper()
		for _, name := range names[2:] {
			eventually(t, func() error { return goneFrom(t, w.app, widgetsGVR, "team", name) })
		}
		eventually(t, func() error {
			text := get[unstructured.Unstructured](t, w.app, secretsGVR, v1alpha1.Namespace, w.secret).GetAnnotations()[key]
			if strings.Contains(text, "cause") || strings.Contains(text, "spans") {
				return fmt.Errorf("%q is kept after the release", text)
			}
			return nil
		})
	}
	held("the next konnector counts on")
	release("now")
	gone()

	// A release that comes while no konnector runs is carried out by the next one, and an old one is not again.
	add := func(name string) {
		t.Helper()
		w.app.apply(t, widget("team", name, map[string]any{"size": int64(5)}))
		eventually(t, func() error {
			_, err := find[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name)
			return err
		})
	}
	names = []string{"e", "f", "g", "h"}
	for _, name := range names {
		add(name)
	}
	for _, name := range names[:2] {
		del(name)
		eventually(t, func() error { return goneFrom(t, w.app, widgetsGVR, "team", name) })
	}
	for _, name := range names[2:] {
		del(name)
	}
	held("after two deletions")
	stop()
	stop = w.run(t, opts)
	add("after-the-restart")
	held("the release of before is not one of now")
	stop()
	release("later")
	w.run(t, opts)
	gone()
}
