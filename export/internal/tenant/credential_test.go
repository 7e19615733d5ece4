// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const clusterInfo = `{apiVersion: v1, kind: Config, clusters: [{name: "", cluster: {server: "https://public.example.com:6443", certificate-authority-data: Y2E=}}]}`

// TestReachable: what the operator says goes before what the cluster says, and that
// before what the backend itself uses.
func TestReachable(t *testing.T) {
	own := &rest.Config{Host: "https://10.0.0.1:443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("own")}}
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "cluster-info", errors.New("no"))
	for name, test := range map[string]struct {
		said APIServer
		info string
		err  error
		want *kubeconfig.Kubeconfig // nil means an error
	}{
		"said":            {said: APIServer{URL: "https://said.example.com", CAData: []byte("said")}, info: clusterInfo, want: &kubeconfig.Kubeconfig{Server: "https://said.example.com", CAData: []byte("said")}},
		"public":          {info: clusterInfo, want: &kubeconfig.Kubeconfig{Server: "https://public.example.com:6443", CAData: []byte("ca")}},
		"CA said":         {said: APIServer{CAData: []byte("said")}, info: clusterInfo, want: &kubeconfig.Kubeconfig{Server: "https://public.example.com:6443", CAData: []byte("said")}},
		"nothing public":  {want: &kubeconfig.Kubeconfig{Server: "https://10.0.0.1:443", CAData: []byte("own")}},
		"may not read it": {info: clusterInfo, err: forbidden, want: &kubeconfig.Kubeconfig{Server: "https://10.0.0.1:443", CAData: []byte("own")}},
		"outage":          {info: clusterInfo, err: errors.New("outage")},
		"plain http":      {info: `{clusters: [{name: "", cluster: {server: "http://public.example.com"}}]}`},
		"no cluster":      {info: `{apiVersion: v1}`},
		"no YAML":         {info: `{`},
	} {
		client := fake.NewClientset()
		if test.info != "" {
			client = fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cluster-info", Namespace: "kube-public"}, Data: map[string]string{"kubeconfig": test.info}})
		}
		if test.err != nil {
			client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.err })
		}
		c := &credentials{Clients: Clients{Kube: client}, opts: &Options{APIServer: test.said, Backend: own}}
		got, err := c.reachable(t.Context())
		if diff := cmp.Diff(test.want, got); diff != "" || (err == nil) != (test.want != nil) {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestNext: after a credential was handed out, the kept Secret leads no konnector back to a
// token that died with it. One of Klutch's backend dies also at a bind by Klutch's CLI.
func TestNext(t *testing.T) {
	kept := func(of string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.KubeconfigSecretName, Namespace: "t", ResourceVersion: "1"}, Data: map[string][]byte{v1alpha1.KubeconfigKey: []byte(of)}}
	}
	anchor := func(kind corev1.SecretType, age time.Duration) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TokenAnchorSecret, Namespace: "t", UID: "before", ResourceVersion: "1", Annotations: map[string]string{
			v1alpha1.MadeAtAnnotation: time.Now().Add(-age).UTC().Format(time.RFC3339Nano),
		}}, Type: kind}
	}
	handOut, short := (*credentials).HandOut, (*credentials).Short
	for name, test := range map[string]struct {
		hand     func(*credentials, context.Context, string) ([]byte, error)
		anchor   *corev1.Secret
		issued   bool // the kept one, by us for that anchor
		ends     bool // that anchor's tokens
		empties  bool // the kept Secret
		returned string
	}{
		"ours, by ours":                 {hand: handOut, anchor: anchor(corev1.SecretTypeOpaque, time.Hour), issued: true, ends: true, empties: true, returned: "bound to after"},
		"ours, by ours, a moment later": {hand: handOut, anchor: anchor(corev1.SecretTypeOpaque, time.Second), issued: true, returned: "kept"},
		"ours, by Klutch's":             {hand: short, anchor: anchor(corev1.SecretTypeOpaque, time.Hour), issued: true, returned: "bound to before"},
		"Klutch's, by ours":             {hand: handOut, anchor: anchor(corev1.SecretTypeServiceAccountToken, time.Hour), issued: true, ends: true, empties: true, returned: "bound to after"},
		"Klutch's, by Klutch's":         {hand: short, anchor: anchor(corev1.SecretTypeServiceAccountToken, time.Hour), issued: true, ends: true, empties: true, returned: "bound to after"},
		"a crash before":                {hand: short, anchor: anchor(corev1.SecretTypeOpaque, time.Second), empties: true, returned: "bound to before"},
	} {
		t.Run(name, func(t *testing.T) {
			binding := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ClusterBinding", "metadata": map[string]any{"name": v1alpha1.ClusterBindingName, "namespace": "t"}}}
			client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t"}}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantServiceAccount, Namespace: "t", UID: "account"}}, test.anchor, kept("kept"))
			client.PrependReactor("create", "serviceaccounts", issueBound)
			client.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
				a.(clienttesting.CreateAction).GetObject().(*corev1.Secret).UID = "after"
				return false, nil, nil
			})
			c := &credentials{
				Clients: Clients{Kube: client, Dyn: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), binding)},
				opts:    &Options{APIServer: APIServer{URL: "https://cp.example.com"}, Backend: &rest.Config{}, TokenTTL: time.Hour, Pauses: UsualPauses()},
			}
			if test.issued {
				account, _ := c.account(t.Context(), "t")
				secret := kept("kept")
				secret.Annotations = map[string]string{
					v1alpha1.IssuedForAnnotation:  issuedForHash(kubeconfig.Kubeconfig{Server: "https://cp.example.com"}, account, test.anchor),
					v1alpha1.RenewAfterAnnotation: time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
				}
				if err := c.put(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
			}
			got, err := test.hand(c, t.Context(), "t")
			if err != nil || !strings.Contains(string(got), test.returned) {
				t.Fatalf("handed out: %v\n%s", err, got)
			}
			now, _, err := c.anchor(t.Context(), "t")
			if err != nil || (now.UID == "after") != test.ends {
				t.Errorf("the anchor is %s: %v", now.UID, err)
			}
			secret, err := client.CoreV1().Secrets("t").Get(t.Context(), v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
			if err != nil || (len(secret.Data) == 0) != test.empties {
				t.Errorf("kept: %q, %v", secret.Data, err)
			}
			noted, err := c.Dyn.Resource(ClusterBindingResource).Namespace("t").Get(t.Context(), v1alpha1.ClusterBindingName, metav1.GetOptions{})
			if err != nil || (noted.GetAnnotations()[v1alpha1.AnchorAnnotation] == string(now.UID)) != test.empties {
				t.Errorf("noted: %v, %v", noted.GetAnnotations(), err)
			}
		})
	}
}

