// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	keepsakes = "keepsakes.example.org"
	exitInUse = 6
)

var keepsakesGVR = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "keepsakes"}

// TestP13Unbind: a person gives up the only API of their tenant, and binds it again at
// once. A copy of the token is good for nothing from then on.
func TestP13Unbind(t *testing.T) {
	const ns = "unbind"
	var stolen *kubeconfig.Kubeconfig
	f := features.New("an API is given up").
		Assess("it is bound, and used", step(ns, func(w world) {
			w.apply(w.s.Control, forGuests(w, append(offer("trinkets"), trinketCRD()))...)
			w.said(w.s.Bind(w.ctx, stack.Guest, "--service", keepsakes), exitOK)
			w.apply(w.s.App, keepsake(ns))
			stolen = w.guest()
			w.await(w.mirrorOf(stolen), stack.There)
		})).
		Assess("not while it is used", step(ns, func(w world) {
			w.said(w.s.Kubectl(w.ctx, nil, "unbind", keepsakes), exitInUse, "still in use")
			w.remove(w.app(keepsakesGVR, "one"))
			w.await(w.app(keepsakesGVR, "one"), stack.Gone)
			w.must(try(w, stolen))
		})).
		Assess("the token is refused, and no other one", step(ns, func(w world) {
			w.said(w.s.Kubectl(w.ctx, nil, "unbind", keepsakes), exitOK, "Gave up tenant "+stolen.Namespace, "Revoked the token of tenant "+stolen.Namespace, "Deleted secret")
			if err := try(w, stolen); !apierrors.IsUnauthorized(err) {
				w.Errorf("the copy of the token is good: %v", err)
			}
			w.await(stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: services[0]}, stack.True("Ready"))
		})).
		Assess("it is bound again at once", step(ns, func(w world) {
			for end := time.Now().Add(patience); ; {
				out := w.s.Bind(w.ctx, stack.Guest, "--service", keepsakes)
				if out.Code == exitOK {
					break
				}
				if w.said(out, exitError, "is being deleted", "Try again later"); time.Now().After(end) {
					w.Fatal("the tenant does not go")
				}
			}
			w.apply(w.s.App, keepsake(ns))
			again := w.guest()
			w.await(w.mirrorOf(again), stack.There)
			if again.Namespace != stolen.Namespace || again.Token == stolen.Token {
				w.Errorf("tenant %s, was %s", again.Namespace, stolen.Namespace)
			}
			if err := try(w, stolen); !apierrors.IsUnauthorized(err) {
				w.Errorf("the copy of the token is good again: %v", err)
			}
		})).
		Assess("nothing is left of it", step(ns, func(w world) {
			w.remove(w.app(keepsakesGVR, "one"))
			w.await(w.app(keepsakesGVR, "one"), stack.Gone)
			w.said(w.s.Kubectl(w.ctx, nil, "unbind", keepsakes), exitOK, "Revoked the token")
			for _, name := range []string{stolen.Namespace, stolen.Namespace + "-" + ns} {
				w.await(stack.Object{Cluster: w.s.Control, Resource: stack.Namespaces, Name: name}, stack.Gone)
			}
			w.await(stack.Object{Cluster: w.s.App, Resource: stack.CRDs, Name: keepsakes}, stack.Gone)
		})).
		Feature()
	testenv.Test(t, f)
}

// forGuests makes another API of what offers trinkets to developers.
func forGuests(w world, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	w.Helper()
	data, err := json.Marshal(objects)
	w.must(err)
	text := strings.NewReplacer("trinket", "keepsake", "Trinket", "Keepsake", "oidc:developers", "oidc:guests").Replace(string(data))
	var all []*unstructured.Unstructured
	w.must(json.Unmarshal([]byte(text), &all))
	return all
}

func keepsake(namespace string) *unstructured.Unstructured {
	return object("example.org/v1", "Keepsake", namespace, "one", map[string]any{"spec": map[string]any{"size": "small"}})
}

// guest is the credential of the guest's tenant, as the App Cluster holds it.
func (w world) guest() *kubeconfig.Kubeconfig {
	w.Helper()
	binding := w.get(stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: keepsakes})
	name, _, _ := unstructured.NestedString(binding.Object, "spec", "kubeconfigSecretRef", "name")
	secret := w.get(stack.Object{Cluster: w.s.App, Resource: secrets, Namespace: v1alpha1.Namespace, Name: name})
	encoded, _, _ := unstructured.NestedString(secret.Object, "data", v1alpha1.KubeconfigKey)
	data, err := base64.StdEncoding.DecodeString(encoded)
	w.must(err)
	k, err := kubeconfig.Read(data)
	w.must(err)
	return k
}

func (w world) mirrorOf(k *kubeconfig.Kubeconfig) stack.Object {
	return stack.Object{Cluster: w.s.Control, Resource: keepsakesGVR, Namespace: k.Namespace + "-" + w.namespace, Name: "one"}
}

// try is a new request with a copy of a token.
func try(w world, k *kubeconfig.Kubeconfig) error {
	w.Helper()
	client, err := kubernetes.NewForConfig(k.RESTConfig())
	w.must(err)
	_, err = client.CoreV1().Namespaces().Get(w.ctx, k.Namespace, metav1.GetOptions{})
	return err
}
