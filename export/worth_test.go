// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP33Worth: what a thief can do with the credential of the backend and with that of
// a tenant, after a bind of a service that hands out Secrets. The lists in testdata are
// for people to read; write them anew with UPDATE_GOLDEN=1.
func TestP33Worth(t *testing.T) {
	w := newStillWorld(t)
	w.serve(Options{})
	ada, grace := w.settle("ada", "c1"), w.settle("grace", "c1")
	own := ada.namespace + "-team-a"
	for _, name := range []string{"data-services", "elsewhere"} {
		w.apply(object("{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}"))
	}
	for _, namespace := range []string{"default", "kube-system", "data-services", "klutch-backend", ada.namespace, own, grace.namespace, grace.namespace + "-team-a"} {
		w.apply(object("{apiVersion: v1, kind: Secret, metadata: {name: password, namespace: " + namespace + "}}"))
		if namespace != ada.namespace && namespace != grace.namespace {
			w.apply(object("{apiVersion: v1, kind: Secret, metadata: {name: kubeconfig, namespace: " + namespace + "}}"))
		}
	}
	w.apply(object("{apiVersion: v1, kind: Secret, metadata: {name: klutch-backend-session, namespace: klutch-backend}}"),
		object("{apiVersion: v1, kind: ServiceAccount, metadata: {name: automation, namespace: data-services}}"),
		object("{apiVersion: v1, kind: ServiceAccount, metadata: {name: klutch-binder, namespace: data-services}}"))
	anchor, err := w.admin.CoreV1().Secrets(ada.namespace).Get(t.Context(), v1alpha1.TokenAnchorSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	places := []place{
		{"elsewhere", "the whole cluster"},
		{"default", "default"},
		{"kube-system", "kube-system"},
		{"kube-public", "kube-public"},
		{"data-services", "data-services"},
		{"klutch-backend", "klutch-backend"},
		{ada.namespace, "the tenant namespace of ada"},
		{own, "the service namespace of ada"},
		{grace.namespace, "the tenant namespace of grace"},
		{grace.namespace + "-team-a", "the service namespace of grace"},
	}
	for name, theft := range map[string]struct {
		config *rest.Config
		deeds  []deed
	}{
		"backend": {w.config, backendDeeds(ada.namespace, grace.namespace, anchor.UID)},
		"tenant":  {ada.config, tenantDeeds(ada.namespace, grace.namespace)},
	} {
		t.Run(name, func(t *testing.T) {
			h := thief{t, theft.config, must(kubernetes.NewForConfig(theft.config)), must(dynamic.NewForConfig(theft.config))}
			h.worth(name, places, theft.deeds)
			h.reviews([]place{places[0], places[2], places[5], places[6], places[7]}, must(discovery.NewDiscoveryClientForConfig(w.cluster.Config())))
		})
	}
}

// TestP33Prefixed: what the credential of a tenant is worth besides that has bound a
// cluster-scoped API which is switched on.
func TestP33Prefixed(t *testing.T) {
	w := newStillWorld(t)
	w.switchOn()
	w.serve(Options{PrefixedAPIs: []string{"continents.example.org"}})
	ada, grace := w.settleContinent("ada", "c1"), w.settleContinent("grace", "c1")
	w.apply(object(ada.continent("gondwana", "nobody")))
	h := thief{t, ada.config, ada.kube, ada.dyn}
	h.worth("tenant-prefixed", []place{{"default", "the whole cluster"}, {grace.namespace, "the tenant namespace of grace"}}, []deed{
		deletes("its own object", continents, "", ada.namespace+"-mu"),
		deletes("an object of another tenant", continents, "", grace.namespace+"-mu"),
		deletes("an object of the platform", continents, "", "gondwana"),
		makesIn("an object of its own", continents, "", ada.continent(ada.namespace+"-x", ada.namespace)),
		makesIn("an object with the name of another tenant", continents, "", ada.continent(grace.namespace+"-x", ada.namespace)),
		makesIn("an object that says that it is another tenant's", continents, "", ada.continent(ada.namespace+"-x", grace.namespace)),
		patches("write its own object", continents, "", ada.namespace+"-mu", `{"spec":{"size":2}}`),
		patches("write an object of another tenant", continents, "", grace.namespace+"-mu", `{"spec":{"size":2}}`),
		patches("write an object of the platform", continents, "", "gondwana", `{"spec":{"size":2}}`),
		readsContinent("an object of another tenant", grace.namespace+"-mu"),
		readsContinent("an object of the platform", "gondwana"),
	})
}

func readsContinent(what, name string) deed {
	return deed{"read " + what, func(ctx context.Context, h thief) error {
		_, err := h.dyn.Resource(continents).Get(ctx, name, metav1.GetOptions{})
		return err
	}}
}

// worth compares what a credential is good for with the list of that name.
func (h thief) worth(name string, places []place, deeds []deed) {
	h.t.Helper()
	got := h.rights(places) + "\n" + h.does(deeds)
	golden := filepath.Join("testdata", "worth-"+name+".txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		h.t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		h.t.Errorf("%s (-want +got):\n%s", golden, diff)
	}
}

// TestP33OldRoles: with roles of another version the backend says what to do, and goes
// on by itself when it is done. Tenants of a version that had its rights in the whole
// cluster lack the RoleBinding of the backend, and get it.
func TestP33OldRoles(t *testing.T) {
	w := newStillWorld(t)
	w.serve(Options{})
	ada := w.settle("ada", "c1")
	if err := w.admin.RbacV1().ClusterRoles().Delete(t.Context(), v1alpha1.BackendOfferRole, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{ada.namespace, ada.namespace + "-team-a"} {
		if err := w.admin.RbacV1().RoleBindings(namespace).Delete(t.Context(), v1alpha1.BackendRoleBinding, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ada.create("apiservicenamespaces", object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: team-b}}"))
	told := func(conditions []v1alpha1.Condition) bool {
		return slices.ContainsFunc(conditions, func(c v1alpha1.Condition) bool {
			return c.Reason == v1alpha1.ReasonMissingRights && strings.Contains(c.Message, "kubectl apply -k deploy/backend")
		})
	}
	until(w, "apiservicenamespaces", ada.namespace, "team-b", func(o *v1alpha1.APIServiceNamespace) bool { return told(o.Status.Conditions) })
	ada.create("apiserviceexportrequests", requestOf("more", "widgets.example.org"))
	until(w, "apiserviceexportrequests", ada.namespace, "more", func(o *v1alpha1.APIServiceExportRequest) bool { return told(o.Status.Conditions) })
	ada.widget(t) // what is there goes on
	w.apply(deploy.Backend("backend")...)
	until(w, "apiservicenamespaces", ada.namespace, "team-b", func(o *v1alpha1.APIServiceNamespace) bool { return o.Status.Namespace != "" })
	if got := ada.answered("more"); got.Status.Phase != v1alpha1.RequestSucceeded {
		t.Errorf("status: %+v", got.Status)
	}
	for _, namespace := range []string{ada.namespace, ada.namespace + "-team-a", ada.namespace + "-team-b"} {
		w.eventually("the backend is in "+namespace, func(ctx context.Context) (bool, error) {
			_, err := w.admin.RbacV1().RoleBindings(namespace).Get(ctx, v1alpha1.BackendRoleBinding, metav1.GetOptions{})
			return err == nil, nil
		})
	}
}

// A place is a namespace and what the lists call it.
type place struct{ namespace, name string }

// A thief has a credential.
type thief struct {
	t      *testing.T
	config *rest.Config
	kube   kubernetes.Interface
	dyn    dynamic.Interface
}

// can is what the API server says that the credential is good for in a namespace.
func (h thief) can(namespace string) sets.Set[string] {
	h.t.Helper()
	can, err := (&party{client: &tenantClient{kube: h.kube}}).can(h.t.Context(), namespace)
	if err != nil {
		h.t.Fatal(err)
	}
	return can
}

// rights lists what the credential is good for in the whole cluster, which is what it
// is good for in a namespace of no meaning, and what it is good for besides in others.
func (h thief) rights(places []place) string {
	everywhere := h.can(places[0].namespace).Difference(sets.New(everybodysRights...))
	var b strings.Builder
	for i, p := range places {
		more := everywhere
		if i > 0 {
			more = h.can(p.namespace).Difference(sets.New(everybodysRights...)).Difference(everywhere)
		}
		fmt.Fprintf(&b, "Rights in %s:\n%s", p.name, byResource(more))
	}
	return b.String()
}

// byResource is one line for each resource.
func byResource(rights sets.Set[string]) string {
	if rights.Len() == 0 {
		return "  nothing more\n"
	}
	verbs := map[string][]string{}
	for _, right := range sets.List(rights) {
		verb, resource, _ := strings.Cut(right, " ")
		verbs[resource] = append(verbs[resource], verb)
	}
	var b strings.Builder
	for _, resource := range slices.Sorted(maps.Keys(verbs)) {
		fmt.Fprintf(&b, "  %s: %s\n", resource, strings.Join(verbs[resource], ", "))
	}
	return b.String()
}

// reviews asks about each verb on each resource that the API server has, in each place:
// no answer is other than the lists say.
func (h thief) reviews(places []place, disco discovery.DiscoveryInterface) {
	h.t.Helper()
	_, lists, err := disco.ServerGroupsAndResources()
	if err != nil {
		h.t.Fatal(err)
	}
	seen := sets.New[schema.GroupResource]()
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, r := range list.APIResources {
			seen.Insert(schema.GroupResource{Group: group.Group, Resource: r.Name})
		}
	}
	var wg sync.WaitGroup
	for _, p := range places {
		can := h.can(p.namespace)
		wg.Go(func() {
			for r := range seen {
				for _, verb := range reviewedVerbs {
					h.review(p, verb, r, can.Has(verb+" "+r.String()))
				}
			}
		})
	}
	wg.Wait()
}

func (h thief) review(p place, verb string, r schema.GroupResource, want bool) {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	got, err := askAs(h.t.Context(), &tenantClient{kube: h.kube}, &authorizationv1.ResourceAttributes{
		Namespace: p.namespace, Verb: verb, Group: r.Group, Resource: resource, Subresource: sub,
	})
	if err != nil || got != want {
		h.t.Errorf("%s %s in %s: allowed %t, want %t (%v)", verb, r, p.name, got, want, err)
	}
}

// A deed is something that a thief tries. Writes are dry runs.
type deed struct {
	what string
	try  func(context.Context, thief) error
}

// does lists what became of deeds.
func (h thief) does(deeds []deed) string {
	outcomes := map[string][]string{}
	for _, d := range deeds {
		outcome := "Other"
		switch err := d.try(h.t.Context(), h); {
		case err == nil, apierrors.IsAlreadyExists(err):
			outcome = "Done"
		case strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
			outcome = "Refused by the admission policy"
		case apierrors.IsForbidden(err):
			outcome = "Forbidden"
		default:
			d.what += ": " + err.Error()
		}
		outcomes[outcome] = append(outcomes[outcome], "  "+d.what)
	}
	var b strings.Builder
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		fmt.Fprintf(&b, "%s:\n%s\n", outcome, strings.Join(outcomes[outcome], "\n"))
	}
	return b.String()
}

var (
	dry     = []string{metav1.DryRunAll}
	secrets = corev1.SchemeGroupVersion.WithResource("secrets")
)

func reads(what, namespace, name string) deed {
	return deed{"read " + what, func(ctx context.Context, h thief) error {
		_, err := h.kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	}}
}

func listsSecrets(what, namespace string, o metav1.ListOptions) deed {
	return deed{"list " + what, func(ctx context.Context, h thief) error {
		_, err := h.kube.CoreV1().Secrets(namespace).List(ctx, o)
		return err
	}}
}

func makesIn(what string, gvr schema.GroupVersionResource, namespace, text string) deed {
	return deed{"make " + what, func(ctx context.Context, h thief) error {
		_, err := h.dyn.Resource(gvr).Namespace(namespace).Create(ctx, object(text), metav1.CreateOptions{DryRun: dry})
		return err
	}}
}

func patches(what string, gvr schema.GroupVersionResource, namespace, name, text string, sub ...string) deed { //nolint:revive // as many as a request has
	return deed{what, func(ctx context.Context, h thief) error {
		_, err := h.dyn.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: dry}, sub...)
		return err
	}}
}

