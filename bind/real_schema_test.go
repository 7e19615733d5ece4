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
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

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
	const path = "/apis/example.org/v1/gadgets"

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
		field := ""
		for n := range i + 1 { // those that came before stay
			field = fmt.Sprintf("field%d", n)
			put(t, v1, map[string]any{"type": "string"}, append(slices.Clone(specOfWidgets), "properties", field)...)
		}
		if err := unstructured.SetNestedSlice(changed.Object, step.edit(v1), "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		w.offer(t, changed)
		if strings.Contains(step.name, "not served any more") {
			w.acceptSchema(t, widgets)
		}
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
		after := began.of("gadgets")
		if learned := after[path] - others[path]; learned > 2 { // each side lists once more when it publishes the new kind, seconds after it serves it
			t.Errorf("%s: %d more watches of the other binding", step.name, learned)
		}
		except := cmpopts.IgnoreMapEntries(func(key string, _ int) bool { return key == path })
		if diff := cmp.Diff(others, after, except); diff != "" {
			t.Errorf("%s: the other binding (-before +after):\n%s", step.name, diff)
		}
	}
}

// specOfWidgets is where the schema of their spec is in a version.
var specOfWidgets = []string{"schema", "openAPIV3Schema", "properties", "spec"}

func put(t *testing.T, object map[string]any, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(object, value, path...); err != nil {
		t.Fatal(err)
	}
}

// acceptSchema does as the condition says once a schema is held, and returns what it
// said.
func (w *world) acceptSchema(t *testing.T, name string) string {
	t.Helper()
	w.condition(t, name, v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, "kubectl annotate apiservicebinding -n klutch-bind "+name)
	b := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, name)
	said := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionSchemaInSync).Message
	_, rest, _ := strings.Cut(said, v1alpha1.AcceptSchemaAnnotation+"=")
	hash, _, _ := strings.Cut(rest, ".")
	w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, name), map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AcceptSchemaAnnotation: hash}},
	})
	return said
}

