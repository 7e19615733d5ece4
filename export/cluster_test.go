// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

// TestP12P13P14ControlPlane runs a backend with exactly the shipped rights against a real API
// server. The steps share it and its tenants, and depend on their order.
func TestP12P13P14ControlPlane(t *testing.T) {
	w := newWorld(t)
	var ada *tenantClient
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"P14 concurrent binds make one tenant", func() { ada = concurrentBinds(w.t, w) }},
		{"a crash after any write of a bind leaves nothing stuck", func() { crashes(w.t, w) }},
		{"journey", func() { journey(w.t, ada) }},
		{"a code is good once, for the program that asked", func() { codeOnce(w.t, w) }},
		{"refused requests", func() { refusedRequests(w.t, w, ada) }},
		{"P12 two tenants", func() { isolation(w.t, ada, w.tenant("grace", "c1", "widgets.example.org")) }},
		{"tenants leave finalizers alone", func() { finalizers(w.t, ada) }},
		{"P34 a tenant writes nothing that the konnector would leave out", func() { leftOut(w.t, ada) }},
		{"P34 a kind of the platform's own may have fields named as Crossplane's", func() { ownReferences(w.t, ada) }},
		{"P34 konnectors write what they have to", func() { konnectors(w.t, ada) }},
		{"P10 what a tenant writes is bounded", func() { boundedWrites(w.t, ada) }},
		{"P14 a namespace of another owner is refused", func() { foreignNamespace(w.t, w) }},
		{"an insider cannot make a tenant", func() { insider(w.t, w) }},
		{"P13 tokens are bound, renewed and revoked", func() { rotation(w.t, ada) }},
		{"the backend is kept out of other namespaces", func() { secondLock(w.t, w) }},
		{"heartbeat", func() { heartbeat(w.t, ada) }},
		{"P10 nonsense of a tenant keeps no other from work", func() { nonsense(w.t, ada) }},
		{"P10 a request for very much is refused", func() { greedy(w.t, ada) }},
		{"P13 a tenant makes no tokens", func() { noToken(w.t, ada) }},
		{"missing rights", func() { missingRights(w.t, w) }},
		{"schema changes flow, a lost CRD deletes nothing", func() { schemaChanges(w.t, ada) }},
		{"breaking changes are held, or allowed", func() { breaking(w.t, ada) }},
		{"claims of a template reach exports", func() { claimsFlow(w.t, ada) }},
		{"P12 what is not on offer any more stops, and heals", func() { withdrawal(w.t, ada) }},
		{"P12 the older of two templates for an API stays", func() { shadowed(w.t, ada) }},
		{"templates of Klutch installations", func() { otherTemplates(w.t, w) }},
		{"a restart writes nothing", func() { quietRestart(w.t, w) }},
		{"a service namespace goes when it is empty", func() { removal(w.t, ada) }},
	} {
		ok := t.Run(step.name, func(t *testing.T) {
			w.t = t
			step.run()
		})
		if !ok {
			return
		}
	}
}

func (w *world) bindDirectly(user string) (string, error) {
	return w.exporter.tenants.Bind(w.t.Context(), tenant.Record{
		Identity: auth.Identity{Issuer: w.issuer.URL(), Subject: user, Groups: users[user].Groups}, Cluster: "c1", Services: []string{"gadgets.example.org"},
	})
}

func concurrentBinds(t *testing.T, w *world) *tenantClient {
	t.Helper()
	names := make([]string, 50)
	errs := make([]error, 50)
	var wg sync.WaitGroup
	for i := range names {
		wg.Go(func() { names[i], errs[i] = w.bindDirectly("ada") })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if got := slices.Compact(names); len(got) != 1 {
		t.Errorf("tenants: %q", got)
	}
	ada := w.tenant("ada", "c1", "widgets.example.org")
	if ada.namespace != names[0] {
		t.Errorf("login made %s, want %s", ada.namespace, names[0])
	}
	list, err := w.admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.TenantLabel})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("%d namespaces of tenants: %v", len(list.Items), err)
	}
	return ada
}

