// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/mark"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var (
	crds     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	bindings = v1alpha1.Resource("apiservicebindings")
	requests = v1alpha1.Resource("apiserviceexportrequests")
	exports  = v1alpha1.Resource("apiserviceexports")
	things   = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
)

// A world is one real cluster that is both the App Cluster and the Control Plane
// Cluster, with a backend and a konnector that do as little as they can.
type world struct {
	*testing.T
	cluster *cluster.Cluster
	dyn     dynamic.Interface
	kube    kubernetes.Interface
	backend *fakeBackend
	claims  map[string][]any // of services; others do not exist
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := cluster.ForTest(t, "kubectl-bind")
	w := &world{T: t, cluster: c, dyn: dynamic.NewForConfigOrDie(c.Config()), kube: kubernetes.NewForConfigOrDie(c.Config()), backend: newFakeBackend(t)}
	for _, name := range []string{"apiserviceexportrequests", "apiserviceexports"} {
		w.must(w.dyn.Resource(crds).Create(t.Context(), v1alpha1.CRDs()[name+".klutch.anynines.com"], metav1.CreateOptions{}))
		w.await(crds, "", name+".klutch.anynines.com", func(u *unstructured.Unstructured) bool {
			return strings.Contains(mustJSON(u.Object), `"status":"True","type":"Established"`)
		})
	}
	w.claims = map[string][]any{
		"things.example.com": {
			map[string]any{"resource": "secrets", "version": "v1", "required": true, "selector": map[string]any{"owner": "Provider"}},
			map[string]any{"resource": "configmaps", "version": "v1", "required": false, "selector": map[string]any{"owner": "Provider"}},
		},
		"others.example.com": nil,
	}
	return w
}

func mustJSON(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

func (w *world) must(u *unstructured.Unstructured, err error) *unstructured.Unstructured {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	return u
}

// tenant makes a tenant namespace and returns its kubeconfig.
func (w *world) tenant(name string) []byte {
	w.Helper()
	ctx := w.Context()
	_, err := w.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.check(err)
	_, err = w.kube.CoreV1().ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "klutch-binder"}}, metav1.CreateOptions{})
	w.check(err)
	_, err = w.kube.RbacV1().Roles(name).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "klutch-binder"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"klutch.anynines.com"}, Resources: []string{"apiserviceexportrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
		{APIGroups: []string{"klutch.anynines.com"}, Resources: []string{"apiserviceexports"}, Verbs: []string{"get", "list", "watch"}},
	}}, metav1.CreateOptions{})
	w.check(err)
	_, err = w.kube.RbacV1().RoleBindings(name).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "klutch-binder"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "klutch-binder"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "klutch-binder", Namespace: name}},
	}, metav1.CreateOptions{})
	w.check(err)
	token, err := w.kube.CoreV1().ServiceAccounts(name).CreateToken(ctx, "klutch-binder", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.check(err)
	config := w.cluster.Config()
	k := &kubeconfig.Kubeconfig{Server: config.Host, CAData: config.CAData, Namespace: name, Token: token.Status.Token}
	data, err := k.Write()
	w.check(err)
	return data
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// await waits until an object is as ok wants it.
func (w *world) await(resource schema.GroupVersionResource, namespace, name string, ok func(*unstructured.Unstructured) bool) {
	w.Helper()
	watcher, err := w.dyn.Resource(resource).Namespace(namespace).Watch(w.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	w.check(err)
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		if u, is := e.Object.(*unstructured.Unstructured); is && ok(u) {
			return
		}
	}
	w.Fatalf("%s %s did not happen", resource.Resource, name)
}

// serve calls do for each object that is there or comes, until the test ends.
func (w *world) serve(ctx context.Context, resource schema.GroupVersionResource, do func(*unstructured.Unstructured)) {
	w.Helper()
	watcher, err := w.dyn.Resource(resource).Watch(ctx, metav1.ListOptions{})
	w.check(err)
	done := make(chan struct{})
	w.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for e := range watcher.ResultChan() {
			if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == "ADDED" {
				do(u)
			}
		}
	}()
}

