// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// beginnings counts the watches of objects, and the Syncs, that begin.
type beginnings struct {
	mu  sync.Mutex
	all map[string]int
}

func (b *beginnings) count(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[what]++
}

func (b *beginnings) of(what string) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := maps.Clone(b.all)
	maps.DeleteFunc(out, func(key string, _ int) bool { return !strings.Contains(key, what) })
	return out
}

type watchCounter struct {
	*beginnings
	next http.RoundTripper
}

func (c watchCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("watch") {
		c.count(r.URL.Path)
	}
	return c.next.RoundTrip(r)
}

// A schema that the provider changes is changed in the App Cluster, and what is new in
// it travels. The version in which objects travel stays as long as it is served, and
// other bindings notice nothing.
func TestSchemaOfOneBindingChanges(t *testing.T) {
	w := newWorld(t)
	began := &beginnings{all: map[string]int{}}
	w.konnector.Wrap(func(next http.RoundTripper) http.RoundTripper { return watchCounter{began, next} })
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)), object("v1", "Namespace", "", "team", nil))
	export := read(t, filepath.Join("testdata", "widgets.yaml"))[0]
	for _, e := range []*unstructured.Unstructured{export, renamed(export, "gadgets", "Gadget")} {
		w.offer(t, e)
	}
	w.run(t, bind.Options{Version: "v1.2.3", Sync: func(name string, _ *klutchsync.Options) { began.count("Sync of " + name) }})
	for _, name := range []string{widgets, "gadgets.example.org"} {
		eventually(t, func() error {
			_, err := find[unstructured.Unstructured](t, w.app, crdsGVR, "", "apiservicebindings.klutch.anynines.com")
			return err
		})
		w.bind(t, name)
		w.condition(t, name, v1alpha1.ConditionInformersSynced, "MissingRights")
		w.allow(t, name)
		w.ready(t, name)
	}
	w.app.apply(t, widget("team", "one", map[string]any{"size": int64(5)}))
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	service := w.serveNamespace(t, "team", []rbacv1.PolicyRule{{APIGroups: []string{"example.org"}, Resources: []string{"widgets", "gadgets"}, Verbs: verbs}})
	w.travels(t, service, "one", "size", int64(5))
	w.ready(t, "gadgets.example.org")
	others := began.of("gadgets")

	steps := []struct {
		name  string
		syncs int // of the binding, so far
		edit  func(v1 map[string]any) (versions []any)
	}{
		{"a field comes", 1, func(v1 map[string]any) []any { return []any{v1} }},
		{"a version comes, as the first and the stored one", 1, func(v1 map[string]any) []any { return []any{second(v1), v1} }},
		{"the first version is not served any more", 2, func(v1 map[string]any) []any { v1["served"] = false; return []any{second(v1), v1} }},
		{"and is again", 2, func(v1 map[string]any) []any { return []any{v1, second(v1)} }},
	}
	for i, step := range steps {
		changed := export.DeepCopy()
		versions, _, _ := unstructured.NestedSlice(changed.Object, "spec", "versions")
		v1 := versions[0].(map[string]any)
		field := fmt.Sprintf("field%d", i)
		props := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties", field}
		if err := unstructured.SetNestedField(v1, map[string]any{"type": "string"}, props...); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedSlice(changed.Object, step.edit(v1), "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		w.offer(t, changed)
		eventually(t, func() error {
			theirs, ours := get[unstructured.Unstructured](t, w.controlPlane, crdsGVR, "", widgets), get[unstructured.Unstructured](t, w.app, crdsGVR, "", widgets)
			if diff := cmp.Diff(theirs.Object["spec"], ours.Object["spec"]); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
		w.travels(t, service, "one", field, step.name)
		w.ready(t, widgets)
		if got := began.of("Sync of widgets"); got["Sync of "+widgets] != step.syncs {
			t.Errorf("%s: %v, want %d", step.name, got, step.syncs)
		}
		if diff := cmp.Diff(others, began.of("gadgets")); diff != "" {
			t.Errorf("%s: the other binding (-before +after):\n%s", step.name, diff)
		}
	}
}

// second is another version with the schema of one, stored in its place.
func second(v1 map[string]any) map[string]any {
	v2 := maps.Clone(v1)
	v2["name"], v2["served"], v1["storage"] = "v2", true, false
	return v2
}

// travels sets a field in whatever version is served, until it is there on the other
// side.
func (w *world) travels(t *testing.T, service, name, field string, value any) {
	t.Helper()
	gvr := widgetsGVR
	if crd := get[unstructured.Unstructured](t, w.app, crdsGVR, "", widgets); strings.Contains(fmt.Sprint(crd.Object["spec"]), "name:v2") {
		gvr.Version = "v2"
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{field: value}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, err := w.app.dyn.Resource(gvr).Namespace("team").Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		u, err := w.controlPlane.dyn.Resource(gvr).Namespace(service).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", field); got != value {
			return fmt.Errorf("%s is %v, want %v", field, got, value)
		}
		return nil
	})
}