// journey is what a konnector does with a new credential.
func journey(t *testing.T, ada *tenantClient) {
	t.Helper()
	if got := ada.response.Authentication.OAuth2CodeGrant; got.ID != ada.w.issuer.URL()+"/ada" || got.SessionID == "" {
		t.Errorf("authentication: %+v", got)
	}
	var asked v1alpha1.APIServiceExportRequestResponse
	if err := json.Unmarshal(ada.response.Requests[0].Raw, &asked); err != nil {
		t.Fatal(err)
	}
	if asked.ObjectMeta.Name != "widgets.example.org" || asked.Kind != "APIServiceExportRequest" || len(asked.Spec.Resources[0].PermissionClaims) != 1 {
		t.Errorf("request: %s", ada.response.Requests[0].Raw)
	}
	got := ada.request("first", "widgets.example.org", "gadgets.example.org")
	if got.Status.Phase != v1alpha1.RequestSucceeded || !v1alpha1.IsTrue(got.Status.Conditions, v1alpha1.ConditionReady) {
		t.Fatalf("status: %+v", got.Status)
	}
	exported := until(ada.w, "apiserviceexports", ada.namespace, "widgets.example.org", inSync)
	if schema := string(exported.Spec.Versions[0].Schema.OpenAPIV3Schema.Raw); !strings.Contains(schema, `"rule":"self \u003c 9"`) && !strings.Contains(schema, `"rule":"self < 9"`) {
		t.Errorf("schema: %s", schema)
	}
	namespace := ada.mirror("team-a")
	if want := ada.namespace + "-team-a"; namespace != want {
		t.Errorf("service namespace %s, want %s", namespace, want)
	}
	h := tenant.Holder{Issuer: ada.w.issuer.URL(), Subject: "ada", Cluster: "c1"}
	by := labels.Set{
		v1alpha1.TenantLabel: ada.namespace, v1alpha1.SubjectLabel: tenant.Digest(h.Issuer, h.Subject), v1alpha1.AppClusterLabel: "c1", v1alpha1.AppNamespaceLabel: "team-a",
	}.String()
	chosen, err := ada.w.admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: by})
	if err != nil || len(chosen.Items) != 1 || chosen.Items[0].Name != namespace {
		t.Errorf("%d namespaces with labels %s: %v", len(chosen.Items), by, err)
	}
	widget := object("{apiVersion: example.org/v1, kind: Widget, metadata: {name: w}, spec: {size: 3}}")
	ada.w.eventually("widget", func(ctx context.Context) (bool, error) { // the rights are new
		_, err := ada.dyn.Resource(widgets).Namespace(namespace).Create(ctx, widget, metav1.CreateOptions{})
		return err == nil, nil
	})
	long := ada.mirror(strings.Repeat("x", 60))
	if len(long) > 63 || !strings.HasPrefix(long, ada.namespace+"--") {
		t.Errorf("service namespace %s", long)
	}
}

func codeOnce(t *testing.T, w *world) {
	t.Helper()
	g, browser, err := w.login("ada", "c1", "widgets.example.org")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(url.Values){
		"verifier": func(f url.Values) { f.Set("code_verifier", strings.Repeat("x", 43)) },
		"redirect": func(f url.Values) { f.Set("redirect_uri", "http://127.0.0.1:1/callback") },
		"client":   func(f url.Values) { f.Set("client_id", "other") },
		"grant":    func(f url.Values) { f.Set("grant_type", "password") },
		"code":     func(f url.Values) { f.Set("code", f.Get("code")[1:]) },
		"twice":    func(f url.Values) { f.Add("code", "x") },
	} {
		if got := w.redeem(g, change); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, `"error"`) {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
	answers := make([]int, 10)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			got := w.redeem(g, nil)
			answers[i] = got.Status
			if got.Header.Get("Cache-Control") != "no-store" {
				t.Error("answer may be stored")
			}
		})
	}
	wg.Wait()
	slices.Sort(answers)
	if want := slices.Concat([]int{200}, slices.Repeat([]int{400}, 9)); !slices.Equal(answers, want) {
		t.Errorf("ten redemptions of one code: %v", answers)
	}
	credential, err := w.admin.CoreV1().Secrets(tenant.Holder{Issuer: w.issuer.URL(), Subject: "ada", Cluster: "c1"}.Namespace("cluster")).Get(t.Context(), v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(string(credential.Data[v1alpha1.KubeconfigKey]), "token: ")
	token, _, _ = strings.Cut(token, "\n")
	for _, visited := range browser.URLs() { // P2
		if strings.Contains(visited, token) || strings.Contains(visited, g.Verifier) {
			t.Errorf("secret in URL %s", visited)
		}
	}
	if log := w.log.String(); strings.Contains(log, token) || strings.Contains(log, g.Code) { // P9
		t.Error("secret in the log")
	}
}