// TestP13NoneIsHandedOutOfATenantThatGoes: a one-time code that was kept brings no credential once its tenant was
// given up, or is removed, and nothing that a credential needs is made again.
func TestP13NoneIsHandedOutOfATenantThatGoes(t *testing.T) {
	for name, hand := range map[string]func(*credentials, context.Context, string) ([]byte, error){"ours": (*credentials).HandOut, "Klutch's": (*credentials).Short} {
		binding := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ClusterBinding", "metadata": map[string]any{
			"name": v1alpha1.ClusterBindingName, "namespace": "t", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []any{v1alpha1.TenantFinalizer},
		}}}
		client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t"}})
		client.PrependReactor("create", "serviceaccounts", issueBound)
		c := &credentials{
			Clients: Clients{Kube: client, Dyn: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), binding)},
			opts:    &Options{APIServer: APIServer{URL: "https://cp.example.com"}, Backend: &rest.Config{}, TokenTTL: time.Hour, Pauses: UsualPauses()},
		}
		if got, err := hand(c, t.Context(), "t"); !errors.Is(err, ErrTerminating) {
			t.Errorf("%s: handed out %q, %v", name, got, err)
		}
		for _, a := range client.Actions() {
			if a.GetVerb() != "get" {
				t.Errorf("%s: %s %s", name, a.GetVerb(), a.GetResource().Resource)
			}
		}
	}
}

