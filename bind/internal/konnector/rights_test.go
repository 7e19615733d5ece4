// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestLackIsPaced: rights that are missing, and a side that cannot be read, are looked at often for a
// minute, while a person waits, and then ever more rarely; a right that goes missing later begins anew.
func TestLackIsPaced(t *testing.T) {
	reviews := authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")
	for name, lacking := range map[string]func(w *claimWorld, rules *rulebook, lacks bool){
		"rights": func(_ *claimWorld, rules *rulebook, lacks bool) { rules.role.Store(!lacks) },
		"targets": func(w *claimWorld, _ *rulebook, lacks bool) {
			w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				if lacks && r.Resource == w.widgetsResource() {
					return apierrors.NewForbidden(r.Resource.GroupResource(), "", nil)
				}
				return do()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				rules := w.permitted()
				rules.bound[metav1.NamespaceAll] = true
				lacking(w, rules, true)
				defer w.run()()
				looks := 0
				look := func() v1alpha1.Condition {
					t.Helper()
					w.verdict = newVerdict()
					p := w.pass()
					ok, err := p.checkRights(t.Context())
					if ok && err == nil {
						_, err = p.sync(t.Context())
					}
					if err != nil {
						t.Fatal(err)
					}
					looks++
					time.Sleep(max(p.again, time.Millisecond))
					return w.verdict.found[v1alpha1.ConditionInformersSynced]
				}
				during := func(d time.Duration) (in, asked int) {
					t.Helper()
					in, asked = looks, w.app.Created(reviews)
					for end := time.Now().Add(d); time.Now().Before(end); {
						look()
					}
					return looks - in, w.app.Created(reviews) - asked
				}
				if n, _ := during(time.Minute); n < 25 {
					t.Errorf("%d looks in the first minute", n)
				}
				during(4 * time.Minute)
				if n, asked := during(55 * time.Minute); asked > 55*60/2 || asked < n {
					t.Errorf("%d reviews in %d looks", asked, n)
				}
				if n, _ := during(10 * time.Minute); n > 16 {
					t.Errorf("%d looks in ten minutes in the end", n)
				}
				lacking(w, rules, false)
				time.Sleep(2 * time.Minute) // until the watch is there
				for range 3 {
					look()
				}
				if c := look(); c.Status != metav1.ConditionTrue {
					t.Fatalf("once nothing is missing %+v", c)
				}
				w.hold()
				lacking(w, rules, true)
				if n, _ := during(time.Minute); n < 25 {
					t.Errorf("%d looks in the first minute of another lack", n)
				}
			})
		})
	}
}

// TestNamespacesUnlisted: that namespaces cannot be listed is told on the binding once that takes long,
// and looked at ever more rarely, also where objects cannot be read either.
func TestNamespacesUnlisted(t *testing.T) {
	for _, unread := range []bool{false, true} {
		t.Run(fmt.Sprintf("objects unread %t", unread), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t) // whose informers do not run
				if unread {
					w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
						if r.Resource == w.widgetsResource() {
							return apierrors.NewForbidden(r.Resource.GroupResource(), "", nil)
						}
						return do()
					})
					defer w.start(w.konnector.syncs.Run)()
				}
				w.answer(v1alpha1.ClaimAccepted)
				if c, said := w.verdict.found[v1alpha1.ConditionNamespacesReady]; said {
					t.Errorf("at first %+v", c)
				}
				looks := 0
				for end := time.Now().Add(time.Hour); time.Now().Before(end); looks++ {
					w.verdict = newVerdict()
					p := w.pass()
					if _, err := p.sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(max(p.again, time.Millisecond))
				}
				if c := w.verdict.found[v1alpha1.ConditionNamespacesReady]; looks > 180 || c.Reason != v1alpha1.ReasonInformerSyncTimeout {
					t.Errorf("after %d looks %+v", looks, c)
				}
				w.verdict.apply(&w.binding.Status, w.binding.Generation)
				defer w.start(group.Informer(w.session.namespaces.Asked), group.Informer(w.konnector.app.namespaces))()
				w.look()
				w.look()
				if c := w.verdict.found[v1alpha1.ConditionNamespacesReady]; c.Status != metav1.ConditionTrue {
					t.Errorf("once they are listed %+v", c)
				}
			})
		})
	}
}

// TestSoonestLookWins: missing rights are looked at as soon as ever while a new schema waits for longer.
func TestSoonestLookWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSchemaWorld(t)
		rules := w.permitted()
		rules.bound[metav1.NamespaceAll] = true
		w.app.Serve(fakecluster.Resource{GroupVersionResource: authorizationv1.SchemeGroupVersion.WithResource("selfsubjectrulesreviews"), Kind: "SelfSubjectRulesReview", Cluster: true, Plain: true})
		defer w.run()()
		look := func() (again time.Duration) {
			t.Helper()
			w.verdict = newVerdict()
			i := &installation{pass: w.pass()}
			i.pass.export = w.export.DeepCopy()
			for _, do := range []func(context.Context) (bool, error){i.readSchema, i.pass.checkRights, i.installSchema, i.pass.sync} {
				if ok, err := do(t.Context()); err != nil {
					t.Fatal(err)
				} else if !ok {
					break
				}
			}
			return i.pass.again
		}
		w.publish(0)
		look()
		w.establish()
		for fields := range 2 {
			w.publish(fields)
			look()
		}
		w.publish(2)
		time.Sleep(keptEvery)
		rules.role.Store(false)
		again := look()
		rights, change := w.verdict.found[v1alpha1.ConditionInformersSynced], w.verdict.found[v1alpha1.ConditionSchemaInSync]
		if rights.Reason != v1alpha1.ReasonMissingRights || change.Reason != v1alpha1.ReasonSchemaChangeWaits || again != rightsEvery {
			t.Errorf("%+v, %+v, and looked at again in %s", rights, change, again)
		}
	})
}

// TestUnansweredReviewsArePaced: an App Cluster that does not say which rights the konnector has is asked ever more rarely.
func TestUnansweredReviewsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSchemaWorld(t)
		rules := w.permitted()
		rules.bound[metav1.NamespaceAll] = true
		p := w.pass()
		p.export = w.export.DeepCopy()
		for hour, most := range []int{30, 8, 8} { // at first each ten seconds, then each ten minutes
			asked := 0
			for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(keptEvery) {
				next := p.record.nextReview
				p.again = 0
				p.keepsRights(t.Context())
				p.review(t.Context()) // an object of which a request was refused has it looked at, too
				if p.again <= 0 {
					t.Fatal("nothing brings the next look")
				}
				if !p.record.nextReview.Equal(next) {
					asked++
				}
			}
			if asked == 0 || asked > most {
				t.Errorf("hour %d: asked %d times, want at most %d", hour, asked, most)
			}
		}
		w.app.Serve(fakecluster.Resource{GroupVersionResource: authorizationv1.SchemeGroupVersion.WithResource("selfsubjectrulesreviews"), Kind: "SelfSubjectRulesReview", Cluster: true, Plain: true})
		time.Sleep(carryOutRarely)
		p.again = 0
		if p.keepsRights(t.Context()); p.again != keptEvery || p.record.missingRights != "" {
			t.Errorf("once it answers it is asked again in %s, want %s: %s", p.again, keptEvery, p.record.missingRights)
		}
	})
}
