// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// P21: a provider that publishes a new schema every 200 ms has the CRD changed every
// 30 s, and in the end to its newest.
func TestP21SchemaChangesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSchemaWorld(t)
		writes := func() (n int) {
			for _, r := range w.app.Writes() {
				if r.Resource == cluster.CRDs && r.Subresource == "" {
					n++
				}
			}
			return n
		}
		w.publish(0)
		if _, err := w.install(); err != nil {
			t.Fatal(err)
		}
		w.establish()
		began := writes()
		for n := range 60 * 5 { // a minute
			w.publish(n + 1)
			p, err := w.install()
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
		p, err := w.install()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(p.pass.again)
		if p, err = w.install(); err != nil {
			t.Fatal(err)
		}
		if c := p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]; c.Status != metav1.ConditionTrue || writes()-began != 3 {
			t.Errorf("after the burst %d changes, and %+v", writes()-began, c)
		}
	})
}

// TestSchemaChangeRefused: a CRD whose change the App Cluster's API server does not take stays, and so
// do the objects under it, also those of a konnector that has just begun; it is told, at once if it
// is refused and else once that has lasted, and tried again.
func TestSchemaChangeRefused(t *testing.T) {
	for _, answer := range untaken() {
		t.Run(strings.ReplaceAll(answer.Error(), "/", " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSchemaWorld(t)
				w.publish(0)
				if _, err := w.install(); err != nil {
					t.Fatal(err)
				}
				w.establish()
				asked := w.refuse("update", answer)
				w.publish(1)
				refused := fates.IsRefused(answer) || fates.Is(answer, fates.Replaced)
				if !refused {
					if p, err := w.install(); fates.Of(err) != fates.Of(answer) || p.pass.verdict.found[v1alpha1.ConditionSchemaInSync].Type != "" {
						t.Errorf("at first %+v, %v", p.pass.verdict.found, err)
					}
					asked.Store(0)
					w.failing = time.Now().Add(-time.Minute)
				}
				for range 2 { // the second follows from what the first tells
					p, err := w.install()
					if err != nil || !w.installed {
						t.Fatalf("%t, %v", w.installed, err)
					}
					if properties := string(p.pass.export.Spec.Versions[0].Schema.OpenAPIV3Schema.Raw); strings.Contains(properties, "f0") {
						t.Errorf("objects are synced under %s", properties)
					}
					w.failing = time.Time{} // to stay is no failure
					c := p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]
					if c.Reason != v1alpha1.ReasonCustomResourceDefinitionUpdateFailed || !strings.Contains(c.Message, fates.Of(answer).Word().String()) || !strings.Contains(c.Message, cluster.Explain(answer)) || p.pass.again != 30*time.Second {
						t.Errorf("%+v, and again in %s", c, p.pass.again)
					}
				}
				for began := time.Now(); time.Since(began) < 3*time.Hour; {
					p, err := w.install()
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(p.pass.again)
				}
				least, most := int64(18), int64(24)           // doubled from 30 s to ten minutes
				if fates.Of(answer).Longest() < time.Minute { // it may be over any time
					least, most = 300, 361
				}
				if n := asked.Load(); n < least || n > most {
					t.Errorf("asked %d times in three hours", n)
				}
				w.publish(2)
				if _, err := w.install(); refused && err != nil || asked.Load() > most+1 {
					t.Errorf("another schema: %v", err)
				}
				w.app.Intercept(nil)
				time.Sleep(30 * time.Second)
				p, err := w.install()
				if c := p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]; err != nil || c.Status != metav1.ConditionTrue {
					t.Errorf("once it is taken: %+v, %v", c, err)
				}
			})
		})
	}
}