// TestFirstCredentialRevokesNone: of two that make a credential at the same time, the slower one
// finds that of the other, which no audit record says to be revoked.
func TestFirstCredentialRevokesNone(t *testing.T) {
	for name, slower := range map[string]bool{"made the anchor": false, "found the anchor": true} {
		t.Run(name, func(t *testing.T) {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantServiceAccount, Namespace: "t", UID: "account"}}
			client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t"}}, account)
			c := &credentials{Clients: Clients{Kube: client}, opts: &Options{APIServer: APIServer{URL: "https://cp.example.com"}, Backend: &rest.Config{}, TokenTTL: time.Hour, Pauses: UsualPauses()}}
			client.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
				anchor := a.(clienttesting.CreateAction).GetObject().(*corev1.Secret).DeepCopy()
				anchor.Namespace, anchor.UID = "t", "anchor"
				kept := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.KubeconfigSecretName, Namespace: "t", ResourceVersion: "1", Annotations: map[string]string{
					v1alpha1.IssuedForAnnotation:  issuedForHash(kubeconfig.Kubeconfig{Server: "https://cp.example.com"}, account, anchor),
					v1alpha1.RenewAfterAnnotation: time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
				}}, Data: map[string][]byte{v1alpha1.KubeconfigKey: []byte("of the other")}}
				for _, o := range []runtime.Object{anchor, kept} {
					if err := client.Tracker().Add(o); err != nil {
						t.Error(err)
					}
				}
				if slower {
					return true, nil, apierrors.NewAlreadyExists(corev1.Resource("secrets"), anchor.Name)
				}
				return true, anchor, nil
			})
			var said strings.Builder
			ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { said.WriteString(args + "\n") }, funcr.Options{}))
			data, _, err := c.Current(ctx, "t", 0)
			if err != nil || string(data) != "of the other" {
				t.Fatalf("%v\n%s", err, data)
			}
			if said.Len() > 0 {
				t.Errorf("records:\n%s", said.String())
			}
		})
	}
}

// issueBound answers a request for a token with the UID of what it is bound to.
func issueBound(a clienttesting.Action) (bool, runtime.Object, error) {
	request, ok := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest)
	if !ok {
		return false, nil, nil
	}
	request.Status = authenticationv1.TokenRequestStatus{
		Token: "bound to " + string(request.Spec.BoundObjectRef.UID), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
	}
	return true, request, nil
}

// TestCredentialIsNotQuoted: an admission policy that quotes the Secret that it does not admit has the
// backend tell no person of the token in it: not the ClusterBinding, and not the log.
func TestCredentialIsNotQuoted(t *testing.T) {
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t"}}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantServiceAccount, Namespace: "t"}})
	client.PrependReactor("create", "serviceaccounts", issueBound)
	client.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		secret := a.(clienttesting.CreateAction).GetObject().(*corev1.Secret)
		said := fmt.Sprintf("ValidatingAdmissionPolicy 'quoting' with binding 'b' denied request: it has %s", secret.Data[v1alpha1.KubeconfigKey])
		return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), secret.Name, errors.New(said))
	})
	c := &credentials{Clients: Clients{Kube: client}, opts: &Options{TokenTTL: time.Hour}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.KubeconfigSecretName, Namespace: "t"}}
	anchor := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TokenAnchorSecret, Namespace: "t", UID: "anchor"}}
	_, _, err := c.issue(t.Context(), kubeconfig.Kubeconfig{Server: "https://cp.example.com", Namespace: "t"}, secret, anchor, "hash")
	if !fates.IsRefused(err) {
		t.Fatalf("the credential is issued, or another error: %v", err)
	}
	for _, said := range []string{err.Error(), Against("a step", err)} {
		if strings.Contains(said, "bound to") || !strings.Contains(said, "does not permit") || !strings.Contains(said, "'quoting'") {
			t.Errorf("it is told: %s", said)
		}
	}
}
