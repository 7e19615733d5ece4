// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

var boxSeed = flag.Uint64("boxes", 1, "seed of the kinds that TestRealEmptied makes up, and of what is changed in them; with KLUTCH_TEST_LONG three more follow")

// A boxKind is a kind whose spec and status have one random schema.
type boxKind struct {
	gvr    schema.GroupVersionResource
	kind   string
	schema map[string]any
	seed   uint64
	plain  bool // it has no status subresource
	both   [2]dynamic.ResourceInterface
}

// newBoxKind makes up a kind.
func newBoxKind(r *rand.Rand, i int) *boxKind {
	k := &boxKind{gvr: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: fmt.Sprintf("box%ds", i)}, kind: fmt.Sprint("Box", i), plain: i%3 == 1}
	k.schema = boxSchema(r, 3)
	return k
}

func (k *boxKind) crd() *unstructured.Unstructured {
	version := map[string]any{
		"name": "v1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": k.schema, "status": k.schema}}},
	}
	if !k.plain {
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": k.gvr.Resource + ".example.org"},
		"spec": map[string]any{
			"group": "example.org", "scope": "Namespaced", "versions": []any{version},
			"names": map[string]any{"plural": k.gvr.Resource, "singular": strings.ToLower(k.kind), "kind": k.kind, "listKind": k.kind + "List"},
		},
	}}
}

// boxTypes are the types of a field: scalars, and maps and lists of each kind.
var boxTypes = []string{"string", "integer", "boolean", "free", "whole", "part", "wholePart", "set", "list", "lists", "named", "numbered", "unknown"}

// boxSchema is an object with some fields of each type, in each other down to depth.
func boxSchema(r *rand.Rand, depth int) map[string]any {
	properties := map[string]any{}
	for _, name := range boxTypes {
		if depth < 3 && r.IntN(2) > 0 {
			continue // the outermost has all
		}
		field := boxField(r, name, depth)
		if field != nil && r.IntN(8) == 0 {
			field["nullable"] = true
		}
		if field != nil {
			properties[name] = field
		}
	}
	return map[string]any{"type": "object", "properties": properties}
}

// boxField is the schema of a field; nil if it would be too deep.
func boxField(r *rand.Rand, name string, depth int) map[string]any {
	text := map[string]any{"type": "string"}
	list := func(kind string, items map[string]any) map[string]any {
		return map[string]any{"type": "array", "x-kubernetes-list-type": kind, "items": items}
	}
	keyed := func(keys map[string]any) map[string]any {
		item, names := boxSchema(r, depth-1), []any{}
		for _, name := range sortedKeys(keys) {
			item["properties"].(map[string]any)[name] = map[string]any{"type": keys[name]}
			names = append(names, name)
		}
		item["required"] = names
		out := list("map", item)
		out["x-kubernetes-list-map-keys"] = names
		return out
	}
	inner := func() map[string]any {
		if r.IntN(2) == 0 {
			return text
		}
		return boxSchema(r, depth-1)
	}
	switch {
	case name == "string" || name == "integer" || name == "boolean":
		return map[string]any{"type": name}
	case name == "unknown":
		return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	case name == "set":
		return list("set", text)
	case name == "list" && depth == 0:
		return list("atomic", text)
	case name == "lists":
		return list("atomic", list("atomic", text))
	case name == "free" && depth == 0:
		return map[string]any{"type": "object", "additionalProperties": text}
	case depth == 0:
		return nil
	case name == "free":
		return map[string]any{"type": "object", "additionalProperties": inner()}
	case name == "whole":
		return map[string]any{"type": "object", "additionalProperties": inner(), "x-kubernetes-map-type": "atomic"}
	case name == "part":
		return boxSchema(r, depth-1)
	case name == "wholePart":
		part := boxSchema(r, depth-1)
		part["x-kubernetes-map-type"] = "atomic"
		return part
	case name == "list":
		return list("atomic", inner())
	case name == "named":
		return keyed(map[string]any{"name": "string"})
	default:
		return keyed(map[string]any{"port": "integer", "protocol": "string"})
	}
}