// TestJudgmentsArePaced: to find out whether objects keep the rules of a new schema all of them are read, and the rules
// of a stranger evaluated: once for a change that is held, ever more rarely, and once in half a minute for
// a provider that publishes another rule all the time. What is held is told meanwhile.
func TestJudgmentsArePaced(t *testing.T) {
	for name, c := range map[string]struct {
		pause       time.Duration // between looks
		rule        func(n int) string
		least, most int64
	}{
		"a rule that is held":       {keptEvery, func(int) string { return "self.color != 'red'" }, 8, 14},
		"another one all the time":  {2 * time.Second, func(n int) string { return fmt.Sprintf("self.color != 'red' && %d > 0", n+1) }, 100, 121},
		"one of two, and the other": {2 * time.Second, func(n int) string { return fmt.Sprintf("self.color != 'red' && %d > 0", n%2+1) }, 8, 121},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSchemaWorld(t)
				w.publishRule("")
				if _, err := w.install(); err != nil {
					t.Fatal(err)
				}
				w.establish()
				var lists atomic.Int64
				w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "list" && r.Resource == w.widgetsResource() {
						lists.Add(1)
					}
					return do()
				})
				look := func(n int) v1alpha1.Condition {
					t.Helper()
					w.publishRule(c.rule(n))
					p, err := w.install()
					if err != nil || !w.installed {
						t.Fatal(w.installed, err)
					}
					return p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]
				}
				if said := look(0); said.Reason != v1alpha1.ReasonSchemaChangeHeld {
					t.Fatalf("at first %+v", said)
				}
				n := 0
				for end := time.Now().Add(time.Hour); time.Now().Before(end); n++ {
					said := look(n)
					if said.Reason != v1alpha1.ReasonSchemaChangeHeld && (c.pause == keptEvery || said.Reason != v1alpha1.ReasonSchemaChangeWaits) {
						t.Fatalf("it is told as %+v", said)
					}
					time.Sleep(c.pause)
				}
				if n := lists.Load(); n < c.least || n > c.most {
					t.Errorf("all objects are read %d times in an hour", n)
				}
				if err := w.widgets("team").Delete(t.Context(), "order", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(judgedRarely)
				if said := look(0); said.Status != metav1.ConditionTrue {
					t.Errorf("once all objects keep the rule %+v", said)
				}
			})
		})
	}
}

// TestHeldBesideATakenField: what is held of a schema of which the rest has just been taken over is told at once, and
// is judged once.
func TestHeldBesideATakenField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSchemaWorld(t)
		w.publishRule("")
		if _, err := w.install(); err != nil {
			t.Fatal(err)
		}
		w.establish()
		w.publishRule("self.color != 'red'")
		schema := &w.export.Spec.Versions[0].Schema.OpenAPIV3Schema
		schema.Raw = []byte(strings.Replace(string(schema.Raw), `"spec":`, `"more":{"type":"string"},"spec":`, 1))
		for range 3 {
			p, err := w.install()
			said := p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]
			if err != nil || said.Reason != v1alpha1.ReasonSchemaChangeHeld || !strings.Contains(string(p.pass.export.Spec.Versions[0].Schema.OpenAPIV3Schema.Raw), `"more"`) {
				t.Fatalf("%+v, %v", said, err)
			}
			time.Sleep(time.Second)
		}
	})
}

