// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}

// visit runs a command that logs in, as user.
func (w world) visit(user string, args ...string) stack.Output {
	w.Helper()
	browser := w.s.Browser(user)
	return w.s.Kubectl(w.ctx, stack.OnURL(func(url string) { _, _ = browser.Visit(w.ctx, url) }),
		append(args, "--backend-certificate-authority", w.s.BackendCA, "--no-browser")...)
}

// TestCommands: what a platform offers, whom it knows, and all bound again in one login.
func TestCommands(t *testing.T) {
	const ns = "commands"
	f := features.New("commands around a platform").
		Assess("what it offers, and what of it is bound", step(ns, servicesListed)).
		Assess("as whom it knows a person", step(ns, personShown)).
		Assess("the same on another device", step(ns, elsewhere)).
		Assess("what is bound is bound again", step(ns, repaired)).
		Feature()
	testenv.Test(t, f)
}

func servicesListed(w world) {
	before := len(w.tenants())
	var rows []struct {
		Name  string
		Bound bool
	}
	out := w.visit(stack.Developer, "services", "-o", "json") // of the one platform of this cluster
	w.said(out, exitOK, "Demo platform tells what it offers after a login")
	w.must(json.Unmarshal([]byte(out.Stdout), &rows))
	var bound, others []string
	for _, r := range rows {
		switch {
		case r.Bound && slices.Contains(services, r.Name): // other tests have bound others
			bound = append(bound, r.Name)
		case !r.Bound:
			others = append(others, r.Name)
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(services)), slices.Sorted(slices.Values(bound))); diff != "" {
		w.Errorf("bound (-want +got):\n%s", diff)
	}
	if !slices.Contains(others, "keyvalueinstances.anynines.com") {
		w.Errorf("beside them: %v", others)
	}
	table := w.visit(stack.Developer, "services", w.s.BackendURL)
	if w.said(table, exitOK); !strings.Contains(table.Stdout, "NAME") && !strings.Contains(table.Stdout, "SERVICE") {
		w.Errorf("table:\n%s", table.Stdout)
	}
	guest := w.visit(stack.Guest, "services", w.s.BackendURL) // to whom another test may have offered one more
	w.said(guest, exitOK)
	for _, name := range services {
		if strings.Contains(guest.Stdout, name) {
			w.Errorf("%s is on offer for a guest:\n%s", name, guest.Stdout)
		}
	}
	if guest.Stdout == "" {
		w.said(guest, exitOK, "Nothing is on offer for you")
	}
	if after := len(w.tenants()); after != before {
		w.Errorf("%d tenants, %d before", after, before)
	}
}

// tenants are the namespaces of the Control Plane Cluster that belong to tenants.
func (w world) tenants() []string {
	w.Helper()
	c, err := stack.Object{Cluster: w.s.Control, Resource: stack.Namespaces}.Client()
	w.must(err)
	list, err := c.List(w.ctx, metav1.ListOptions{LabelSelector: v1alpha1.TenantLabel})
	w.must(err)
	var names []string
	for _, u := range list.Items {
		names = append(names, u.GetName())
	}
	return names
}

func personShown(w world) {
	tenant, err := w.s.Tenant(w.ctx)
	w.must(err)
	var person struct {
		Subject, Issuer, Tenant string
		Groups                  []string
	}
	out := w.visit(stack.Developer, "whoami", "-o", "json")
	w.said(out, exitOK)
	w.must(json.Unmarshal([]byte(out.Stdout), &person))
	if person.Subject != stack.Developer || person.Issuer != w.s.Issuer.URL() || person.Tenant != tenant || !slices.Contains(person.Groups, "developers") {
		w.Errorf("got %+v, tenant %s", person, tenant)
	}
}

// elsewhere: with the browser of another device.
func elsewhere(w world) {
	browser := w.s.Browser(stack.Developer)
	out := w.s.Kubectl(w.ctx, func(line string) {
		if words, ok := strings.CutPrefix(line, "Enter the code "); ok {
			go func() { _, _ = browser.Visit(w.ctx, w.s.BackendURL+"/authorize?user_code="+strings.Fields(words)[0]) }()
		}
	}, "whoami", "--device", "-o", "yaml", "--backend-certificate-authority", w.s.BackendCA)
	w.said(out, exitOK)
	if !strings.Contains(out.Stdout, "subject: "+stack.Developer+"\n") {
		w.Errorf("got %s", out.Stdout)
	}
}