// answer is the backend's half: an export for what exists, a refusal for the rest.
func (w *world) answer(request *unstructured.Unstructured) {
	resources, _, _ := unstructured.NestedSlice(request.Object, "spec", "resources")
	r := resources[0].(map[string]any)
	name := r["resource"].(string) + "." + r["group"].(string)
	claims, exists := w.claims[name]
	status := map[string]any{"phase": "Failed", "terminalMessage": "there is no " + name, "conditions": []any{}}
	if exists {
		status = map[string]any{"phase": "Succeeded"}
		w.export(request.GetNamespace(), name, claims)
	}
	patch := mustJSON(map[string]any{"status": status})
	_, err := w.dyn.Resource(requests).Namespace(request.GetNamespace()).Patch(w.Context(), request.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil && w.Context().Err() == nil {
		w.Error(err)
	}
}

func (w *world) export(namespace, name string, claims []any) {
	resource, group, _ := strings.Cut(name, ".")
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "APIServiceExport", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "informerScope": "Namespaced", "permissionClaims": claims,
			"names": map[string]any{"plural": resource, "kind": "Thing"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	_, err := w.dyn.Resource(exports).Namespace(namespace).Create(w.Context(), u, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) && w.Context().Err() == nil {
		w.Error(err)
	}
}

// konnector is the other program's half for one binding: a CRD, and Ready.
func (w *world) konnector(b *unstructured.Unstructured) {
	resource, group, _ := strings.Cut(b.GetName(), ".")
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": b.GetName()},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": resource, "kind": "Thing" + strings.ToUpper(resource[:1])},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}
	mark.Put(crd, mark.Of(b))
	_, err := w.dyn.Resource(crds).Create(w.Context(), crd, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) && w.Context().Err() == nil {
		w.Error(err)
	}
	for _, c := range []map[string]any{condition("Ready", "False", "Connecting", "one moment"), condition("Ready", "True", "", "")} {
		patch := mustJSON(map[string]any{"status": map[string]any{"providerPrettyName": "Fake", "conditions": []any{c, condition("Connected", c["status"].(string), "Connecting", "one moment")}}})
		_, err := w.dyn.Resource(bindings).Namespace(b.GetNamespace()).Patch(w.Context(), b.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		if err != nil && w.Context().Err() == nil {
			w.Error(err)
		}
	}
}

// bind runs the command against the fake backend.
func (w *world) bind(stdin string, args ...string) result {
	w.Helper()
	return w.bindAs(w.backend.browser(w.T, stdin), args...)
}

func (w *world) bindAs(person terminal, args ...string) result {
	w.Helper()
	return person.run(w.Context(), append([]string{w.backend.URL, "--backend-certificate-authority", w.backend.authority(w.T), "--kubeconfig", w.cluster.Kubeconfig(), "--skip-konnector"}, args...)...)
}

func (w *world) run(args ...string) result {
	w.Helper()
	return w.runAs(terminal{}, args...)
}

func (w *world) runAs(person terminal, args ...string) result {
	w.Helper()
	return person.run(w.Context(), append(args, "--kubeconfig", w.cluster.Kubeconfig())...)
}

func (w *world) expect(r result, code int, words ...string) {
	w.Helper()
	if r.code != code {
		w.Errorf("exit code %d, want %d", r.code, code)
	}
	for _, word := range words {
		if !strings.Contains(r.errOut, word) {
			w.Errorf("does not say %q", word)
		}
	}
	if w.Failed() {
		w.Fatal(r)
	}
}

// inventory names all that a binding could have written.
func (w *world) inventory() []string {
	w.Helper()
	names := map[string]bool{}
	for _, resource := range []schema.GroupVersionResource{
		crds, requests, exports, bindings,
		{Version: "v1", Resource: "namespaces"},
		{Version: "v1", Resource: "secrets"},
		{Version: "v1", Resource: "serviceaccounts"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
		rbacv1.SchemeGroupVersion.WithResource("clusterroles"), rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"),
	} {
		list, err := w.dyn.Resource(resource).List(w.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		w.check(err)
		for _, u := range list.Items {
			names[resource.Resource+" "+u.GetNamespace()+"/"+u.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// TestBind is the life of bindings on a real API server, in the order in which they
// live it.
func TestBind(t *testing.T) {
	w := newWorld(t)
	w.backend.kubeconfig = w.tenant("cluster-one")
	w.backend.grants = []string{"things.example.com"}
	w.serve(t.Context(), requests, w.answer)

	before := w.inventory()
	manifest := write(t, []byte(mustJSON(request("things.example.com"))))
	credential := write(t, w.backend.kubeconfig)
	for _, mode := range []string{"client", "server"} { // P18
		w.expect(w.run("apiservice", "-f", manifest, "--remote-kubeconfig", credential, "--konnector-image", "example.com/konnector:v1", "--yes", "--dry-run="+mode), exitOK, "(dry run)")
		if diff := cmp.Diff(before, w.inventory()); diff != "" {
			t.Fatalf("--dry-run=%s changed the world (-before +after):\n%s", mode, diff)
		}
	}

	w.expect(w.bind("y\n"), exitConsent, "wants to write secrets", "--accept-claim things.example.com/configmaps", "has only created namespace klutch-bind")
	w.expect(w.bind("n\ny\n"), exitConsent, "cannot be bound without secrets", "Nothing was changed")
	if got := w.bindingNames(); len(got) > 0 {
		t.Fatalf("without consent there is %v", got)
	}

	// No konnector takes the binding up: the command says so, and ends in time.
	hasty := w.backend.browser(w.T, "y\nn\n")
	hasty.until = "Waiting for things.example.com"
	w.expect(w.bindAs(hasty), exitNotReady, "no konnector has taken it up yet", "not ready")
	w.expect(w.run("status"), exitNotReady)
	konnector, leave := context.WithCancel(t.Context())
	w.serve(konnector, bindings, w.konnector)

	// The second time nothing is asked, and nothing is made twice.
	again := w.bind("")
	w.expect(again, exitOK, "Updated secret klutch-bind/"+w.secret()+" for host "+w.cluster.URL()+", namespace cluster-one", "Updated APIServiceBinding things.example.com")
	if !strings.Contains(again.out, "things.example.com   Fake       True") {
		t.Errorf("table:\n%s", again.out)
	}
	w.expectBinding("Accepted", "Rejected")
	w.expectRole("/secrets")

	// Claims are listed, and nothing is written, whether there is an answer or not.
	versions := w.versions()
	w.expect(w.run("claims"), exitOK)
	w.expect(w.run("claims", "nothing.example.com"), exitError, "no such binding")
	w.expect(w.run("claims", "--yes"), exitUsage, "name the binding")
	w.expect(w.run("claims", "-o", "name"), exitUsage, "json")
	listed := w.run("claims", "things.example.com", "-o", "json")
	var rows []claimRow
	w.check(json.Unmarshal([]byte(listed.out), &rows))
	if diff := cmp.Diff([]claimRow{
		{Service: "things.example.com", Claim: "secrets", May: "write", Required: true, Answer: "Accepted"},
		{Service: "things.example.com", Claim: "configmaps", May: "write", Answer: "Rejected"},
	}, rows); diff != "" {
		t.Errorf("claims -o json (-want +got):\n%s", diff)
	}
	w.reclaim("things.example.com", w.claims["things.example.com"][0])
	w.expect(w.run("claims", "things.example.com"), exitOK)
	w.reclaim("things.example.com", append(w.claims["things.example.com"], map[string]any{"resource": "pods", "version": "v1", "required": false, "selector": map[string]any{"owner": "Consumer"}})...)
	w.expect(w.run("claims", "things.example.com"), exitConsent, "claims pods, which is not answered", "--accept-claim things.example.com/pods")
	if diff := cmp.Diff(versions, w.versions()); diff != "" {
		t.Errorf("a list of claims wrote (-before +after):\n%s", diff)
	}

	// --ask asks about the claim without an answer alone, and takes no answer for none.
	w.expect(w.run("claims", "--ask"), exitUsage, "name the binding")
	w.expect(w.run("claims", "things.example.com", "--ask"), exitConsent, "wants to read pods", "type pods. [No,pods]", "claims pods, which is not answered")
	w.expectBinding("Accepted", "Rejected")
	asked := w.runAs(terminal{stdin: "no\n"}, "claims", "things.example.com", "--ask")
	w.expect(asked, exitOK, "wants to read pods", "Updated APIServiceBinding things.example.com")
	if strings.Contains(asked.errOut, "wants to write") {
		t.Errorf("what is answered is asked again:\n%s", asked)
	}
	w.expectBinding("Accepted", "Rejected", "Rejected")
	w.reclaim("things.example.com", w.claims["things.example.com"]...)
	w.expect(w.run("claims", "things.example.com", "--ask"), exitOK)
	w.expectBinding("Accepted", "Rejected")

	// Answers may change, and the right to remove copies outlives the consent.
	w.expect(w.run("claims", "things.example.com", "--yes", "--reject-claim", "secret"), exitUsage, "Did you mean: secrets?")
	w.expect(w.run("claims", "things.example.com", "--yes", "--accept-claim", "pods"), exitUsage, "the service does not claim that")
	w.expect(w.run("claims", "things.example.com", "--reject-claim", "secrets"), exitConsent, "cannot be bound without secrets")
	w.expect(w.run("claims", "things.example.com", "--accept-claim", "configmaps"), exitOK, "Updated APIServiceBinding things.example.com")
	w.expectBinding("Accepted", "Accepted")
	w.expect(w.run("claims", "things.example.com", "--reject-claim", "configmaps"), exitOK, "Left the konnector its right on configmaps")
	w.expectBinding("Accepted", "Rejected")
	w.expectRole("/secrets", "/configmaps")
	w.expect(w.run("claims", "things.example.com", "--yes"), exitOK)
	w.expectBinding("Accepted", "Rejected")
	w.expectRole("/secrets")
	w.expect(w.run("claims", "nothing.example.com", "--yes"), exitError, "no such binding")

	// A Secret that people made stays theirs.
	made := w.maker(nil)
	w.expect(w.run("claims", "things.example.com", "--yes"), exitOK, "Updated secret")
	if by := w.maker(made); by != nil {
		t.Errorf("a Secret made by hand was marked as made by %v", by)
	}
	w.expect(w.run("status", "things.example.com"), exitOK)
	w.watches()
	sick := w.run("doctor")
	w.expect(sick, exitNotReady, "konnector: Look why it does not run", "To install it: kubectl bind konnector install")
	for _, words := range []string{"you may bind APIs", "it is clean", "it is good for", "it is ready", "all are in step"} {
		if !strings.Contains(sick.out, words) {
			t.Errorf("doctor does not say %q:\n%s", words, sick.out)
		}
	}

	// Bad input.
	w.backend.grants = []string{"unicorns.example.com"}
	w.expect(w.bind("", "--service", "unicorns.example.com"), exitError, "there is no unicorns.example.com")
	w.expect(w.bind("", "--as", "system:anonymous"), exitDenied, "forbidden")
	w.backend.grants, w.backend.kubeconfig = []string{"things.example.com"}, w.tenant("cluster-two")
	w.expect(w.bind("", "--yes"), exitConflict, "belongs to someone else")
	w.must(w.dyn.Resource(crds).Create(t.Context(), foreignCRD(), metav1.CreateOptions{}))
	w.backend.grants = []string{"others.example.com"}
	w.expect(w.bind("", "--yes"), exitConflict, "no binding made it")

	// Giving it up.
	thing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "ThingT", "metadata": map[string]any{"name": "a", "namespace": "default"}}}
	w.await(crds, "", "things.example.com", func(u *unstructured.Unstructured) bool {
		return strings.Contains(mustJSON(u.Object), `"status":"True","type":"Established"`)
	})
	thing.SetFinalizers([]string{v1alpha1.SyncerFinalizer, "example.com/other"})
	held := w.must(w.dyn.Resource(things).Namespace("default").Create(t.Context(), thing, metav1.CreateOptions{}))
	w.expect(w.run("unbind", "things.example.com"), exitConflict, "ThingT default/a", "Delete the objects first")
	w.expect(w.run("unbind", "things.example.com", "--force"), exitConflict, "ThingT default/a", "Delete the objects first")
	w.check(w.dyn.Resource(things).Namespace("default").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	w.expect(w.run("unbind", "things.example.com"), exitConflict, "ThingT default/a is being deleted, and waits for its finalizers klutch.anynines.com/syncer, example.com/other", "--force")
	before = w.inventory()
	w.expect(w.run("unbind", "things.example.com", "--force", "--dry-run=server"), exitError, // as below
		"Would let go of 1 objects", "Would delete APIServiceBinding things.example.com", "Would delete secret", "not revoked")
	if diff := cmp.Diff(before, w.inventory()); diff != "" {
		t.Fatalf("a dry run of unbind changed the world (-before +after):\n%s", diff)
	}
	leave()
	w.expect(w.run("unbind", "things.example.com", "--force"), exitConflict, "Let go of 1 objects", "waits for its finalizers example.com/other")
	patch := []byte(`{"metadata":{"finalizers":["klutch.anynines.com/syncer"]}}`) // which no program could add now
	if _, err := w.dyn.Resource(things).Namespace("default").Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a finalizer is added to what is being deleted: %v", err)
	}
	patch = []byte(`{"metadata":{"finalizers":null}}`)
	w.must(w.dyn.Resource(things).Namespace("default").Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}))
	held.SetFinalizers([]string{v1alpha1.SyncerFinalizer})
	held.SetResourceVersion("")
	w.must(w.dyn.Resource(things).Namespace("default").Create(t.Context(), held, metav1.CreateOptions{}))
	w.check(w.dyn.Resource(things).Namespace("default").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	w.expect(w.run("unbind", "things.example.com", "--force"), exitError, "Let go of 1 objects", "Deleted CRD things.example.com", "Deleted secret", // of a platform that knows no such thing
		"error: the token of tenant cluster-one at "+w.cluster.URL()+" is not revoked: ", "; it ends at ", "Ask the operators of the platform to remove the tenant")
	w.expect(w.run("unbind", "things.example.com"), exitError, "no such binding")
	for _, name := range w.inventory() {
		if strings.Contains(name, "things.example.com") && !strings.Contains(name, "cluster-") {
			t.Errorf("unbind left %s", name)
		}
	}
}

// P20: of a platform's claims, --yes accepts the ordinary ones, an answer that names them
// accepts others, and claims on resources that decide over the cluster are never accepted:
// not if they are optional, nor if they were accepted before; if they are required, the
// binding is refused.
func TestP20GreedyPlatform(t *testing.T) {
	w := newWorld(t)
	w.backend.kubeconfig = w.tenant("cluster-one")
	claim := func(group, resource, version string, required bool) map[string]any {
		return map[string]any{"group": group, "resource": resource, "version": version, "required": required, "selector": map[string]any{"owner": "Provider"}}
	}
	w.claims["greedy.example.com"] = []any{
		claim("", "secrets", "v1", true), claim("", "pods", "v1", false), claim("rbac.authorization.k8s.io", "clusterroles", "v1", false),
		claim("storage.k8s.io", "storageclasses", "v1", false),
	}
	w.claims["cruel.example.com"] = []any{claim("", "secrets", "v1", true), claim("apiextensions.k8s.io", "customresourcedefinitions", "v1", true)}
	w.serve(t.Context(), requests, w.answer)

	w.backend.grants = []string{"cruel.example.com"}
	w.expect(w.bind("", "--yes"), exitError, "requires customresourcedefinitions.apiextensions.k8s.io, which no provider gets, since it decides which APIs there are")
	w.backend.grants = []string{"greedy.example.com"}
	w.expect(w.bind("y\nyes\n", "--yes"), exitConsent, "--accept-claim greedy.example.com/pods", "they are programs")
	w.expect(w.bind("", "--yes", "--accept-claim", "storageclasses.storage.k8s.io"), exitUsage, "no provider gets that, since it is cluster-scoped")
	if got := w.bindingNames(); len(got) > 0 {
		t.Fatalf("without consent there is %v", got)
	}
	r := w.bind("", "--yes", "--accept-claim", "pods", "--wait=false", "-o", "json")
	w.expect(r, exitOK, "Accepted: the provider of greedy.example.com may write secrets, all of them", "Accepted: the provider of greedy.example.com may write pods",
		"Rejected the claim of greedy.example.com on clusterroles.rbac.authorization.k8s.io", "Rejected the claim of greedy.example.com on storageclasses.storage.k8s.io")
	var printed v1alpha1.APIServiceBinding
	w.check(json.Unmarshal([]byte(r.out), &printed))
	want := map[string]v1alpha1.ClaimState{"secrets": "Accepted", "pods": "Accepted", "clusterroles": "Rejected", "storageclasses": "Rejected"}
	states := func(b *v1alpha1.APIServiceBinding) map[string]v1alpha1.ClaimState {
		got := map[string]v1alpha1.ClaimState{}
		for _, c := range b.Spec.PermissionClaims {
			got[c.Resource] = c.State
		}
		return got
	}
	if diff := cmp.Diff(want, states(&printed)); diff != "" {
		t.Errorf("-o json (-want +got):\n%s", diff)
	}

	// A binding of the time when all could be accepted.
	for n := range printed.Spec.PermissionClaims {
		printed.Spec.PermissionClaims[n].State = v1alpha1.ClaimAccepted
	}
	patch := mustJSON(map[string]any{"spec": map[string]any{"permissionClaims": printed.Spec.PermissionClaims}})
	w.must(w.dyn.Resource(bindings).Namespace("klutch-bind").Patch(t.Context(), "greedy.example.com", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
	r = w.run("claims", "greedy.example.com", "--ask", "--wait=false", "-o", "json")
	w.expect(r, exitOK, "Rejected the claim of greedy.example.com on clusterroles")
	w.check(json.Unmarshal([]byte(r.out), &printed))
	if diff := cmp.Diff(want, states(&printed)); diff != "" {
		t.Errorf("claims -o json (-want +got):\n%s", diff)
	}
	roles, err := w.kube.RbacV1().ClusterRoles().Get(t.Context(), "klutch-bind-claims-greedy.example.com", metav1.GetOptions{})
	w.check(err)
	if text := mustJSON(roles.Rules); strings.Contains(text, "clusterroles") || !strings.Contains(text, "pods") {
		t.Errorf("rights of the konnector: %s", text)
	}
}

// P21: an API that another API server serves here, without a CRD, is no service of a
// platform: the konnector would be given rights on objects that were here before.
func TestP21ServedWithoutCRD(t *testing.T) {
	w := newWorld(t)
	w.backend.kubeconfig, w.backend.grants = w.tenant("cluster-one"), []string{"users.old.example.com"}
	w.claims["users.old.example.com"] = nil
	w.serve(t.Context(), requests, w.answer)
	_, port, err := net.SplitHostPort(aggregated(t).Listener.Addr().String())
	w.check(err)
	number, err := strconv.Atoi(port)
	w.check(err)
	_, err = w.kube.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	w.check(err)
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	w.must(w.dyn.Resource(services).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.old.example.com"},
		"spec": map[string]any{
			"group": "old.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100), "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": "default", "name": "old", "port": int64(number)},
		},
	}}, metav1.CreateOptions{}))
	w.await(services, "", "v1.old.example.com", func(u *unstructured.Unstructured) bool {
		return strings.Contains(mustJSON(u.Object), `"status":"True","type":"Available"`)
	})
	w.expect(w.bind("", "--yes", "--wait=false"), exitConflict, "users.old.example.com is served in the App Cluster already, without a CRD")
	if _, err := w.kube.RbacV1().ClusterRoles().Get(t.Context(), "klutch-bind-konnector-users.old.example.com", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the konnector's role: %v", err)
	}
}

// aggregated is an API server behind another one, as far as discovery goes.
func aggregated(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/old.example.com/v1" {
			http.NotFound(rw, r)
			return
		}
		reply(rw, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "old.example.com/v1",
			APIResources: []metav1.APIResource{{Name: "users", SingularName: "user", Kind: "User", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}}},
		})
	}))
	t.Cleanup(s.Close)
	return s
}

