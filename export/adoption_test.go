// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A klutchTenant is what Klutch's backend makes for one person, object by object.
type klutchTenant struct {
	w         *world
	namespace string
	identity  string
}

// bootstrap does what Klutch's backend does at each start, and at a bind.
func (k klutchTenant) bootstrap() {
	w, ns := k.w, k.namespace
	w.t.Helper()
	const all = "verbs: [create, delete, patch, update, get, list, watch]"
	w.apply(object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: klutch-binder}, rules: [
		{apiGroups: [klutch.anynines.com], resources: [apiserviceexportrequests, apiservicenamespaces], `+all+`},
		{apiGroups: [""], resources: [namespaces], verbs: [get]}, {apiGroups: [""], resources: [secrets], verbs: [get, watch, list]},
		{apiGroups: [klutch.anynines.com], resources: [clusterbindings, apiserviceexports], verbs: [get, watch, list]},
		{apiGroups: [klutch.anynines.com], resources: [clusterbindings/status, apiserviceexports/status], verbs: [get, patch, update]}]}`),
		object(fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, annotations: {%s: '%s'}}}`, ns, v1alpha1.IdentityAnnotation, k.identity)),
		object(fmt.Sprintf(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: klutch-binder, namespace: %s}}`, ns)),
		object(fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: klutch-binder, namespace: %s, annotations: {kubernetes.io/service-account.name: klutch-binder}}, type: kubernetes.io/service-account-token}`, ns)),
		object(fmt.Sprintf(`{apiVersion: klutch.anynines.com/v1alpha1, kind: ClusterBinding, metadata: {name: cluster, namespace: %s},
			spec: {kubeconfigSecretRef: {name: kubeconfig, key: kubeconfig}, providerPrettyName: Klutch}}`, ns)),
		object(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: klutch-binder-%s}, rules: [
			{apiGroups: [example.org], resources: [widgets], `+all+`}, {apiGroups: [""], resources: [secrets], `+all+`}]}`, ns)))
	subject := "subjects: [{kind: ServiceAccount, name: klutch-binder, namespace: " + ns + "}]"
	w.apply(object(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: klutch-binder, namespace: %s},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: klutch-binder}, `+subject+`}`, ns)),
		object(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: klutch-binder-%[1]s},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: klutch-binder-%[1]s}, `+subject+`}`, ns)),
		object(fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: kubeconfig, namespace: %s}, stringData: {kubeconfig: Klutch's}}`, ns)))
}

