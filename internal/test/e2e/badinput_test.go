// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Exit codes of kubectl bind.
const (
	exitOK       = 0
	exitError    = 1
	exitTimeout  = 3
	exitNoAccess = 4
)

const keyvalue = "keyvalueinstances.anynines.com"

func TestBadInput(t *testing.T) {
	const ns = "bad-input"
	f := features.New("a bad input gets a clear error").
		Assess("an unknown service", step(ns, unknownService)).
		Assess("a user whom the operator does not allow", step(ns, userNotAllowed)).
		Assess("URLs that are not a backend", step(ns, notABackend)).
		Assess("an issuer that is down", step(ns, issuerDown)).
		Assess("a login that is abandoned", step(ns, loginAbandoned)).
		Assess("a login that is answered with another state", step(ns, loginWithAnotherState)).
		Assess("a kubeconfig that wants more than five fields", step(ns, badKubeconfigs)).
		Assess("an API that is offered and does not exist", step(ns, apiThatIsNotThere)).
		Assess("a target name that is someone else's", step(ns, nameTaken)).
		Feature()
	testenv.Test(t, f)
}

func unknownService(w world) {
	before := w.count(w.s.Control, v1alpha1.Resource("apiserviceexportrequests"))
	out := w.s.Bind(w.ctx, stack.Developer, "--service", "unicorns.anynines.com")
	w.said(out, exitError, "unicorns.anynines.com")
	if after := w.count(w.s.Control, v1alpha1.Resource("apiserviceexportrequests")); after > before { // old ones may go meanwhile
		w.Errorf("%d requests, %d before", after, before)
	}
}

func userNotAllowed(w world) {
	namespaces := w.count(w.s.Control, stack.Namespaces)
	out := w.s.Bind(w.ctx, stack.Guest, "--service", keyvalue)
	w.said(out, exitNoAccess, keyvalue)
	if after := w.count(w.s.Control, stack.Namespaces); after > namespaces {
		w.Errorf("a tenant was made for a person who may not bind: %d namespaces, %d before", after, namespaces)
	}
	if _, err := (stack.Object{Cluster: w.s.App, Resource: stack.CRDs, Name: keyvalue}).Get(w.ctx); err == nil {
		w.Error("the API was installed")
	}
}

func notABackend(w world) {
	page := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		_, _ = rw.Write([]byte("<html>Welcome to nginx</html>"))
	}))
	defer page.Close()
	for target, word := range map[string]string{
		page.URL:                   "not a",
		page.URL + "/nothing/here": "not a",
		"http://127.0.0.1:1":       "refused",
		"http://example.org":       "https",
		w.s.BackendURL:             "--backend-certificate-authority", // without our CA
	} {
		out := w.s.Kubectl(w.ctx, nil, target, "--no-browser", "--skip-konnector", "--service", keyvalue)
		if out.Code == exitOK || !strings.Contains(strings.ToLower(out.Stderr), word) {
			w.Errorf("%s: exit code %d, does not say %q:\n%s", target, out.Code, word, out.Stderr)
		}
	}
}

func issuerDown(w world) {
	w.s.StopIssuer()
	<-time.After(11 * time.Second) // that it was there a moment ago is believed for ten seconds
	out := w.s.Bind(w.ctx, stack.Developer, serviceFlags(services[:1])...)
	w.must(w.s.StartIssuer(w.ctx))
	w.said(out, exitError, "issuer", "does not answer")
	w.said(w.s.Bind(w.ctx, stack.Developer, serviceFlags(services[:1])...), exitOK) // and it heals
}

func loginAbandoned(w world) {
	out := w.s.Kubectl(w.ctx, nil, w.s.BackendURL, "--backend-certificate-authority", w.s.BackendCA,
		"--no-browser", "--skip-konnector", "--timeout", "10s", "--service", keyvalue)
	w.said(out, exitTimeout, "login")
}

