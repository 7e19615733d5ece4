// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A klutchBackend does in a Control Plane Cluster what Klutch's backend does there, with the
// rights of an administrator, as that has. It offers all that is in its map.
type klutchBackend struct {
	*side

	offers map[string][]any // permission claims by the name of the CRD
	url    string
	asked  map[string]string // the APIServiceNamespaces that the controllers have seen: their service namespaces

	mu       sync.Mutex
	all      bool                  // it serves each ClusterBinding that there is, as Klutch's does
	sessions map[string]url.Values // what a login asked for, by its session; "sub" is who signed in
	tenants  []string
}

func newKlutchBackend(t *testing.T, control *side, offers map[string][]any) *klutchBackend {
	t.Helper()
	b := &klutchBackend{side: control, offers: offers, asked: map[string]string{}, sessions: map[string]url.Values{}}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /export": b.export, "GET /authorize": b.authorize, "POST /callback": b.callback, "GET /resources": b.resources, "GET /bind": b.bind,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				http.Error(w, "internal error: "+err.Error(), http.StatusInternalServerError)
			}
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *klutchBackend) export(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "v1alpha1", "kind": "BindingProvider", "providerPrettyName": "example-backend", "version": "v0.0.0",
		"authenticationMethods": []any{map[string]any{"method": "OAuth2CodeGrant", "oauth2CodeGrant": map[string]any{"authenticatedURL": b.url + "/authorize"}}},
	})
}

// authorize begins a session. Its form stands for that of the issuer.
func (b *klutchBackend) authorize(w http.ResponseWriter, r *http.Request) error {
	asked := r.URL.Query()
	if asked.Get("u") == "" {
		asked.Set("u", "http://localhost:"+asked.Get("p")+"/callback")
	}
	b.mu.Lock()
	b.sessions[asked.Get("s")] = asked
	b.mu.Unlock()
	w.Header().Set("Content-Type", "text/html")
	_, err := fmt.Fprintf(w, `<form method="post" action="/callback"><input name="s" value=%q><input name="username"><input name="password"></form>`, asked.Get("s"))
	return err
}

func (b *klutchBackend) callback(w http.ResponseWriter, r *http.Request) error {
	session := r.FormValue("s")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[session] == nil {
		return errors.New("no session")
	}
	b.sessions[session].Set("sub", r.FormValue("username"))
	http.Redirect(w, r, "/resources?s="+session, http.StatusFound)
	return nil
}

// resources needs no session to be seen. The class of a link is the plural.
func (b *klutchBackend) resources(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "text/html")
	for _, name := range slices.Sorted(maps.Keys(b.offers)) {
		plural, group, _ := strings.Cut(name, ".")
		query := url.Values{"s": {r.FormValue("s")}, "resource": {plural}, "group": {group}}
		if _, err := fmt.Fprintf(w, "<a class=%q href=%q>Bind</a>\n", plural, "/bind?"+html.EscapeString(query.Encode())); err != nil {
			return err
		}
	}
	return nil
}

func (b *klutchBackend) session(r *http.Request) url.Values {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.sessions[r.FormValue("s")])
}

func (b *klutchBackend) bind(w http.ResponseWriter, r *http.Request) error {
	asked := b.session(r)
	kubeconfig, err := b.obtain(r.Context(), asked.Get("sub")+"#"+asked.Get("c"))
	if err != nil {
		return err
	}
	name := r.FormValue("resource") + "." + r.FormValue("group")
	claims, offered := b.offers[name]
	if !offered {
		return fmt.Errorf("%s is not on offer", name)
	}
	request := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceExportRequest", "metadata": map[string]any{"name": name}, "status": map[string]any{},
		"spec": map[string]any{"resources": []any{map[string]any{"group": r.FormValue("group"), "resource": r.FormValue("resource"), "permissionClaims": claims}}},
	}
	answer, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "BindingResponse", "kubeconfig": kubeconfig, "requests": []any{request},
		"authentication": map[string]any{"oauth2CodeGrant": map[string]any{"sid": asked.Get("s"), "id": "issuer/" + asked.Get("sub")}},
	})
	if err == nil {
		http.Redirect(w, r, asked.Get("u")+"?response="+url.QueryEscape(base64.URLEncoding.EncodeToString(answer)), http.StatusFound)
	}
	return err
}