func deletes(what string, gvr schema.GroupVersionResource, namespace, name string) deed {
	return deed{"delete " + what, func(ctx context.Context, h thief) error {
		return h.dyn.Resource(gvr).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dry})
	}}
}

func mints(what, namespace, account string, seconds int64, bound *authenticationv1.BoundObjectReference) deed {
	return deed{"have a token made for " + what, func(ctx context.Context, h thief) error {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: bound}}
		_, err := h.kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
		return err
	}}
}

func impersonates(what string, as rest.ImpersonationConfig) deed {
	return deed{"act as " + what, func(ctx context.Context, h thief) error {
		config := rest.CopyConfig(h.config)
		config.Impersonate = as
		_, err := must(kubernetes.NewForConfig(config)).CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	}}
}

// grants has a RoleBinding made: in a namespace, of a name, by a role such as
// "ClusterRole view", with subjects in YAML.
func grants(what, namespace, name, role string, subjects ...string) deed {
	kind, roleName, _ := strings.Cut(role, " ")
	return makesIn("a RoleBinding "+what, rbacv1.SchemeGroupVersion.WithResource("rolebindings"), namespace, fmt.Sprintf(
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: %s}, subjects: [%s]}",
		name, kind, roleName, strings.Join(subjects, ", ")))
}