// P21: of a provider's schema that drops a field, keeps what was dropped, or moves stored
// objects to a version without their fields, that is held, and objects stay in step, until the
// App Cluster's owner takes that very schema over. What is harmless beside it arrives. Names
// that stand for something else in the cluster stay with that.
func TestP21HostileSchema(t *testing.T) {
	w := newWorld(t)
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)), object("v1", "Namespace", "", "team", nil))
	export := read(t, filepath.Join("testdata", "widgets.yaml"))[0]
	w.offer(t, export.DeepCopy())
	w.run(t, bind.Options{})
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, w.app, crdsGVR, "", "apiservicebindings.klutch.anynines.com")
		return err
	})
	w.bind(t, widgets)
	w.allow(t, widgets)
	w.ready(t, widgets)
	w.app.apply(t, widget("team", "one", map[string]any{"size": int64(5)}))
	service := w.serveNamespace(t, "team", widgetRights)
	w.travels(t, service, "one", "size", int64(5))
	agreed := get[unstructured.Unstructured](t, w.app, crdsGVR, "", widgets)

	publish := func(change func(spec, v1 map[string]any)) {
		u := export.DeepCopy()
		spec := u.Object["spec"].(map[string]any)
		change(spec, spec["versions"].([]any)[0].(map[string]any))
		w.controlPlane.patch(t, exportsGVR, cache.NewObjectName(tenant, widgets), map[string]any{"spec": map[string]any{"versions": spec["versions"], "names": spec["names"]}})
	}
	plan, port := append(slices.Clone(specOfWidgets), "properties", "plan"), append(slices.Clone(specOfWidgets), "properties", "port")
	versions := func() (names []string) {
		for _, v := range get[v1alpha1.APIServiceExport](t, w.app, crdsGVR, "", widgets).Spec.Versions {
			names = append(names, fmt.Sprintf("%s %t", v.Name, v.Storage))
		}
		return names
	}
	size := int64(6)
	for _, c := range []struct {
		name, says string
		versions   []string // and whether each is stored
		change     func(spec, v1 map[string]any)
	}{
		{"a field is dropped", "v1 spec.plan: is gone", []string{"v1 true"}, func(_, v1 map[string]any) { unstructured.RemoveNestedField(v1, plan...) }},
		{"it is spelled as no API server reads it", "v1 spec.port: is gone", []string{"v1 true"}, func(_, v1 map[string]any) {
			properties, _, _ := unstructured.NestedMap(v1, append(slices.Clone(specOfWidgets), "properties")...)
			put(t, v1, runtime.DeepCopyJSONValue(properties), append(slices.Clone(specOfWidgets), "Properties")...)
			unstructured.RemoveNestedField(v1, port...)
		}},
		{"what is not named is kept", "v1 spec: x-kubernetes-preserve-unknown-fields was false and is true", []string{"v1 true"}, func(_, v1 map[string]any) {
			put(t, v1, true, append(slices.Clone(specOfWidgets), "x-kubernetes-preserve-unknown-fields")...)
		}},
		{"the version that is synced goes", "version v1 is gone", []string{"v2 false", "v1 true"}, func(spec, v1 map[string]any) { v1["name"] = "v2" }},
		{"objects are stored in a version without the field", "stored as v2 spec.plan: is gone", []string{"v1 true", "v2 false"}, func(spec, v1 map[string]any) {
			v2 := second(runtime.DeepCopyJSON(v1))
			unstructured.RemoveNestedField(v2, plan...)
			v1["storage"], spec["versions"] = false, []any{v1, v2}
		}},
	} {
		publish(c.change)
		w.condition(t, widgets, v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, c.says, v1alpha1.AcceptSchemaAnnotation)
		w.readyBut(t, widgets, v1alpha1.ReasonSchemaChangeHeld)
		w.travels(t, service, "one", "size", size)
		size++
		if diff := cmp.Diff(c.versions, versions()); diff != "" {
			t.Errorf("%s: versions (-want +got):\n%s", c.name, diff)
		}
		for i := range c.versions {
			if v := versionOf(t, w, i); v["name"] != "v1" {
				continue
			} else if diff := cmp.Diff(agreed.Object["spec"].(map[string]any)["versions"].([]any)[0], any(v)); diff != "" {
				t.Errorf("%s: v1 has changed (-before +after):\n%s", c.name, diff)
			}
		}
	}
	publish(func(_, _ map[string]any) {})
	w.condition(t, widgets, v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, "version v2 is gone")
	w.acceptSchema(t, widgets)
	w.ready(t, widgets)

	rules := append(slices.Clone(specOfWidgets), "x-kubernetes-validations")
	publish(func(_, v1 map[string]any) { put(t, v1, []any{map[string]any{"rule": "self.size >= 5"}}, rules...) })
	eventually(t, func() error {
		if now, _, _ := unstructured.NestedSlice(versionOf(t, w, 0), rules...); !cmp.Equal(now, []any{map[string]any{"rule": "self.size >= 5"}}) {
			return fmt.Errorf("a rule that all objects keep was not taken over: %v", now)
		}
		return nil
	})
	w.ready(t, widgets)
	extra := append(slices.Clone(specOfWidgets), "properties", "extra")
	publish(func(_, v1 map[string]any) { // a field added beside a breaking rule, and a field dropped
		put(t, v1, []any{map[string]any{"rule": "self.size < 5"}}, rules...)
		put(t, v1, map[string]any{"type": "string"}, extra...)
		unstructured.RemoveNestedField(v1, port...)
	})
	w.condition(t, widgets, v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, "rule self.size < 5 is new", "v1 spec.port: is gone")
	w.readyBut(t, widgets, v1alpha1.ReasonSchemaChangeHeld)
	w.travels(t, service, "one", "size", size)
	if _, there, _ := unstructured.NestedMap(versionOf(t, w, 0), extra...); !there {
		t.Error("a harmless field waits with the rule beside it")
	}
	if _, there, _ := unstructured.NestedMap(versionOf(t, w, 0), port...); !there {
		t.Error("a field was dropped beside one that came")
	}
	kept, _, _ := unstructured.NestedSlice(versionOf(t, w, 0), rules...)
	if diff := cmp.Diff([]any{map[string]any{"rule": "self.size >= 5"}}, kept); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	publish(func(_, v1 map[string]any) {})
	w.condition(t, widgets, v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, "v1 spec.extra: is gone")
	w.acceptSchema(t, widgets)
	w.ready(t, widgets)

	publish(func(_, v1 map[string]any) { unstructured.RemoveNestedField(v1, plan...) })
	w.condition(t, widgets, v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, "v1 spec.plan: is gone.")
	w.acceptSchema(t, widgets)
	w.ready(t, widgets)
	if _, there, _ := unstructured.NestedMap(versionOf(t, w, 0), plan...); there {
		t.Error("the schema that was agreed to was not taken over")
	}
	publish(func(_, v1 map[string]any) { // the consent was to another schema
		unstructured.RemoveNestedField(v1, plan...)
		unstructured.RemoveNestedField(v1, port...)
	})
	w.condition(t, widgets, v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, "v1 spec.port: is gone.")
	publish(func(spec, v1 map[string]any) {
		unstructured.RemoveNestedField(v1, plan...)
		names := spec["names"].(map[string]any)
		names["singular"], names["shortNames"], names["categories"] = "configmap", []any{"wd", "po", "deploy", "crd", "sb", "secret"}, []any{"things", "all", "pods"}
	})
	w.condition(t, widgets, v1alpha1.ConditionSchemaInSync, "", "configmap, po, deploy, crd, sb, secret, all, pods")
	w.ready(t, widgets)
	eventually(t, func() error {
		accepted, _, _ := unstructured.NestedMap(get[unstructured.Unstructured](t, w.app, crdsGVR, "", widgets).Object, "status", "acceptedNames")
		if diff := cmp.Diff([]any{"widget", []any{"wd"}}, []any{accepted["singular"], accepted["shortNames"]}); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	names, _, _ := unstructured.NestedMap(get[unstructured.Unstructured](t, w.app, crdsGVR, "", widgets).Object, "spec", "names")
	if diff := cmp.Diff([]any{"widget", []any{"wd"}, []any{"things"}}, []any{names["singular"], names["shortNames"], names["categories"]}); diff != "" {
		t.Errorf("singular, short names and categories (-want +got):\n%s", diff)
	}
}

// readyBut waits until Ready is True and says what is held.
func (w *world) readyBut(t *testing.T, name, reason string) {
	t.Helper()
	eventually(t, func() error {
		b, err := find[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, name)
		if err != nil {
			return err
		}
		if c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason {
			return fmt.Errorf("Ready is %+v, want True for %s", c, reason)
		}
		return nil
	})
}

func versionOf(t *testing.T, w *world, n int) map[string]any {
	t.Helper()
	versions, _, err := unstructured.NestedSlice(get[unstructured.Unstructured](t, w.app, crdsGVR, "", widgets).Object, "spec", "versions")
	if err != nil || len(versions) <= n {
		t.Fatalf("%d versions, %v", len(versions), err)
	}
	return versions[n].(map[string]any)
}

// second is another version with the schema of one, stored in its place.
func second(v1 map[string]any) map[string]any {
	v2 := maps.Clone(v1)
	v2["name"], v2["served"], v1["storage"] = "v2", true, false
	return v2
}

// travels sets a field in whatever version the control plane serves, until it is there.
func (w *world) travels(t *testing.T, service, name, field string, value any) {
	t.Helper()
	gvr := widgetsGVR
	if crd := get[unstructured.Unstructured](t, w.controlPlane, crdsGVR, "", widgets); strings.Contains(fmt.Sprint(crd.Object["spec"]), "name:v2") {
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