// publishRule publishes a schema with one rule, or none.
func (w *schemaWorld) publishRule(rule string) {
	if rule != "" {
		rule = fmt.Sprintf(`,"x-kubernetes-validations":[{"rule":%q}]`, rule)
	}
	w.export.Spec.Versions[0].Schema.OpenAPIV3Schema = runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"spec":{"type":"object","properties":{"color":{"type":"string"}}` + rule + `}}}`)}
}

// TestMarkRefused: that a CRD cannot be marked as the binding's is told, and tried less and less, however often it is looked at.
func TestMarkRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSchemaWorld(t)
		w.publish(0)
		if _, err := w.install(); err != nil {
			t.Fatal(err)
		}
		w.establish()
		asked := w.refuse("update", apierrors.NewForbidden(cluster.CRDs.GroupResource(), w.binding.Name, errors.New("a policy")))
		w.binding.UID = "other"
		for range 3 * time.Hour / keptEvery {
			p, err := w.install()
			if c := p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]; err != nil || !w.installed || c.Reason != v1alpha1.ReasonCustomResourceDefinitionUpdateFailed {
				t.Fatalf("%t, %+v, %v", w.installed, c, err)
			}
			time.Sleep(keptEvery)
		}
		if n := asked.Load(); n < 18 || n > 24 {
			t.Errorf("asked %d times in three hours", n)
		}
		w.app.Intercept(nil)
		time.Sleep(10 * time.Minute)
		if p, err := w.install(); err != nil || p.pass.verdict.found[v1alpha1.ConditionSchemaInSync].Status != metav1.ConditionTrue {
			t.Errorf("once it is taken: %+v, %v", p.pass.verdict.found, err)
		}
	})
}

// TestSchemaTakenBack: a change that was refused for long and is then taken is no refused one any more: taken
// back by hand, it is made again as soon as any other.
func TestSchemaTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSchemaWorld(t)
		look := func() v1alpha1.Condition {
			t.Helper()
			p, err := w.install()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(max(p.pass.again, w.konnector.opts.SchemaInterval))
			return p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]
		}
		crds := w.app.Client().Resource(cluster.CRDs)
		w.publish(0)
		look()
		w.establish()
		before, err := crds.Get(t.Context(), w.binding.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.refuse("update", apierrors.NewForbidden(cluster.CRDs.GroupResource(), w.binding.Name, errors.New("a policy")))
		w.publish(1)
		for end := time.Now().Add(time.Hour); time.Now().Before(end); {
			look()
		}
		w.app.Intercept(nil)
		if c := look(); c.Status != metav1.ConditionTrue {
			t.Fatalf("once it is taken: %+v", c)
		}
		now, err := crds.Get(t.Context(), w.binding.Name, metav1.GetOptions{})
		if err == nil {
			now.Object["spec"] = before.Object["spec"]
			_, err = crds.Update(t.Context(), now, metav1.UpdateOptions{})
		}
		if c := look(); err != nil || c.Status != metav1.ConditionTrue {
			t.Errorf("once it is taken back: %+v, %v", c, err)
		}
	})
}

// TestSchemaRefused: a CRD that the App Cluster's API server does not take, for whatever reason, is
// told, at once if it is refused and else once that has lasted, and is an error that package queue paces.
func TestSchemaRefused(t *testing.T) {
	for _, answer := range untaken() {
		t.Run(strings.ReplaceAll(answer.Error(), "/", " "), func(t *testing.T) {
			w := newSchemaWorld(t)
			w.publish(0)
			w.refuse("create", answer)
			for _, lasts := range []bool{false, true} {
				if lasts {
					w.failing = time.Now().Add(-time.Minute)
				}
				p, err := w.install()
				c := p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]
				told := c.Reason == v1alpha1.ReasonCustomResourceDefinitionCreateFailed && strings.Contains(c.Message, cluster.Explain(answer)) && strings.Contains(c.Message, fates.Of(answer).Word().String())
				if fates.Of(err) != fates.Of(answer) || w.installed || told != (lasts || fates.IsRefused(answer) || fates.Is(answer, fates.Replaced)) {
					t.Errorf("lasting %t: %+v, %v", lasts, c, err)
				}
			}
		})
	}
}

// untaken are all answers that an API server can give to a CRD that it does not take.
func untaken() (all []error) {
	for _, a := range fakecluster.Answers() {
		all = append(all, a.Err(fakecluster.Request{Verb: "update", Resource: cluster.CRDs, Object: cache.NewObjectName("", "widgets.example.org")}))
	}
	return all
}

// refuse has the API server answer a verb on CRDs so, and returns how often it did.
func (w *schemaWorld) refuse(verb string, answer error) *atomic.Int64 {
	var asked atomic.Int64
	w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if r.Resource == cluster.CRDs && r.Verb == verb && r.Subresource == "" {
			asked.Add(1)
			return answer
		}
		return do()
	})
	return &asked
}

// A schemaWorld is one in which the provider publishes schemas with more and more fields.
type schemaWorld struct {
	*claimWorld
	installed bool
	failing   time.Time // since when the pass fails; zero if it does not
}

func newSchemaWorld(t *testing.T) *schemaWorld {
	t.Helper()
	return schemaWorldOf(newClaimWorld(t))
}

func schemaWorldOf(of *claimWorld) *schemaWorld {
	w := &schemaWorld{claimWorld: of}
	w.app.Serve(fakecluster.Resource{GroupVersionResource: cluster.CRDs, Kind: "CustomResourceDefinition"})
	w.konnector.app.kube = fake.NewClientset()
	w.konnector.opts.SchemaInterval = 30 * time.Second
	w.binding.UID = "u"
	return w
}

func (w *schemaWorld) publish(fields int) {
	properties := ""
	for n := range fields {
		properties += fmt.Sprintf(`,"f%d":{"type":"string"}`, n)
	}
	w.export.Spec.Versions[0].Schema.OpenAPIV3Schema = runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"a":{"type":"string"}` + properties + `}}`)}
}

