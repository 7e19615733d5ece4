// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func (c *tenantClient) patchStatus(gvr schema.GroupVersionResource, name, status string) {
	c.w.t.Helper()
	_, err := c.dyn.Resource(gvr).Namespace(c.namespace).Patch(c.w.t.Context(), name, types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
	if err != nil {
		c.w.t.Fatal(err)
	}
}

// nonsense is what the schemas let a tenant write, and Go cannot read, or should not
// keep. A backend that starts then sees all tenants, and what it writes about this one
// comes to rest.
func nonsense(t *testing.T, ada *tenantClient) {
	t.Helper()
	const service = "widgets.example.org"
	odd := `{"type":"Odd","status":"True","lastTransitionTime":"2026-01-01t00:00:00z"}`
	long := `{"type":"Long","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","message":"` + strings.Repeat("x", 1<<15) + `"}`
	ada.patchStatus(tenant.ClusterBindingResource, "cluster", `{"heartbeatInterval":"often","lastHeartbeatTime":"2026-01-01t00:00:00z"}`)
	for _, conditions := range []string{odd, long, odd + "," + long} {
		ada.patchStatus(tenant.ExportResource, service, `{"conditions":[`+conditions+`],"storedVersions":["`+strings.Repeat("v", 1<<6-1)+`"]}`)
		ada.export(service, inSync)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	c := must(newControl(must(New(ada.w.config, Options{}))))
	for _, inf := range []cache.SharedIndexInformer{c.caches.ClusterBindings, c.caches.Exports} {
		running.Go(func() { inf.RunWithContext(ctx) })
	}
	ada.w.eventually("a backend that starts sees all there is", func(context.Context) (bool, error) {
		return c.caches.ClusterBindings.HasSynced() && c.caches.Exports.HasSynced(), nil
	})
	binding, ok := tenant.Lookup(c.caches.ClusterBindings, cache.NewObjectName(ada.namespace, "cluster"))
	if !ok || binding.Status.LastHeartbeatTime != nil || !v1alpha1.IsTrue(binding.Status.Conditions, v1alpha1.ConditionAdmitted) {
		t.Errorf("cluster binding: %+v", binding)
	}
	ada.w.settled()
	ada.patchStatus(tenant.ClusterBindingResource, "cluster", `{"heartbeatInterval":null,"lastHeartbeatTime":null}`)
}

// greedy: one request cannot keep the backend busy.
func greedy(t *testing.T, ada *tenantClient) {
	t.Helper()
	got := ada.request("greedy", slices.Repeat([]string{"widgets.example.org"}, 250)...)
	if c := v1alpha1.FindCondition(got.Status.Conditions, v1alpha1.ConditionExportsReady); got.Status.Phase != v1alpha1.RequestFailed || c.Reason != tenant.ReasonTooMany {
		t.Errorf("status: %+v", got.Status)
	}
}

// noToken: a tenant that may make Secrets beside an operator's service account gets none of
// its tokens.
func noToken(t *testing.T, ada *tenantClient) {
	t.Helper()
	writes := []any{map[string]any{"resource": "secrets", "version": "v1", "required": true, "selector": map[string]any{"owner": "Consumer"}}}
	ada.w.apply(object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: offer-secrets, labels: {klutch.anynines.com/aggregate-to-backend: "true"}},
		rules: [{apiGroups: [""], resources: [secrets], verbs: [create, update, patch, delete]}]}`))
	ada.w.eventually("right to secrets", func(ctx context.Context) (bool, error) {
		_, err := ada.w.exporter.tenants.Rights.Check(ctx, tenant.Rules([]*v1alpha1.APIServiceExport{exportOf("", "secrets")}))
		return err == nil, nil
	})
	ada.w.apply(changed(templateOf("gadgets"), writes, "spec", "permissionClaims"))
	ada.may("create", "", "secrets", true)
	for kind, refused := range map[corev1.SecretType]bool{corev1.SecretTypeOpaque: false, corev1.SecretTypeServiceAccountToken: true} {
		_, err := ada.kube.CoreV1().Secrets(ada.namespace+"-team-a").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "x", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: kind,
		}, metav1.CreateOptions{})
		if said := err != nil && strings.Contains(err.Error(), "tenants may not make Secrets of service account tokens"); said != refused || !refused && err != nil {
			t.Errorf("make a secret of type %s: %v", kind, err)
		}
	}
	ada.w.apply(templateOf("gadgets"))
	ada.may("create", "", "secrets", false)
}
