// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/examples/catalog/automation"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// all are the objects of the whole catalogue that have one of these kinds.
func all(kinds ...string) []*unstructured.Unstructured {
	objects := slices.Concat(catalog.CRDs(), catalog.Roles(), catalog.Templates(), catalog.Services())
	return slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool { return !slices.Contains(kinds, u.GetKind()) })
}

func plurals() []string {
	var out []string
	for _, crd := range all("CustomResourceDefinition") {
		plural, _, _ := strings.Cut(crd.GetName(), ".")
		out = append(out, plural)
	}
	slices.Sort(out)
	return out
}

// instanceTypes are the data services of the catalogue.
func instanceTypes() (out []string) {
	for _, plural := range plurals() {
		if name, ok := strings.CutSuffix(plural, "instances"); ok {
			out = append(out, name)
		}
	}
	return out
}

// instanceType is the data service of a kind; false of bindings, backups and restores.
func instanceType(kind string) (string, bool) {
	return strings.CutSuffix(strings.ToLower(kind), "instance")
}

// As decodes strictly: a field that the type does not know is an error.
func as[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &out, true); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return out
}

func TestEveryAPIIsOffered(t *testing.T) {
	var offered []string
	for _, object := range all("APIServiceExportTemplate") {
		template := as[v1alpha1.APIServiceExportTemplate](t, object)
		selector := template.Spec.APIServiceSelector
		if template.Namespace != catalog.Namespace || template.Name != selector.Resource || selector.Group != "anynines.com" {
			t.Errorf("template %s/%s offers %s", template.Namespace, template.Name, selector)
		}
		offered = append(offered, selector.Resource)
		if credentials := selector.Resource == "servicebindings"; credentials == (template.Spec.LostInstances == v1alpha1.LostInstancesReport) {
			t.Errorf("%s: lostInstances is %q; made anew, an instance is empty, a backup is of another day, and a restore overwrites", selector.Resource, template.Spec.LostInstances)
		}
	}
	slices.Sort(offered)
	if diff := cmp.Diff(plurals(), offered); diff != "" {
		t.Errorf("templates of crds and services (-defined +offered):\n%s", diff)
	}
}

// TestApplication: the Deployment uses a key of the Secret that the sample binding gets.
func TestApplication(t *testing.T) {
	binding := catalog.Claims()[1]
	for _, object := range catalog.Application() {
		for _, env := range as[appsv1.Deployment](t, object).Spec.Template.Spec.Containers[0].Env {
			if ref := env.ValueFrom.SecretKeyRef; ref.Name != binding.GetName()+"-service-binding" || ref.Key != "uri" {
				t.Errorf("%s comes from %s of %s", env.Name, ref.Key, ref.Name)
			}
		}
	}
}

// TestServiceTypes: bindings, backups and restores know each data service, and there is an
// order of each.
func TestServiceTypes(t *testing.T) {
	instances := instanceTypes()
	var ordered, names []string
	for _, object := range slices.Concat(catalog.Claims()[:1], catalog.Orders()) {
		if name, ok := instanceType(object.GetKind()); ok {
			ordered = append(ordered, name)
		}
		if name := object.GetKind() + " " + object.GetName(); slices.Contains(names, name) {
			t.Errorf("orders: two are called %s", name)
		} else {
			names = append(names, name)
		}
	}
	slices.Sort(ordered)
	if diff := cmp.Diff(instances, ordered); diff != "" {
		t.Errorf("claims/1-postgresql.yaml and orders (-defined +ordered):\n%s", diff)
	}
	asked := 0
	for _, crd := range catalog.CRDs() {
		kind := internalCRD(t, crd).Spec.Validation.OpenAPIV3Schema.Properties["spec"].Properties["serviceInstanceType"]
		if kind.Enum == nil {
			continue // an instance
		}
		asked++
		var known []string
		for _, value := range kind.Enum {
			known = append(known, fmt.Sprint(value))
		}
		slices.Sort(known)
		if diff := cmp.Diff(instances, known); diff != "" {
			t.Errorf("crds, serviceInstanceType of %s (-defined +known):\n%s", crd.GetName(), diff)
		}
	}
	if asked != 3 {
		t.Errorf("%d kinds know serviceInstanceTypes", asked)
	}
}

