// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
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
	stop = w.run(t, bind.Options{})
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
