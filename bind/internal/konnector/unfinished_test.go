// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// take has the rights of the claims be taken in namespaces.
func (w *claimWorld) take(namespaces ...string) {
	w.Helper()
	w.app.Serve(fakecluster.Resource{GroupVersionResource: cluster.RoleBindings, Kind: "RoleBinding", Plain: true})
	for _, namespace := range namespaces {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}}
		u.SetName(permission.ClaimsName(w.binding.Name))
		if _, err := w.app.Client().Resource(cluster.RoleBindings).Namespace(namespace).Create(w.Context(), u, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}

// taken are the namespaces in which the rights of the claims are.
func (w *claimWorld) taken() (namespaces []string) {
	all, _ := w.app.Objects(cluster.RoleBindings)
	for _, u := range all {
		namespaces = append(namespaces, u.GetNamespace())
	}
	slices.Sort(namespaces)
	return namespaces
}

// wait has the konnector look for so long, as often as its passes ask for, and each ten seconds.
func (w *claimWorld) wait(d time.Duration) {
	w.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		p := w.pass()
		if _, err := p.sync(w.Context()); err != nil {
			w.Fatal(err)
		}
		time.Sleep(min(10*time.Second, max(p.again, time.Second)))
	}
}

// TestRightsThatStay: rights of claims that the API server does not let the konnector give back, for
// whatever reason, keep neither objects nor other rights from anything; they are told, and asked about
// ever more rarely until they are given back.
func TestRightsThatStay(t *testing.T) {
	for name, answer := range map[string]error{
		"policy":         apierrors.NewForbidden(cluster.RoleBindings.GroupResource(), "x", errors.New("a policy protects it")),
		"webhook":        apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example.org": connection refused`)),
		"webhook denies": apierrors.NewTooManyRequests(`admission webhook "guard.example.org" denied the request: not now`, 60),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				defer w.run()()
				for _, namespace := range []string{"left", "other"} {
					w.namespace(w.app, namespace)
				}
				w.take("left", "other", "team")
				w.put(w.controlPlane, "service", "creds", "Opaque", "provider")
				var asked atomic.Int64
				w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "delete" && r.Resource == cluster.RoleBindings && r.Object.Namespace == "left" {
						asked.Add(1)
						return answer
					}
					return do()
				})
				w.answer(v1alpha1.ClaimAccepted) // which fails where a pass does
				if c := w.verdict.found[v1alpha1.ConditionClaimsInSync]; (c.Reason == v1alpha1.ReasonStepFailed) != fates.IsTold(t.Context(), answer) {
					t.Errorf("at first %+v", c)
				}
				w.wait(time.Minute)
				if diff := cmp.Diff([]string{"team/creds"}, w.secretsHere()); diff != "" {
					t.Errorf("Secrets (-want +got):\n%s", diff)
				}
				w.says(v1alpha1.ReasonStepFailed, "in namespace left", cluster.Explain(answer))
				if got := w.taken(); name != "webhook" && !slices.Equal(got, []string{"left", "team"}) { // one that is down may be so for all
					t.Errorf("rights are taken in %v", got)
				}
				w.wait(time.Hour)
				if n := asked.Load(); n > 30 {
					t.Errorf("asked %d times in an hour", n)
				}
				w.says(v1alpha1.ReasonStepFailed, "in namespace left", cluster.Explain(answer))
				w.app.Intercept(nil)
				w.wait(11 * time.Minute)
				w.says("")
				if got := w.taken(); !slices.Equal(got, []string{"team"}) {
					t.Errorf("in the end rights are taken in %v", got)
				}
			})
		})
	}
}

// TestUnusedCopyThatStays: a copy in a namespace without an object that the API server keeps is told,
// without its content; the rights to remove it stay for as long as it does, and no other copy.
func TestUnusedCopyThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		defer w.run()()
		w.namespace(w.app, "left")
		w.namespace(w.controlPlane, "service-left")
		w.session.namespaces.Mapper.Set("left", "service-left")
		w.order("left")
		for _, name := range []string{"a", "b"} {
			w.put(w.controlPlane, "service-left", name, "Opaque", "s3cret")
		}
		w.answer(v1alpha1.ClaimAccepted)
		time.Sleep(time.Minute)

		w.hold() // the konnector ends here
		order, err := w.widgets("left").Get(t.Context(), "order", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		order.SetFinalizers(nil)
		if _, err = w.widgets("left").Update(t.Context(), order, metav1.UpdateOptions{}); err == nil {
			err = w.widgets("left").Delete(t.Context(), "order", metav1.DeleteOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		w.session.namespaces.Mapper.Delete("left")
		w.take("left")
		w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "delete" && r.Object.Name == "a" {
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, errors.New("a policy protects s3cret"))
			}
			return do()
		})
		w.restart()
		w.says(v1alpha1.ReasonStepFailed, "does not permit", "left/a of secrets")
		if said := w.verdict.found[v1alpha1.ConditionClaimsInSync].Message; strings.Contains(said, "s3cret") {
			t.Errorf("the content is told: %s", said)
		}
		if secrets, rights := w.secretsHere(), w.taken(); !slices.Equal(secrets, []string{"left/a"}) || !slices.Equal(rights, []string{"left"}) {
			t.Errorf("Secrets %v, rights in %v", secrets, rights)
		}
		w.app.Intercept(nil)
		w.wait(time.Minute)
		w.says("")
		if secrets, rights := w.secretsHere(), w.taken(); len(secrets) > 0 || len(rights) > 0 {
			t.Errorf("in the end Secrets %v, rights in %v", secrets, rights)
		}
	})
}
