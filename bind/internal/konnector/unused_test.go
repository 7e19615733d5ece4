// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// P30: what was handed out in a namespace that has no object any more goes when the
// konnector starts again, also where nothing maps the namespace now.
func TestP30CopiesInUnusedNamespacesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		for _, name := range []string{"left", "kept"} {
			w.namespace(w.app, name)
			w.namespace(w.controlPlane, "service-"+name)
			w.session.namespaces.Mapper.Set(name, "service-"+name)
			w.order(name)
			w.put(w.controlPlane, "service-"+name, "creds", "Opaque", "provider")
		}
		w.put(w.app, "left", "own", "Opaque", "user")
		defer w.run()()
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
		blind := true
		w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if blind && r.Resource.Resource == "widgets" && r.Verb == "list" {
				return apierrors.NewConflict(r.Resource.GroupResource(), "", nil) // that look retries
			}
			return do()
		})
		w.restart()
		w.verdict = newVerdict()
		if _, err := w.pass().sync(t.Context()); err == nil {
			t.Error("it is not known where objects are, and no condition says so")
		}
		want := map[string]string{"own": "user", "creds": "provider"}
		if diff := cmp.Diff(want, w.there(w.app, "left")); diff != "" {
			t.Errorf("Secrets of the namespace while its objects cannot be listed (-want +got):\n%s", diff)
		}
		blind = false
		w.look()
		time.Sleep(time.Minute)
		if diff := cmp.Diff(map[string]string{"own": "user"}, w.there(w.app, "left")); diff != "" {
			t.Errorf("Secrets of the namespace without objects (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"creds": "provider"}, w.there(w.app, "kept")); diff != "" {
			t.Errorf("Secrets of the one with an object (-want +got):\n%s", diff)
		}
	})
}

// P30: what was handed to the platform of a namespace that has no object any more goes
// when the konnector starts again, unless the platform still has an object of it.
func TestP30CopiesInUnusedServiceNamespacesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		w.owner = v1alpha1.OwnerConsumer
		for _, name := range []string{"left", "kept", "orphaned"} {
			w.namespace(w.app, name)
			w.namespace(w.controlPlane, "service-"+name)
			w.ask(name, "service-"+name)
			w.session.namespaces.Mapper.Set(name, "service-"+name)
			w.order(name)
			w.put(w.app, name, "creds", "Opaque", "user")
		}
		w.put(w.controlPlane, "service-left", "own", "Opaque", "provider")
		defer w.run()()
		w.answer(v1alpha1.ClaimAccepted)
		time.Sleep(time.Minute)

		w.hold() // the konnector ends here
		for _, name := range []string{"left", "orphaned"} {
			order, err := w.widgets(name).Get(t.Context(), "order", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			order.SetFinalizers(nil)
			if _, err = w.widgets(name).Update(t.Context(), order, metav1.UpdateOptions{}); err == nil {
				err = w.widgets(name).Delete(t.Context(), "order", metav1.DeleteOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			w.session.namespaces.Mapper.Delete(name)
		}
		if err := w.controlPlane.Client().Resource(w.widgetsResource()).Namespace("service-left").Delete(t.Context(), "order", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.look()
		time.Sleep(time.Minute)
		want := map[string]map[string]string{
			"left": {"own": "provider"}, "kept": {"creds": "user"}, "orphaned": {"creds": "user"},
		}
		for name, secrets := range want {
			if diff := cmp.Diff(secrets, w.there(w.controlPlane, "service-"+name)); diff != "" {
				t.Errorf("Secrets of service-%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

// P30: what a cluster-scoped API claims stays where another API has a namespace mapped when the
// konnector starts again, and goes from the others.
func TestP30CopiesOfClusterScopedAPIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wideClaimWorld(t)
		w.namespace(w.app, "left")
		w.namespace(w.controlPlane, "service-left")
		w.session.namespaces.Mapper.Set("left", "service-left")
		for _, service := range []string{"service", "service-left"} {
			w.put(w.controlPlane, service, "creds", "Opaque", "provider")
		}
		defer w.run()()
		w.answer(v1alpha1.ClaimAccepted)
		time.Sleep(time.Minute)
		has := func(want map[string]map[string]string) {
			t.Helper()
			got := map[string]map[string]string{}
			for namespace := range want {
				got[namespace] = w.there(w.app, namespace)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Secrets (-want +got):\n%s", diff)
			}
		}
		copied := map[string]string{"creds": "provider"}
		has(map[string]map[string]string{"team": copied, "left": copied})

		w.hold() // the konnector ends here
		w.session.namespaces.Mapper.Delete("left")
		w.restart()
		w.look()
		time.Sleep(time.Minute)
		has(map[string]map[string]string{"team": copied, "left": {}})
	})
}