func accountYAML(namespace, name string) string {
	return "{kind: ServiceAccount, namespace: " + namespace + ", name: " + name + "}"
}

func backendDeeds(tenant, other string, anchor types.UID) []deed {
	return slices.Concat(backendReads(tenant), backendTokens(tenant, anchor), backendGrants(tenant, other), backendWrites(tenant))
}

func backendReads(tenant string) []deed {
	named := metav1.ListOptions{FieldSelector: "metadata.name=kubeconfig"}
	all := []deed{
		listsSecrets("the Secrets of the cluster", "", metav1.ListOptions{}),
		listsSecrets("the Secrets called kubeconfig of the cluster", "", named),
		listsSecrets("the Secrets of the tenant namespace", tenant, metav1.ListOptions{}),
		listsSecrets("the Secrets of the service namespace", tenant+"-team-a", metav1.ListOptions{}),
		reads("the credential of a tenant", tenant, "kubeconfig"),
		reads("the record of a tenant", tenant, v1alpha1.TenantRecordSecret),
		reads("another Secret of the tenant namespace", tenant, "password"),
		reads("the key of its own cookies", "klutch-backend", "klutch-backend-session"),
		reads("another Secret of its own namespace", "klutch-backend", "password"),
	}
	for _, namespace := range []string{"default", "kube-system", "data-services"} {
		all = append(all, reads("a Secret of "+namespace, namespace, "password"), reads("the Secret kubeconfig of "+namespace, namespace, "kubeconfig"))
	}
	return append(all, impersonates("an administrator", rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}}),
		impersonates("a tenant", rest.ImpersonationConfig{UserName: "system:serviceaccount:" + tenant + ":klutch-binder"}))
}