// serves tells whether a tenant is this backend's.
func (b *klutchBackend) serves(tenant string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.tenants, tenant)
}

// tenant finds the namespace of an identity, or makes one.
func (b *klutchBackend) tenant(ctx context.Context, identity string) (string, error) {
	list, err := b.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var found []string
	for _, ns := range list.Items {
		if ns.Annotations[v1alpha1.IdentityAnnotation] == identity {
			found = append(found, ns.Name)
		}
	}
	switch len(found) {
	case 0:
		made, err := b.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "cluster-", Annotations: map[string]string{v1alpha1.IdentityAnnotation: identity},
		}}, metav1.CreateOptions{FieldManager: "example-backend"})
		if err != nil {
			return "", err
		}
		return made.Name, nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("multiple namespaces for identity %s: %v", identity, found)
}

// obtain makes what Klutch's backend makes when a person binds, and returns the kubeconfig.
func (b *klutchBackend) obtain(ctx context.Context, identity string) (kubeconfig []byte, err error) {
	tenant, err := b.tenant(ctx, identity)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	if !slices.Contains(b.tenants, tenant) {
		b.tenants = append(b.tenants, tenant)
	}
	b.mu.Unlock()
	anchor := object("v1", "Secret", tenant, "klutch-binder", map[string]any{"type": string(corev1.SecretTypeServiceAccountToken)})
	anchor.SetAnnotations(map[string]string{corev1.ServiceAccountNameKey: "klutch-binder"})
	for _, u := range []*unstructured.Unstructured{
		object(v1alpha1.GroupVersion.String(), "ClusterBinding", tenant, "cluster", map[string]any{"spec": map[string]any{
			"kubeconfigSecretRef": map[string]any{"name": "kubeconfig", "key": "kubeconfig"}, "providerPrettyName": "Klutch",
		}}),
		object("v1", "ServiceAccount", tenant, "klutch-binder", nil), anchor,
	} {
		if err := b.ensure(ctx, u, nil); err != nil {
			return nil, err
		}
	}
	var token *corev1.Secret
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		token, err = b.kube.CoreV1().Secrets(tenant).Get(ctx, "klutch-binder", metav1.GetOptions{})
		return err == nil && len(token.Data["token"]) > 0, err
	})
	if err != nil {
		return nil, fmt.Errorf("the ServiceAccount has no token: %w", err)
	}
	if kubeconfig, err = kubeconfigOf(b.Cluster, tenant, token); err != nil {
		return nil, err
	}
	data := map[string]any{"kubeconfig": base64Of(kubeconfig)}
	err = b.ensure(ctx, object("v1", "Secret", tenant, "kubeconfig", nil), func(u *unstructured.Unstructured) { u.Object["data"] = data })
	return kubeconfig, errors.Join(err, b.lets(ctx, tenant))
}

// lets waits until the tenant has its rights, which the controllers of Klutch's give it at an
// event, and the double at its next pass.
func (b *klutchBackend) lets(ctx context.Context, tenant string) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + tenant + ":klutch-binder",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: tenant, Verb: "create", Group: requestsGVR.Group, Resource: requestsGVR.Resource},
	}}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		answer, err := b.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	})
}

func kubeconfigOf(c *cluster.Cluster, tenant string, token *corev1.Secret) ([]byte, error) {
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"default": {Server: c.URL(), CertificateAuthorityData: c.Config().CAData, TLSServerName: c.Config().ServerName}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default": {Token: string(token.Data["token"])}},
		Contexts:       map[string]*clientcmdapi.Context{"default": {Cluster: "default", AuthInfo: "default", Namespace: tenant}},
		CurrentContext: "default",
	})
}

