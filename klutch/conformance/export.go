// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func exportChecks() []check {
	return []check{
		{"request is answered with an export", "WIRE 1.5, 11.6", checkExported},
		{"snapshot", "WIRE 1.4", checkSnapshot},
		{"schema to the letter", "WIRE 3.5", checkSchema},
		{"request for what is not on offer", "WIRE 1.5, 11.6", func(c checker) { c.refusedRequest("nothing.conformance.example") }},
		{"request for what may not be bound", "SECURITY 1.8", checkRefusedRequest},
		{"requests cannot be empty or change", "WIRE 1.5", checkRequestSchema},
		{"service namespace", "WIRE 1.7, 11.9", checkMirror},
		{"service namespace of a long name", "WIRE 1.7, 11.9", checkLongMirror},
	}
}

// ask creates a request under a name of its own.
func (t *tenant) ask(ctx context.Context, service string) (*unstructured.Unstructured, error) {
	gr := schema.ParseGroupResource(service)
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceExportRequest",
		"metadata": map[string]any{"generateName": "conformance-"},
		"spec":     map[string]any{"resources": []any{map[string]any{"group": gr.Group, "resource": gr.Resource}}},
	}}
	return t.ours("apiserviceexportrequests").Create(ctx, u, metav1.CreateOptions{})
}

// answered waits for the answer to a request for a service.
func (s *suite) answered(ctx context.Context, t *tenant, service string) (*v1alpha1.APIServiceExportRequest, error) {
	made, err := t.ask(ctx, service)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", service, err)
	}
	var got *v1alpha1.APIServiceExportRequest
	if !s.eventually(ctx, func(ctx context.Context) bool {
		got, err = read[v1alpha1.APIServiceExportRequest](ctx, t, "apiserviceexportrequests", made.GetName())
		return err == nil && got.Status.Phase != "" && got.Status.Phase != v1alpha1.RequestPending
	}) {
		return nil, fmt.Errorf("WIRE 1.5: a request for %s has no answer after %s: %w", service, s.Patience, err)
	}
	return got, nil
}

// exported returns the export of the service that is tested.
func (s *suite) exported(ctx context.Context, t *tenant) (*v1alpha1.APIServiceExport, error) {
	got, err := s.answered(ctx, t, s.Service)
	if err != nil {
		return nil, err
	}
	if got.Status.Phase != v1alpha1.RequestSucceeded {
		return nil, fmt.Errorf("WIRE 1.5: a request for %s, chosen at a login, ends with phase %s: %s", s.Service, got.Status.Phase, got.Status.TerminalMessage)
	}
	export, err := read[v1alpha1.APIServiceExport](ctx, t, "apiserviceexports", s.Service)
	if err != nil {
		return nil, fmt.Errorf("WIRE 11.6: the request has succeeded without an export of the same name: %w", err)
	}
	return export, nil
}

func (c checker) export() *v1alpha1.APIServiceExport {
	c.Helper()
	export, err := c.tenant(c.one).export()
	c.must("the export", err)
	return export
}

func checkExported(c checker) { c.export() }

func checkSnapshot(c checker) {
	spec := c.export().Spec
	if got := spec.Names.Plural + "." + spec.Group; got != c.Service {
		c.violated("the export %s is about %s", c.Service, got)
	}
	if spec.Names.Kind == "" || spec.Scope != v1alpha1.NamespacedScope || spec.InformerScope == "" {
		c.violated("kind %q, scope %q, informerScope %q", spec.Names.Kind, spec.Scope, spec.InformerScope)
	}
	stored := 0
	for _, v := range spec.Versions {
		if v.Storage {
			stored++
		}
		if !v.Served {
			c.violated("version %s is not served, so it cannot be used", v.Name)
		}
		if !strings.Contains(string(v.Schema.OpenAPIV3Schema.Raw), `"type"`) {
			c.violated("version %s has no schema", v.Name)
		}
	}
	if stored != 1 {
		c.violated("%d versions are the one to store", stored)
	}
}

