// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// P21: a provider that publishes a new schema every 200 ms has the CRD changed every
// 30 s, and in the end to its newest.
func TestP21SchemaChangesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		w.app.Serve(fakecluster.Resource{GroupVersionResource: crdsResource, Kind: "CustomResourceDefinition"})
		w.agent.app.kube = fake.NewClientset()
		w.agent.opts.SchemaInterval = Options{}.withDefaults().SchemaInterval
		w.agent.schemas = map[cache.ObjectName]time.Time{}
		w.binding.UID = "u"
		crds := w.app.Client().Resource(crdsResource)
		publish := func(fields int) {
			properties := ""
			for n := range fields {
				properties += fmt.Sprintf(`,"f%d":{"type":"string"}`, n)
			}
			w.export.Spec.Versions[0].Schema.OpenAPIV3Schema = runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"a":{"type":"string"}` + properties + `}}`)}
		}
		pass := func() (*pass, error) {
			p := &pass{agent: w.agent, key: cache.MetaObjectToName(w.binding), binding: w.binding, verdict: newVerdict(), export: w.export.DeepCopy()}
			if ok, err := p.readSchema(t.Context()); !ok || err != nil {
				return p, err
			}
			_, err := p.installSchema(t.Context())
			return p, err
		}
		writes := func() (n int) {
			for _, r := range w.app.Writes() {
				if r.Resource == crdsResource && r.Subresource == "" {
					n++
				}
			}
			return n
		}
		publish(0)
		if _, err := pass(); err != nil {
			t.Fatal(err)
		}
		w.establish(crds)
		began := writes()
		for n := range 60 * 5 { // a minute
			publish(n + 1)
			p, err := pass()
			if err != nil {
				t.Fatal(err)
			}
			if c := p.verdict.found[v1alpha1.ConditionSchemaInSync]; c.Reason == v1alpha1.ReasonSchemaChangeWaits && (p.again <= 0 || p.again > 30*time.Second) {
				t.Fatalf("%+v, and looked at again in %s", c, p.again)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if got := writes() - began; got != 2 {
			t.Errorf("the CRD was changed %d times in a minute, want 2", got)
		}
		p, err := pass()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(p.again)
		if p, err = pass(); err != nil {
			t.Fatal(err)
		}
		if c := p.verdict.found[v1alpha1.ConditionSchemaInSync]; c.Status != metav1.ConditionTrue || writes()-began != 3 {
			t.Errorf("after the burst %d changes, and %+v", writes()-began, c)
		}
	})
}

// establish does what an API server does with a new CRD.
func (w *claimWorld) establish(crds dynamic.ResourceInterface) {
	w.Helper()
	u, err := crds.Get(w.Context(), w.binding.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	if _, err := crds.UpdateStatus(w.Context(), u, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
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
		{"Widget", "widget", "", "widget"}, {"Widget", "", "", ""}, {"Widget", "widgets", "", "widgets"},
		{"Widget", "pod", "", "widgets"}, {"Widget", "po", "", "widgets"}, {"Widget", "pods", "", "widgets"}, {"Pod", "", "", "widgets"},
		{"Widget", "whale", "", "widgets"}, {"Widget", "whale", "whale", "whale"}, {"Widget", "pod", "pod", "widgets"}, {"Whale", "", "whale", ""},
	} {
		wanted, live := crd(c.kind, c.singular), (*unstructured.Unstructured)(nil)
		if c.had != "" {
			live = crd("Widget", c.had)
		}
		dropped, err := dropSingular(served, live, wanted)
		got, _, _ := unstructured.NestedString(wanted.Object, "spec", "names", "singular")
		if err != nil || got != c.want || (len(dropped) > 0) != (c.want == "widgets" && c.singular != "widgets") {
			t.Errorf("%+v: %q, dropped %v, %v", c, got, dropped, err)
		}
	}
}