func refusedRequests(t *testing.T, w *world, ada *tenantClient) {
	t.Helper()
	w.apply(templateOf("ghosts"))
	g, _, err := w.login("ada", "c1", "ghosts.example.org") // not available: no CRD
	if err == nil || g.Code != "" {
		t.Errorf("login for an API that does not exist: %v", err)
	}
	if _, err := w.exporter.tenants.Bind(t.Context(), tenant.Record{
		Identity: auth.Identity{Issuer: w.issuer.URL(), Subject: "ada", Groups: []string{"developers"}}, Cluster: "c1",
		Services: []string{"continents.example.org", "gizmos.example.org"},
	}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ service, reason, message string }{
		"unknown":        {"nothing.example.org", v1alpha1.ReasonNotOffered, "not on offer"},
		"not-chosen":     {"ghosts.example.org", v1alpha1.ReasonNotAuthorized, "--service ghosts.example.org"},
		"not-allowed":    {"gizmos.example.org", v1alpha1.ReasonNotAuthorized, "may not be bound"},
		"cluster-scoped": {"continents.example.org", offer.ReasonClusterScoped, "offer a namespaced API"},
	} {
		got := ada.request(name, "widgets.example.org", test.service)
		ready := v1alpha1.FindCondition(got.Status.Conditions, v1alpha1.ConditionReady)
		if got.Status.Phase != v1alpha1.RequestFailed || !strings.Contains(got.Status.TerminalMessage, test.message) || ready.Reason != test.reason {
			t.Errorf("%s: %+v", name, got.Status)
		}
	}
	unfitTemplates(w)
}

// unfitTemplates waits until templates say that tenants cannot have their APIs, and why; one
// that is put right says so.
func unfitTemplates(w *world) {
	w.t.Helper()
	says := func(name, reason string, words ...string) {
		w.t.Helper()
		until(w, "apiserviceexporttemplates", "default", name, func(o *v1alpha1.APIServiceExportTemplate) bool {
			c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionReady)
			return c != nil && c.Reason == reason && (c.Status == metav1.ConditionTrue) == (reason == "") &&
				!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) })
		})
	}
	says("continents", v1alpha1.ReasonClusterScoped, "App Clusters can have namespaced APIs alone", "offer a namespaced one")
	w.eventually("the template is logged and counted", func(context.Context) (bool, error) {
		census, ok := w.exporter.Census()
		logged := regexp.MustCompile(`"template does not work".*continents.*` + v1alpha1.ReasonClusterScoped).MatchString(w.log.String())
		return logged && ok && census.Templates.NotReady > 0, nil
	})
	for _, isolation := range []v1alpha1.Isolation{v1alpha1.IsolationPrefixed, v1alpha1.IsolationNone} {
		w.apply(changed(templateOf("gizmos"), string(isolation), "spec", "clusterScopedIsolation"))
		says("gizmos", v1alpha1.ReasonClusterScoped, "read each other's objects", "set it to Namespaced")
		w.apply(changed(templateOf("gizmos"), string(v1alpha1.IsolationNamespaced), "spec", "clusterScopedIsolation"))
		says("gizmos", "")
	}
	w.apply(templateOf("gizmos"))
	says("gizmos", "")
}

