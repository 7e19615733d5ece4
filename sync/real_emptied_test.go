// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

var boxes = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "boxes"}

// boxSchema has each type of map and list, in each other.
func boxSchema(depth int) map[string]any {
	text := map[string]any{"type": "string"}
	list := func(kind string, items map[string]any) map[string]any {
		return map[string]any{"type": "array", "x-kubernetes-list-type": kind, "items": items}
	}
	properties := map[string]any{
		"text":  text,
		"map":   map[string]any{"type": "object", "additionalProperties": text},
		"whole": map[string]any{"type": "object", "additionalProperties": text, "x-kubernetes-map-type": "atomic"},
		"set":   list("set", text),
		"list":  list("atomic", text),
	}
	if depth > 0 {
		properties["part"] = boxSchema(depth - 1)
		properties["all"] = list("atomic", boxSchema(depth-1))
		item := boxSchema(depth - 1)
		item["required"] = []any{"name"}
		item["properties"].(map[string]any)["name"] = text
		named := list("map", item)
		named["x-kubernetes-list-map-keys"] = []any{"name"}
		properties["named"] = named
		properties["free"] = map[string]any{"type": "object", "additionalProperties": boxSchema(depth - 1)}
	}
	return map[string]any{"type": "object", "properties": properties}
}

// box is a random value of boxSchema: each field is missing, empty or filled.
func box(r *rand.Rand, depth int) map[string]any {
	out := map[string]any{}
	texts := func() map[string]any {
		m := map[string]any{}
		for range r.IntN(3) {
			m[string(rune('a'+r.IntN(4)))] = fmt.Sprint(r.IntN(3))
		}
		return m
	}
	items := func(item func(i int) any) []any {
		list := []any{}
		for i := range r.IntN(3) {
			list = append(list, item(i))
		}
		return list
	}
	fields := map[string]func() any{
		"text":  func() any { return fmt.Sprint(r.IntN(3)) },
		"map":   func() any { return texts() },
		"whole": func() any { return texts() },
		"set":   func() any { return items(func(i int) any { return fmt.Sprint(i, r.IntN(2)) }) },
		"list":  func() any { return items(func(int) any { return fmt.Sprint(r.IntN(3)) }) },
	}
	if depth > 0 {
		fields["part"] = func() any { return box(r, depth-1) }
		fields["all"] = func() any { return items(func(int) any { return box(r, depth-1) }) }
		fields["named"] = func() any {
			return items(func(i int) any {
				item := box(r, depth-1)
				item["name"] = fmt.Sprint("n", i)
				return item
			})
		}
		fields["free"] = func() any {
			m := map[string]any{}
			for range r.IntN(3) {
				m[string(rune('a'+r.IntN(3)))] = box(r, depth-1)
			}
			return m
		}
	}
	for _, name := range sortedKeys(fields) {
		if r.IntN(3) > 0 {
			out[name] = fields[name]()
		}
	}
	return out
}

// What users and providers empty becomes empty on the other side, in maps and lists of each
// type and at each depth, in the spec as in the status, and nothing else waits for it.
func TestRealEmptied(t *testing.T) {
	t.Parallel()
	app, control := cluster.ForTest(t, "app"), cluster.ForTest(t, "control")
	w := &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), sourceNS: "boxes", targetNS: "svc-boxes"}
	install(t, w.source, w.sourceNS)
	install(t, w.target, w.targetNS)
	both := []dynamic.ResourceInterface{w.source.Resource(boxes).Namespace(w.sourceNS), w.target.Resource(boxes).Namespace(w.targetNS)}
	for i, d := range []dynamic.Interface{w.source, w.target} {
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "boxes.example.org"},
			"spec": map[string]any{
				"group": "example.org", "scope": "Namespaced", "names": map[string]any{"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList"},
				"versions": []any{map[string]any{
					"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": boxSchema(2), "status": boxSchema(2)}}},
				}},
			},
		}}
		if _, err := d.Resource(crds).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "boxes are served", func(ctx context.Context) (bool, error) {
			_, err := both[i].List(ctx, metav1.ListOptions{})
			return err == nil, nil
		})
	}
	from, err := NewCluster(app.Config())
	if err != nil {
		t.Fatal(err)
	}
	to, err := NewCluster(control.Config())
	if err != nil {
		t.Fatal(err)
	}
	table := NewNamespaces(nil)
	table.Set(w.sourceNS, w.targetNS)
	s, err := New(from, to, boxes, Options{Mapper: table})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := start(func() error { return s.Run(ctx) })
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	const objects, rounds = 12, 8
	r := rand.New(rand.NewPCG(1, 1))
	for round := range rounds {
		for i := range objects {
			w.change(both[0], fmt.Sprint("b", i), "spec", box(r, 2))
		}
		w.alike(both, objects, round, "spec")
		for i := range objects {
			w.change(both[1], fmt.Sprint("b", i), "status", box(r, 2))
		}
		w.alike(both, objects, round, "status")
	}
}

// change makes part of an object what it should be, as an update by a user or a provider does.
func (w *world) change(objects dynamic.ResourceInterface, name, part string, to map[string]any) {
	w.Helper()
	eventually(w.TB, name+" is changed", func(ctx context.Context) (bool, error) {
		u, err := objects.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			u = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Box", "metadata": map[string]any{"name": name}, part: to}}
			_, err = objects.Create(ctx, u, metav1.CreateOptions{FieldManager: "user"})
			return err == nil, err
		case err != nil:
			return false, err
		}
		u.Object[part] = to
		if part == "status" {
			_, err = objects.UpdateStatus(ctx, u, metav1.UpdateOptions{FieldManager: "provider"})
		} else {
			_, err = objects.Update(ctx, u, metav1.UpdateOptions{FieldManager: "user"})
		}
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// alike waits until part of all objects is the same on both sides.
func (w *world) alike(both []dynamic.ResourceInterface, objects, round int, part string) {
	w.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for i := range objects {
		name := fmt.Sprint("b", i)
		for {
			source, err := both[0].Get(w.Context(), name, metav1.GetOptions{})
			if err != nil {
				w.Fatal(err)
			}
			target, err := both[1].Get(w.Context(), name, metav1.GetOptions{})
			want, have := source, target
			if part == "status" {
				want, have = target, source
			}
			if err == nil && like(want.Object[part], have.Object[part]) && source.GetAnnotations()[MessageAnnotation] == "" {
				break
			}
			if time.Now().After(deadline) {
				w.Fatalf("round %d, %s of %s (-source +target):\n%s\n%s", round, part, name,
					cmp.Diff(source.Object[part], target.Object[part]), source.GetAnnotations()[MessageAnnotation])
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// like reports whether have is what want is. A map or list that was emptied, and then taken
// away, may stay as an empty one.
func like(want, have any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, isMap := have.(map[string]any)
		for key, value := range h {
			if _, wanted := w[key]; !wanted && !like(value, map[string]any{}) && !like(value, []any{}) {
				return false
			}
		}
		for key, value := range w {
			if there, ok := h[key]; !ok || !like(value, there) {
				return false
			}
		}
		return isMap
	case []any:
		h, isList := have.([]any)
		return isList && slices.EqualFunc(w, h, like)
	default:
		return want == have
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