// pass does once what the controllers of Klutch's backend do at each event.
func (b *klutchBackend) pass(ctx context.Context) error {
	every := []any{"create", "delete", "patch", "update", "get", "list", "watch"}
	look := []any{"get", "watch", "list"}
	status := []any{"get", "patch", "update"}
	errs := []error{b.ensure(ctx, object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "klutch-binder", map[string]any{"rules": []any{
		rule(v1alpha1.GroupVersion.Group, every, "apiserviceexportrequests", "apiservicenamespaces"), rule("", []any{"get"}, "namespaces"), rule("", look, "secrets"),
		rule(v1alpha1.GroupVersion.Group, look, "clusterbindings", "apiserviceexports"),
		rule(v1alpha1.GroupVersion.Group, status, "clusterbindings/status", "apiserviceexports/status"),
	}}), nil)}
	tenants, err := b.served(ctx)
	errs = append(errs, err)
	for _, tenant := range tenants {
		errs = append(errs, b.serve(ctx, tenant))
	}
	return errors.Join(errs...)
}

// served are the tenants that the controllers look after: in tests with our backend beside it those
// alone that it has made, but where both are to meet.
func (b *klutchBackend) served(ctx context.Context) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.all {
		return slices.Clone(b.tenants), nil
	}
	list, err := b.dyn.Resource(clustersGVR).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []string
	for _, binding := range list.Items {
		all = append(all, binding.GetNamespace())
	}
	return all, nil
}

func (b *klutchBackend) serveAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = true
}

func (b *klutchBackend) serve(ctx context.Context, tenant string) error {
	if err := b.requests(ctx, tenant); err != nil {
		return err
	}
	exports, err := b.dyn.Resource(exportsGVR).Namespace(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	every := []any{"get", "list", "watch", "update", "patch", "delete", "create"}
	var rules []any
	for _, e := range exports.Items {
		rules = append(rules, rule(text(&e, "spec", "group"), every, text(&e, "spec", "names", "plural")))
		claims, _, _ := unstructured.NestedSlice(e.Object, "spec", "permissionClaims")
		for _, c := range claims {
			m, _ := c.(map[string]any)
			group, _ := m["group"].(string)
			rules = append(rules, rule(group, every, m["resource"]))
		}
	}
	ns, err := b.dyn.Resource(namespacesGVR).Get(ctx, tenant, metav1.GetOptions{})
	if err != nil {
		return err
	}
	role := object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "klutch-binder-"+tenant, map[string]any{"rules": rules})
	yes := true
	role.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: tenant, UID: ns.GetUID(), Controller: &yes}})
	return errors.Join(
		b.ensure(ctx, role, func(u *unstructured.Unstructured) { u.Object["rules"] = rules }),
		b.ensure(ctx, granted("RoleBinding", tenant, tenant, "klutch-binder"), nil),
		b.ensure(ctx, granted("ClusterRoleBinding", "", tenant, role.GetName()), nil),
		b.namespaces(ctx, tenant))
}

// granted binds a ClusterRole to the account of a tenant.
func granted(kind, namespace, tenant, role string) *unstructured.Unstructured {
	name := "klutch-binder"
	if namespace == "" {
		name = role
	}
	return object("rbac.authorization.k8s.io/v1", kind, namespace, name, map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "klutch-binder", "namespace": tenant}},
	})
}

func rule(group string, verbs []any, resources ...any) any {
	return map[string]any{"apiGroups": []any{group}, "resources": resources, "verbs": verbs}
}