// bound are a binding and its Secret.
func (w world) bound(name string) (binding, secret stack.Object) {
	w.Helper()
	binding = stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: name}
	ref, _, _ := unstructured.NestedString(w.get(binding).Object, "spec", "kubeconfigSecretRef", "name")
	return binding, stack.Object{Cluster: w.s.App, Resource: secrets, Namespace: v1alpha1.Namespace, Name: ref}
}

// spoil makes the Secret of a binding one that cannot be read.
func (w world) spoil(name string) {
	w.Helper()
	_, secret := w.bound(name)
	w.must(w.patch(secret, `{"data":{"kubeconfig":"bm8ga3ViZWNvbmZpZw=="}}`))
}

// repairs waits for what has gone wrong with a binding, and runs what doctor says.
func (w world) repairs(binding stack.Object, wrong stack.Condition) {
	w.Helper()
	w.await(binding, wrong)
	w.said(w.s.Kubectl(w.ctx, nil, "doctor"), 3, "Run kubectl bind --kubeconfig="+w.s.App.Kubeconfig()+" repair:")
	w.said(w.visit(stack.Developer, "repair"), exitOK, append(services, "Binding again: ")...)
	w.awaitServices()
}

// awaitServices waits until all that is bound before the first test is ready.
func (w world) awaitServices() {
	w.Helper()
	for _, name := range services {
		binding, _ := w.bound(name)
		w.await(binding, stack.True("Ready"))
	}
}

func repaired(w world) {
	binding, secret := w.bound(services[2])
	role := stack.Object{Cluster: w.s.App, Resource: clusterRoles, Name: "klutch-bind-konnector-" + services[2]}
	w.remove(role)
	w.remove(secret)
	w.await(binding, func(u *unstructured.Unstructured) bool { return !stack.True("Ready")(u) })
	w.said(w.s.Kubectl(w.ctx, nil, "repair"), 2, "name the URL")
	w.said(w.s.Kubectl(w.ctx, nil, "doctor"), 3, "Run kubectl bind --kubeconfig="+w.s.App.Kubeconfig()+" repair URL")
	out := w.visit(stack.Developer, "repair", w.s.BackendURL)
	w.said(out, exitOK, append(services, "Binding again: ")...)
	w.get(role)
	w.get(secret)
	w.awaitServices()
	w.said(w.visit(stack.Developer, "repair"), exitOK) // and with nothing to repair

	// A Secret that cannot be read says still whose it is.
	w.spoil(services[2])
	w.repairs(binding, condition("SecretValid", v1alpha1.ReasonKubeconfigSecretInvalid))
	tenant, err := w.s.Tenant(w.ctx)
	w.must(err)
	w.remove(stack.Object{Cluster: w.s.Control, Resource: serviceAccounts, Namespace: tenant, Name: v1alpha1.TenantServiceAccount})
	w.repairs(binding, condition("Connected", v1alpha1.ReasonTokenRevoked))

	// What another person has bound stays theirs.
	w.apply(w.s.Control, forGuests(w, append(offer("trinkets"), trinketCRD()))...)
	w.said(w.s.Bind(w.ctx, stack.Guest, "--service", keepsakes), exitOK)
	before := w.guest()
	w.spoil(keepsakes) // but for its annotations
	w.said(w.visit(stack.Developer, "repair"), exitOK, "Left out "+keepsakes+", which another person has bound")
	w.said(w.visit(stack.Guest, "repair"), exitOK, "Left out "+services[0], "Updated APIServiceBinding "+keepsakes)
	if after := w.guest(); after.Namespace != before.Namespace {
		w.Errorf("tenant %s, was %s", after.Namespace, before.Namespace)
	}
	w.said(w.s.Kubectl(w.ctx, nil, "unbind", keepsakes), exitOK)
	w.await(stack.Object{Cluster: w.s.Control, Resource: stack.Namespaces, Name: before.Namespace}, stack.Gone)
}