func backendTokens(tenant string, anchor types.UID) []deed {
	bound := func(kind, name string, uid types.UID) *authenticationv1.BoundObjectReference {
		return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: uid}
	}
	anchored := bound("Secret", v1alpha1.TokenAnchorSecret, anchor)
	return []deed{
		mints("a tenant, bound to its anchor, for an hour", tenant, "klutch-binder", 3600, anchored),
		mints("a tenant, bound to its anchor, for a year", tenant, "klutch-binder", 365*24*3600, anchored),
		mints("a tenant, bound to nothing", tenant, "klutch-binder", 3600, nil),
		mints("a tenant, bound to another Secret", tenant, "klutch-binder", 3600, bound("Secret", "kubeconfig", "")),
		mints("a tenant, bound to a Pod", tenant, "klutch-binder", 3600, bound("Pod", "klutch-binder", "")),
		mints("another account of a tenant namespace", tenant, "default", 3600, anchored),
		mints("an account klutch-binder that is no tenant's", "data-services", "klutch-binder", 3600, anchored),
		mints("the automation of a service", "data-services", "automation", 3600, nil),
		mints("itself", "klutch-backend", "backend", 3600, nil),
	}
}

func backendGrants(tenant, other string) []deed {
	own, itself, holder := tenant+"-team-a", accountYAML("klutch-backend", "backend"), accountYAML(tenant, "klutch-binder")
	const offered, credentials, role = "ClusterRole klutch-backend-offer", "ClusterRole klutch-backend-tenant", "Role klutch-binder"
	all := []deed{
		grants("that gives the tenant namespace to its tenant", tenant, "klutch-binder", "ClusterRole klutch-tenant", holder),
		grants("that gives the service namespace to its tenant", own, "klutch-binder", role, holder),
		grants("that lets itself into the tenant namespace", tenant, "klutch-backend", credentials, itself),
		grants("that lets itself into the service namespace", own, "klutch-backend", offered, itself),
		grants("that gives the service namespace to another tenant", own, "klutch-binder", role, accountYAML(other, "klutch-binder")),
		grants("that gives the service namespace to two tenants", own, "klutch-binder", role, holder, accountYAML(other, "klutch-binder")),
		grants("that gives the service namespace to everybody", own, "klutch-binder", role, "{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:authenticated'}"),
		grants("that gives all that is on offer to a tenant", own, "klutch-binder", offered, holder),
		grants("that gives the role of tenant namespaces in a service namespace", own, "klutch-binder", "ClusterRole klutch-tenant", holder),
		grants("of another name", own, "other", role, holder),
		grants("that gives a tenant the role of Klutch's konnector", tenant, "klutch-binder", "ClusterRole klutch-tenant-klutch-konnector", holder),
		grants("that gives the role view", own, "klutch-binder", "ClusterRole view", holder),
		grants("that gives the role cluster-admin", own, "klutch-backend", "ClusterRole cluster-admin", itself),
		grants("that lets itself by the one role into the other namespace", own, "klutch-backend", credentials, itself),
		grants("that lets itself by the other role into the one namespace", tenant, "klutch-backend", offered, itself),
		makesIn("a ClusterRoleBinding", rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), "",
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: x}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: klutch-backend-offer}, subjects: ["+itself+"]}"),
	}
	for _, namespace := range []string{"default", "kube-system", "data-services", "klutch-backend"} {
		all = append(all, grants("that lets itself into "+namespace, namespace, "klutch-backend", offered, itself),
			grants("that gives "+namespace+" to a tenant", namespace, "klutch-binder", "ClusterRole klutch-tenant", holder))
	}
	roles := rbacv1.SchemeGroupVersion.WithResource("roles")
	makesRole := func(what, namespace, name, rules string) deed {
		return makesIn("a Role "+what, roles, namespace, "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: "+name+"}, rules: ["+rules+"]}")
	}
	const onOffer = "{apiGroups: [example.org], resources: [widgets], verbs: [get]}, {apiGroups: [''], resources: [secrets], verbs: [list]}"
	return append(all, makesRole("with what is on offer, in the service namespace", own, "klutch-binder", onOffer),
		makesRole("with what is not on offer, in the service namespace", own, "klutch-binder", "{apiGroups: [''], resources: [pods], verbs: [create]}"),
		makesRole("of another name, in the service namespace", own, "other", onOffer),
		makesRole("in the tenant namespace", tenant, "klutch-binder", "{apiGroups: [klutch.anynines.com], resources: [apiserviceexports], verbs: [create]}"),
		makesRole("with what is on offer, in kube-system", "kube-system", "klutch-binder", onOffer))
}

