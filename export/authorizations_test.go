// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// reviewable gives the tenant a record, and people the right to bind as long as
// allowed says so.
func (s *still) reviewable(allowed *atomic.Bool) {
	s.Helper()
	data := must(json.Marshal(tenant.Record{Identity: auth.Identity{Issuer: "https://issuer", Subject: "ada"}, Cluster: "c1"}))
	if err := s.kube.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantRecordSecret, Namespace: s.tenant}, Data: map[string][]byte{tenant.RecordKey: data}}); err != nil {
		s.Fatal(err)
	}
	s.kube.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: allowed.Load()}}, nil
	})
	s.kube.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
}

// asked is how often a verb of a resource was asked for.
func (s *still) asked(verb, resource string) (n int) {
	synctest.Wait()
	for _, a := range s.kube.Actions() {
		n += tenant.One(a.Matches(verb, resource))
	}
	return n
}

// A fickle is a catalogue that changes.
type fickle struct {
	atomic.Pointer[[]Service]
}

func (f *fickle) Services(context.Context) ([]Service, error) { return *f.Load(), nil }

// What a tenant may bind is asked once a review, however much happens to its exports,
// and who it is once for all of them.
func TestReviewsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, catalog, services, allowed := newStill(t), &fickle{}, []Service{}, &atomic.Bool{}
		allowed.Store(true)
		s.reviewable(allowed)
		exports := s.Client().Resource(tenant.ExportResource).Namespace(s.tenant)
		for i := range 5 {
			plural := fmt.Sprintf("gadget%ds", i)
			services = append(services, serviceOf(plural))
			s.put(offer.CRDResource, "", crdOf(plural, v1alpha1.NamespacedScope))
			s.put(tenant.ExportResource, s.tenant, object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExport, metadata: {name: "+plural+".example.org}, spec: {scope: Namespaced}}"))
		}
		catalog.Store(&services)
		s.run("apiserviceexport", Options{Catalog: catalog})
		synctest.Wait()
		for beat := range 24 { // an hour
			time.Sleep(150 * time.Second)
			for _, service := range services {
				patch := fmt.Appendf(nil, `{"status":{"acceptedNames":{"kind":"beat-%d"}}}`, beat)
				if _, err := exports.Patch(t.Context(), service.Name(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
					t.Fatal(err)
				}
			}
		}
		reads, reviews := s.asked("get", "secrets"), s.asked("create", "subjectaccessreviews")
		if reads < 6 || reads > 7 || reviews != 5*reads {
			t.Errorf("in an hour a tenant was read %d times, and what it may bind reviewed %d times", reads, reviews)
		}
		s.put(templateResource, "default", templateOf("gadget0s"))
		if n := s.asked("create", "subjectaccessreviews") - reviews; n != 1 {
			t.Errorf("a template led to %d reviews", n)
		}
		for _, step := range []struct {
			change func()
			reason string
		}{
			{func() { allowed.Store(false) }, v1alpha1.ReasonNotAuthorized},
			{func() { catalog.Store(&[]Service{}) }, v1alpha1.ReasonNotOffered},
		} {
			step.change()
			time.Sleep(12 * time.Minute)
			synctest.Wait()
			for _, o := range must(exports.List(t.Context(), metav1.ListOptions{})).Items {
				if got := o.GetAnnotations()[v1alpha1.WithdrawnAnnotation]; got != step.reason {
					t.Errorf("%s is withdrawn for %q, want %q", o.GetName(), got, step.reason)
				}
			}
		}
		before := len(s.Writes()) + len(s.kube.Actions())
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := len(s.Writes()) + len(s.kube.Actions()) - before; n != 0 {
			t.Errorf("%d requests in a day about what is not on offer", n)
		}
	})
}