// install puts the published schema into the CRD, as far as it may.
func (w *schemaWorld) install() (*installation, error) {
	w.verdict = newVerdict()
	p := &installation{pass: w.pass()}
	p.pass.export = w.export.DeepCopy()
	ctx := w.Context()
	if !w.failing.IsZero() {
		ctx = fates.FailingSince(ctx, w.failing)
	}
	ok, err := p.readSchema(ctx)
	if ok && err == nil {
		w.installed, err = p.installSchema(ctx)
	}
	return p, err
}

// establish does what an API server does with a new CRD.
func (w *schemaWorld) establish() {
	w.Helper()
	crds := w.app.Client().Resource(cluster.CRDs)
	u, err := crds.Get(w.Context(), w.binding.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	if _, err := crds.UpdateStatus(w.Context(), u, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// TestIsolationChangeHeld: an export that says another clusterScopedIsolation would give every object another target,
// an empty one. It is held as other changes that break are, over a restart too, until the binding's owner consents.
func TestIsolationChangeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := schemaWorldOf(wideClaimWorld(t))
		widgets := w.widgetsResource()
		w.session.namespaces.Wide = klutchsync.NewNamespaces(nil)
		w.session.namespaces.Wide.Set("", "service")
		defer w.run()()
		turn := func() v1alpha1.Condition {
			t.Helper()
			time.Sleep(time.Minute)
			p, err := w.install()
			if err == nil && w.installed {
				_, err = p.pass.sync(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			return p.pass.verdict.found[v1alpha1.ConditionSchemaInSync]
		}
		targets := func(namespace string) (names []string) {
			t.Helper()
			list, err := w.controlPlane.Client().Resource(widgets).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range list.Items {
				names = append(names, u.GetNamespace()+"/"+u.GetName())
			}
			return names
		}
		w.publish(0)
		turn()
		w.establish()
		if c := turn(); c.Status != metav1.ConditionTrue || !slices.Equal(targets(""), []string{"/tenant-order"}) {
			t.Fatalf("%+v, targets %v", c, targets(""))
		}
		w.controlPlane.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"}) // the platform has it both ways
		w.export.Spec.ClusterScopedIsolation = v1alpha1.IsolationNamespaced
		var c v1alpha1.Condition
		for n := range 3 {
			if n == 1 {
				w.publish(1) // a change that breaks nothing is taken over meanwhile
			}
			if n == 2 {
				w.restart()
			}
			if c = turn(); c.Reason != v1alpha1.ReasonSchemaChangeHeld || !strings.Contains(c.Message, "clusterScopedIsolation was Prefixed and is Namespaced") {
				t.Errorf("%+v", c)
			}
			if made := targets("service"); len(made) > 0 {
				t.Errorf("made anew: %v", made)
			}
		}
		_, command, _ := strings.Cut(c.Message, v1alpha1.AcceptSchemaAnnotation+"=")
		hash, _, _ := strings.Cut(command, ".")
		w.binding.Annotations = map[string]string{v1alpha1.AcceptSchemaAnnotation: hash}
		turn()
		time.Sleep(time.Hour)
		if c = turn(); c.Status != metav1.ConditionTrue {
			t.Errorf("with consent %+v", c)
		}
		if made := targets("service"); !slices.Equal(made, []string{"service/order"}) {
			t.Errorf("with consent there are %v", made)
		}
	})
}
