// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/exporttemplate"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

func serviceOf(plural string) Service {
	s := Service{Template: cache.NewObjectName("default", plural)}
	s.Resource.Group, s.Resource.Resource = "example.org", plural
	return s
}

func TestSelected(t *testing.T) {
	for name, test := range map[string]struct{ spec, want, version string }{
		"ours":         {"{apiServiceSelector: {group: example.org, resource: widgets, version: v2}}", "widgets.example.org", "v2"},
		"theirs":       {"{APIServiceSelector: {group: example.org, resource: widgets, version: null}}", "widgets.example.org", ""},
		"older":        {"{APIServiceSelector: {group: example.org, resource: widgets, versions: [v3, v4]}}", "widgets.example.org", "v3"},
		"core":         {"{APIServiceSelector: {resource: pods}}", "pods", ""},
		"says nothing": {"{}", "", ""},
	} {
		u := object("{spec: " + test.spec + "}")
		if got := exporttemplate.Selected(u).String(); got != test.want || preferred(u) != test.version {
			t.Errorf("%s: %s in %q", name, got, preferred(u))
		}
	}
}

// export waits for a state of an export of c.
func (c *tenantClient) export(service string, done func(*v1alpha1.APIServiceExport) bool) *v1alpha1.APIServiceExport {
	c.w.t.Helper()
	return until(c.w, "apiserviceexports", c.namespace, service, done)
}

// says tells whether a condition of an export is False for that reason, and mentions
// all of words.
func says(conditionType, reason string, words ...string) func(*v1alpha1.APIServiceExport) bool {
	return func(o *v1alpha1.APIServiceExport) bool {
		c := v1alpha1.FindCondition(o.Status.Conditions, conditionType)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason || !v1alpha1.IsTrue(o.Status.Conditions, conditionType) && c.Message == "" {
			return false
		}
		for _, w := range words {
			if !strings.Contains(c.Message, w) {
				return false
			}
		}
		return true
	}
}

// changed returns a copy of a template or CRD with one field set.
func changed(u *unstructured.Unstructured, value any, fields ...string) *unstructured.Unstructured {
	u = u.DeepCopy()
	if err := unstructured.SetNestedField(u.Object, runtime.DeepCopyJSONValue(value), fields...); err != nil {
		panic(err)
	}
	return u
}

