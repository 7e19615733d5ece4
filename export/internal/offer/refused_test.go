// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Whatever an API server has against an export is told: on the export if it is a change, else in
// the answer to the request. What it cannot take now is tried again.
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
			condition, failed := exports.refresh(t.Context(), export, nil)
			told := condition.Reason == v1alpha1.ReasonCustomResourceDefinitionUpdateFailed && strings.Contains(condition.Message, err.Error())
			if refused := fates.IsRefused(err) || answer.Kind == fates.Replaced; told != refused || condition.Type != "" && !refused || fates.Of(failed) != answer.Kind {
				t.Errorf("a change: %+v, %v", condition, failed)
			}
			publishing := (&Requests{Clients: clients, Authorizations: &tenant.Authorizations{}}).publish(t.Context(), export)
			answered := tenant.AsRefusal(publishing)
			if told := answered != nil && answered.Temporary && strings.Contains(answered.Message, err.Error()); told != fates.IsRefused(err) {
				t.Errorf("a new one: %v", publishing)
			}
		})
	}
}
