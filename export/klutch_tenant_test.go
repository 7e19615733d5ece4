// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/test/cluster"
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
	made := must(w.admin.CoreV1().Namespaces().Get(w.t.Context(), ns, metav1.GetOptions{}))
	owner := fmt.Appendf(nil, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":%q,"uid":%q,"controller":true}]}}`, ns, made.UID)
	if _, err := w.admin.RbacV1().ClusterRoles().Patch(w.t.Context(), "klutch-binder-"+ns, types.MergePatchType, owner, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
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
			!strings.Contains(err.Error(), "cluster-x7k2p") || !strings.Contains(err.Error(), "--adopt-klutch-tenants=cluster-x7k2p") {
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

// A tenant of Klutch's backend becomes ours when its person binds again: the same namespaces,
// exports and objects, with our rights alone. Only the identity that Klutch recorded gets it.
func TestKlutchTenantsAreAdopted(t *testing.T) {
	w := newStillWorld(t)
	ada := klutchTenant{w, "cluster-x7k2p", "ada#c1"}
	service := ada.make("team-a")
	secrets := w.admin.CoreV1().Secrets(ada.namespace)
	var theirs string
	w.eventually("Klutch's token", func(ctx context.Context) (bool, error) {
		s, err := secrets.Get(ctx, "klutch-binder", metav1.GetOptions{})
		if err == nil {
			theirs = string(s.Data["token"])
		}
		return theirs != "", nil
	})
	config := rest.AnonymousClientConfig(w.cluster.Config())
	config.BearerToken = theirs
	klutchs := must(kubernetes.NewForConfig(config))
	if _, err := klutchs.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatalf("the double has not the rights of Klutch's tenants: %v", err)
	}
	instance := must(w.dyn.Resource(widgets).Namespace(service).Get(t.Context(), "one", metav1.GetOptions{}))
	w.types("## The backend: over", ada.namespace)

	// What an insider may write: a namespace of one's own with that annotation, and a record.
	forged := `{"identity":{"issuer":"` + w.issuer.URL() + `","subject":"eve"},"cluster":"c1","services":["gizmos.example.org"]}`
	w.apply(object(fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: inside, annotations: {%s: 'eve#c1'}}}`, v1alpha1.IdentityAnnotation)),
		object("{apiVersion: v1, kind: Secret, metadata: {name: klutch-tenant, namespace: "+ada.namespace+"}, stringData: {tenant.json: '"+forged+"'}}"),
		object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: insider}, rules: [{apiGroups: [""], resources: [namespaces], verbs: [get, update, patch]}]}`),
		object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: insider}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: insider},
			subjects: [{kind: ServiceAccount, name: default, namespace: inside}]}`))
	w.eventually("the insider's account", func(ctx context.Context) (bool, error) {
		_, err := w.admin.CoreV1().ServiceAccounts("inside").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	insider := must(kubernetes.NewForConfig(w.account("inside", "default")))
	w.eventually("an insider may not say whose an adopted tenant is", func(ctx context.Context) (bool, error) {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"klutch.anynines.com/tenant":"inside"},"annotations":{%q:%q}}}`, v1alpha1.AdoptedAnnotation, `{"subject":"eve"}`)
		_, err := insider.CoreV1().Namespaces().Patch(ctx, "inside", types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{"All"}})
		return err != nil && strings.Contains(err.Error(), "verb adopt"), nil
	})

	t.Run("over", func(t *testing.T) {
		w.t = t // the backend ends with it
		w.serve(Options{AdoptKlutchTenants: []string{"all"}})
		for _, other := range []auth.Identity{{Issuer: w.issuer.URL(), Subject: "eve"}, {Issuer: "https://other.example.org", Subject: "ada"}} {
			if got, err := w.exporter.tenants.Bind(t.Context(), tenant.Record{Identity: other, Cluster: "c1"}); err == nil {
				t.Errorf("%s of %s got %s", other.Subject, other.Issuer, got)
			}
		}
		if now := must(w.admin.CoreV1().Namespaces().Get(t.Context(), ada.namespace, metav1.GetOptions{})); now.Labels[v1alpha1.TenantLabel] != "" {
			t.Fatalf("adopted for another identity: %v", now.Labels)
		}

		exports := must(w.dyn.Resource(tenant.ExportResource).Namespace(ada.namespace).Watch(t.Context(), metav1.ListOptions{}))
		must(w.exporter.tenants.EnsureTenantNamespace(t.Context(), &tenant.Record{
			Identity: auth.Identity{Issuer: w.issuer.URL(), Subject: "ada", Groups: users["ada"].Groups}, Cluster: "c1",
		})) // the bind goes on later
		goesOn(t, exports)
		c := w.tenant("ada", "c1", "widgets.example.org")
		if c.namespace != ada.namespace {
			t.Fatalf("a second tenant: %s", c.namespace)
		}
		w.eventually("Klutch's token is dead", func(ctx context.Context) (bool, error) {
			_, err := klutchs.CoreV1().Namespaces().Get(ctx, ada.namespace, metav1.GetOptions{})
			return apierrors.IsUnauthorized(err), nil
		})
		if _, err := w.admin.RbacV1().ClusterRoleBindings().Get(t.Context(), "klutch-binder-"+ada.namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("rights in the whole cluster: %v", err)
		}
		record := string(must(secrets.Get(t.Context(), v1alpha1.TenantRecordSecret, metav1.GetOptions{})).Data[tenant.RecordKey])
		if strings.Contains(record, "gizmos") || strings.Contains(record, `"eve"`) || !strings.Contains(record, "widgets.example.org") {
			t.Errorf("record: %s", record)
		}
		w.eventually("rights of ours in the old service namespace", func(ctx context.Context) (bool, error) {
			_, err := c.dyn.Resource(widgets).Namespace(service).Get(ctx, "one", metav1.GetOptions{})
			rights, other := w.admin.RbacV1().RoleBindings(service).Get(ctx, "klutch-binder", metav1.GetOptions{})
			return err == nil && other == nil && rights.RoleRef.Kind == "Role", nil
		})
		c.request("again", "widgets.example.org")
		if fresh := c.mirror("team-b"); fresh != ada.namespace+"-team-b" {
			t.Errorf("a claim in a new namespace: %s", fresh)
		}
		if must(c.allowed(t.Context(), "kube-system", "list", "", "secrets", "")) {
			t.Error("the tenant may still list Secrets of the whole cluster")
		}
		now := must(w.dyn.Resource(widgets).Namespace(service).Get(t.Context(), "one", metav1.GetOptions{}))
		if now.GetUID() != instance.GetUID() || now.GetResourceVersion() != instance.GetResourceVersion() {
			t.Error("the instance was touched")
		}
		if again := w.tenant("ada", "c1", "widgets.example.org"); again.namespace != ada.namespace {
			t.Errorf("the next bind: %s", again.namespace)
		}
	})
	w.t = t
	w.types("## The backend: back", ada.namespace)
	for namespace, named := range map[string]string{ada.namespace: v1alpha1.IdentityAnnotation, service: v1alpha1.ServiceNamespaceAnnotation} {
		ns := must(w.admin.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}))
		if len(ns.Annotations[named]) == 0 || ns.Annotations[v1alpha1.AdoptedAnnotation] != "" || len(ns.Labels) != 1 {
			t.Errorf("namespace %s: labels %v, annotations %v", namespace, ns.Labels, ns.Annotations)
		}
	}
	before := ada.all(service)
	for name, o := range before {
		if strings.Contains(o, v1alpha1.ServiceNamespaceFinalizer) || strings.Contains(o, v1alpha1.TenantFinalizer) ||
			strings.HasPrefix(name, "roles ") || strings.HasPrefix(name, "rolebindings ") || strings.HasPrefix(name, "secrets ") || strings.HasPrefix(name, "resourcequotas ") {
			t.Errorf("left of ours: %s %s", name, o)
		}
	}
	for _, kept := range []string{"apiserviceexports " + ada.namespace + "/widgets.example.org", "widgets " + service + "/one", "apiservicenamespaces " + ada.namespace + "/team-b"} {
		if before[kept] == "" {
			t.Errorf("%s is gone", kept)
		}
	}
	ada.make("team-a") // as Klutch's backend does again
	if now := must(w.dyn.Resource(widgets).Namespace(service).Get(t.Context(), "one", metav1.GetOptions{})); now.GetUID() != instance.GetUID() {
		t.Error("the instance was recreated")
	}
}