// serve does what Klutch's backend does for an export and a namespace.
func (k klutchTenant) serve(app string) (service string) {
	w, ns := k.w, k.namespace
	w.t.Helper()
	service = ns + "-" + app
	w.apply(object(fmt.Sprintf(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExport, metadata: {name: widgets.example.org, namespace: %s, annotations: {%s: theirs}},
		spec: {group: example.org, scope: Namespaced, informerScope: Namespaced, names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList},
		permissionClaims: [{resource: secrets, version: v1, required: true, selector: {owner: Provider}}],
		versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {
			spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {size: {type: integer, default: 1, x-kubernetes-validations: [{rule: "self < 9"}]}}}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}]}}`, ns, v1alpha1.SourceSpecHashAnnotation)),
		object(fmt.Sprintf(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: %s, namespace: %s}}`, app, ns)),
		object(fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, annotations: {%s: %s/%s}}}`, service, v1alpha1.ServiceNamespaceAnnotation, ns, app)),
		object(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: klutch-binder, namespace: %s},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: klutch-binder-%s}, subjects: [{kind: ServiceAccount, name: klutch-binder, namespace: %s}]}`, service, ns, ns)),
		object(fmt.Sprintf(`{apiVersion: example.org/v1, kind: Widget, metadata: {name: one, namespace: %s}, spec: {size: 3}}`, service)))
	_, err := w.dyn.Resource(tenant.NamespaceResource).Namespace(ns).Patch(w.t.Context(), app, types.MergePatchType, []byte(`{"status":{"namespace":"`+service+`"}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		w.t.Fatal(err)
	}
	return service
}

// client acts with the token without an end.
func (k klutchTenant) client() (kubernetes.Interface, dynamic.Interface) {
	k.w.t.Helper()
	config := rest.AnonymousClientConfig(k.w.cluster.Config())
	k.w.eventually("token", func(ctx context.Context) (bool, error) {
		s, err := k.w.admin.CoreV1().Secrets(k.namespace).Get(ctx, "klutch-binder", metav1.GetOptions{})
		if err == nil {
			config.BearerToken = string(s.Data["token"])
		}
		return config.BearerToken != "", nil
	})
	return must(kubernetes.NewForConfig(config)), must(dynamic.NewForConfig(config))
}

// versions are those of all that Klutch's backend made.
func (k klutchTenant) versions(services ...string) map[string]string {
	k.w.t.Helper()
	all := map[string]string{}
	note := func(o metav1.Object, err error) {
		if err != nil {
			k.w.t.Fatal(err)
		}
		all[fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())] = string(o.GetUID()) + " " + o.GetResourceVersion()
	}
	ctx := k.w.t.Context()
	for _, ns := range append(services, k.namespace) {
		note(k.w.admin.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}))
		note(k.w.admin.RbacV1().RoleBindings(ns).Get(ctx, "klutch-binder", metav1.GetOptions{}))
		for _, gvr := range []schema.GroupVersionResource{tenant.NamespaceResource, tenant.ExportResource, tenant.ClusterBindingResource, tenant.RequestResource} {
			list, err := k.w.dyn.Resource(gvr).Namespace(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				k.w.t.Fatal(err)
			}
			for i := range list.Items {
				all[gvr.Resource+" "+ns+"/"+list.Items[i].GetName()] = list.Items[i].GetResourceVersion()
			}
		}
	}
	note(k.w.admin.RbacV1().ClusterRoles().Get(ctx, "klutch-binder", metav1.GetOptions{}))
	return all
}

// Our backend in the place of Klutch's: what is not ours stays as it is until an administrator
// adopts it; then it is served in place, with narrow rights, and the token without an end dies
// at the next bind. The way back takes off what we have put on. Twice.
func TestKlutchTenants(t *testing.T) {
	w := newStillWorld(t)
	ada := klutchTenant{w, "cluster-x7k2p", "ada#c1"}
	ada.bootstrap()
	team := ada.serve("team-a")
	other := klutchTenant{w, "cluster-b4c5d", "mallory#c9"}
	other.bootstrap()
	open := `{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExportRequest, metadata: {name: open, namespace: cluster-b4c5d}, spec: {resources: [{group: example.org, resource: widgets}]}}`
	w.apply(object(open))
	uid := must(w.dyn.Resource(widgets).Namespace(team).Get(t.Context(), "one", metav1.GetOptions{})).GetUID()
	before, beforeOther := ada.versions(team), other.versions()

	w.tune = func(e *Exporter) { e.tenants.Opts.Pauses.Rotation = 0 }
	w.serve(Options{ReviewInterval: 2 * time.Second})
	grace := w.tenant("grace", "c1", "widgets.example.org") // by then all that is there was looked at
	grace.request("first", "widgets.example.org")
	grace.mirror("team-a")
	if _, _, err := w.login("ada", "c1", "widgets.example.org"); err == nil || !strings.Contains(err.Error(), "adopt-tenants --tenant cluster-x7k2p") {
		t.Errorf("a bind of a person who has a tenant at Klutch's backend: %v", err)
	}
	if diff := cmp.Diff(before, ada.versions(team)); diff != "" {
		t.Fatalf("what is not ours was changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(beforeOther, other.versions()); diff != "" {
		t.Fatalf("what is not ours was changed (-before +after):\n%s", diff)
	}

	for range 2 {
		w.adopts(ada, before, team)
		after := w.tenant("ada", "c1", "widgets.example.org")
		if after.namespace != ada.namespace {
			t.Fatalf("bound again in %s, want %s", after.namespace, ada.namespace)
		}
		if service := after.mirror("team-c"); service != ada.namespace+"-team-c" {
			t.Errorf("service namespace %s", service)
		}
		w.releases(ada, team, ada.namespace+"-team-b", ada.namespace+"-team-c")
		ada.bootstrap()
		ada.serve("team-a")
		before = ada.versions(team)
	}
	if got := must(w.dyn.Resource(widgets).Namespace(team).Get(t.Context(), "one", metav1.GetOptions{})).GetUID(); got != uid {
		t.Error("the instance is another one")
	}
	if diff := cmp.Diff(beforeOther, other.versions()); diff != "" {
		t.Errorf("another tenant of Klutch's was changed (-before +after):\n%s", diff)
	}
}

// adopts adopts one tenant of Klutch's, by the steps that are shown before.
func (w *world) adopts(k klutchTenant, before map[string]string, team string) {
	w.t.Helper()
	ctx := w.t.Context()
	kube, dyn := k.client()
	if _, err := kube.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{}); err != nil {
		w.t.Fatalf("the double of Klutch's backend gives fewer rights than that does: %v", err)
	}
	opts := AdoptionOptions{Issuer: w.issuer.URL(), Tenants: []string{k.namespace}}
	plans := must(Adopt(ctx, w.cluster.Config(), opts))
	if len(plans) != 1 || plans[0].Problem != "" || !strings.Contains(plans[0].Note, "no end") {
		w.t.Fatalf("plans: %+v", plans)
	}
	if diff := cmp.Diff(before, k.versions(team)); diff != "" {
		w.t.Errorf("a plan changed something:\n%s", diff)
	}
	for _, step := range plans[0].Steps {
		if err := step.Do(ctx); err != nil {
			w.t.Fatalf("%s: %v\n%s", step.Text, err, w.log)
		}
	}
	if again := must(Adopt(ctx, w.cluster.Config(), opts)); len(again) != 1 || len(again[0].Steps) > 0 {
		w.t.Errorf("once more: %+v", again)
	}
	w.eventually("the rights in all namespaces end", func(ctx context.Context) (bool, error) {
		_, err := kube.CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
		return apierrors.IsForbidden(err), nil
	})
	// The konnector goes on with what it has, and claims in new namespaces go up.
	if _, err := dyn.Resource(widgets).Namespace(team).Get(ctx, "one", metav1.GetOptions{}); err != nil {
		w.t.Errorf("its own objects: %v", err)
	}
	adopted := &tenantClient{w: w, namespace: k.namespace, kube: kube, dyn: dyn}
	mirrored := adopted.mirror("team-b")
	w.eventually("a claim in a new namespace", func(ctx context.Context) (bool, error) {
		_, err := dyn.Resource(widgets).Namespace(mirrored).Create(ctx, object("{apiVersion: example.org/v1, kind: Widget, metadata: {name: new}, spec: {size: 3}}"), metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), nil
	})
	until(w, "apiserviceexports", k.namespace, "widgets.example.org", func(o *v1alpha1.APIServiceExport) bool {
		return inSync(o) && v1alpha1.IsTrue(o.Status.Conditions, v1alpha1.ConditionOffered)
	})
	// The next bind ends the token without an end.
	w.tenant("ada", "c1", "widgets.example.org")
	w.eventually("the token without an end is refused", func(ctx context.Context) (bool, error) {
		_, err := dyn.Resource(widgets).Namespace(team).Get(ctx, "one", metav1.GetOptions{})
		return apierrors.IsUnauthorized(err), nil
	})
}

// releases gives a tenant back, and looks for what is left of ours.
func (w *world) releases(k klutchTenant, services ...string) {
	w.t.Helper()
	ctx := w.t.Context()
	plans := must(Release(ctx, w.cluster.Config(), k.namespace))
	if len(plans) != 1 {
		w.t.Fatalf("plans: %+v", plans)
	}
	for _, step := range plans[0].Steps {
		if err := step.Do(ctx); err != nil {
			w.t.Fatalf("%s: %v", step.Text, err)
		}
	}
	for _, name := range append(services, k.namespace) {
		ns := must(w.admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}))
		for _, key := range slices.Concat(slices.Collect(maps.Keys(ns.Labels)), slices.Collect(maps.Keys(ns.Annotations))) {
			if strings.Contains(key, "klutch") && key != v1alpha1.IdentityAnnotation && key != v1alpha1.ServiceNamespaceAnnotation {
				w.t.Errorf("namespace %s has %s still", name, key)
			}
		}
		left := len(must(w.admin.RbacV1().RoleBindings(name).List(ctx, metav1.ListOptions{})).Items) +
			len(must(w.admin.RbacV1().Roles(name).List(ctx, metav1.ListOptions{})).Items) +
			len(must(w.admin.CoreV1().ResourceQuotas(name).List(ctx, metav1.ListOptions{})).Items)
		if left > 0 {
			w.t.Errorf("namespace %s has %d roles, role bindings and quotas still", name, left)
		}
	}
	for _, s := range must(w.admin.CoreV1().Secrets(k.namespace).List(ctx, metav1.ListOptions{})).Items {
		if s.Name != v1alpha1.KubeconfigSecretName {
			w.t.Errorf("Secret %s is left", s.Name)
		}
	}
	for _, gvr := range []schema.GroupVersionResource{tenant.NamespaceResource, tenant.ClusterBindingResource} {
		for _, u := range must(w.dyn.Resource(gvr).Namespace(k.namespace).List(ctx, metav1.ListOptions{})).Items {
			if len(u.GetFinalizers()) > 0 {
				w.t.Errorf("%s %s has finalizers: %q", gvr.Resource, u.GetName(), u.GetFinalizers())
			}
			if ns, _, _ := unstructured.NestedString(u.Object, "status", "namespace"); gvr == tenant.NamespaceResource && ns == "" {
				w.t.Errorf("%s has lost its service namespace", u.GetName())
			}
		}
	}
}

// Only who may adopt says whose a namespace is that Klutch's backend made, and the backend's
// own credential may not.
func TestP14Adoption(t *testing.T) {
	w := newStillWorld(t)
	klutchTenant{w, "cluster-x7k2p", "ada#c1"}.bootstrap()
	w.apply(object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: namespaces}, rules: [{apiGroups: [""], resources: [namespaces], verbs: ["*"]}]}`),
		object(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: insider, namespace: default}}`),
		object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: insider},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: namespaces}, subjects: [{kind: ServiceAccount, name: insider, namespace: default}]}`))
	ns := must(w.admin.CoreV1().Namespaces().Get(t.Context(), "cluster-x7k2p", metav1.GetOptions{}))
	tenant.Holder{Issuer: "https://login.example.com", Subject: "mallory", Cluster: "c1"}.Adopt(ns)
	for name, config := range map[string]*rest.Config{"insider": w.account("default", "insider"), "backend": w.config} {
		client := must(kubernetes.NewForConfig(config))
		w.eventually(name+" is refused", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
			if err == nil {
				t.Fatalf("%s has adopted a tenant", name)
			}
			return strings.Contains(err.Error(), "klutch"), nil
		})
	}
	if _, err := w.admin.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}