// loginWithAnotherState: a page on the same machine answers first. It neither
// completes nor ends the login.
func loginWithAnotherState(w world) {
	browser := w.s.Browser(stack.Developer)
	out := w.s.BindHearing(w.ctx, stack.OnURL(func(target string) {
		u, err := url.Parse(target)
		if err != nil {
			w.Error(err)
			return
		}
		for _, query := range []string{"?code=forged&state=forged", "?error=access_denied&state=forged", "", "?code=forged"} {
			req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, u.Query().Get("redirect_uri")+query, http.NoBody)
			if err != nil {
				w.Error(err)
				return
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				w.Errorf("the listener is gone after a forged answer: %v", err)
				return
			}
			if res.StatusCode < 400 {
				w.Errorf("forged answer %q: %s", query, res.Status)
			}
			_ = res.Body.Close()
		}
		_, _ = browser.Visit(w.ctx, target)
	}), serviceFlags(services[:1])...)
	w.said(out, exitOK)
}

// badKubeconfigs: what comes from the other side is data. Each is refused with the
// name of what is wrong, and none of it happens.
func badKubeconfigs(w world) {
	binding := stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: "gadgets.example.org"}
	secret := stack.Object{Cluster: w.s.App, Resource: secrets, Namespace: v1alpha1.Namespace, Name: "kubeconfig-bad"}
	w.apply(w.s.App, object(v1alpha1.GroupVersion.String(), "APIServiceBinding", v1alpha1.Namespace, binding.Name, map[string]any{
		"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"name": secret.Name, "namespace": v1alpha1.Namespace, "key": "kubeconfig"}},
	}))
	defer w.remove(binding)
	defer w.remove(secret)
	w.await(binding, mentions("KubeconfigSecretNotFound"))
	const good = `{server: "https://127.0.0.1:1", certificate-authority-data: ""}`
	for _, c := range []struct{ name, cluster, user, word string }{
		{"a program", good, `{exec: {command: /bin/touch, apiVersion: client.authentication.k8s.io/v1, args: [/tmp/klutch-was-here]}}`, "exec"},
		{"a token file", good, `{tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}`, "tokenFile"},
		{"a CA file", `{server: "https://127.0.0.1:1", certificate-authority: /etc/passwd}`, `{token: t}`, "certificate-authority"},
		{"plain http", `{server: "http://127.0.0.1:1"}`, `{token: t}`, "https"},
		{"no verification", `{server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}`, `{token: t}`, "insecure-skip-tls-verify"},
		{"a proxy", `{server: "https://127.0.0.1:1", proxy-url: "http://127.0.0.1:2"}`, `{token: t}`, "proxy-url"},
		{"impersonation", good, `{token: t, as: system:admin}`, "as"},
	} {
		kubeconfig := "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u, namespace: n1}}], clusters: [{name: c, cluster: " +
			c.cluster + "}], users: [{name: u, user: " + c.user + "}]}"
		w.apply(w.s.App, object("v1", "Secret", v1alpha1.Namespace, secret.Name, map[string]any{
			"data": map[string]any{"kubeconfig": base64.StdEncoding.EncodeToString([]byte(kubeconfig))},
		}))
		w.Logf("a kubeconfig with %s", c.name)
		w.await(binding, mentions("KubeconfigSecretInvalid", c.word))
	}
}

// apiThatIsNotThere: a template offers what no CRD describes.
func apiThatIsNotThere(w world) {
	for _, u := range offer("ghosts") {
		w.apply(w.s.Control, u)
	}
	defer w.remove(stack.Object{Cluster: w.s.Control, Resource: v1alpha1.Resource("apiserviceexporttemplates"), Namespace: "data-services", Name: "ghosts"})
	out := w.s.Bind(w.ctx, stack.Developer, "--service", "ghosts.example.org", "--timeout", "90s")
	w.said(out, exitError, "ghosts.example.org")
}

