// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// P21: a provider that publishes a new schema every 200 ms has the CRD changed every
// 30 s, and in the end to its newest.
func TestP21SchemaChangesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		w.app.Serve(fakecluster.Resource{GroupVersionResource: cluster.CRDs, Kind: "CustomResourceDefinition"})
		w.konnector.app.kube = fake.NewClientset()
		w.konnector.opts.SchemaInterval = 30 * time.Second
		w.binding.UID = "u"
		crds := w.app.Client().Resource(cluster.CRDs)
		publish := func(fields int) {
			properties := ""
			for n := range fields {
				properties += fmt.Sprintf(`,"f%d":{"type":"string"}`, n)
			}
			w.export.Spec.Versions[0].Schema.OpenAPIV3Schema = runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"a":{"type":"string"}` + properties + `}}`)}
		}
		pass := func() (*installation, error) {
			w.verdict = newVerdict()
			p := &installation{pass: w.pass()}
			p.pass.export = w.export.DeepCopy()
			if ok, err := p.readSchema(t.Context()); !ok || err != nil {
				return p, err
			}
			_, err := p.installSchema(t.Context())
			return p, err
		}
		writes := func() (n int) {
			for _, r := range w.app.Writes() {
				if r.Resource == cluster.CRDs && r.Subresource == "" {
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
			if c := p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]; c.Reason == v1alpha1.ReasonSchemaChangeWaits && (p.pass.again <= 0 || p.pass.again > 30*time.Second) {
				t.Fatalf("%+v, and looked at again in %s", c, p.pass.again)
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
		time.Sleep(p.pass.again)
		if p, err = pass(); err != nil {
			t.Fatal(err)
		}
		if c := p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]; c.Status != metav1.ConditionTrue || writes()-began != 3 {
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