// --konnector-image applies the shipped manifests, and a second time takes no rights away.
func TestBindInstallsKonnector(t *testing.T) {
	w := newWorld(t)
	w.backend.kubeconfig, w.backend.grants = w.tenant("cluster-one"), []string{"others.example.com"}
	w.serve(t.Context(), requests, w.answer)
	args := []string{w.backend.URL, "--backend-certificate-authority", w.backend.authority(t), "--kubeconfig", w.cluster.Kubeconfig(), "--konnector-image", "example.com/konnector:v1", "--wait=false"}
	for range 2 {
		w.expect(w.backend.browser(t, "").run(t.Context(), args...), exitOK, "Applied the konnector")
	}
	d, err := w.kube.AppsV1().Deployments("klutch-bind").Get(t.Context(), "konnector", metav1.GetOptions{})
	w.check(err)
	if image := d.Spec.Template.Spec.Containers[0].Image; image != "example.com/konnector:v1" {
		t.Errorf("image %s", image)
	}
	w.await(rbacv1.SchemeGroupVersion.WithResource("clusterroles"), "", "klutch-bind-konnector", func(u *unstructured.Unstructured) bool {
		return strings.Contains(mustJSON(u.Object["rules"]), "others/status")
	})
}

// reclaim changes what the provider claims for a service of tenant cluster-one.
func (w *world) reclaim(name string, claims ...any) {
	w.Helper()
	patch := mustJSON(map[string]any{"spec": map[string]any{"permissionClaims": claims}})
	w.must(w.dyn.Resource(exports).Namespace("cluster-one").Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

// versions are the resource versions of all that a binding writes in the App Cluster.
func (w *world) versions() map[string]string {
	w.Helper()
	all := map[string]string{}
	for _, resource := range []schema.GroupVersionResource{
		bindings, requests,
		{Version: "v1", Resource: "secrets"},
		rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	} {
		list, err := w.dyn.Resource(resource).List(w.Context(), metav1.ListOptions{})
		w.check(err)
		for _, u := range list.Items {
			all[resource.Resource+" "+u.GetNamespace()+"/"+u.GetName()] = u.GetResourceVersion()
		}
	}
	return all
}

// TestGitOps: what a dry run prints is all that a repository has to hold, in any order, and no
// two tools that apply it fight over a field.
func TestGitOps(t *testing.T) {
	w := newWorld(t)
	w.backend.kubeconfig, w.backend.grants = w.tenant("cluster-one"), []string{"things.example.com", "others.example.com"}
	w.serve(t.Context(), requests, w.answer)
	w.expect(w.bind("", "--yes", "--wait=false"), exitOK)
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{request("things.example.com"), request("others.example.com")}}
	dry := w.run("apiservice", "-f", write(t, []byte(mustJSON(list))), "--remote-kubeconfig-name", w.secret(), "--skip-konnector", "--yes", "--dry-run=client", "-o", "json")
	w.expect(dry, exitOK, "Not printed: secret klutch-bind/"+w.secret())
	var printed unstructured.UnstructuredList
	w.check(printed.UnmarshalJSON([]byte(dry.out)))
	var names []string
	for _, u := range printed.Items {
		names = append(names, u.GetKind()+" "+u.GetName())
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{
		"APIServiceBinding others.example.com", "APIServiceBinding things.example.com",
		"ClusterRole klutch-bind-claims-things.example.com", "ClusterRole klutch-bind-konnector-others.example.com", "ClusterRole klutch-bind-konnector-things.example.com",
		"ValidatingAdmissionPolicy klutch-bind-claims-things.example.com", "ValidatingAdmissionPolicyBinding klutch-bind-claims-things.example.com",
	}, names); diff != "" {
		t.Fatalf("printed (-want +got):\n%s", diff)
	}

	// It makes all that the command made, but for the Secret.
	for _, u := range printed.Items {
		w.check(w.resourceOf(&u).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}))
	}
	apply := func(manager string, force bool) {
		t.Helper()
		for _, u := range slices.Backward(printed.Items) {
			_, err := w.resourceOf(&u).Apply(t.Context(), u.GetName(), &u, metav1.ApplyOptions{FieldManager: manager, Force: force})
			w.check(err)
		}
	}
	apply("kustomize-controller", false)
	w.expectBinding("Accepted", "Accepted")
	w.expectRole("/secrets", "/configmaps")
	before := w.versions()
	for _, manager := range []string{"kustomize-controller", "argocd-controller", "kustomize-controller"} {
		apply(manager, false)
	}
	w.expect(w.bind("", "--yes", "--wait=false"), exitOK) // and nor does the command
	w.backend.asked = nil
	after := w.versions()
	apply("argocd-controller", false)
	apply("kustomize-controller", false)
	if diff := cmp.Diff(after, w.versions()); diff != "" {
		t.Errorf("a second application changes (-before +after):\n%s", diff)
	}
	for name := range before {
		if _, there := after[name]; !there {
			t.Errorf("%s is gone", name)
		}
	}
	for _, u := range printed.Items { // nothing was changed by one that the other does not want
		if got := w.must(w.resourceOf(&u).Get(t.Context(), u.GetName(), metav1.GetOptions{})); got.GetGeneration() > 1 {
			t.Errorf("%s %s has generation %d", u.GetKind(), u.GetName(), got.GetGeneration())
		}
	}
}

