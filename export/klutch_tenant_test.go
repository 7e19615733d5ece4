// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A klutchTenant is what Klutch's backend makes for one person, object by object.
type klutchTenant struct {
	w         *world
	namespace string
	identity  string
}

// make does what Klutch's backend does at a bind, for an export, and for a namespace.
func (k klutchTenant) make(app string) (service string) {
	w, ns := k.w, k.namespace
	w.t.Helper()
	service = ns + "-" + app
	const all = "verbs: [create, delete, patch, update, get, list, watch]"
	subject := "subjects: [{kind: ServiceAccount, name: klutch-binder, namespace: " + ns + "}]"
	role := func(kind, where, name, ref string) string {
		return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: %s, metadata: {%s name: %s},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}, %s}`, kind, where, name, ref, subject)
	}
	for _, yaml := range []string{
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: klutch-binder}, rules: [
			{apiGroups: [klutch.anynines.com], resources: [apiserviceexportrequests, apiservicenamespaces], ` + all + `}, {apiGroups: [""], resources: [secrets], verbs: [get, watch, list]}]}`,
		fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, annotations: {%s: '%s'}}}`, ns, v1alpha1.IdentityAnnotation, k.identity),
		fmt.Sprintf(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: klutch-binder, namespace: %s}}`, ns),
		fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: klutch-binder, namespace: %s, annotations: {kubernetes.io/service-account.name: klutch-binder}}, type: kubernetes.io/service-account-token}`, ns),
		fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: kubeconfig, namespace: %s}, stringData: {kubeconfig: Klutch's}}`, ns),
		fmt.Sprintf(`{apiVersion: klutch.anynines.com/v1alpha1, kind: ClusterBinding, metadata: {name: cluster, namespace: %s},
			spec: {kubeconfigSecretRef: {name: kubeconfig, key: kubeconfig}, providerPrettyName: Klutch}}`, ns),
		fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: klutch-binder-%s}, rules: [
			{apiGroups: [example.org], resources: [widgets], `+all+`}, {apiGroups: [""], resources: [secrets], `+all+`}]}`, ns),
		role("RoleBinding", "namespace: "+ns+",", "klutch-binder", "klutch-binder"),
		role("ClusterRoleBinding", "", "klutch-binder-"+ns, "klutch-binder-"+ns),
		fmt.Sprintf(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExport, metadata: {name: widgets.example.org, namespace: %s, annotations: {%s: theirs}},
			spec: {group: example.org, scope: Namespaced, informerScope: Namespaced, names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList},
			versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`, ns, v1alpha1.SourceSpecHashAnnotation),
		fmt.Sprintf(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExportRequest, metadata: {name: open, namespace: %s}, spec: {resources: [{group: example.org, resource: widgets}]}}`, ns),
		fmt.Sprintf(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: %s, namespace: %s}}`, app, ns),
		fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, annotations: {%s: %s/%s}}}`, service, v1alpha1.ServiceNamespaceAnnotation, ns, app),
		role("RoleBinding", "namespace: "+service+",", "klutch-binder", "klutch-binder-"+ns),
		fmt.Sprintf(`{apiVersion: example.org/v1, kind: Widget, metadata: {name: one, namespace: %s}, spec: {size: 3}}`, service),
	} {
		w.apply(object(yaml))
	}
	k.patch(app, `{"status":{"namespace":"`+service+`"}}`, "status")
	return service
}

func (k klutchTenant) patch(app, patch string, subresources ...string) {
	k.w.t.Helper()
	_, err := k.w.dyn.Resource(tenant.NamespaceResource).Namespace(k.namespace).Patch(k.w.t.Context(), app, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		k.w.t.Fatal(err)
	}
}

// all is what Klutch's backend made, without what Kubernetes itself writes.
func (k klutchTenant) all(service string) map[string]string {
	k.w.t.Helper()
	found := map[string]string{}
	note := func(gvr schema.GroupVersionResource, ns string) {
		list := must(k.w.dyn.Resource(gvr).Namespace(ns).List(k.w.t.Context(), metav1.ListOptions{}))
		for _, u := range list.Items {
			if name := u.GetName(); ns != "" || name == "klutch-binder" || name == service || name == k.namespace {
				u.SetManagedFields(nil)
				found[gvr.Resource+" "+ns+"/"+name] = string(must(json.Marshal(u.Object)))
			}
		}
	}
	resource := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	note(resource("", "v1", "namespaces"), "")
	note(resource("rbac.authorization.k8s.io", "v1", "clusterroles"), "")
	for _, ns := range []string{k.namespace, service} {
		for _, gvr := range []schema.GroupVersionResource{
			tenant.NamespaceResource, tenant.ExportResource, tenant.ClusterBindingResource, tenant.RequestResource, widgets,
			resource("rbac.authorization.k8s.io", "v1", "roles"), resource("rbac.authorization.k8s.io", "v1", "rolebindings"),
			resource("", "v1", "secrets"), resource("", "v1", "resourcequotas"),
		} {
			note(gvr, ns)
		}
	}
	return found
}

// Our backend in the place of Klutch's: what is not ours stays as it is, an earlier version's
// marks on it go, and a person with a tenant there gets no second one.
func TestKlutchTenantsStay(t *testing.T) {
	w := newStillWorld(t)
	ada := klutchTenant{w, "cluster-x7k2p", "ada#c1"}
	service := ada.make("team-a")
	// The token of that Secret comes from a controller.
	w.eventually("token", func(ctx context.Context) (bool, error) {
		s, err := w.admin.CoreV1().Secrets(ada.namespace).Get(ctx, "klutch-binder", metav1.GetOptions{})
		return err == nil && len(s.Data["token"]) > 0, nil
	})
	w.apply(deploy.Backend("backend")...)
	before := ada.all(service)
	if !strings.Contains(before["clusterroles /klutch-binder"], `"apiGroups":[""],"resources":["secrets"],"verbs":["get","watch","list"]`) {
		t.Fatal("our manifests change the ClusterRole of Klutch's backend")
	}
	old := klutchTenant{w, "cluster-b4c5d", "mallory#c9"}
	old.make("team-b")
	old.patch("team-b", `{"metadata":{"finalizers":["`+v1alpha1.ServiceNamespaceFinalizer+`","example.org/theirs"]}}`)
	old.patch("team-b", `{"status":{"conditions":[{"type":"Ready","status":"False","severity":"Error","reason":"NotATenant","lastTransitionTime":"2026-06-01T00:00:00Z"}]}}`, "status")

	w.serve(Options{})
	grace := w.tenant("grace", "c1", "widgets.example.org")
	grace.request("first", "widgets.example.org")
	grace.mirror("team-a")
	w.rebinds(grace)
	until(w, "apiservicenamespaces", old.namespace, "team-b", func(o *v1alpha1.APIServiceNamespace) bool {
		return len(o.Finalizers) == 1 && o.Finalizers[0] == "example.org/theirs" && len(o.Status.Conditions) == 0 && o.Status.Namespace == old.namespace+"-team-b"
	})
	for range 2 {
		if _, _, err := w.login("ada", "c1", "widgets.example.org"); err == nil ||
			!strings.Contains(err.Error(), "cluster-x7k2p") || !strings.Contains(err.Error(), "Klutch") {
			t.Errorf("a bind of a person who has a tenant at Klutch's backend: %v", err)
		}
	}
	holders := 0
	for _, ns := range must(w.admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})).Items {
		if ns.Annotations[v1alpha1.IdentityAnnotation] == ada.identity {
			holders++
		}
	}
	if holders != 1 {
		t.Errorf("%d namespaces have the identity of ada: Klutch's backend serves none that two have", holders)
	}
	if diff := cmp.Diff(before, ada.all(service)); diff != "" {
		t.Errorf("what is not ours was changed (-before +after):\n%s", diff)
	}
	w.tenant("ada", "c2", "widgets.example.org") // another cluster of the same person
}

// Klutch's konnector lists Secrets in its tenant namespace, and annotates those that it copies:
// a tenant may where the platform team has said so, and no other; the backend cannot say it.
func TestKlutchKonnectors(t *testing.T) {
	w := newStillWorld(t)
	w.apply(object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: annotates, labels: {klutch.anynines.com/aggregate-to-backend: "true"}},
		rules: [{apiGroups: [""], resources: [secrets], verbs: [update, patch]}]}`))
	w.serve(Options{})
	ada, grace := w.settle("ada", "c1"), w.settle("grace", "c1")
	can := func(c *tenantClient) (lists, annotates bool) {
		t.Helper()
		_, err := c.kube.CoreV1().Secrets(c.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		service := c.namespace + "-team-a"
		w.apply(object(fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: creds, namespace: %s}, stringData: {password: x}}`, service)))
		patch := []byte(`{"metadata":{"annotations":{"klutch.anynines.com/resource-owner":"Provider"}}}`)
		_, written := c.kube.CoreV1().Secrets(service).Patch(t.Context(), "creds", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "konnector"})
		if written != nil && !apierrors.IsForbidden(written) {
			t.Fatal(written)
		}
		return err == nil, written == nil
	}
	label := func(value string) {
		t.Helper()
		patch := []byte(`{"metadata":{"labels":{"` + v1alpha1.KlutchKonnectorLabel + `":` + value + `}}}`)
		if _, err := w.admin.CoreV1().Namespaces().Patch(t.Context(), ada.namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, value := range []string{"null", `"true"`, "null"} {
		label(value)
		want := value != "null"
		w.eventually("rights of Klutch's konnector: "+value, func(context.Context) (bool, error) {
			lists, annotates := can(ada)
			return lists == want && annotates == want, nil
		})
		if lists, annotates := can(grace); lists || annotates {
			t.Errorf("another tenant lists Secrets: %t, and writes them: %t", lists, annotates)
		}
		ada.widget(t)
	}
	ns := must(w.admin.CoreV1().Namespaces().Get(t.Context(), ada.namespace, metav1.GetOptions{}))
	metav1.SetMetaDataLabel(&ns.ObjectMeta, v1alpha1.KlutchKonnectorLabel, "true")
	_, err := must(kubernetes.NewForConfig(w.config)).CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "who may use Klutch's konnector") {
		t.Errorf("the backend says who may use Klutch's konnector: %v", err)
	}
}

// rebinds gives a tenant the ClusterRole that earlier versions gave it, and waits for its own.
func (w *world) rebinds(c *tenantClient) {
	w.t.Helper()
	bindings := w.admin.RbacV1().RoleBindings(c.namespace)
	w.eventually("the old role", func(ctx context.Context) (bool, error) { // the backend is often faster
		old, err := bindings.Get(ctx, "klutch-binder", metav1.GetOptions{})
		if err == nil {
			err = bindings.Delete(ctx, old.Name, metav1.DeleteOptions{})
		}
		if err != nil {
			return false, nil //nolint:nilerr // once more
		}
		old.ResourceVersion, old.UID, old.RoleRef.Name = "", "", "klutch-binder"
		_, err = bindings.Create(ctx, old, metav1.CreateOptions{})
		return err == nil, ignoreExists(err)
	})
	w.eventually("the tenant has its own role", func(ctx context.Context) (bool, error) {
		now, err := bindings.Get(ctx, "klutch-binder", metav1.GetOptions{})
		return err == nil && now.RoleRef.Name == v1alpha1.TenantRole, nil
	})
	w.eventually("the tenant has its rights", func(ctx context.Context) (bool, error) {
		_, err := c.dyn.Resource(tenant.ExportResource).Namespace(c.namespace).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
}