// box is a random value of a schema: fields are missing, null where they may be, empty or filled.
func box(r *rand.Rand, of map[string]any) any {
	if of["nullable"] == true && r.IntN(5) == 0 {
		return nil
	}
	switch of["type"] {
	case "string":
		return fmt.Sprint(r.IntN(3))
	case "integer":
		return int64(r.IntN(3))
	case "boolean":
		return r.IntN(2) == 0
	case "array":
		return boxList(r, of)
	}
	out := map[string]any{}
	if each, ok := of["additionalProperties"].(map[string]any); ok {
		for range r.IntN(3) {
			out[string(rune('a'+r.IntN(4)))] = box(r, each)
		}
	}
	if of["x-kubernetes-preserve-unknown-fields"] == true {
		for _, name := range []string{"string", "free", "list", "part"}[:r.IntN(5)] {
			out[name] = box(r, map[string]map[string]any{
				"string": {"type": "string"}, "free": {"type": "object", "additionalProperties": map[string]any{"type": "string"}},
				"list": {"type": "array", "items": map[string]any{"type": "string"}}, "part": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}[name])
		}
	}
	properties, _ := of["properties"].(map[string]any)
	required, _ := of["required"].([]any)
	for _, name := range sortedKeys(properties) {
		if r.IntN(3) > 0 || slices.Contains(required, any(name)) {
			out[name] = box(r, properties[name].(map[string]any))
		}
	}
	return out
}

func boxList(r *rand.Rand, of map[string]any) []any {
	list := []any{}
	for range r.IntN(3) {
		item := box(r, of["items"].(map[string]any))
		keys, _ := of["x-kubernetes-list-map-keys"].([]any)
		taken := slices.ContainsFunc(list, func(other any) bool {
			return of["x-kubernetes-list-type"] == "set" && other == item || len(keys) > 0 && !slices.ContainsFunc(keys, func(key any) bool {
				return other.(map[string]any)[key.(string)] != item.(map[string]any)[key.(string)]
			})
		})
		if !taken {
			list = append(list, item)
		}
	}
	return list
}

// boxLabels are labels or annotations of a user.
func boxLabels(r *rand.Rand) map[string]any {
	m := map[string]any{}
	for range r.IntN(3) {
		m["example.org/"+string(rune('a'+r.IntN(4)))] = fmt.Sprint(r.IntN(3))
	}
	return m
}

// What users and providers empty becomes empty on the other side, in maps and lists of each
// type and at each depth, in the spec and in labels and annotations as in the status, and nothing
// else waits for it: in kinds with and without a status subresource, that are corrected or reported.
func TestRealEmptied(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	w := &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), sourceNS: "boxes", targetNS: "svc-boxes"}
	install(t, w.source, w.sourceNS)
	install(t, w.target, w.targetNS)
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
	const kinds, objects, rounds = 6, 4, 6
	seeds := []uint64{*boxSeed}
	if os.Getenv("KLUTCH_TEST_LONG") != "" {
		seeds = append(seeds, *boxSeed+1, *boxSeed+2, *boxSeed+3)
	}
	for i := range kinds * len(seeds) {
		seed := seeds[i/kinds]
		r := rand.New(rand.NewPCG(seed, uint64(i%kinds)))
		k := newBoxKind(r, i)
		k.seed = seed
		for side, d := range []dynamic.ResourceInterface{w.source.Resource(crds), w.target.Resource(crds)} {
			if _, err := d.Create(t.Context(), k.crd(), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			k.both[side] = []dynamic.Interface{w.source, w.target}[side].Resource(k.gvr).Namespace([]string{w.sourceNS, w.targetNS}[side])
		}
		t.Run(k.kind, func(t *testing.T) {
			w := *w
			w.TB = t
			for _, side := range k.both {
				eventually(t, "they are served", func(ctx context.Context) (bool, error) {
					_, err := side.List(ctx, metav1.ListOptions{})
					return err == nil, nil
				})
			}
			s, err := New(from, to, k.gvr, Options{Mapper: table, Drift: []DriftPolicy{DriftCorrect, DriftReport}[i/3%2]})
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
			for round := range rounds {
				for i := range objects {
					w.change(r, k, fmt.Sprint("b", i), "spec", box(r, k.schema))
				}
				w.alike(k, objects, round, "spec")
				for i := range objects {
					w.change(r, k, fmt.Sprint("b", i), "status", box(r, k.schema))
				}
				w.alike(k, objects, round, "status")
			}
		})
	}
}