func (w *world) resourceOf(u *unstructured.Unstructured) dynamic.ResourceInterface {
	w.Helper()
	gv := u.GroupVersionKind().GroupVersion()
	resource := map[string]string{
		"APIServiceBinding": "apiservicebindings", "ClusterRole": "clusterroles",
		"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	}[u.GetKind()]
	return w.dyn.Resource(gv.WithResource(resource)).Namespace(u.GetNamespace())
}

// watches: status -w shows bindings and their changes, under one line of headers.
func (w *world) watches() {
	w.Helper()
	ctx, stop := context.WithTimeout(w.Context(), 5*time.Minute)
	r, out := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, system{
			IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: io.Discard},
			getenv:    func(string) string { return "" }, now: time.Now,
		}, []string{"status", "things.example.com", "--watch", "--kubeconfig", w.cluster.Kubeconfig()})
		_ = out.Close()
	}()
	shown, lines := "", bufio.NewScanner(r)
	until := func(words string) {
		w.Helper()
		for lines.Scan() {
			if shown += lines.Text() + "\n"; strings.Contains(strings.Join(strings.Fields(lines.Text()), " "), words) {
				return
			}
		}
		w.Fatalf("status -w does not show %q:\n%s", words, shown)
	}
	until("Fake True")
	_, err := w.dyn.Resource(bindings).Namespace("klutch-bind").Patch(ctx, "things.example.com", types.MergePatchType, []byte(`{"status":{"providerPrettyName":"Renamed"}}`), metav1.PatchOptions{}, "status")
	w.check(err)
	until("Renamed True")
	stop()
	_, _ = io.Copy(io.Discard, r)
	if got := <-code; got != exitInterrupted || strings.Count(shown, "NAME") != 1 {
		w.Errorf("exit code %d, shown:\n%s", got, shown)
	}
}