// isolation compares what a tenant may do with what it should.
func isolation(t *testing.T, ada, grace *tenantClient) {
	t.Helper()
	grace.request("first", "widgets.example.org")
	mirror := grace.mirror("team-a")
	own := ada.namespace + "-team-a"
	for _, test := range []struct {
		namespace, verb, group, resource, name string
		allowed                                bool
	}{
		{ada.namespace, "get", "", "secrets", "kubeconfig", true},
		{ada.namespace, "watch", "", "secrets", "kubeconfig", false},
		{ada.namespace, "list", "", "secrets", "", false},
		{ada.namespace, "get", "", "secrets", v1alpha1.TenantRecordSecret, false},
		{ada.namespace, "update", "", "secrets", "kubeconfig", false},
		{ada.namespace, "create", "", "secrets", "", false},
		{ada.namespace, "get", "", "namespaces", ada.namespace, true},
		{ada.namespace, "create", "klutch.anynines.com", "apiserviceexports", "", false},
		{ada.namespace, "update", "klutch.anynines.com", "apiserviceexports", "", false},
		{ada.namespace, "create", "klutch.anynines.com", "apiserviceexportrequests", "", true},
		{ada.namespace, "update", "klutch.anynines.com", "clusterbindings", "", false},
		{ada.namespace, "create", "", "pods", "", false},
		{own, "create", "example.org", "widgets", "", true},
		{own, "delete", "example.org", "gadgets", "", true},
		{own, "create", "example.org", "gizmos", "", false},
		{own, "list", "", "secrets", "", true},
		{own, "create", "", "secrets", "", false},
		{own, "update", "rbac.authorization.k8s.io", "roles", "", false},
		{grace.namespace, "get", "", "secrets", "kubeconfig", false},
		{grace.namespace, "list", "klutch.anynines.com", "apiserviceexports", "", false},
		{mirror, "list", "example.org", "widgets", "", false},
		{mirror, "list", "", "secrets", "", false},
		{"", "list", "example.org", "widgets", "", false},
		{"", "list", "", "namespaces", "", false},
		{"kube-system", "get", "", "secrets", "kubeconfig", false},
		{"klutch-backend", "get", "", "secrets", "klutch-backend-session", false},
		{"default", "list", "klutch.anynines.com", "apiserviceexporttemplates", "", false},
	} {
		got, err := ada.allowed(t.Context(), test.namespace, test.verb, test.group, test.resource, test.name)
		if err != nil || got != test.allowed {
			t.Errorf("%+v: allowed %t %v", test, got, err)
		}
	}
	if _, err := ada.dyn.Resource(widgets).Namespace(mirror).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list in another tenant's service namespace: %v", err)
	}
	bindings, err := ada.w.admin.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bindings.Items {
		for _, s := range b.Subjects {
			if s.Name == v1alpha1.TenantServiceAccount {
				t.Errorf("cluster role binding %s names a tenant", b.Name)
			}
		}
	}
}

// allowed asks what the credential of c may do.
func (c *tenantClient) allowed(ctx context.Context, namespace, verb, group, resource, name string) (bool, error) { //nolint:revive // as many as a request has
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: group, Resource: resource, Name: name,
	}}}
	got, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return got.Status.Allowed, nil
}

// finalizers: a tenant cannot hold up its removal, nor skip what an operator has to do.
func finalizers(t *testing.T, ada *tenantClient) {
	t.Helper()
	own := ada.namespace + "-team-a"
	patch := func(c dynamic.Interface, text string) error {
		_, err := c.Resource(widgets).Namespace(own).Patch(t.Context(), "w", types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	create := func(gvr schema.GroupVersionResource, namespace, kind string) error {
		u := requestOf("held", "widgets.example.org")
		u.SetAPIVersion(gvr.GroupVersion().String())
		u.SetKind(kind)
		u.SetFinalizers([]string{"example.org/hold"})
		_, err := ada.dyn.Resource(gvr).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{})
		return err
	}
	if err := patch(ada.w.dyn, `{"metadata":{"finalizers":["example.org/operator"]}}`); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"ask for a namespace that stays": create(tenant.NamespaceResource, ada.namespace, "APIServiceNamespace"),
		"make a request that stays":      create(tenant.RequestResource, ada.namespace, "APIServiceExportRequest"),
		"make an object that stays":      create(widgets, own, "Widget"),
		"add a finalizer":                patch(ada.dyn, `{"metadata":{"finalizers":["example.org/operator","example.org/hold"]}}`),
		"skip an operator":               patch(ada.dyn, `{"metadata":{"finalizers":null}}`),
	} {
		if err == nil || !strings.Contains(err.Error(), "tenants may not set or remove finalizers") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(patch(ada.dyn, `{"spec":{"size":4}}`), patch(ada.w.dyn, `{"metadata":{"finalizers":null}}`)); err != nil {
		t.Error(err)
	}
}

func foreignNamespace(t *testing.T, w *world) {
	t.Helper()
	name := tenant.Holder{Issuer: w.issuer.URL(), Subject: "grace", Cluster: "c2"}.Namespace("cluster")
	w.apply(object(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s: %s}}}", name, v1alpha1.TenantLabel, name)))
	_, _, err := w.login("grace", "c2", "widgets.example.org")
	if err == nil || !strings.Contains(err.Error(), "409") || !strings.Contains(err.Error(), name) {
		t.Errorf("login: %v", err)
	}
	list, err := w.admin.CoreV1().Secrets(name).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("secrets were made: %v %v", list.Items, err)
	}
}

