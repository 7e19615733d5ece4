// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/fields"
)

// schemaFacts are what becomes of objects whose schema loses a field, and gets it
// back.
func schemaFacts(l ledge, shape func(spec ...string)) map[string]any {
	out := map[string]any{}
	at := func(name string) ledge { l.name = name; return l }
	get := func(name string) *unstructured.Unstructured {
		return l.must(l.client.Get(l.Context(), name, metav1.GetOptions{}))
	}
	colored := func(name string) any { return field(get(name), "spec", "color") }
	versions := map[string]string{}
	note := func(when, name string) {
		u := get(name)
		owned, _ := fields.Of(u, "one")["f:spec"].(map[string]any)
		_, claims := owned["f:color"]
		out[when+" "+name] = []any{field(u, "spec", "color"), u.GetGeneration(), u.GetResourceVersion() == versions[name], claims}
	}
	names := []string{"untouched", "status", "nothing", "less", "watched"}
	for _, name := range names {
		versions[name] = at(name).apply("one", ``, `{"size":"small","color":"red"}`).GetResourceVersion()
	}
	at("last").apply("one", ``, `{"color":"red"}`)
	shape()
	until(l, func() bool { return colored("untouched") == nil })
	at("watched")
	out["watch"] = l.begins(versions["watched"])
	_, err := at("untouched").tryApply("one", ``, `{"size":"small","color":"red"}`)
	out["an apply of it"] = fates.Is(err, fates.Undeclared)
	u := object(l, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"untouched"},"status":{"unknown":"x"}}`)
	_, err = l.client.ApplyStatus(l.Context(), "untouched", u, metav1.ApplyOptions{FieldManager: "two"})
	out["a status"] = fates.Is(err, fates.Undeclared)
	l.must(at("status").merge(`{"status":{"phase":"x","unknown":"y"}}`, "status"))
	l.must(at("nothing").merge(`{"spec":{"color":"blue"}}`))
	at("less").apply("one", ``, `{"size":"small"}`)
	_, err = at("last").tryApply("one", ``, `{}`)
	out["an apply of nothing in its place"] = err
	created := object(l, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"new"},"spec":{"color":"red"}}`)
	l.must(l.client.Create(l.Context(), created, metav1.CreateOptions{}))
	for _, name := range append(names, "new") {
		note("without it", name)
	}
	shape("color")
	until(l, func() bool { return colored("untouched") == "red" })
	out["a document of another hash"] = l.cluster.raw.Get().RequestURI("/openapi/v3/apis/example.org/v1?hash=1").Do(l.Context()).Error() != nil
	for _, name := range append(names, "new") {
		note("with it again", name)
	}
	return out
}

func until(tb testing.TB, ok func() bool) {
	tb.Helper()
	eventually(tb, "schema in force", func(context.Context) (bool, error) { return ok(), nil })
}