func foreignCRD() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "others.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "others", "kind": "Other"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}
}

func (w *world) bindingNames() []string {
	w.Helper()
	list, err := w.dyn.Resource(bindings).List(w.Context(), metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.check(err)
	var names []string
	for _, u := range list.Items {
		names = append(names, u.GetName())
	}
	return names
}

// secret returns the one kubeconfig Secret there is.
func (w *world) secret() string {
	w.Helper()
	list, err := w.kube.CoreV1().Secrets("klutch-bind").List(w.Context(), metav1.ListOptions{})
	w.check(err)
	if len(list.Items) != 1 || !regexpSecret.MatchString(list.Items[0].Name) {
		w.Fatalf("secrets: %v", list.Items)
	}
	if _, err := clientcmd.Load(list.Items[0].Data["kubeconfig"]); err != nil {
		w.Fatal(err)
	}
	return list.Items[0].Name
}

// maker sets the recorded maker of the binding's Secret, and returns the one before.
func (w *world) maker(now any) any {
	w.Helper()
	b := w.must(w.dyn.Resource(bindings).Namespace("klutch-bind").Get(w.Context(), "things.example.com", metav1.GetOptions{}))
	name, _, _ := unstructured.NestedString(b.Object, "spec", "kubeconfigSecretRef", "name")
	client := w.kube.CoreV1().Secrets("klutch-bind")
	secret, err := client.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	patch := mustJSON(map[string]any{"metadata": map[string]any{"labels": map[string]any{"app.kubernetes.io/managed-by": now}}})
	if _, err := client.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
	if by, ok := secret.Labels["app.kubernetes.io/managed-by"]; ok {
		return by
	}
	return nil
}

// expectBinding: its answers, and the Secret that it names.
func (w *world) expectBinding(secrets, configmaps string, pods ...string) {
	w.Helper()
	want := map[string]any{"secrets": secrets, "configmaps": configmaps}
	for _, answer := range pods {
		want["pods"] = answer
	}
	u := w.must(w.dyn.Resource(bindings).Namespace("klutch-bind").Get(w.Context(), "things.example.com", metav1.GetOptions{}))
	claims, _, _ := unstructured.NestedSlice(u.Object, "spec", "permissionClaims")
	got := map[string]any{}
	for _, c := range claims {
		got[c.(map[string]any)["resource"].(string)] = c.(map[string]any)["state"]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("answers (-want +got):\n%s", diff)
	}
	ref, _, _ := unstructured.NestedStringMap(u.Object, "spec", "kubeconfigSecretRef")
	if diff := cmp.Diff(map[string]string{"name": w.secret(), "namespace": "klutch-bind", "key": "kubeconfig"}, ref); diff != "" {
		w.Errorf("secret (-want +got):\n%s", diff)
	}
}

// expectRole: rights for the service everywhere and for claims by namespace, by name, and
// nothing else.
func (w *world) expectRole(claims ...string) {
	w.Helper()
	everywhere := []string{"example.com/things", "example.com/things/status"}
	if len(claims) > 0 {
		everywhere = append(everywhere, "rbac.authorization.k8s.io/clusterroles", "rbac.authorization.k8s.io/rolebindings", "rbac.authorization.k8s.io/rolebindings")
	}
	for name, want := range map[string][]string{"klutch-bind-konnector-things.example.com": everywhere, "klutch-bind-claims-things.example.com": claims} {
		role, err := w.kube.RbacV1().ClusterRoles().Get(w.Context(), name, metav1.GetOptions{})
		if len(want) == 0 && apierrors.IsNotFound(err) {
			continue
		}
		w.check(err)
		var resources []string
		for _, rule := range role.Rules {
			for _, r := range rule.Resources {
				resources = append(resources, strings.Join(rule.APIGroups, ",")+"/"+r)
			}
			if slices.Contains(rule.Verbs, "*") {
				w.Errorf("rule %v", rule)
			}
		}
		if diff := cmp.Diff(want, resources); diff != "" {
			w.Errorf("rights of %s (-want +got):\n%s", name, diff)
		}
	}
}