func backendWrites(tenant string) []deed {
	namespaces, accounts := corev1.SchemeGroupVersion.WithResource("namespaces"), corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	secret := func(name, more string) string {
		return "{apiVersion: v1, kind: Secret, metadata: {name: " + name + "}" + more + "}"
	}
	account := "{apiVersion: v1, kind: ServiceAccount, metadata: {name: klutch-binder}}"
	updates := func(what, name, label string) deed {
		return deed{what, func(ctx context.Context, h thief) error {
			ns, err := h.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if ns.Labels[v1alpha1.TenantLabel] = label; label == "" {
				delete(ns.Labels, v1alpha1.TenantLabel)
			}
			_, err = h.kube.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{DryRun: dry})
			return err
		}}
	}
	all := []deed{
		makesIn("the credential of a tenant", secrets, tenant, secret("kubeconfig", "")),
		makesIn("another Secret in a tenant namespace", secrets, tenant, secret("other", "")),
		makesIn("a Secret of a service account token in a tenant namespace", secrets, tenant,
			"{apiVersion: v1, kind: Secret, metadata: {name: kubeconfig, annotations: {kubernetes.io/service-account.name: default}}, type: kubernetes.io/service-account-token}"),
		makesIn("a Secret in a service namespace", secrets, tenant+"-team-a", secret("kubeconfig", "")),
		makesIn("the Secret of its own sessions", secrets, "klutch-backend", secret("klutch-backend-session", "")),
		makesIn("another Secret in its own namespace", secrets, "klutch-backend", secret("other", "")),
		makesIn("a Secret in kube-system", secrets, "kube-system", secret("kubeconfig", "")),
		makesIn("the account of a tenant", accounts, tenant, account),
		makesIn("an account in a service namespace", accounts, tenant+"-team-a", account),
		makesIn("an account in kube-system", accounts, "kube-system", account),
		makesIn("an object of a service", widgets, tenant+"-team-a", "{apiVersion: example.org/v1, kind: Widget, metadata: {name: x}}"),
		patches("have an object of a service take over what another one has composed", widgets, tenant+"-team-a", "w", `{"metadata":{"annotations":{"crossplane.io/external-name":"other"}}}`),
		deletes("an object of a service", widgets, tenant+"-team-a", "w"),
		makesIn("a namespace of a tenant", namespaces, "", "{apiVersion: v1, kind: Namespace, metadata: {name: "+tenant+"-x, labels: {"+v1alpha1.TenantLabel+": "+tenant+"}}}"),
		makesIn("a namespace that has a name of others", namespaces, "", "{apiVersion: v1, kind: Namespace, metadata: {name: payroll, labels: {"+v1alpha1.TenantLabel+": payroll}}}"),
		makesIn("a namespace of no tenant", namespaces, "", "{apiVersion: v1, kind: Namespace, metadata: {name: x}}"),
		updates("make kube-system a tenant's", "kube-system", tenant),
		updates("make the namespace of a tenant another tenant's", tenant, "x"),
		updates("take the label off the namespace of a tenant", tenant, ""),
		deletes("the namespace of a tenant", namespaces, "", tenant),
		deletes("data-services", namespaces, "", "data-services"),
		deletes("the admission policy", schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}, "", "klutch-backend"),
	}
	return append(all, deletes("the Secret kubeconfig of kube-system", secrets, "kube-system", "kubeconfig"))
}

