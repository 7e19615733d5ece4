// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// What a tenant may not set on an object, by what the refusal says.
var forgeries = map[string][]string{
	"by which a tool knows its objects": {
		`{"metadata":{"annotations":{"crossplane.io/external-name":"prod-of-grace"}}}`,
		`{"metadata":{"annotations":{"crossplane.io/paused":"true"}}}`,
		`{"metadata":{"labels":{"crossplane.io/composite":"x"}}}`,
		`{"metadata":{"annotations":{"sub.crossplane.io/x":"x"}}}`,
		`{"metadata":{"labels":{"app.kubernetes.io/instance":"platform"}}}`,
		`{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"platform:example.org/Widget:x/w"}}}`,
		`{"metadata":{"labels":{"kustomize.toolkit.fluxcd.io/name":"platform"}}}`,
		`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"}}}`,
		`{"metadata":{"annotations":{"meta.helm.sh/release-name":"platform"}}}`,
		`{"metadata":{"labels":{"applyset.kubernetes.io/part-of":"applyset-x"}}}`,
		`{"metadata":{"labels":{"klutch.anynines.com/tenant":"grace"}}}`,
		`{"metadata":{"annotations":{"gate.klutch.anynines.com/x":"open"}}}`,
		`{"metadata":{"annotations":{"klutch.anynines.com/withdrawn":"x"}}}`,
	},
	"tenants may not set or remove owner references": {
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"kube-root-ca.crt","uid":"1","controller":true}]}}`,
	},
	"tenants may not set or remove references to what Crossplane composed": {
		`{"spec":{"resourceRef":{"apiVersion":"example.org/v1","kind":"XWidget","name":"of-grace"}}}`,
		`{"spec":{"resourceRefs":[{"name":"of-grace"}]}}`,
		`{"spec":{"crossplane":{"resourceRefs":[{"name":"of-grace"}]}}}`,
	},
}

// leftOut: with its credential a tenant makes and changes its objects, and sets nothing
// by which it would get at what is not its own.
func leftOut(t *testing.T, ada *tenantClient) {
	t.Helper()
	own := ada.dyn.Resource(widgets).Namespace(ada.namespace + "-team-a")
	all := ada.w.dyn.Resource(widgets).Namespace(ada.namespace + "-team-a")
	for want, patches := range forgeries {
		for _, patch := range patches {
			_, err := own.Patch(t.Context(), "w", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			refused(t, "change to "+patch, err, want)
			for how, meta := range map[string]string{"name": `{"name":"forged"}`, "generateName": `{"generateName":"forged-"}`} {
				u := object("{apiVersion: example.org/v1, kind: Widget, spec: {size: 1}}")
				overlay(u.Object, patch, `{"metadata":`+meta+`}`)
				_, err = own.Create(t.Context(), u, metav1.CreateOptions{})
				refused(t, "create by "+how+" "+patch, err, want)
			}
			u := object("{apiVersion: example.org/v1, kind: Widget}")
			overlay(u.Object, patch, `{"metadata":{"name":"w"}}`)
			_, err = own.Apply(t.Context(), "w", u, metav1.ApplyOptions{FieldManager: "klutch.anynines.com/x", Force: true})
			refused(t, "apply "+patch, err, want)
		}
	}
	// What the platform's own tools put there stays, and is in no one's way.
	theirs := `{"metadata":{"annotations":{"crossplane.io/external-name":"own","crossplane.io/paused":"true"},"labels":{"argocd.argoproj.io/instance":"x"}},
		"spec":{"resourceRef":{"name":"own"},"crossplane":{"resourceRefs":[{"name":"own"}]}}}`
	for _, step := range []struct {
		client      dynamic.ResourceInterface
		patch, want string
	}{
		{all, theirs, ""},
		{own, `{"spec":{"size":5}}`, ""},
		{own, `{"metadata":{"annotations":{"crossplane.io/external-name":"prod-of-grace"}}}`, "crossplane.io/external-name"},
		{own, `{"metadata":{"annotations":{"crossplane.io/paused":null}}}`, "tenants may not resume"},
		{own, `{"spec":{"resourceRef":null}}`, "references to what Crossplane composed"},
		{own, `{"spec":{"crossplane":{"resourceRefs":[{"name":"own"},{"name":"of-grace"}]}}}`, "references to what Crossplane composed"},
		{own, `{"spec":{"crossplane":{"compositionRef":{"name":"x"}},"size":3}}`, ""},
		{all, `{"metadata":{"annotations":{"crossplane.io/external-name":null,"crossplane.io/paused":null},"labels":null},"spec":{"resourceRef":null,"crossplane":null}}`, ""},
	} {
		_, err := step.client.Patch(t.Context(), "w", types.MergePatchType, []byte(step.patch), metav1.PatchOptions{})
		if refused(t, step.patch, err, step.want); err != nil && step.want == "" {
			t.Errorf("%s: %v", step.patch, err)
		}
	}
	_, err := own.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"status":{"phase":"Ready"}}`), metav1.PatchOptions{}, "status")
	if !apierrors.IsForbidden(err) {
		t.Errorf("write a status: %v", err)
	}
	for _, gvr := range []string{"apiserviceexportrequests", "apiservicenamespaces"} {
		u := object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExportRequest, metadata: {name: forged}, spec: {resources: [{resource: xx}]}}")
		if gvr == "apiservicenamespaces" {
			u = object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: forged}}")
		}
		overlay(u.Object, `{"metadata":{"labels":{"klutch.anynines.com/tenant":"x"}}}`)
		_, err := ada.dyn.Resource(v1alpha1.Resource(gvr)).Namespace(ada.namespace).Create(t.Context(), u, metav1.CreateOptions{})
		refused(t, gvr, err, "klutch.anynines.com/tenant")
	}
}

