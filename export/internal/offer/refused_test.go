// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Whatever an API server has against an export is told: on the export if it is a change, else in
// the answer to the request: what it refuses at once, and all else once it has lasted. What it
// cannot take now is tried again.
func TestExportRefused(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		err := answer.Err(fakecluster.Request{Verb: "patch", Resource: tenant.ExportResource, Object: cache.NewObjectName("tenant", "widgets.example.org")})
		t.Run(strings.ReplaceAll(err.Error(), "/", " "), func(t *testing.T) {
			c := fakecluster.New(fakecluster.Resource{GroupVersionResource: CRDResource, Kind: "CustomResourceDefinition", Cluster: true}, fakecluster.Resource{GroupVersionResource: tenant.ExportResource, Kind: "APIServiceExport"})
			crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.example.org"}, "spec": map[string]any{
				"group": "example.org", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
			}}}
			if _, err := c.Client().Resource(CRDResource).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				if r.Resource == tenant.ExportResource && (r.Verb == "patch" || r.Verb == "create") {
					return err
				}
				return do()
			})
			clients := tenant.Clients{Dyn: c.Client()}
			export := &v1alpha1.APIServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "widgets.example.org", UID: "u"}}
			export.Spec.Scope = v1alpha1.NamespacedScope
			exports := &Exports{Clients: clients, Breaking: v1alpha1.BreakingChangesAllow, Schemas: &Schemas{Dyn: c.Client()}}
			for lasts, ctx := range map[bool]context.Context{false: t.Context(), true: fates.FailingSince(t.Context(), time.Now().Add(-time.Minute))} {
				condition, failed := exports.refresh(ctx, export, nil)
				told := condition.Reason == v1alpha1.ReasonCustomResourceDefinitionUpdateFailed && strings.Contains(condition.Message, err.Error()) &&
					strings.Contains(condition.Message, answer.Kind.Word().String()) && (condition.Severity == v1alpha1.SeverityError) == (answer.Kind.Word() == fates.Refuses)
				if tells := lasts || fates.IsRefused(err) || answer.Kind == fates.Replaced; told != tells || condition.Type != "" && !tells || fates.Of(failed) != answer.Kind {
					t.Errorf("a change, lasting %t: %+v, %v", lasts, condition, failed)
				}
				publishing := (&Requests{Clients: clients, Authorizations: &tenant.Authorizations{}}).publish(ctx, export)
				answered := tenant.AsRefusal(publishing)
				told = answered != nil && answered.Temporary && strings.Contains(answered.Message, err.Error()) && strings.Contains(answered.Message, answer.Kind.Word().String())
				if told != (fates.IsRefused(err) || lasts && answer.Kind != fates.Exists) { // which is what is asked for
					t.Errorf("a new one, lasting %t: %v", lasts, publishing)
				}
				late := &v1alpha1.APIServiceExportRequest{} // long past its grace
				if told && waits(late, answered) == fates.IsRefused(err) || told && (fates.Of(answered.Err) != answer.Kind || answered.Lasts == fates.IsRefused(err)) {
					t.Errorf("a request for a new one: %+v", answered)
				}
			}
		})
	}
}

// A failing catalogue cannot be read.
type failing struct{ err error }

func (f failing) Services(context.Context) ([]Service, error) { return nil, f.err }

// Whatever keeps the backend from reading what an export follows, the catalogue or the CRD, is told on
// the export, at once if it is a refusal and else once it has lasted, and tried again. Whether it is on
// offer stays as it was.
func TestExportUnread(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		err := answer.Err(fakecluster.Request{Verb: "get", Resource: CRDResource, Object: cache.NewObjectName("", "widgets.example.org")})
		t.Run(strings.ReplaceAll(err.Error(), "/", " "), func(t *testing.T) {
			c := fakecluster.New(fakecluster.Resource{GroupVersionResource: CRDResource, Kind: "CustomResourceDefinition", Cluster: true})
			c.Intercept(func(context.Context, fakecluster.Request, func() error) error { return err })
			export := &v1alpha1.APIServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "widgets.example.org", Annotations: map[string]string{v1alpha1.WithdrawnAnnotation: v1alpha1.ReasonNotOffered}}}
			logins := tenant.NewControllers(tenant.New(tenant.Clients{}, &tenant.Options{}), &tenant.Caches{}, nil).Logins
			for name, catalog := range map[string]Catalog{"catalogue": failing{err}, "CRD": &list{}} {
				e := &Exports{Services: &Services{Catalog: catalog}, Schemas: &Schemas{Dyn: c.Client()}, Logins: logins}
				for lasts, ctx := range map[bool]context.Context{false: t.Context(), true: fates.FailingSince(t.Context(), time.Now().Add(-time.Minute))} {
					found, failed := e.judge(ctx, export)
					e.Services.Offers.Forget("")
					if fates.Of(failed) != fates.Of(err) {
						t.Errorf("%s, lasting %t: %v", name, lasts, failed)
					}
					inSync := v1alpha1.FindCondition(found, v1alpha1.ConditionProviderInSync)
					if told := inSync != nil && inSync.Reason == v1alpha1.ReasonStepFailed && strings.Contains(inSync.Message, err.Error()); told != (lasts || fates.IsRefused(err)) {
						t.Errorf("%s, lasting %t: %+v", name, lasts, found)
					}
					if offered := v1alpha1.FindCondition(found, v1alpha1.ConditionOffered); name == "catalogue" && offered != nil {
						t.Errorf("nothing is known of the offer, and it is %+v", offered)
					}
				}
			}
		})
	}
}