// A tenant of Klutch's backend with a cluster-scoped API that is switched on has its rights to that
// at each instant of the adoption, by the old token until that ends, and by the new one.
func TestKlutchPrefixedGoesOn(t *testing.T) {
	w := newStillWorld(t)
	w.switchOn()
	ada := klutchTenant{w, "cluster-x7k2p", "ada#c1"}
	ada.make("team-a")
	w.apply(deploy.Adoption()...)
	w.apply(object(fmt.Sprintf(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExport, metadata: {name: continents.example.org, namespace: %s},
		spec: {group: example.org, scope: Cluster, informerScope: Cluster, clusterScopedIsolation: Prefixed, names: {kind: Continent, plural: continents, singular: continent, listKind: ContinentList},
		versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`, ada.namespace)))
	w.serve(Options{AdoptKlutchTenants: []string{"all"}, PrefixedAPIs: []string{"continents.example.org"}})
	has := must(w.admin.RbacV1().ClusterRoleBindings().Watch(t.Context(), metav1.ListOptions{}))
	defer has.Stop()
	c := w.tenant("ada", "c1", "continents.example.org")
	if c.namespace != ada.namespace {
		t.Fatalf("a second tenant: %s", c.namespace)
	}
	var order []string
	for event := range has.ResultChan() {
		b, ok := event.Object.(*rbacv1.ClusterRoleBinding)
		if ok && strings.HasSuffix(b.Name, ada.namespace) && event.Type != "MODIFIED" {
			order = append(order, string(event.Type)+" "+strings.TrimSuffix(strings.TrimSuffix(b.Name, ada.namespace), ":"))
		}
		if len(order) == 4 {
			break
		}
	}
	want := []string{"ADDED klutch-binder-", "ADDED klutch-prefixed:read:continents.example.org", "ADDED klutch-prefixed:write:continents.example.org", "DELETED klutch-binder-"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("rights in the whole cluster, in their order (-want +got):\n%s", diff)
	}
	w.eventually("the tenant writes", func(context.Context) (bool, error) {
		err := makeContinent(t, c.dyn, c.continent(c.namespace+"-mu", c.namespace)) //nolint:contextcheck // the world has one
		return err == nil, ignoreForbidden(err)
	})
}

// goesOn fails the test if an export is withdrawn before our backend says that it offers it.
func goesOn(t *testing.T, exports apiwatch.Interface) {
	t.Helper()
	defer exports.Stop()
	for event := range exports.ResultChan() {
		var export v1alpha1.APIServiceExport
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(event.Object.(*unstructured.Unstructured).Object, &export); err != nil {
			t.Fatal(err)
		}
		c := v1alpha1.FindCondition(export.Status.Conditions, v1alpha1.ConditionOffered)
		if c == nil { // our backend has not looked at it
			continue
		}
		if c.Status != metav1.ConditionTrue {
			t.Errorf("export %s was withdrawn: %s: %s", export.Name, c.Reason, c.Message)
		}
		return
	}
}

// types runs the commands of a section of FROM-KLUTCH.md with kubectl.
func (w *world) types(section, namespace string) {
	w.t.Helper()
	bin := w.t.TempDir()
	if err := cluster.Kubectl(w.t.Context(), bin); err != nil {
		w.t.Fatal(err)
	}
	text := string(must(os.ReadFile("../deploy/FROM-KLUTCH.md")))
	_, text, found := strings.Cut(text, section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	blocks := 0
	for parts := strings.Split(text, "```sh\n"); blocks+1 < len(parts); blocks++ {
		block, _, _ := strings.Cut(parts[blocks+1], "```")
		cmd := exec.CommandContext(w.t.Context(), "sh", "-ec", block)
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "TENANT="+namespace, "OFFERED="+widgets.GroupResource().String(), "PEOPLE=oidc:guests", "KUBECONFIG="+w.cluster.Kubeconfig(), "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			w.t.Fatalf("%s\n%s%v", block, out, err)
		}
	}
	if !found || blocks == 0 {
		w.t.Fatalf("no commands in %s", section)
	}
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
	labelled := false
	for _, value := range []string{"null", `"true"`, "null"} {
		label(value)
		want := value != "null"
		labelled = labelled || want // what was issued then is good after it
		w.eventually("rights of Klutch's konnector: "+value, func(context.Context) (bool, error) {
			lists, annotates := can(ada)
			return lists == want && annotates == want, nil
		})
		if lists, annotates := can(grace); lists || annotates {
			t.Errorf("another tenant lists Secrets: %t, and writes them: %t", lists, annotates)
		}
		ada.widget(t)
		// What the person is given now lives for a day where that konnector may be used. It copies the
		// kept Secret whatever is in it, so that this must never be empty.
		kept := w.keeps(ada.namespace)
		if err := w.admin.CoreV1().Secrets(ada.namespace).Delete(t.Context(), v1alpha1.TokenAnchorSecret, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		ada = w.tenant("ada", "c1", "widgets.example.org")
		if left := time.Until(expiry(t, ada.config.BearerToken)); (left > 23*time.Hour) != want {
			t.Errorf("with the label %s a token lives %s", value, left)
		}
		if empty := kept(); empty == want {
			t.Errorf("with the label %s the kept Secret was empty: %t", value, empty)
		}
		w.eventually("the end of long tokens is noted if there were any: "+value, func(ctx context.Context) (bool, error) {
			held, err := w.admin.CoreV1().Secrets(ada.namespace).Get(ctx, v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
			return err == nil && (held.Annotations[v1alpha1.LongTokensEndAnnotation] != "") == labelled, nil
		})
	}
	ns := must(w.admin.CoreV1().Namespaces().Get(t.Context(), ada.namespace, metav1.GetOptions{}))
	metav1.SetMetaDataLabel(&ns.ObjectMeta, v1alpha1.KlutchKonnectorLabel, "true")
	_, err := must(kubernetes.NewForConfig(w.config)).CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "who may use Klutch's konnector") {
		t.Errorf("the backend says who may use Klutch's konnector: %v", err)
	}
}

// keeps watches the Secret that a konnector takes its next credential from. What it returns waits
// for that one, and tells whether the Secret was empty before.
func (w *world) keeps(namespace string) func() (empty bool) {
	w.t.Helper()
	w.eventually("the kept credential", func(context.Context) (bool, error) { return w.kubeconfigOf(namespace) != "", nil }) //nolint:contextcheck // it takes that of the test
	was := w.kubeconfigOf(namespace)
	watch := must(w.admin.CoreV1().Secrets(namespace).Watch(w.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + v1alpha1.KubeconfigSecretName}))
	return func() (empty bool) {
		defer watch.Stop()
		for event := range watch.ResultChan() {
			secret, _ := event.Object.(*corev1.Secret)
			switch data := string(secret.Data[v1alpha1.KubeconfigKey]); {
			case event.Type == apiwatch.Deleted:
			case data == "":
				empty = true
			case data != was:
				return empty
			}
		}
		w.t.Fatal("the watch ended before there was a new credential")
		return false
	}
}

// The platform team may let every tenant use Klutch's konnector; the flag alone does not.
func TestKlutchKonnectorsOfAll(t *testing.T) {
	w := newStillWorld(t)
	w.apply(deploy.KlutchKonnectors()...)
	w.serve(Options{KlutchKonnectors: true})
	ada := w.tenant("ada", "c1", "widgets.example.org")
	w.eventually("rights of Klutch's konnector", func(ctx context.Context) (bool, error) {
		_, err := ada.kube.CoreV1().Secrets(ada.namespace).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	if left := time.Until(expiry(t, ada.config.BearerToken)); left < 23*time.Hour {
		t.Errorf("a token lives %s", left)
	}
	if err := w.admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), deploy.KlutchKonnectors()[1].GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the flag alone gives no rights", func(context.Context) (bool, error) {
		_, _, err := w.login("grace", "c1", "widgets.example.org") //nolint:contextcheck // that of the test
		return err != nil && strings.Contains(w.log.String(), "has to run kubectl apply -k deploy/klutch-konnectors"), nil
	})
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
