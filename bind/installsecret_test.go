// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// Everyone who binds to one place finds the same Secret; other places have others.
func TestSecretName(t *testing.T) {
	a := secretName(&kubeconfig.Kubeconfig{Server: "https://a", Namespace: "n", Token: "1"})
	seen := map[string]bool{a: true}
	for _, k := range []kubeconfig.Kubeconfig{{Server: "https://a", Namespace: "m"}, {Server: "https://b", Namespace: "n"}, {Server: "https://a n", Namespace: ""}} {
		seen[secretName(&k)] = true
	}
	if len(seen) != 4 || a != secretName(&kubeconfig.Kubeconfig{Server: "https://a", Namespace: "n", Token: "2"}) || len(a) != len("kubeconfig-xxxxx") {
		t.Errorf("names %v", seen)
	}
}

// Bindings to one place share a Secret, and one that lost its own gets it back.
func TestBestSecret(t *testing.T) {
	target := &kubeconfig.Kubeconfig{Server: "https://a", Namespace: "n"}
	made := secretName(target)
	for _, c := range []struct {
		name    string
		secrets map[string]bool // whether they lead to the target
		bound   []string        // Secrets of bindings that are there
		want    string
	}{
		{"nothing there", nil, nil, made},
		{"others only", map[string]bool{"other": false}, nil, made},
		{"one by another name", map[string]bool{"mine": true, "other": false}, nil, "mine"},
		{"several", map[string]bool{"b": true, "a": true}, nil, "a"},
		{"several, one in use", map[string]bool{"b": true, "a": true}, []string{"b"}, "b"},
		{"lost", nil, []string{"lost"}, "lost"},
		{"lost, but there is another", map[string]bool{"mine": true}, []string{"lost"}, "mine"},
		{"in use by one that leads elsewhere", map[string]bool{"other": false}, []string{"other"}, made},
		{"two that differ", map[string]bool{"b": true, "a": true}, []string{"b", "a"}, "b"},
	} {
		i := &installer{target: target, existing: map[string]*v1alpha1.APIServiceBinding{}}
		for n, secret := range c.bound {
			service := v1alpha1.GroupResource{Group: "example.com", Resource: "s" + strconv.Itoa(n)}
			b := &v1alpha1.APIServiceBinding{}
			b.Spec.KubeconfigSecretRef = v1alpha1.ClusterSecretKeyRef{LocalSecretKeyRef: v1alpha1.LocalSecretKeyRef{Name: secret}, Namespace: v1alpha1.Namespace}
			i.services, i.existing[service.String()] = append(i.services, service), b
		}
		if got := i.bestSecret(c.secrets); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// What an API server or a webhook has against a Secret with a token is told without its words.
func TestSecretRefusedIsNotQuoted(t *testing.T) {
	app := fakecluster.New()
	app.Intercept(func(context.Context, fakecluster.Request, func() error) error {
		return apierrors.NewForbidden(cluster.Secrets.GroupResource(), "kubeconfig", errors.New("it contains s3cret"))
	})
	i := &installer{app: &cluster.App{Interface: app.Client()}}
	secret := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "kubeconfig"}}
	_, err := i.apply(t.Context(), cluster.Secrets, cluster.Manifest(secret))
	if !fates.Is(err, fates.Forbidden) || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "does not permit") {
		t.Errorf("told: %v", err)
	}
}

// P31: what Install made, or a binding uses, may be chosen; a copy may not, whichever of
// its marks is left and whatever its labels say.
func TestP31Secrets(t *testing.T) {
	target := &kubeconfig.Kubeconfig{Server: "https://a.example", Namespace: "n", Token: "t"}
	data, err := target.Write()
	if err != nil {
		t.Fatal(err)
	}
	app := fakecluster.New(fakecluster.Resource{GroupVersionResource: cluster.APIServiceBindings, Kind: "APIServiceBinding"})
	if _, err := app.Client().Resource(cluster.NamespacesResource).Create(t.Context(), namespaceManifest(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(gvr schema.GroupVersionResource, o runtime.Object, manager string) {
		t.Helper()
		if _, err := app.Client().Resource(gvr).Namespace(v1alpha1.Namespace).Create(t.Context(), cluster.Manifest(o), metav1.CreateOptions{FieldManager: manager}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]bool{}
	for _, tc := range []struct {
		name        string
		unmade      bool
		labels      map[string]string
		annotations map[string]string
		manager     string
		broken      bool
		usable      bool
	}{
		{name: "broken-and-used", unmade: true, annotations: map[string]string{v1alpha1.BackendAnnotation: "https://b.example/export"}, broken: true, usable: true},
		{name: "broken-and-used-elsewhere", annotations: map[string]string{v1alpha1.BackendAnnotation: "https://c.example"}, broken: true},
		{name: "broken-and-used-of-unknown-origin", broken: true},
		{name: "broken-and-used-copy", annotations: map[string]string{v1alpha1.BackendAnnotation: "https://b.example", klutchsync.OwnerAnnotation: "Provider"}, broken: true},
		{name: "made", usable: true},
		{name: "by-hand-and-used", unmade: true, usable: true},
		{name: "by-hand", unmade: true},
		{name: "used-copy", unmade: true, annotations: map[string]string{klutchsync.OwnerAnnotation: "Provider"}},
		{name: "with-source", annotations: map[string]string{klutchsync.SourceAnnotation: "{}"}},
		{name: "with-owner", annotations: map[string]string{v1alpha1.ResourceOwnerAnnotation: "Consumer"}},
		{name: "bound", annotations: map[string]string{v1alpha1.BoundAnnotation: "true"}},
		{name: "labelled-bound", labels: map[string]string{v1alpha1.BoundAnnotation: "true"}},
		{name: "held", manager: "klutch.anynines.com/widgets.example.org/related"},
	} {
		secret := &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: tc.name, Labels: tc.labels, Annotations: tc.annotations},
			Data:       map[string][]byte{v1alpha1.KubeconfigKey: data},
		}
		if tc.broken {
			secret.Data[v1alpha1.KubeconfigKey] = []byte("kind: Config")
		}
		if !tc.unmade {
			metav1.SetMetaDataLabel(&secret.ObjectMeta, madeByLabel, cluster.FieldManager)
		}
		create(cluster.Secrets, secret, tc.manager)
		want[tc.name] = tc.usable
		if strings.Contains(tc.name, "used") {
			b := &v1alpha1.APIServiceBinding{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceBinding"}, ObjectMeta: metav1.ObjectMeta{Name: tc.name}}
			b.Spec.KubeconfigSecretRef = v1alpha1.ClusterSecretKeyRef{LocalSecretKeyRef: v1alpha1.LocalSecretKeyRef{Name: tc.name}, Namespace: v1alpha1.Namespace}
			create(cluster.APIServiceBindings, b, "")
		}
	}
	i := &installer{target: target, opts: InstallOptions{Backend: "https://b.example"}, app: &cluster.App{Interface: app.Client(), Served: true, Namespaced: true}}
	got, err := i.secrets(t.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("secrets that may be chosen: %v (-want +got):\n%s", err, diff)
	}
}