// checkSchema compares the export with the CRD.
func checkSchema(c checker) {
	if c.ControlPlane == nil {
		c.Skip("Options.ControlPlane is nil")
	}
	dyn, err := dynamic.NewForConfig(c.ControlPlane)
	c.must("client of the Control Plane Cluster", err)
	crds := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	crd, err := dyn.Resource(crds).Get(c.Context(), c.Service, metav1.GetOptions{})
	c.must("read the CRD", err)
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	want := map[string]any{}
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(version, "name")
			want[name], _, _ = unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		}
	}
	for _, v := range c.export().Spec.Versions {
		var got, wanted any
		data, err := json.Marshal(want[v.Name])
		c.must("encode", err)
		c.must("decode", json.Unmarshal(data, &wanted))
		c.must("the schema is JSON", json.Unmarshal(v.Schema.OpenAPIV3Schema.Raw, &got))
		if !equality.Semantic.DeepEqual(wanted, got) {
			c.violated("version %s of the CRD has the schema\n%s\nand that of the export\n%s", v.Name, data, v.Schema.OpenAPIV3Schema.Raw)
		}
	}
}

// refusedRequest fails unless a request for a service fails, with a reason, and
// without an export.
func (c checker) refusedRequest(service string) {
	c.Helper()
	t := c.tenant(c.one)
	got, err := c.answered(c.Context(), t, service)
	c.must("an answer", err)
	if got.Status.Phase != v1alpha1.RequestFailed || got.Status.TerminalMessage == "" {
		c.violated("a request for %s ends with phase %s, terminalMessage %q", service, got.Status.Phase, got.Status.TerminalMessage)
	}
	if _, err := read[v1alpha1.APIServiceExport](c.Context(), t, "apiserviceexports", service); !fates.Is(err, fates.Absent) {
		c.violated("there is an export %s: %v", service, err)
	}
}

func checkRefusedRequest(c checker) {
	if c.Refused == "" {
		c.Skip("Options.Refused is empty")
	}
	c.refusedRequest(c.Refused)
}

func checkRequestSchema(c checker) {
	t := c.tenant(c.one)
	empty := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceExportRequest",
		"metadata": map[string]any{"generateName": "conformance-"}, "spec": map[string]any{"resources": []any{}},
	}}
	if _, err := t.ours("apiserviceexportrequests").Create(c.Context(), empty, metav1.CreateOptions{}); !fates.Is(err, fates.Invalid) {
		c.violated("a request for nothing is taken: %v", err)
	}
	made, err := t.ask(c.Context(), c.Service)
	c.must("request", err)
	change := []byte(`{"spec":{"resources":[{"group":"conformance.example","resource":"nothing"}]}}`)
	_, err = t.ours("apiserviceexportrequests").Patch(c.Context(), made.GetName(), types.MergePatchType, change, metav1.PatchOptions{})
	if !fates.Is(err, fates.Invalid, fates.Forbidden) {
		c.violated("what a request asks for can be changed: %v", err)
	}
}

func checkMirror(c checker) {
	t := c.tenant(c.one)
	mirror, err := t.mirror()
	c.must("the service namespace", err)
	if mirror == t.namespace || len(validation.IsDNS1123Label(mirror)) > 0 {
		c.violated("service namespace %q of tenant %s", mirror, t.namespace)
	}
	other, err := c.mirrored(c.Context(), t, "conformance-b")
	c.must("another service namespace", err)
	if other == mirror {
		c.violated("two namespaces share the service namespace %s", mirror)
	}
}

func checkLongMirror(c checker) {
	name := strings.Repeat("conformance", 6)[:validation.DNS1123LabelMaxLength]
	mirror, err := c.mirrored(c.Context(), c.tenant(c.one), name)
	c.must("the service namespace of "+name, err)
	if len(validation.IsDNS1123Label(mirror)) > 0 {
		c.violated("service namespace %q is not the name of a namespace", mirror)
	}
}