// insider tries to get a service namespace for the service account of a namespace
// that is no tenant's. What is there is not ours, and stays as it is.
func insider(t *testing.T, w *world) {
	t.Helper()
	record := `{"identity":{"issuer":"` + w.issuer.URL() + `","subject":"ada","groups":["developers"]},"cluster":"c1","services":["widgets.example.org"]}`
	w.apply(object("{apiVersion: v1, kind: Namespace, metadata: {name: inside}}"),
		object("{apiVersion: v1, kind: Secret, metadata: {name: klutch-tenant, namespace: inside}, stringData: {tenant.json: '"+record+"'}}"),
		object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: x, namespace: inside}}"),
		object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExportRequest, metadata: {name: x, namespace: inside}, spec: {resources: [{group: example.org, resource: widgets}]}}"))
	w.tenant("grace", "c8", "widgets.example.org").mirror("yard") // by then the other was looked at
	asked := until(w, "apiservicenamespaces", "inside", "x", func(*v1alpha1.APIServiceNamespace) bool { return true })
	if asked.Status.Namespace != "" || len(asked.Status.Conditions) > 0 || len(asked.Finalizers) > 0 {
		t.Errorf("service namespace: %+v", asked)
	}
	request := until(w, "apiserviceexportrequests", "inside", "x", func(*v1alpha1.APIServiceExportRequest) bool { return true })
	if len(request.Status.Conditions) > 0 {
		t.Errorf("request: %+v", request.Status)
	}
}