// ownReferences: a kind that Crossplane does not serve may have a field with a name of
// Crossplane's, once its platform team says so.
func ownReferences(t *testing.T, ada *tenantClient) {
	t.Helper()
	bindings := ada.w.dyn.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"})
	exempt := func(rules string) {
		t.Helper()
		patch := `{"spec":{"matchResources":{"excludeResourceRules":` + rules + `}}}`
		if _, err := bindings.Patch(t.Context(), "klutch-references", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	set := func(name string) bool {
		own := ada.dyn.Resource(widgets).Namespace(ada.namespace + "-team-a")
		_, err := own.Patch(t.Context(), "w", types.MergePatchType, []byte(`{"spec":{"resourceRef":`+name+`}}`), metav1.PatchOptions{})
		refused(t, "own reference", cmp.Or(err, errors.New("klutch-references")), "klutch-references")
		return err == nil
	}
	if set(`{"name":"own"}`) {
		t.Error("a reference was set")
	}
	exempt(`[{"apiGroups":["example.org"],"apiVersions":["*"],"resources":["widgets"],"operations":["*"]}]`)
	ada.w.eventually("the kind is exempt", func(context.Context) (bool, error) { return set(`{"name":"own"}`) && set(`null`), nil })
	exempt(`null`)
	ada.w.eventually("the kind is not exempt any more", func(context.Context) (bool, error) { return !set(`{"name":"own"}`) || !set(`null`), nil })
	if _, err := ada.w.dyn.Resource(widgets).Namespace(ada.namespace+"-team-a").Patch(t.Context(), "w", types.MergePatchType, []byte(`{"spec":{"resourceRef":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// refused fails a test if err does not say want; with an empty want it leaves err alone.
func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v", what, err)
	}
}

// overlay merges JSON objects into one.
func overlay(into map[string]any, texts ...string) {
	for _, text := range texts {
		var part map[string]any
		if err := json.Unmarshal([]byte(text), &part); err != nil {
			panic(err)
		}
		merge(into, part)
	}
}

func merge(into, part map[string]any) {
	for key, value := range part {
		below, isMap := value.(map[string]any)
		have, there := into[key].(map[string]any)
		if isMap && there {
			merge(have, below)
		} else {
			into[key] = value
		}
	}
}

// konnectors: what ours writes with the credential of a tenant, of an object that
// carries whatever there is, and what Klutch's does, gets through.
func konnectors(t *testing.T, ada *tenantClient) {
	t.Helper()
	w, source, target := ada.w, "app-of-ada", ada.namespace+"-team-a"
	w.apply(object("{apiVersion: v1, kind: Namespace, metadata: {name: " + source + "}}"))
	u := object("{apiVersion: example.org/v1, kind: Widget, metadata: {name: honest, namespace: " + source + ", labels: {team: red}}, spec: {size: 2}}")
	for _, patches := range forgeries {
		for _, patch := range patches {
			overlay(u.Object, patch)
		}
	}
	owner := "kube-root-ca.crt" // one that exists, or else Kubernetes takes the object away
	w.eventually("owner", func(ctx context.Context) (bool, error) {
		o, err := w.admin.CoreV1().ConfigMaps(source).Get(ctx, owner, metav1.GetOptions{})
		if err == nil {
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: o.UID, Controller: new(true)}})
		}
		return err == nil, tenant.IgnoreNotFound(err)
	})
	w.apply(u)
	app, platform := must(klutchsync.NewCluster(w.cluster.Config())), must(klutchsync.NewCluster(ada.config)).IdentifiedBy(ada.namespace)
	table := klutchsync.NewNamespaces(func(string) {})
	table.Set(source, target)
	engine := must(klutchsync.New(app, platform, widgets, klutchsync.Options{Mapper: table, Binding: "test", TargetScope: klutchsync.ScopeMapped}))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- engine.Run(ctx) }()
	size := func(want int64) {
		t.Helper()
		w.eventually(fmt.Sprintf("size %d", want), func(ctx context.Context) (bool, error) {
			got, err := w.dyn.Resource(widgets).Namespace(target).Get(ctx, "honest", metav1.GetOptions{})
			if err != nil {
				return false, tenant.IgnoreNotFound(err)
			}
			have, _, _ := unstructured.NestedInt64(got.Object, "spec", "size")
			return have == want && got.GetAnnotations()[klutchsync.SourceAnnotation] != "" && got.GetLabels()["team"] == "red", nil
		})
	}
	size(2)
	if _, err := w.dyn.Resource(widgets).Namespace(source).Patch(t.Context(), "honest", types.MergePatchType, []byte(`{"spec":{"size":6}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	size(6)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	klutchs(t, ada, target)
}

// klutchs writes as Klutch's konnector does: it creates a copy of the whole object with
// what kubectl noted of it, and applies it whole with another spec.
func klutchs(t *testing.T, ada *tenantClient, target string) {
	t.Helper()
	own := ada.dyn.Resource(widgets).Namespace(target)
	u := object(`{apiVersion: example.org/v1, kind: Widget, metadata: {name: klutch, labels: {team: red}, annotations: {
		klutch.anynines.com/bound: "true", kubectl.kubernetes.io/last-applied-configuration: "{}"}}, spec: {size: 2}}`)
	if _, err := own.Create(t.Context(), u, metav1.CreateOptions{FieldManager: "konnector"}); err != nil {
		t.Fatal(err)
	}
	if _, err := ada.w.dyn.Resource(widgets).Namespace(target).Patch(t.Context(), "klutch", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["finalizer.apiextensions.crossplane.io"],"annotations":{"crossplane.io/external-name":"x"}},"spec":{"resourceRef":{"name":"x"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	whole, err := own.Get(t.Context(), "klutch", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole.SetManagedFields(nil)
	whole.Object["spec"] = map[string]any{"size": int64(4)}
	if _, err := own.Apply(t.Context(), "klutch", whole, metav1.ApplyOptions{FieldManager: v1alpha1.FieldManager, Force: true}); err != nil {
		t.Errorf("apply: %v", err)
	}
	if _, err := ada.w.dyn.Resource(widgets).Namespace(target).Patch(t.Context(), "klutch", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	large := object("{apiVersion: example.org/v1, kind: Widget, metadata: {name: large}, spec: {size: 2}}")
	for i := range 5000 { // whose names and values cost the policy something
		large.Object["spec"].(map[string]any)[fmt.Sprintf("field%d", i)] = strings.Repeat("x", 100)
	}
	if _, err := own.Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
		t.Errorf("a large object: %v", err)
	}
	for _, name := range []string{"klutch", "honest", "large"} {
		if err := own.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// boundedWrites: nothing that a tenant writes in its tenant namespace is large.
func boundedWrites(t *testing.T, ada *tenantClient) {
	t.Helper()
	long := strings.Repeat("x", 1<<20)
	create := func(gvr, text string) error {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		overlay(u.Object, `{"apiVersion":"klutch.anynines.com/v1alpha1","metadata":{"name":"large"}}`, text)
		_, err := ada.dyn.Resource(v1alpha1.Resource(gvr)).Namespace(ada.namespace).Create(t.Context(), u, metav1.CreateOptions{})
		return err
	}
	status := func(gvr, name, text string) error {
		_, err := ada.dyn.Resource(v1alpha1.Resource(gvr)).Namespace(ada.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":`+text+`}`), metav1.PatchOptions{}, "status")
		return err
	}
	conditions := func(n, size int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"type":"T%d","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","message":%q}`, i, long[:size]))
		}
		return `{"conditions":[` + strings.Join(all, ",") + `]}`
	}
	const request, export = `"kind":"APIServiceExportRequest"`, "widgets.example.org"
	for what, err := range map[string]error{
		"parameters":           create("apiserviceexportrequests", `{`+request+`,"spec":{"resources":[{"resource":"xx"}],"parameters":{"x":"`+long+`"}}}`),
		"a resource's name":    create("apiserviceexportrequests", `{`+request+`,"spec":{"resources":[{"resource":"`+long+`"}]}}`),
		"many resources":       create("apiserviceexportrequests", `{`+request+`,"spec":{"resources":[{"resource":"xx"}`+strings.Repeat(`,{"resource":"xx"}`, 300)+`]}}`),
		"labels of a claim":    create("apiserviceexportrequests", `{`+request+`,"spec":{"resources":[{"resource":"xx","permissionClaims":[{"resource":"secrets","version":"v1","required":true,"selector":{"labelSelectors":[{"a":"`+long+`"}]}}]}]}}`),
		"annotations":          create("apiservicenamespaces", `{"kind":"APIServiceNamespace","metadata":{"annotations":{"a":"`+long[:200<<10]+`"}}}`),
		"a long message":       status("apiserviceexports", export, conditions(1, 40_000)),
		"many messages":        status("apiserviceexports", export, conditions(10, 30_000)),
		"many conditions":      status("clusterbindings", "cluster", conditions(100, 10)),
		"a version":            status("clusterbindings", "cluster", `{"konnectorVersion":"`+long+`"}`),
		"an interval":          status("clusterbindings", "cluster", `{"heartbeatInterval":"`+long+`"}`),
		"a cluster":            status("clusterbindings", "cluster", `{"clusterUID":"`+long+`"}`),
		"stored versions":      status("apiserviceexports", export, `{"storedVersions":["`+long+`"]}`),
		"accepted names":       status("apiserviceexports", export, `{"acceptedNames":{"plural":"x","kind":"`+long+`"}}`),
		"managed fields":       create("apiserviceexportrequests", `{`+request+`,"spec":{"resources":[{"resource":"xx"}]},"metadata":{"managedFields":[{"manager":"x","operation":"Update","apiVersion":"klutch.anynines.com/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:`+long[:200<<10]+`":{}}}}]}}`),
		"many stored versions": status("apiserviceexports", export, `{"storedVersions":["v1"`+strings.Repeat(`,"v1"`, 100)+`]}`),
	} {
		if tooMuch := apierrors.IsInvalid(err) && !strings.Contains(err.Error(), "should match"); !tooMuch && (err == nil || !strings.Contains(err.Error(), "KiB at most")) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
