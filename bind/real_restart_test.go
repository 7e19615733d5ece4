// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"fmt"
	"path/filepath"
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
	w.run(t, opts)
	for _, name := range names[2:] {
		del(name)
	}
	w.condition(t, widgets, v1alpha1.ConditionDeletionsInSync, v1alpha1.ReasonDeletionsHeld, "2 deleted objects")
	for _, name := range names[2:] {
		get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, name)
	}
	w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"metadata": map[string]any{"annotations": map[string]any{klutchsync.ReleaseAnnotation: "now"}}})
	for _, name := range names[2:] {
		eventually(t, func() error { return goneFrom(t, w.app, widgetsGVR, "team", name) })
	}
	eventually(t, func() error {
		if text := get[unstructured.Unstructured](t, w.app, secretsGVR, v1alpha1.Namespace, w.secret).GetAnnotations()[key]; len(text) > 10 {
			return fmt.Errorf("%q is kept after the release", text)
		}
		return nil
	})
}