func rotation(t *testing.T, ada *tenantClient) {
	t.Helper()
	secrets := ada.w.admin.CoreV1().Secrets(ada.namespace)
	before, err := secrets.Get(t.Context(), v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := tenant.Renewal(before)
	if left := time.Until(at); left < 35*time.Minute || left > 41*time.Minute {
		t.Errorf("renewal in %s, want two thirds of an hour", left)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.RenewAfterAnnotation, time.Now().Add(-time.Minute).Format(time.RFC3339))
	if _, err := secrets.Patch(t.Context(), before.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	// A pass that nothing gives reason to comes when the renewal is due.
	touch := []byte(`{"metadata":{"annotations":{"example.org/touched":"yes"}}}`)
	if _, err := ada.w.admin.CoreV1().ServiceAccounts(ada.namespace).Patch(t.Context(), v1alpha1.TenantServiceAccount, types.MergePatchType, touch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	ada.w.eventually("renewal", func(ctx context.Context) (bool, error) {
		after, err := secrets.Get(ctx, before.Name, metav1.GetOptions{})
		return err == nil && string(after.Data[v1alpha1.KubeconfigKey]) != string(before.Data[v1alpha1.KubeconfigKey]), nil
	})
	if err := secrets.Delete(t.Context(), v1alpha1.TokenAnchorSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ada.w.eventually("old token is refused", func(ctx context.Context) (bool, error) {
		_, err := ada.kube.CoreV1().Namespaces().Get(ctx, ada.namespace, metav1.GetOptions{})
		return apierrors.IsUnauthorized(err), nil
	})
	*ada = *ada.w.tenant("ada", "c1", "widgets.example.org")
	if _, err := ada.kube.CoreV1().Namespaces().Get(t.Context(), ada.namespace, metav1.GetOptions{}); err != nil {
		t.Errorf("new token: %v", err)
	}
	if !strings.Contains(ada.w.log.String(), `"msg"="credential revoked"`) {
		t.Error("the revocation is not in the audit log")
	}
	list, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Items {
		if s.Type == corev1.SecretTypeServiceAccountToken {
			t.Errorf("secret %s is of a service account token", s.Name)
		}
	}
}

func secondLock(t *testing.T, w *world) {
	t.Helper()
	backend := must(kubernetes.NewForConfig(w.config))
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "x"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.TenantRole},
	}
	_, bindingErr := backend.RbacV1().RoleBindings("kube-system").Create(t.Context(), binding, metav1.CreateOptions{})
	_, namespaceErr := backend.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "anything"}}, metav1.CreateOptions{})
	for what, err := range map[string]error{
		"make a role binding elsewhere":   bindingErr,
		"make a namespace of no tenant":   namespaceErr,
		"delete a namespace of no tenant": backend.CoreV1().Namespaces().Delete(t.Context(), "inside", metav1.DeleteOptions{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// beat has every tenant report that never has: of one that is silent there is news for a while.
func (w *world) beat() {
	w.t.Helper()
	all := w.dyn.Resource(tenant.ClusterBindingResource)
	patch := fmt.Appendf(nil, `{"status":{"heartbeatInterval":"1h","lastHeartbeatTime":%q,"clusterUID":"app"}}`, time.Now().UTC().Format(time.RFC3339))
	for _, b := range must(all.List(w.t.Context(), metav1.ListOptions{})).Items {
		if last, _, _ := unstructured.NestedString(b.Object, "status", "lastHeartbeatTime"); last == "" {
			must(all.Namespace(b.GetNamespace()).Patch(w.t.Context(), b.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"))
		}
	}
}

func heartbeat(t *testing.T, ada *tenantClient) {
	t.Helper()
	await := func(want string) {
		until(ada.w, "clusterbindings", ada.namespace, "cluster", func(o *v1alpha1.ClusterBinding) bool {
			c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionHealthy)
			return c != nil && string(c.Status)+c.Reason == want
		})
	}
	beat := func(interval string) {
		patch := fmt.Appendf(nil, `{"status":{"heartbeatInterval":%q,"lastHeartbeatTime":%q,"clusterUID":"app"}}`, interval, time.Now().UTC().Format(time.RFC3339))
		_, err := ada.dyn.Resource(tenant.ClusterBindingResource).Namespace(ada.namespace).Patch(t.Context(), "cluster", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
	}
	await("FalseFirstHeartbeatPending")
	beat("1h")
	await("True")
	beat("1s")
	await("FalseHeartbeatTimeout")
}

func missingRights(t *testing.T, w *world) {
	t.Helper()
	w.apply(crdOf("cogs", v1alpha1.NamespacedScope), templateOf("cogs"))
	grace := w.tenant("grace", "c1", "cogs.example.org")
	grace.create("apiserviceexportrequests", requestOf("cogs", "cogs.example.org"))
	request := until(w, "apiserviceexportrequests", grace.namespace, "cogs", func(o *v1alpha1.APIServiceExportRequest) bool { return len(o.Status.Conditions) > 0 })
	c := v1alpha1.FindCondition(request.Status.Conditions, v1alpha1.ConditionExportsReady)
	if request.Status.Phase != v1alpha1.RequestPending || c.Reason != v1alpha1.ReasonMissingRights ||
		!strings.Contains(c.Message, "cogs.example.org") || !strings.Contains(c.Message, v1alpha1.AggregateToBackendLabel) {
		t.Errorf("status: %+v", request.Status)
	}
	w.template("cogs", v1alpha1.ReasonMissingRights, "cogs.example.org", v1alpha1.AggregateToBackendLabel)
	w.apply(rightsOf("cogs"))
	if got := grace.answered("cogs"); got.Status.Phase != v1alpha1.RequestSucceeded {
		t.Errorf("status: %+v", got.Status)
	}
	w.template("cogs", "")

	// A kind whose names another one has is not established.
	taken := changed(crdOf("pawls", v1alpha1.NamespacedScope), "Cog", "spec", "names", "kind")
	w.apply(changed(taken, "PawlList", "spec", "names", "listKind"), templateOf("pawls"), rightsOf("pawls"))
	w.template("pawls", v1alpha1.ReasonNotEstablished, "kubectl describe crd pawls.example.org")
	w.apply(crdOf("pawls", v1alpha1.NamespacedScope))
	w.template("pawls", "")
}

// template waits until Ready of a template has a reason, and the words in its message; without
// a reason it is True.
func (w *world) template(name, reason string, words ...string) {
	w.t.Helper()
	until(w, "apiserviceexporttemplates", "default", name, func(o *v1alpha1.APIServiceExportTemplate) bool {
		c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Reason == reason && (c.Status == metav1.ConditionTrue) == (reason == "") &&
			!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) })
	})
}

func schemaChanges(t *testing.T, ada *tenantClient) {
	t.Helper()
	crd := crdOf("gadgets", v1alpha1.NamespacedScope)
	if err := unstructured.SetNestedStringSlice(crd.Object, []string{"gg"}, "spec", "names", "shortNames"); err != nil {
		t.Fatal(err)
	}
	ada.w.apply(crd)
	await := func(done func(*v1alpha1.APIServiceExport) bool) {
		until(ada.w, "apiserviceexports", ada.namespace, "gadgets.example.org", done)
	}
	await(func(o *v1alpha1.APIServiceExport) bool { return cmp.Equal(o.Spec.Names.ShortNames, []string{"gg"}) })
	ada.w.apply(crdOf("gadgets", v1alpha1.NamespacedScope)) // a field that goes away goes away
	await(func(o *v1alpha1.APIServiceExport) bool { return o.Spec.Names.ShortNames == nil })
	if err := ada.w.dyn.Resource(offer.CRDResource).Delete(t.Context(), "gadgets.example.org", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(func(o *v1alpha1.APIServiceExport) bool {
		c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionProviderInSync)
		return c != nil && c.Reason == v1alpha1.ReasonCRDNotFound
	})
	ada.w.apply(crdOf("gadgets", v1alpha1.NamespacedScope))
	await(inSync)
}

// breaking: what takes something away waits for the operator.
func breaking(t *testing.T, ada *tenantClient) {
	t.Helper()
	const service = "gadgets.example.org"
	crd := crdOf("gadgets", v1alpha1.NamespacedScope)
	narrower := sized("gadgets", 5)
	first, _ := narrower[0].(map[string]any)
	if err := unstructured.SetNestedField(first, map[string]any{"type": "string"}, "schema", "openAPIV3Schema", "properties", "extra"); err != nil {
		t.Fatal(err)
	}
	ada.w.apply(changed(crd, narrower, "spec", "versions"))
	held := ada.export(service, says(v1alpha1.ConditionProviderInSync, v1alpha1.ReasonBreakingChangeHeld, "v1 spec.size: maximum was none and is 5", "breakingChanges"))
	if now := string(held.Spec.Versions[0].Schema.OpenAPIV3Schema.Raw); strings.Contains(now, "maximum") || !strings.Contains(now, `"extra"`) {
		t.Errorf("a breaking change was taken over, or a harmless one beside it was not: %s", now)
	}
	ada.w.settled() // nothing is written while a part is held
	ada.w.apply(changed(templateOf("gadgets"), "Allow", "spec", "breakingChanges"))
	ada.export(service, inSyncWith(`"maximum":5`))
	ada.w.apply(changed(templateOf("gadgets"), "Report", "spec", "lostInstances"))
	ada.export(service, func(o *v1alpha1.APIServiceExport) bool { return o.Spec.LostInstances == v1alpha1.LostInstancesReport })
	ada.w.apply(changed(templateOf("gadgets"), "Offer", "spec", "adoption"))
	ada.export(service, func(o *v1alpha1.APIServiceExport) bool {
		return o.Spec.Adoption == v1alpha1.AdoptionOffer && o.Spec.LostInstances == ""
	})
	ada.w.apply(templateOf("gadgets"))
	ada.export(service, func(o *v1alpha1.APIServiceExport) bool { return o.Spec.LostInstances == "" && o.Spec.Adoption == "" })
	ada.w.apply(changed(crd, sized("gadgets", 7), "spec", "versions")) // wider, and without the field that came
	ada.export(service, says(v1alpha1.ConditionProviderInSync, v1alpha1.ReasonBreakingChangeHeld, "v1 extra: is gone"))
	ada.w.apply(changed(templateOf("gadgets"), "Allow", "spec", "breakingChanges"))
	ada.export(service, inSyncWith(`"maximum":7`))
	ada.w.apply(templateOf("gadgets"))
	ada.w.apply(crd)
	ada.export(service, func(o *v1alpha1.APIServiceExport) bool { return !inSyncWith(`"maximum"`)(o) && inSync(o) })
}

// sized are the versions of an API whose spec.size has a maximum.
func sized(plural string, maximum int64) []any {
	versions, _, _ := unstructured.NestedSlice(crdOf(plural, v1alpha1.NamespacedScope).Object, "spec", "versions")
	first, _ := versions[0].(map[string]any)
	size, _, _ := unstructured.NestedMap(first, "schema", "openAPIV3Schema", "properties", "spec", "properties", "size")
	size["maximum"] = maximum
	_ = unstructured.SetNestedMap(first, size, "schema", "openAPIV3Schema", "properties", "spec", "properties", "size") // it is there
	return versions
}

func inSyncWith(text string) func(*v1alpha1.APIServiceExport) bool {
	return func(o *v1alpha1.APIServiceExport) bool {
		return inSync(o) && strings.Contains(string(o.Spec.Versions[0].Schema.OpenAPIV3Schema.Raw), text)
	}
}

func inSync(o *v1alpha1.APIServiceExport) bool {
	return v1alpha1.IsTrue(o.Status.Conditions, v1alpha1.ConditionProviderInSync)
}

// versions are the resource versions of all that the backend writes.
func (w *world) versions() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, gvr := range []schema.GroupVersionResource{
		tenant.ExportResource, tenant.RequestResource, tenant.NamespaceResource, tenant.ClusterBindingResource,
		corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
		rbacv1.SchemeGroupVersion.WithResource("roles"), rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
	} {
		list, err := w.dyn.Resource(gvr).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetNamespace(), "cluster-") {
				all[gvr.Resource+" "+o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
			}
		}
	}
	return all
}