// requests makes the exports that a tenant asks for.
func (b *klutchBackend) requests(ctx context.Context, tenant string) error {
	list, err := b.dyn.Resource(requestsGVR).Namespace(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, r := range list.Items {
		if phase := text(&r, "status", "phase"); phase != "" && phase != "Pending" {
			continue
		}
		resources, _, _ := unstructured.NestedSlice(r.Object, "spec", "resources")
		for _, one := range resources {
			m, _ := one.(map[string]any)
			name := fmt.Sprintf("%s.%s", m["resource"], m["group"])
			claims, offered := b.offers[name]
			if !offered {
				return fmt.Errorf("%s is not on offer", name)
			}
			crd, err := b.dyn.Resource(crdsGVR).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := b.ensure(ctx, exportOf(crd, tenant, claims), nil); err != nil {
				return err
			}
		}
		done := strings.ReplaceAll(`{"status":{"phase":"Succeeded","conditions":[{"type":"Ready","status":"True","lastTransitionTime":NOW},{"type":"ExportsReady","status":"True","lastTransitionTime":NOW}]}}`,
			"NOW", strconv.Quote(time.Now().UTC().Format(time.RFC3339)))
		if _, err := b.dyn.Resource(requestsGVR).Namespace(tenant).Patch(ctx, r.GetName(), types.MergePatchType, []byte(done), metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}

func exportOf(crd *unstructured.Unstructured, tenant string, claims []any) *unstructured.Unstructured {
	was, _, _ := unstructured.NestedMap(crd.Object, "spec")
	spec := map[string]any{"informerScope": "Namespaced", "permissionClaims": claims}
	for _, field := range []string{"group", "names", "scope", "versions"} {
		spec[field] = was[field]
	}
	if spec["scope"] == "Cluster" {
		spec["informerScope"], spec["clusterScopedIsolation"] = "Cluster", "Prefixed"
	}
	export := object(v1alpha1.GroupVersion.String(), "APIServiceExport", tenant, crd.GetName(), map[string]any{"spec": spec})
	export.SetAnnotations(map[string]string{v1alpha1.SourceSpecHashAnnotation: "theirs"})
	return export
}

// namespaces makes the service namespaces that a tenant asks for, and deletes those that it does
// not ask for any more, if it has seen them asked for: by the name that they would get.
func (b *klutchBackend) namespaces(ctx context.Context, tenant string) error {
	list, err := b.dyn.Resource(requestedGVR).Namespace(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	gone := maps.Clone(b.asked)
	maps.DeleteFunc(gone, func(key, _ string) bool { return !strings.HasPrefix(key, tenant+"/") })
	for _, asked := range list.Items {
		key := tenant + "/" + asked.GetName()
		delete(gone, key)
		b.asked[key] = tenant + "-" + asked.GetName()
		errs = append(errs, b.namespace(ctx, tenant, &asked))
	}
	for key, service := range gone {
		err := b.kube.CoreV1().Namespaces().Delete(ctx, service, metav1.DeleteOptions{})
		if err = ignore(apierrors.IsNotFound, err); err == nil {
			delete(b.asked, key)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// namespace makes a service namespace, also one that was deleted, and gives the tenant its rights there.
func (b *klutchBackend) namespace(ctx context.Context, tenant string, asked *unstructured.Unstructured) error {
	service := text(asked, "status", "namespace")
	if service == "" {
		service = tenant + "-" + asked.GetName()
	}
	ns := object("v1", "Namespace", "", service, nil)
	ns.SetAnnotations(map[string]string{v1alpha1.ServiceNamespaceAnnotation: tenant + "/" + asked.GetName()})
	if err := errors.Join(b.ensure(ctx, ns, nil), b.ensure(ctx, granted("RoleBinding", service, tenant, "klutch-binder-"+tenant), nil)); err != nil {
		return err
	}
	if text(asked, "status", "namespace") != "" {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"namespace": service}})
	if err != nil {
		return err
	}
	_, err = b.dyn.Resource(requestedGVR).Namespace(tenant).Patch(ctx, asked.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// ensure creates an object, or has change change the one that is there.
func (s *side) ensure(ctx context.Context, u *unstructured.Unstructured, change func(*unstructured.Unstructured)) error {
	client := s.of(u)
	live, err := client.Get(ctx, u.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if change != nil {
			change(u)
		}
		_, err = client.Create(ctx, u, metav1.CreateOptions{FieldManager: "example-backend"})
	case err == nil && change != nil:
		was := live.DeepCopy()
		if change(live); !same(was.Object, live.Object) {
			_, err = client.Update(ctx, live, metav1.UpdateOptions{FieldManager: "example-backend"})
		}
	}
	return err
}