func nameTaken(w world) {
	w.apply(w.s.App, instance(w.namespace, "first", "postgresql-single-nano"))
	w.awaitState(instances, "first", "Running")
	foreign := instance(w.mirror(instances, "").Namespace, "taken", "postgresql-single-big")
	w.apply(w.s.Control, foreign)
	before := w.await(w.mirror(instances, "taken"), stack.Field("Running", "status", "managed", "state"))
	w.apply(w.s.App, instance(w.namespace, "taken", "postgresql-single-nano"))
	w.await(w.app(instances, "taken"), mentions("taken", "TargetConflict"))
	u := w.get(w.mirror(instances, "taken"))
	if plan, _, _ := unstructured.NestedString(u.Object, "spec", "plan"); plan != "postgresql-single-big" || u.GetUID() != before.GetUID() {
		w.Errorf("the foreign object was touched: plan %s", plan)
	}
	if status, _, _ := unstructured.NestedMap(w.get(w.app(instances, "taken")).Object, "status", "managed"); status != nil {
		w.Error("the status of a foreign object has travelled")
	}
	w.remove(w.app(instances, "taken"))
	w.await(w.app(instances, "taken"), stack.Gone)
	if u := w.get(w.mirror(instances, "taken")); u.GetDeletionTimestamp() != nil {
		w.Error("the foreign object was deleted")
	}
}

// TestControlPlaneAway takes the API server of the control plane away for a while.
func TestControlPlaneAway(t *testing.T) {
	const ns = "outage"
	var keep, leave stack.Object
	f := features.New("a control plane that is unreachable for a while").
		Assess("two instances run", step(ns, func(w world) {
			keep, leave = w.app(instances, "keep"), w.app(instances, "leave")
			for _, o := range []stack.Object{keep, leave} {
				w.apply(w.s.App, instance(ns, o.Name, "postgresql-single-nano"))
				w.awaitState(instances, o.Name, "Running")
			}
		})).
		Assess("while it is away nothing is lost and the binding says so", step(ns, func(w world) {
			if err := w.s.Control.StopServer(); err != nil {
				w.Fatal(err)
			}
			begin := time.Now()
			w.apply(w.s.App, instance(ns, "new", "postgresql-single-nano"))
			w.remove(leave)
			if err := w.patch(keep, `{"spec":{"plan":"postgresql-single-big"}}`); err != nil {
				w.Fatal(err)
			}
			binding := stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: services[0]}
			_, err := binding.Await(w.ctx, 90*time.Second, func(u *unstructured.Unstructured) bool { return !stack.True("Ready")(u) })
			// A minute, in which the world goes on.
			<-time.After(time.Until(begin.Add(time.Minute)))
			u, getErr := leave.Get(w.ctx)
			w.must(w.s.Control.StartServer(w.ctx))
			// The automation is an example with plain informers, which try again only after
			// up to a minute. It is not what this is about.
			w.must(w.s.Automation.Stop())
			w.must(w.s.Automation.Start(w.ctx))
			if err != nil {
				w.Errorf("the binding stays ready: %v", err)
			}
			if getErr != nil || u.GetDeletionTimestamp() == nil {
				w.Errorf("the deleted claim does not wait: %v", getErr)
			}
		})).
		Assess("when it is back all is carried out", step(ns, func(w world) {
			w.await(w.mirror(instances, "keep"), stack.Field("postgresql-single-big", "spec", "plan"))
			w.awaitState(instances, "new", "Running")
			w.await(leave, stack.Gone)
			w.await(w.mirror(instances, "leave"), stack.Gone)
			for _, name := range services {
				w.await(stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: name}, stack.True("Ready"))
			}
		})).
		Feature()
	testenv.Test(t, f)
}