// TestNames: the kinds are those of the automation, and no two APIs have a name in common, which would
// keep one of them from being served.
func TestNames(t *testing.T) {
	taken := map[string]string{}
	for _, object := range all("CustomResourceDefinition") {
		names := internalCRD(t, object).Spec.Names
		if want := names.Plural + ".anynines.com"; object.GetName() != want {
			t.Errorf("%s is called %s", want, object.GetName())
		}
		if service, ok := strings.CutSuffix(names.Plural, "instances"); ok && names.Kind != automation.InstanceKind(service) {
			t.Errorf("%s: the kind is %s, want %s", object.GetName(), names.Kind, automation.InstanceKind(service))
		}
		for _, name := range append(names.ShortNames, names.Plural, names.Singular, names.Kind, names.ListKind) {
			if other, ok := taken[name]; ok {
				t.Errorf("%s and %s have the name %s", other, object.GetName(), name)
			}
			taken[name] = object.GetName()
		}
	}
}

func TestRights(t *testing.T) {
	passedOn, bindable := []string{}, []string{}
	for _, object := range all("Role", "ClusterRole") {
		role := as[rbacv1.ClusterRole](t, object) // a Role has the same fields
		for _, rule := range role.Rules {
			if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*") {
				t.Errorf("%s has a wildcard: %v", role.Name, rule)
			}
			bindable = append(bindable, rule.ResourceNames...)
		}
		if role.Labels[v1alpha1.AggregateToBackendLabel] == "true" {
			passedOn = append(passedOn, strings.TrimPrefix(role.Name, "klutch-offer-"))
			wantTenantRights(t, role)
		}
	}
	slices.Sort(passedOn)
	slices.Sort(bindable)
	if diff := cmp.Diff(plurals(), passedOn); diff != "" {
		t.Errorf("roles klutch-offer-… (-defined +passed on):\n%s", diff)
	}
	if diff := cmp.Diff(plurals(), bindable); diff != "" {
		t.Errorf("roles/3-bind.yaml (-defined +bindable):\n%s", diff)
	}
}

// TestServedRights: the account that carries out instances may read them and report on them, and on no others.
func TestServedRights(t *testing.T) {
	broker, err := stack.Read("../servicebroker/deploy/1-role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file   string
		roles  []*unstructured.Unstructured
		carry  string
		served []string
	}{
		{"roles/1-automation.yaml", catalog.Roles(), "products of automation/kind.go", automation.Offered()},
		{"../servicebroker/deploy/1-role.yaml", broker, "crds and services", instanceTypes()},
	} {
		var want, got []string
		for _, service := range c.served {
			want = append(want, service+"instances", service+"instances/status")
		}
		for _, object := range c.roles {
			if object.GetKind() != "ClusterRole" || object.GetLabels() != nil {
				continue
			}
			for _, rule := range as[rbacv1.ClusterRole](t, object).Rules {
				got = append(got, rule.Resources...)
			}
		}
		got = slices.DeleteFunc(got, func(r string) bool { return !strings.HasSuffix(strings.TrimSuffix(r, "/status"), "instances") })
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-%s +%s):\n%s", c.carry, c.file, diff)
		}
	}
}

// wantTenantRights: a tenant writes its claims, and of anything else only reads
// Secrets, where the API claims them.
func wantTenantRights(t *testing.T, role rbacv1.ClusterRole) {
	t.Helper()
	want := []rbacv1.PolicyRule{{
		APIGroups: []string{"anynines.com"}, Resources: []string{strings.TrimPrefix(role.Name, "klutch-offer-")},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
	}}
	if role.Name == "klutch-offer-servicebindings" {
		want = append(want, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}})
	}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("%s (-want +got):\n%s", role.Name, diff)
	}
}