func claimsFlow(t *testing.T, ada *tenantClient) {
	t.Helper()
	claims := func(o *v1alpha1.APIServiceExport) (names []string) {
		for _, c := range o.Spec.PermissionClaims {
			names = append(names, c.Resource)
		}
		return names
	}
	wider := []any{
		map[string]any{"resource": "secrets", "version": "v1", "required": true},
		map[string]any{"resource": "configmaps", "version": "v1", "required": false},
	}
	ada.w.apply(changed(templateOf("gadgets"), wider, "spec", "permissionClaims"))
	held := ada.export("gadgets.example.org", says(v1alpha1.ConditionProviderInSync, v1alpha1.ReasonMissingRights, "configmaps", v1alpha1.AggregateToBackendLabel))
	if got := claims(held); len(got) != 1 {
		t.Errorf("claims that cannot be passed on were taken over: %q", got)
	}
	ada.w.apply(object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: offer-configmaps, labels: {klutch.anynines.com/aggregate-to-backend: "true"}},
		rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]}`))
	ada.w.eventually("right to configmaps", func(ctx context.Context) (bool, error) {
		_, err := ada.w.exporter.tenants.Rights.Check(ctx, tenant.Rules([]*v1alpha1.APIServiceExport{exportOf("example.org", "gadgets", claim("configmaps", ""))}))
		return err == nil, nil
	})
	ada.w.apply(changed(changed(templateOf("gadgets"), wider, "spec", "permissionClaims"), "Gadgets", "spec", "title"))
	ada.export("gadgets.example.org", func(o *v1alpha1.APIServiceExport) bool { return len(claims(o)) == 2 && inSync(o) })
	ada.may("list", "", "configmaps", true)
	ada.w.apply(templateOf("gadgets"))
	ada.export("gadgets.example.org", func(o *v1alpha1.APIServiceExport) bool { return len(claims(o)) == 1 && inSync(o) })
	ada.may("list", "", "configmaps", false)
}

// may waits until a tenant has a right in its service namespace team-a, or has not.
func (c *tenantClient) may(verb, group, resource string, want bool) {
	c.w.t.Helper()
	c.w.eventually(verb+" "+resource, func(ctx context.Context) (bool, error) {
		got, err := c.allowed(ctx, c.namespace+"-team-a", verb, group, resource, "")
		return err == nil && got == want, nil
	})
}

func withdrawal(t *testing.T, ada *tenantClient) {
	t.Helper()
	const service = "widgets.example.org"
	objects := ada.w.dyn.Resource(widgets).Namespace(ada.namespace + "-team-a")
	before, err := objects.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	offered := func(o *v1alpha1.APIServiceExport) bool {
		return v1alpha1.IsTrue(o.Status.Conditions, v1alpha1.ConditionOffered)
	}
	claim := ada.claims(t, "drained")
	developer := must(ada.w.dyn.Resource(rbacv1.SchemeGroupVersion.WithResource("clusterroles")).Get(t.Context(), "developer", metav1.GetOptions{}))
	rights := developer.Object["rules"]
	for _, step := range []struct {
		name, reason string
		take, give   func()
	}{
		{
			"template", v1alpha1.ReasonNotOffered,
			func() {
				if err := ada.w.dyn.Resource(templateResource).Namespace("default").Delete(t.Context(), "widgets", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			},
			func() { ada.w.apply(templateOf("widgets")) },
		},
		{
			"right", v1alpha1.ReasonNotAuthorized,
			func() {
				ada.w.apply(object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: developer}, rules: []}`))
			},
			func() {
				ada.w.apply(changed(object("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: developer}}"), rights, "rules"))
			},
		},
	} {
		claim.appears(t)
		step.take()
		ada.export(service, says(v1alpha1.ConditionOffered, step.reason, "can be deleted"))
		for _, verb := range []string{"create", "update", "patch"} {
			ada.may(verb, "example.org", "widgets", false)
		}
		for _, verb := range tenant.DrainVerbs {
			ada.may(verb, "example.org", "widgets", true)
		}
		after, err := objects.Get(t.Context(), "w", metav1.GetOptions{})
		if err != nil || after.GetUID() != before.GetUID() || after.GetDeletionTimestamp() != nil {
			t.Fatalf("%s: the widget did not stay: %v", step.name, err)
		}
		claim.drains(t)
		step.give()
		ada.export(service, offered)
		ada.may("create", "example.org", "widgets", true)
	}
}

// A source is an object in an App Cluster, which here is the same cluster, that is
// kept in step with the credential of a tenant.
type source struct {
	*tenantClient
	name string
}

const apps = "apps"

// claims brings the widgets of a namespace into the service namespace team-a.
func (c *tenantClient) claims(t *testing.T, name string) source {
	t.Helper()
	c.w.apply(object("{apiVersion: v1, kind: Namespace, metadata: {name: " + apps + "}}"))
	table := klutchsync.NewNamespaces(func(string) {})
	table.Set(apps, c.namespace+"-team-a")
	engine := must(klutchsync.New(must(klutchsync.NewCluster(c.w.cluster.Config())), must(klutchsync.NewCluster(c.config)).IdentifiedBy(c.namespace), widgets,
		klutchsync.Options{Binding: "widgets", Mapper: table, TargetScope: klutchsync.ScopeMapped}))
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- engine.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return source{c, name}
}

func (s source) there(namespace string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		_, err := s.w.dyn.Resource(widgets).Namespace(namespace).Get(ctx, s.name, metav1.GetOptions{})
		return err == nil, tenant.IgnoreNotFound(err)
	}
}

