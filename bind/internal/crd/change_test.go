// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// P21: the consent to a change is to that change: the same schema takes something else
// away from another one, and a name that is short has a second schema.
func TestP21ConsentToOneChange(t *testing.T) {
	crd := func(fields ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"fields": fields}}}
	}
	first, err := ChangeHash(crd("a", "b"), crd("a"))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := ChangeHash(crd("a", "b", "c"), crd("a")); again == first {
		t.Error("the consent to take b away is one to take b and c away")
	}
	if len(first) < 64 {
		t.Errorf("%s is made of %d bits", first, 4*len(first))
	}
}

func TestP21TakenNames(t *testing.T) {
	served := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", SingularName: "pod", Kind: "Pod", ShortNames: []string{"po"}, Categories: []string{"all"}}}},
		{GroupVersion: "other.org/v1", APIResources: []metav1.APIResource{{Name: "whales", SingularName: "whale", Kind: "Whale", ShortNames: []string{"wh"}, Categories: []string{"sea"}}}},
		{GroupVersion: "example.org/v1", APIResources: []metav1.APIResource{
			{Name: "widgets", SingularName: "widget", Kind: "Widget", ShortNames: []string{"wd"}, Categories: []string{"things"}}, {Name: "widgets/status", Kind: "Widget"},
		}},
	}
	own := schema.GroupResource{Group: "example.org", Resource: "widgets"}
	for _, c := range []struct{ had, want []string }{
		{nil, []string{"all", "po", "pod", "pods", "wh", "whale", "whales"}},
		{[]string{"wh", "po"}, []string{"all", "po", "pod", "pods", "whale", "whales"}},
	} {
		var got []string
		for _, name := range []string{"all", "po", "pod", "pods", "sea", "things", "wd", "wh", "whale", "whales", "widget"} {
			if takenNames(served, own, c.had)[name] {
				got = append(got, name)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("having %v (-want +got):\n%s", c.had, diff)
		}
	}
}

// P21: a kind is not reached by the singular name of another one, be it that which the API
// server would make of the kind.
func TestP21TakenSingular(t *testing.T) {
	served := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", SingularName: "pod", Kind: "Pod", ShortNames: []string{"po"}}}},
		{GroupVersion: "other.org/v1", APIResources: []metav1.APIResource{{Name: "whales", SingularName: "whale", Kind: "Whale", ShortNames: []string{"wh"}}}},
		{GroupVersion: "example.org/v1", APIResources: []metav1.APIResource{{Name: "widgets", SingularName: "widget", Kind: "Widget"}}},
	}
	crd := func(kind, singular string) *unstructured.Unstructured {
		names := map[string]any{"plural": "widgets", "kind": kind}
		if singular != "" {
			names["singular"] = singular
		}
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"names": names}}}
		u.SetName("widgets.example.org")
		return u
	}
	for _, c := range []struct{ kind, singular, had, want string }{
		{"Widget", "widget", "", "widget"},
		{"Widget", "", "", ""},
		{"Widget", "widgets", "", "widgets"},
		{"Widget", "pod", "", "widgets"},
		{"Widget", "po", "", "widgets"},
		{"Widget", "pods", "", "widgets"},
		{"Pod", "", "", "widgets"},
		{"Widget", "whale", "", "widgets"},
		{"Widget", "whale", "whale", "whale"},
		{"Widget", "pod", "pod", "pod"}, // the API server has accepted it, and would refuse the plural
		{"Widget", "pod", "widget", "widget"},
		{"Widget", "whale", "widget", "widget"},
		{"Pod", "", "widget", "widget"},
		{"Whale", "", "whale", ""},
	} {
		wanted, live := crd(c.kind, c.singular), (*unstructured.Unstructured)(nil)
		if c.had != "" {
			live = crd("Widget", c.had)
		}
		dropped, err := dropSingular(served, live, wanted)
		got, _, _ := unstructured.NestedString(wanted.Object, "spec", "names", "singular")
		if err != nil || got != c.want || (len(dropped) > 0) != (c.want != c.singular) {
			t.Errorf("%+v: %q, dropped %v, %v", c, got, dropped, err)
		}
	}
}
