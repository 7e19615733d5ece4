// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A list is a catalogue that counts how often it is read.
type list struct {
	services []Service
	reads    int
}

func (l *list) Services(context.Context) ([]Service, error) {
	l.reads++
	return l.services, nil
}

func TestOffers(t *testing.T) {
	catalog := &list{services: []Service{widgetService()}}
	s := &Services{Catalog: catalog}
	for range 3 {
		if _, ok, err := s.named(t.Context(), "widgets.example.org"); !ok || err != nil || catalog.reads != 1 {
			t.Errorf("found %t, %v, after %d reads", ok, err, catalog.reads)
		}
	}
	catalog.services = nil
	s.Offers.Forget("")
	if _, ok, err := s.named(t.Context(), "widgets.example.org"); ok || err != nil {
		t.Errorf("found %t, %v", ok, err)
	}
}

func TestInForce(t *testing.T) {
	with := func(c ...v1alpha1.Condition) *v1alpha1.APIServiceExport {
		return &v1alpha1.APIServiceExport{Status: v1alpha1.APIServiceExportStatus{Conditions: c}}
	}
	all := []*v1alpha1.APIServiceExport{
		with(), with(v1alpha1.True(v1alpha1.ConditionOffered)),
		with(withdraw(v1alpha1.ReasonNotOffered, "gone")), // which a tenant could say as well
		{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.WithdrawnAnnotation: v1alpha1.ReasonNotOffered}}},
	}
	if used, withdrawn := tenant.InForce(all); len(used) != 3 || len(withdrawn) != 1 {
		t.Errorf("%d of 4 are in force, want 3, and %d withdrawn", len(used), len(withdrawn))
	}
}

func widgetService() Service {
	s := Service{}
	s.Resource.Group, s.Resource.Resource = "example.org", "widgets"
	return s
}