func (s source) appears(t *testing.T) {
	t.Helper()
	widget := object("{apiVersion: example.org/v1, kind: Widget, metadata: {name: " + s.name + "}, spec: {size: 3}}")
	if _, err := s.w.dyn.Resource(widgets).Namespace(apps).Create(t.Context(), widget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.w.eventually("the target", s.there(s.namespace+"-team-a"))
}

// drains changes the source, which changes nothing any more, and deletes it, to the
// end.
func (s source) drains(t *testing.T) {
	t.Helper()
	own := s.w.dyn.Resource(widgets).Namespace(apps)
	if _, err := own.Patch(t.Context(), s.name, types.MergePatchType, []byte(`{"spec":{"size":5}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.w.eventually("people are told", func(ctx context.Context) (bool, error) {
		u, err := own.Get(ctx, s.name, metav1.GetOptions{})
		return err == nil && strings.HasPrefix(u.GetAnnotations()[klutchsync.MessageAnnotation], string(klutchsync.ReasonForbidden)), err
	})
	target := must(s.w.dyn.Resource(widgets).Namespace(s.namespace+"-team-a").Get(t.Context(), s.name, metav1.GetOptions{}))
	if size, _, _ := unstructured.NestedInt64(target.Object, "spec", "size"); size != 3 {
		t.Errorf("the target of a withdrawn offer was changed: size %d", size)
	}
	if err := own.Delete(t.Context(), s.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{apps, s.namespace + "-team-a"} {
		s.w.eventually("gone from "+namespace, func(ctx context.Context) (bool, error) {
			there, err := s.there(namespace)(ctx)
			return !there, err
		})
	}
}

// shadowed: a template that comes later for an API takes it from no tenant, whatever its
// name is, and says so. When the older one goes it is in force.
func shadowed(t *testing.T, ada *tenantClient) {
	t.Helper()
	w := ada.w
	const service = "widgets.example.org"
	ada.export(service, inSync)
	younger := templateOf("widgets")
	younger.SetName("aaa")
	younger.SetNamespace("aaa")
	w.apply(object("{apiVersion: v1, kind: Namespace, metadata: {name: aaa}}"), younger)
	ready := func(want func(*v1alpha1.Condition) bool) {
		t.Helper()
		until(w, "apiserviceexporttemplates", "aaa", "aaa", func(o *v1alpha1.APIServiceExportTemplate) bool {
			return want(v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionReady))
		})
	}
	ready(func(c *v1alpha1.Condition) bool {
		return c != nil && c.Reason == v1alpha1.ReasonShadowed && strings.Contains(c.Message, "default/widgets")
	})
	services, err := catalogAdapter{w.exporter.opts.Catalog}.Services(t.Context())
	if s, ok := offer.Find(services, service); err != nil || !ok || s.Template.Namespace != "default" {
		t.Errorf("offered by %s: %v", s.Template, err)
	}
	until(w, "apiserviceexporttemplates", "default", "widgets", func(o *v1alpha1.APIServiceExportTemplate) bool {
		return v1alpha1.IsTrue(o.Status.Conditions, v1alpha1.ConditionReady)
	})
	_, err = w.dyn.Resource(templateResource).Namespace("default").Patch(t.Context(), "gadgets", types.MergePatchType, []byte(`{"spec":{"apiServiceSelector":{"resource":"gizmos"}}}`), metav1.PatchOptions{})
	refused(t, "an older template takes another API over", err, "a template goes on to offer the API that it was made for")
	if got := ada.request("shadowed", service); got.Status.Phase != v1alpha1.RequestSucceeded {
		t.Errorf("status: %+v", got.Status)
	}
	if err := w.dyn.Resource(templateResource).Namespace("default").Delete(t.Context(), "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ready(func(c *v1alpha1.Condition) bool { return c != nil && c.Status == metav1.ConditionTrue })
	ada.export(service, says(v1alpha1.ConditionOffered, v1alpha1.ReasonNotAuthorized)) // no person was given the right to bind this one
	if err := w.dyn.Resource(templateResource).Namespace("aaa").Delete(t.Context(), "aaa", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.apply(templateOf("widgets"))
	ada.export(service, inSync)
}

// annotates is the command that takes a breaking change over, for a template without a field for it.
var annotates = regexp.MustCompile(`run: kubectl -n (\S+) annotate apiserviceexporttemplates\.(\S+) (\S+) ([^=\s]+)=(\S+)`)

// adviceWorks runs the command that a held change is told with.
func adviceWorks(t *testing.T, tenant *tenantClient, plural string) {
	t.Helper()
	service := plural + ".example.org"
	tenant.w.apply(changed(crdOf(plural, v1alpha1.NamespacedScope), sized(plural, 5), "spec", "versions"))
	held := tenant.export(service, says(v1alpha1.ConditionProviderInSync, v1alpha1.ReasonBreakingChangeHeld))
	message := v1alpha1.FindCondition(held.Status.Conditions, v1alpha1.ConditionProviderInSync).Message
	words := annotates.FindStringSubmatch(message)
	if words == nil {
		t.Fatalf("no command in %q", message)
	}
	gvr := schema.GroupVersionResource{Group: words[2], Version: "v1alpha1", Resource: "apiserviceexporttemplates"}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, words[4], words[5])
	if _, err := tenant.w.dyn.Resource(gvr).Namespace(words[1]).Patch(t.Context(), words[3], types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	tenant.export(service, inSyncWith(`"maximum":5`))
}

// otherTemplates: what installations of Klutch have goes on to be on offer.
func otherTemplates(t *testing.T, w *world) {
	t.Helper()
	for _, test := range []struct{ group, plural, selector string }{
		{"example-backend.klutch.anynines.com", "sprockets", "{group: example.org, resource: sprockets, version: v1}"},
		{"bind.anynines.com", "levers", "{group: example.org, resource: levers, versions: [v1]}"},
	} {
		crd := crdOf("apiserviceexporttemplates", v1alpha1.NamespacedScope)
		crd.SetName("apiserviceexporttemplates." + test.group)
		crd = changed(changed(crd, test.group, "spec", "group"), map[string]any{
			"plural": "apiserviceexporttemplates", "kind": "APIServiceExportTemplate",
		}, "spec", "names")
		crd = changed(crd, []any{map[string]any{
			"name": "v1alpha1", "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}}, "spec", "versions")
		template := object("{apiVersion: " + test.group + "/v1alpha1, kind: APIServiceExportTemplate, metadata: {name: " + test.plural + ", namespace: default}, spec: {APIServiceSelector: " + test.selector + "}}")
		unreadable := changed(changed(template, int64(5), "spec", "title"), "unreadable", "metadata", "name") // which keeps no tenant from the others
		w.apply(crd, crdOf(test.plural, v1alpha1.NamespacedScope), rightsOf(test.plural), template, changed(unreadable, test.plural+"x", "spec", "APIServiceSelector", "resource"),
			object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: bind-`+test.plural+`}, rules: [
		{apiGroups: [`+test.group+`], resources: [apiserviceexporttemplates], resourceNames: [`+test.plural+`], verbs: [bind]}]}`),
			object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: bind-`+test.plural+`},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bind-`+test.plural+`},
		subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:developers"}]}`))
		service := test.plural + ".example.org"
		w.eventually("offer of "+service, func(ctx context.Context) (bool, error) {
			services, err := catalogAdapter{w.exporter.opts.Catalog}.Services(ctx)
			s, ok := offer.Find(services, service)
			return ok && s.Available() && s.Version == "v1", err
		})
		grace := w.tenant("grace", "c1", service)
		if got := grace.request("of-"+test.plural, service); got.Status.Phase != v1alpha1.RequestSucceeded {
			t.Errorf("%s: %+v", service, got.Status)
		}
		grace.export(service, func(o *v1alpha1.APIServiceExport) bool { return o.Spec.Adoption == v1alpha1.AdoptionOffer })
		adviceWorks(t, grace, test.plural)
		gvr := template.GroupVersionKind().GroupVersion().WithResource("apiserviceexporttemplates")
		if err := w.dyn.Resource(gvr).Namespace("default").Delete(t.Context(), test.plural, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		grace.export(service, says(v1alpha1.ConditionOffered, v1alpha1.ReasonNotOffered))
	}
	ada := auth.Identity{Issuer: w.issuer.URL(), Subject: "ada", Groups: []string{"developers"}}
	for group, allowed := range map[string]bool{"": true, "bind.anynines.com": false} {
		s := serviceOf("widgets")
		s.TemplateGroup = group
		if err := w.exporter.opts.Authorizer.Authorize(t.Context(), &ada, s); (err == nil) != allowed {
			t.Errorf("authorize by group %q: %v", group, err)
		}
	}
}