// change makes part of an object what it should be, as a user or a provider does: by an update, or
// by a patch that says what is other than before.
func (w *world) change(r *rand.Rand, k *boxKind, name, part string, to any) {
	w.Helper()
	objects, manager, subresources := k.both[0], "user", []string{}
	if part == "status" {
		objects, manager = k.both[1], "provider"
		if !k.plain {
			subresources = []string{part}
		}
	}
	labels, annotations, patches := boxLabels(r), boxLabels(r), r.IntN(3) == 0
	eventually(w.TB, name+" is changed", func(ctx context.Context) (bool, error) {
		u, err := objects.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			u = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": k.kind, "metadata": map[string]any{"name": name, "labels": labels, "annotations": annotations}, part: to}}
			_, err = objects.Create(ctx, u, metav1.CreateOptions{FieldManager: manager})
			return err == nil, err
		}
		if err != nil {
			return false, err
		}
		if patches {
			operations := []map[string]any{{"op": "test", "path": "/metadata/resourceVersion", "value": u.GetResourceVersion()}, {"op": "add", "path": "/" + part, "value": to}}
			data, err := json.Marshal(operations)
			if err != nil {
				return false, err
			}
			_, err = objects.Patch(ctx, name, types.JSONPatchType, data, metav1.PatchOptions{FieldManager: manager}, subresources...)
			return err == nil, unlessStale(err)
		}
		u.Object[part] = to
		if part == "spec" {
			for field, values := range map[string]map[string]any{"labels": labels, "annotations": annotations} {
				had, _, _ := unstructured.NestedMap(u.Object, "metadata", field)
				maps.DeleteFunc(had, func(key string, _ any) bool { return strings.HasPrefix(key, "example.org/") })
				maps.Copy(values, had)
				if err := unstructured.SetNestedMap(u.Object, values, "metadata", field); err != nil {
					return false, err
				}
			}
		}
		_, err = objects.Update(ctx, u, metav1.UpdateOptions{FieldManager: manager}, subresources...)
		return err == nil, unlessStale(err)
	})
}

// unlessStale is err unless it says that the object has changed meanwhile.
func unlessStale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) && strings.Contains(err.Error(), "test") {
		return nil
	}
	return err
}

// alike waits until part of all objects is the same on both sides; with the spec labels and
// annotations go.
func (w *world) alike(k *boxKind, objects, round int, part string) {
	w.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for i := range objects {
		name := fmt.Sprint("b", i)
		for {
			source, err := k.both[0].Get(w.Context(), name, metav1.GetOptions{})
			if err != nil {
				w.Fatal(err)
			}
			target, err := k.both[1].Get(w.Context(), name, metav1.GetOptions{})
			if err == nil && k.same(source, target, part) && source.GetAnnotations()[MessageAnnotation] == "" {
				break
			}
			if time.Now().After(deadline) {
				w.Fatalf("seed %d, round %d, %s of %s (-source +target):\n%s%s\n%s\nschema %v", k.seed, round, part, name,
					cmp.Diff(source.Object[part], target.Object[part]), cmp.Diff(source.Object["metadata"], target.Object["metadata"]), source.GetAnnotations()[MessageAnnotation], k.schema)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func (k *boxKind) same(source, target *unstructured.Unstructured, part string) bool {
	if part == "status" {
		return like(target.Object[part], source.Object[part])
	}
	users := func(m map[string]string) map[string]string {
		maps.DeleteFunc(m, func(key, _ string) bool { return !strings.HasPrefix(key, "example.org/") })
		return m
	}
	return like(source.Object[part], target.Object[part]) &&
		maps.Equal(users(source.GetLabels()), users(target.GetLabels())) && maps.Equal(users(source.GetAnnotations()), users(target.GetAnnotations()))
}

// like reports whether have is what want is. A map or list that was emptied, and then taken
// away, may stay as an empty one; null, which no manager can own in the place of a map, may be missing.
func like(want, have any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, isMap := have.(map[string]any)
		for key, value := range h {
			if _, wanted := w[key]; !wanted && value != nil && !like(value, map[string]any{}) && !like(value, []any{}) {
				return false
			}
		}
		for key, value := range w {
			if there, ok := h[key]; !ok && value != nil || !like(value, there) {
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
