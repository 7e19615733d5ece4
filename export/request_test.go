// SPDX-License-Identifier: Apache-2.0

package export

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestAnswer(t *testing.T) {
	refused := tenant.RefuseForNow(v1alpha1.ReasonCRDNotFound, "no CRD", nil)
	for name, test := range map[string]struct {
		refused *tenant.RefusalError
		wait    bool
		phase   v1alpha1.RequestPhase
		message string
	}{
		"granted": {nil, false, v1alpha1.RequestSucceeded, ""},
		"waiting": {refused, true, v1alpha1.RequestPending, ""},
		"failed":  {refused, false, v1alpha1.RequestFailed, "no CRD"},
	} {
		o := &v1alpha1.APIServiceExportRequest{Status: v1alpha1.APIServiceExportRequestStatus{Phase: v1alpha1.RequestPending}}
		offer.Answer(o, test.refused, test.wait)
		ready := v1alpha1.IsTrue(o.Status.Conditions, v1alpha1.ConditionReady)
		if o.Status.Phase != test.phase || o.Status.TerminalMessage != test.message || ready != (test.refused == nil) {
			t.Errorf("%s: %+v", name, o.Status)
		}
	}
}

// What keeps the backend from looking at a request is told on it, without what only the platform need
// know, for as long as it lasts.
func TestRequestNotLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStill(t)
		s.Serve(fakecluster.Resource{GroupVersionResource: tenant.RequestResource, Kind: "APIServiceExportRequest"})
		var fails atomic.Bool
		fails.Store(true)
		s.kube.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return fails.Load(), nil, apierrors.NewInternalError(errors.New("of no concern to a tenant"))
		})
		s.run("apiserviceexportrequest", Options{})
		synctest.Wait() // for the tenant's namespace, which the fake of live reads lacks
		s.put(tenant.RequestResource, s.tenant, requestOf("r", "widgets.example.org"))
		said := func() (phase, reason, message string) {
			t.Helper()
			u, err := s.Client().Resource(tenant.RequestResource).Namespace(s.tenant).Get(t.Context(), "r", metav1.GetOptions{})
			o := &v1alpha1.APIServiceExportRequest{}
			if err == nil {
				err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o)
			}
			if err != nil {
				t.Fatal(err)
			}
			if c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionExportsReady); c != nil {
				reason, message = c.Reason, c.Message
			}
			return string(o.Status.Phase), reason, message
		}
		time.Sleep(time.Hour)
		if phase, reason, message := said(); phase != "" || reason != v1alpha1.ReasonStepFailed || !strings.Contains(message, "log of its backend") || strings.Contains(message, "concern") {
			t.Errorf("while it lasts: %q %q %q", phase, reason, message)
		}
		fails.Store(false) // there is no record
		time.Sleep(10 * time.Minute)
		if phase, reason, _ := said(); phase != string(v1alpha1.RequestFailed) || reason != v1alpha1.ReasonNotAuthorized {
			t.Errorf("once it is over: %q %q", phase, reason)
		}
	})
}

// Answered requests are deleted ten minutes after their answer, however long that
// took, and after seconds where the tenant has many, so that it never meets its cap; those that wait are kept.
func TestAnsweredRequestsArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStill(t)
		s.run("apiserviceexportrequest", Options{})
		requests := s.Client().Resource(tenant.RequestResource).Namespace(s.tenant)
		there := func(name string) bool {
			synctest.Wait()
			_, err := requests.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			return err == nil
		}
		for _, phase := range []v1alpha1.RequestPhase{v1alpha1.RequestSucceeded, v1alpha1.RequestFailed} {
			const late = 5 * time.Minute
			at := time.Now().Add(late).UTC().Format(time.RFC3339)
			answer := map[string]any{"phase": string(phase), "conditions": []any{map[string]any{"type": "ExportsReady", "status": "True", "lastTransitionTime": at}}}
			s.put(tenant.RequestResource, s.tenant, changed(requestOf("late", "widgets.example.org"), answer, "status"))
			time.Sleep(late + offer.RequestRetain - time.Second)
			if !there("late") {
				t.Errorf("%s: deleted before its time", phase)
			}
			time.Sleep(2 * time.Second)
			if there("late") {
				t.Errorf("%s: not deleted", phase)
			}
		}
		answer := map[string]any{"phase": string(v1alpha1.RequestSucceeded), "conditions": []any{map[string]any{"type": "ExportsReady", "status": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}}
		name := func(i int) string { return fmt.Sprintf("many-%d", i) }
		for i := range tenant.MaxRequests / 2 {
			s.put(tenant.RequestResource, s.tenant, changed(requestOf(name(i), "widgets.example.org"), answer, "status"))
		}
		time.Sleep(offer.CrowdedRetain - time.Second)
		if !there(name(0)) {
			t.Error("one of many is deleted before its time")
		}
		time.Sleep(offer.CrowdedRetain)
		left, err := requests.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) >= tenant.MaxRequests/2 {
			t.Errorf("%d of many are left, %v", len(left.Items), err)
		}
		for i := range 2 * tenant.MaxRequests { // five repairs of ten APIs in a minute, and so on
			answer := map[string]any{"phase": string(v1alpha1.RequestSucceeded), "conditions": []any{map[string]any{"type": "ExportsReady", "status": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}}
			s.put(tenant.RequestResource, s.tenant, changed(requestOf(fmt.Sprintf("again-%d", i), "widgets.example.org"), answer, "status"))
			time.Sleep(time.Second)
			if left, err := requests.List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) >= tenant.MaxRequests {
				t.Fatalf("%d requests are there after %d s, %v", len(left.Items), i, err)
			}
		}
	})
}

// P10: a tenant that makes requests and deletes them meets no quota. To look at one the backend reads the
// offer: it does so as often a minute as a tenant may have requests, and answers each that stays.
func TestP10RequestsOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStill(t)
		s.Serve(fakecluster.Resource{GroupVersionResource: tenant.RequestResource, Kind: "APIServiceExportRequest"})
		var looks atomic.Int64
		s.kube.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			looks.Add(1)
			return false, nil, nil
		})
		s.run("apiserviceexportrequest", Options{})
		synctest.Wait()
		requests := s.Client().Resource(tenant.RequestResource).Namespace(s.tenant)
		const minutes = 10
		for i := range minutes * 60 * 10 {
			name := fmt.Sprintf("r%d", i)
			s.put(tenant.RequestResource, s.tenant, requestOf(name, "widgets.example.org"))
			time.Sleep(time.Minute / 600)
			if err := requests.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if n := looks.Load(); n > (minutes+1)*tenant.MaxRequests {
			t.Errorf("%d looks in %d minutes", n, minutes)
		}
		for i := range tenant.MaxRequests {
			s.put(tenant.RequestResource, s.tenant, requestOf(fmt.Sprintf("stays%d", i), "widgets.example.org"))
		}
		time.Sleep(2 * time.Minute)
		all, err := requests.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range all.Items {
			if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase != string(v1alpha1.RequestFailed) {
				t.Errorf("%s: %q", u.GetName(), phase)
			}
		}
	})
}