func tenantDeeds(home, other string) []deed {
	own := home + "-team-a"
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	all := []deed{
		reads("its own credential", home, "kubeconfig"),
		reads("its own record", home, v1alpha1.TenantRecordSecret),
		listsSecrets("the Secrets of the tenant namespace", home, metav1.ListOptions{}),
		listsSecrets("the Secrets of its service namespace, since the service hands out Secrets that it names at runtime", own, metav1.ListOptions{}),
		listsSecrets("the Secrets of the cluster", "", metav1.ListOptions{}),
		makesIn("a Secret in its service namespace", secrets, own, "{apiVersion: v1, kind: Secret, metadata: {name: x}}"),
		makesIn("an object of the service", widgets, own, "{apiVersion: example.org/v1, kind: Widget, metadata: {name: x}}"),
		makesIn("an object of a service that it did not bind", widgets.GroupVersion().WithResource("gizmos"), own, "{apiVersion: example.org/v1, kind: Gizmo, metadata: {name: x}}"),
		deletes("an object of the service", widgets, own, "w"),
		{"delete an object of the service, but not what an operator made for it", func(ctx context.Context, h thief) error {
			return h.dyn.Resource(widgets).Namespace(own).Delete(ctx, "w", metav1.DeleteOptions{DryRun: dry, PropagationPolicy: new(metav1.DeletePropagationOrphan)})
		}},
		{"delete an object of the service, but not what it owns, as one said it once", func(ctx context.Context, h thief) error {
			return h.dyn.Resource(widgets).Namespace(own).Delete(ctx, "w", metav1.DeleteOptions{DryRun: dry, OrphanDependents: new(true)}) //nolint:staticcheck // which API servers still take
		}},
		makesIn("a request for another service", tenant.RequestResource, home, "{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExportRequest, metadata: {name: x}, spec: {resources: [{group: example.org, resource: gizmos}]}}"),
		makesIn("an ask for one more service namespace", tenant.NamespaceResource, home, "{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: x}}"),
		patches("say on an export what its status is", tenant.ExportResource, home, "widgets.example.org", `{"status":{"conditions":[]}}`, "status"),
		patches("change what an export gives", tenant.ExportResource, home, "widgets.example.org", `{"spec":{"permissionClaims":[]}}`),
		deletes("its ClusterBinding, which gives the tenant up", tenant.ClusterBindingResource, home, v1alpha1.ClusterBindingName),
		deletes("the anchor of its credential, which revokes it", secrets, home, v1alpha1.TokenAnchorSecret),
		deletes("its tenant namespace", namespaces, "", home),
		mints("itself", home, "klutch-binder", 3600, nil),
		mints("another account of the tenant namespace", home, "default", 3600, nil),
		mints("another account of the service namespace", own, "default", 3600, nil),
		grants("for itself in its service namespace", own, "x", "ClusterRole view", accountYAML(home, "klutch-binder")),
		grants("for itself in kube-system", "kube-system", "x", "ClusterRole view", accountYAML(home, "klutch-binder")),
		impersonates("an administrator", rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}}),
		impersonates("the backend", rest.ImpersonationConfig{UserName: "system:serviceaccount:klutch-backend:backend"}),
		makesIn("a Pod in its service namespace", corev1.SchemeGroupVersion.WithResource("pods"), own, "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: x, image: x}]}}"),
		makesIn("an object that cannot be deleted", widgets, own, "{apiVersion: example.org/v1, kind: Widget, metadata: {name: x, finalizers: [example.org/x]}}"),
	}
	for what, namespace := range map[string]string{"of another tenant": other, "of another tenant's service": other + "-team-a", "of the backend": "klutch-backend", "of kube-system": "kube-system", "of data-services": "data-services"} {
		all = append(all, reads("a Secret "+what, namespace, "password"), reads("the Secret kubeconfig "+what, namespace, "kubeconfig"))
	}
	slices.SortFunc(all, func(a, b deed) int { return strings.Compare(a.what, b.what) })
	return append(all, deletes("an object of another tenant", widgets, other+"-team-a", "w"), patches("write an object of another tenant", widgets, other+"-team-a", "w", `{"spec":{"size":2}}`))
}