// settled returns versions when they have not changed for a second.
func (w *world) settled() map[string]string {
	w.t.Helper()
	last, since := w.versions(), time.Now()
	w.eventually("rest", func(context.Context) (bool, error) {
		now := w.versions() //nolint:contextcheck // the world has one
		if !cmp.Equal(last, now) {
			last, since = now, time.Now()
		}
		return time.Since(since) > time.Second, nil
	})
	return last
}

// issued reports whether each tenant has a credential of its latest anchor. After a login
// that replaced the anchor, backends wait for a while before one of them issues it.
func (w *world) issued(ctx context.Context) (bool, error) {
	list, err := w.admin.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	anchors := map[string]types.UID{}
	for _, s := range list.Items {
		if s.Name == v1alpha1.TokenAnchorSecret {
			anchors[s.Namespace] = s.UID
		}
	}
	for _, s := range list.Items {
		if s.Name != v1alpha1.KubeconfigSecretName || !strings.HasPrefix(s.Namespace, "cluster-") {
			continue
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(s.Data[v1alpha1.KubeconfigKey])
		if err != nil {
			return false, nil //nolint:nilerr // revoked, and not issued again yet
		}
		claims, err := base64.RawURLEncoding.DecodeString(strings.Split(config.BearerToken+"..", ".")[1])
		if err != nil || anchors[s.Namespace] == "" || !strings.Contains(string(claims), string(anchors[s.Namespace])) {
			return false, err
		}
	}
	return true, nil
}

// quietRestart: a second backend finds nothing to write, once all credentials are issued:
// one that is still due may be issued by either.
func quietRestart(t *testing.T, w *world) {
	t.Helper()
	w.eventually("credentials", w.issued)
	w.beat()
	before := w.settled()
	config := w.config
	writes := &writeCounter{}
	w.config = writes.wrap(config)
	w.serve(Options{})
	w.eventually("idle", writes.idle)
	if diff := cmp.Diff(before, w.versions()); diff != "" {
		t.Errorf("a second backend changed (-before +after):\n%s", diff)
	}
	if got := writes.seen(); len(got) > 0 {
		t.Errorf("writes: %q", got)
	}
	w.config = config
}

func removal(t *testing.T, ada *tenantClient) {
	t.Helper()
	asked := ada.dyn.Resource(tenant.NamespaceResource).Namespace(ada.namespace)
	if err := asked.Delete(t.Context(), "team-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(ada.w, "apiservicenamespaces", ada.namespace, "team-a", func(o *v1alpha1.APIServiceNamespace) bool {
		c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Reason == tenant.ReasonObjectsRemain && strings.Contains(c.Message, "widgets.example.org")
	})
	service := ada.dyn.Resource(widgets).Namespace(ada.namespace + "-team-a")
	if _, err := service.Get(t.Context(), "w", metav1.GetOptions{}); err != nil {
		t.Fatalf("the widget did not stay: %v", err)
	}
	if err := service.Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ada.w.eventually("gone", func(ctx context.Context) (bool, error) {
		_, err := asked.Get(ctx, "team-a", metav1.GetOptions{})
		_, nsErr := ada.w.admin.CoreV1().Namespaces().Get(ctx, ada.namespace+"-team-a", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && apierrors.IsNotFound(nsErr), nil
	})
}