// TestCRDVanishes takes an API away from under its claims and gives it back.
func TestCRDVanishes(t *testing.T) {
	const ns = "vanishing"
	gadgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "trinkets"}
	crd := trinketCRD()
	f := features.New("a CRD of the control plane vanishes").
		Assess("it is offered and bound", step(ns, func(w world) {
			w.apply(w.s.Control, crd)
			w.apply(w.s.Control, offer("trinkets")...)
			w.said(w.s.Bind(w.ctx, stack.Developer, "--service", "trinkets.example.org"), exitOK)
			w.apply(w.s.App, object("example.org/v1", "Trinket", ns, "one", map[string]any{"spec": map[string]any{"size": "small"}}))
			w.await(w.mirror(gadgets, "one"), stack.There)
		})).
		Assess("it vanishes: the claim stays", step(ns, func(w world) {
			w.remove(stack.Object{Cluster: w.s.Control, Resource: stack.CRDs, Name: crd.GetName()})
			w.await(stack.Object{Cluster: w.s.Control, Resource: stack.CRDs, Name: crd.GetName()}, stack.Gone)
			tenant, err := w.s.Tenant(w.ctx)
			if err != nil {
				w.Fatal(err)
			}
			w.await(stack.Object{Cluster: w.s.Control, Resource: v1alpha1.Resource("apiserviceexports"), Namespace: tenant, Name: crd.GetName()},
				func(u *unstructured.Unstructured) bool { return u == nil || !stack.True("ProviderInSync")(u) })
			w.await(stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: crd.GetName()},
				condition(v1alpha1.ConditionReady, v1alpha1.ReasonCRDNotFound, "The provider says"))
			if u := w.get(w.app(gadgets, "one")); u.GetDeletionTimestamp() != nil {
				w.Error("the claim is being deleted")
			}
		})).
		Assess("it comes back: the claim is carried out again", step(ns, func(w world) {
			w.apply(w.s.Control, crd)
			w.await(w.mirror(gadgets, "one"), stack.Field("small", "spec", "size"))
			w.remove(w.app(gadgets, "one"))
			w.await(w.app(gadgets, "one"), stack.Gone)
		})).
		Feature()
	testenv.Test(t, f)
}

func trinketCRD() *unstructured.Unstructured {
	return object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "trinkets.example.org", map[string]any{"spec": map[string]any{
		"group": "example.org", "scope": "Namespaced",
		"names": map[string]any{"plural": "trinkets", "singular": "trinket", "kind": "Trinket", "listKind": "TrinketList"},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec":   map[string]any{"type": "object", "properties": map[string]any{"size": map[string]any{"type": "string"}}},
				"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		}},
	}})
}

// offer is what a platform operator applies to offer <plural>.example.org to everybody who logs in as a developer.
func offer(plural string) []*unstructured.Unstructured {
	rules := func(group, resource string, verbs ...any) []any {
		return []any{map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}}
	}
	passOn := object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "klutch-offer-"+plural, map[string]any{
		"rules": rules("example.org", plural, "get", "list", "watch", "create", "update", "patch", "delete"),
	})
	passOn.SetLabels(map[string]string{v1alpha1.AggregateToBackendLabel: "true"})
	mayBind := rules(v1alpha1.GroupVersion.Group, "apiserviceexporttemplates", "bind")
	mayBind[0].(map[string]any)["resourceNames"] = []any{plural} // and nothing else that is offered there
	return []*unstructured.Unstructured{
		passOn,
		object("rbac.authorization.k8s.io/v1", "Role", "data-services", "bind-"+plural, map[string]any{"rules": mayBind}),
		object("rbac.authorization.k8s.io/v1", "RoleBinding", "data-services", "bind-"+plural, map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bind-" + plural},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "oidc:developers"}},
		}),
		object(v1alpha1.GroupVersion.String(), "APIServiceExportTemplate", "data-services", plural, map[string]any{
			"spec": map[string]any{"apiServiceSelector": map[string]any{"group": "example.org", "resource": plural}},
		}),
	}
}

func (w world) count(c *cluster.Cluster, gvr schema.GroupVersionResource) int {
	w.Helper()
	client, err := stack.Object{Cluster: c, Resource: gvr}.Client()
	if err != nil {
		w.Fatal(err)
	}
	list, err := client.List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return len(list.Items)
}
