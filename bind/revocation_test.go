// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A party is a tenant of whose token a thief has a copy.
type party struct {
	*testing.T
	*world
	tenant  string // and its namespace, and the Secret
	binding string
	thief   dynamic.Interface
}

// A departure is what becomes of a party: what is so before, what Remove is to end with
// and to say, and whether then the token is good, the tenant there, and the Secret.
type departure struct {
	before               func(*party)
	opts                 bind.RemoveOptions
	ends                 error
	words                string // that it says, between slashes
	good, tenant, secret bool
	late                 bool // the token has ended; API servers believe it for ten seconds more, in which the tenant may be given up
}

var departures = map[string]departure{
	"the last one":       {words: "Gave up tenant/Revoked the token"},
	"the Secret is used": {before: func(p *party) { p.bindTo("others."+p.binding, p.tenant) }, good: true, tenant: true, secret: true},
	"the tenant is used": {before: func(p *party) {
		p.write(p.tenant+"-second", p.data())
		p.bindTo("others."+p.binding, p.tenant+"-second")
	}, words: "Kept the token: APIServiceBinding others.", good: true, tenant: true},
	"made by hand": {before: func(p *party) {
		p.app.patch(p.T, secretsGVR, p.secretName(), map[string]any{"metadata": map[string]any{"labels": map[string]any{"app.kubernetes.io/managed-by": nil}}})
	}, words: "Gave up tenant/Revoked the token/Left secret klutch-bind/cluster-made-by-hand: neither", secret: true},
	"made again by the konnector of Klutch": {
		before: func(p *party) { p.madeByKlutch("") }, words: "Gave up tenant/Revoked the token/Left secret", secret: true,
	},
	"made again at the backend of Klutch": {
		before: func(p *party) { p.atKlutch(); p.madeByKlutch("") }, ends: bind.ErrNotRevoked, good: true, tenant: true, secret: true,
		words: "The platform keeps tenant/deletes the namespace cluster-made-again-at-the-backend-of-klutch/Left secret",
	},
	"made by the CLI of Klutch": {before: func(p *party) { p.madeByKlutch("kubeconfig-") }, words: "Gave up tenant/Revoked the token"},
	"bound at the backend of Klutch": {
		before: (*party).atKlutch, ends: bind.ErrNotRevoked, good: true, tenant: true,
		words: "The platform keeps tenant/deletes the namespace cluster-bound-at-the-backend-of-klutch",
	},
	"objects are left": {
		before: (*party).leaveObject, tenant: true,
		words: "The platform keeps tenant cluster-objects-are-left: gizmos.example.org are left in cluster-objects-are-left-team/Revoked the token",
	},
	"a policy is chosen": {before: func(p *party) {
		p.controlPlane.patch(p.T, clustersGVR, p.clusterBinding(), map[string]any{"spec": map[string]any{"deletionPolicy": "Delete"}})
	}, words: "The platform keeps tenant/has set spec.deletionPolicy/Revoked the token", tenant: true},
	"a thief forges who holds it": {before: func(p *party) {
		id, err := bind.ClusterID(p.Context(), p.app.Config())
		if err != nil {
			p.Fatal(err)
		}
		p.controlPlane.patch(p.T, namespacesGVR, cache.NewObjectName("", p.tenant), map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.IdentityAnnotation: "ada#" + id}}})
		p.heldBy("the thief")
	}, words: "Gave up tenant/Revoked the token"},
	"another cluster holds it": {
		before: func(p *party) { p.heldBy("another") }, ends: bind.ErrNotRevoked, words: "another App Cluster holds the tenant/the UID another", good: true, tenant: true,
	},
	"another tenant was bound": {before: func(p *party) {
		p.app.patch(p.T, secretsGVR, p.secretName(), map[string]any{"metadata": map[string]any{"annotations": map[string]string{"klutch.anynines.com/tenant-uid": "former"}}})
	}, ends: bind.ErrNotRevoked, words: "and former was bound", good: true, tenant: true},
	"an older platform":     {before: (*party).mayNotLeave, ends: bind.ErrNotRevoked, words: "cannot delete resource/; it ends at 20", good: true, tenant: true},
	"the anchor is gone":    {before: (*party).unanchor, words: "Revoked the token", late: true},
	"no answer comes":       {before: (*party).silence, ends: bind.ErrNotRevoked, words: "no answer in time/; it ends at 20", good: true, tenant: true},
	"it would run programs": {before: (*party).tamper, ends: bind.ErrNotRevoked, words: "users[0].user.exec", good: true, tenant: true},
	"a dry run": {
		opts: bind.RemoveOptions{DryRun: bind.DryRunClient}, words: "Would give up tenant/Would revoke the token/Would delete secret", good: true, tenant: true, secret: true,
	},
	"a checked dry run": {
		opts: bind.RemoveOptions{DryRun: bind.DryRunServer}, words: "Would give up tenant/Would revoke the token/Would delete secret", good: true, tenant: true, secret: true,
	},
	"a checked dry run of what is refused": {
		before: (*party).mayNotLeave, opts: bind.RemoveOptions{DryRun: bind.DryRunServer}, ends: bind.ErrNotRevoked, words: "cannot delete resource", good: true, tenant: true, secret: true,
	},
}

// TestP13Unbind: with the last use of a connection its token goes, within twenty
// seconds, and nothing that is another's to give up.
func TestP13Unbind(t *testing.T) {
	w := newWorld(t)
	w.controlPlane.apply(t, read(t, filepath.Join("..", "deploy", "backend", "admission.yaml"))...)
	heard := &record{}
	w.run(t, bind.Options{}, heard.logger())
	parties, outcomes := map[string]*party{}, map[string]func() ([]string, error){}
	for name, d := range departures {
		parties[name] = w.party(t, name)
		if d.before != nil {
			d.before(parties[name])
		}
	}
	for name, d := range departures {
		outcomes[name] = parties[name].unbind(t.Context(), d.opts)
	}
	for name, d := range departures {
		t.Run(name, func(t *testing.T) {
			p := parties[name]
			p.T = t
			said, err := outcomes[name]()
			p.check(d, said, err)
		})
	}
	t.Run("interrupted, and repeated", func(t *testing.T) {
		w.party(t, "interrupted").interrupted(departure{words: "Gave up tenant/Revoked the token/Deleted secret"})
	})
	t.Run("interrupted with a Secret made by hand, and repeated", func(t *testing.T) {
		p := w.party(t, "interrupted by hand")
		p.madeByKlutch("")
		p.interrupted(departure{words: "Gave up tenant/Revoked the token/Left secret", secret: true})
	})
	if errs := heard.errors(); len(errs) > 0 {
		t.Errorf("the konnector logs errors although all is well:\n%s", strings.Join(errs, ""))
	}
	t.Run("the platform is down", func(t *testing.T) {
		p := w.party(t, "down")
		if err := w.controlPlane.StopServer(); err != nil {
			t.Fatal(err)
		}
		said, err := p.unbind(t.Context(), bind.RemoveOptions{})()
		p.says(departure{ends: bind.ErrNotRevoked, words: "connection refused/; it ends at 20"}, said, err)
		p.gone(p.app, secretsGVR, p.secretName())
	})
}

// check judges an unbind by the state of both clusters.
func (p *party) check(d departure, said []string, err error) {
	p.Helper()
	p.says(d, said, err)
	if d.good {
		p.alive()
	} else if err := p.try(); !apierrors.IsUnauthorized(err) {
		p.Errorf("the copy of the token is good: %v", err)
	}
	if d.opts.DryRun == "" {
		p.gone(p.app, bindingsGVR, cache.NewObjectName(v1alpha1.Namespace, p.binding))
	}
	if d.secret {
		get[unstructured.Unstructured](p.T, p.app, secretsGVR, v1alpha1.Namespace, p.tenant)
	} else {
		p.gone(p.app, secretsGVR, p.secretName())
	}
	switch {
	case d.late:
	case !d.tenant:
		p.gone(p.controlPlane, clustersGVR, p.clusterBinding())
	case get[v1alpha1.ClusterBinding](p.T, p.controlPlane, clustersGVR, p.tenant, "cluster").DeletionTimestamp != nil:
		p.Error("the tenant is being removed")
	}
}

func (p *party) says(d departure, said []string, err error) {
	p.Helper()
	if !errors.Is(err, d.ends) {
		p.Fatalf("%v, want %v; said %q", err, d.ends, said)
	}
	text := strings.Join(append(said, fmt.Sprint(err)), "\n")
	for word := range strings.SplitSeq(d.words, "/") {
		if !strings.Contains(text, word) {
			p.Errorf("it does not say %q:\n%s", word, text)
		}
	}
}

// unbind begins to, and returns what waits for the end. From the revocation on a token
// has twenty seconds.
func (p *party) unbind(ctx context.Context, opts bind.RemoveOptions) func() ([]string, error) {
	var said []string
	var err error
	var begun time.Time
	done := make(chan struct{})
	opts.Progress = func(line string) {
		if said = append(said, line); line == "Waiting until the token is refused" {
			begun = time.Now()
		}
	}
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		err = bind.Remove(ctx, quick(p.app.Config()), p.binding, opts)
		if took := time.Since(begun); !begun.IsZero() && took > 20*time.Second {
			err = errors.Join(err, fmt.Errorf("the token is good for %s", took))
		}
	}()
	return func() ([]string, error) {
		<-done
		return said, err
	}
}

// interrupted leaves the Secret behind, which the next time is found without its binding.
func (p *party) interrupted(d departure) {
	p.Helper()
	ctx, interrupt := context.WithCancel(p.Context())
	err := bind.Remove(ctx, quick(p.app.Config()), p.binding, bind.RemoveOptions{Progress: func(line string) {
		if strings.HasPrefix(line, "Deleted APIServiceBinding") {
			interrupt()
		}
	}})
	p.says(departure{ends: context.Canceled}, nil, err)
	p.alive()
	said, err := p.unbind(p.Context(), bind.RemoveOptions{})()
	p.check(d, said, err)
	_, err = p.unbind(p.Context(), bind.RemoveOptions{})()
	p.says(departure{ends: bind.ErrNotFound}, nil, err)
}

// errors are the lines that frighten. That client-go stopped to read an answer because the
// binding has ended is none.
func (r *record) errors() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(strings.SplitAfter(r.text.String(), "\n"), func(line string) bool {
		return !strings.Contains(line, `"error":`) || strings.Contains(line, `"error":"context canceled"`)
	})
}

// party makes a tenant with the rights of a backend, and binds an API to it.
func (w *world) party(t *testing.T, what string) *party {
	t.Helper()
	p := &party{T: t, world: w, tenant: "cluster-" + strings.ToLower(strings.ReplaceAll(what, " ", "-"))}
	p.binding = "gizmos." + p.tenant + ".example"
	w.controlPlane.apply(t, p.manifests()...)
	k := p.kubeconfig()
	data, err := k.Write()
	if err != nil {
		t.Fatal(err)
	}
	p.write(p.tenant, data)
	p.bindTo(p.binding, p.tenant)
	config := k.RESTConfig()
	config.QPS = -1
	if p.thief, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	p.alive()
	return p
}

// manifests are those of a tenant as a backend makes it.
func (p *party) manifests() []*unstructured.Unstructured {
	p.Helper()
	all := read(p.T, filepath.Join("testdata", "tenant.yaml"))
	for _, u := range all {
		data, err := yaml.Marshal(u.Object)
		if err != nil {
			p.Fatal(err)
		}
		u.Object = nil
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(data), tenant, p.tenant)), &u.Object); err != nil {
			p.Fatal(err)
		}
		if u.GetKind() == "Namespace" {
			u.SetLabels(map[string]string{"klutch.anynines.com/tenant": p.tenant})
		}
	}
	return all
}

// kubeconfig is one whose token is bound to a Secret.
func (p *party) kubeconfig() *kubeconfig.Kubeconfig {
	p.Helper()
	anchor := get[corev1.Secret](p.T, p.controlPlane, secretsGVR, p.tenant, "klutch-binder")
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: anchor.Name, UID: anchor.UID},
	}}
	got, err := p.controlPlane.kube.CoreV1().ServiceAccounts(p.tenant).CreateToken(p.Context(), "klutch-binder", request, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
	config := p.controlPlane.Config()
	return &kubeconfig.Kubeconfig{
		Server: p.controlPlane.URL(), CAData: config.CAData, TLSServerName: config.ServerName, Namespace: p.tenant, Token: got.Status.Token,
	}
}

func (p *party) secretName() cache.ObjectName {
	return cache.NewObjectName(v1alpha1.Namespace, p.tenant)
}

func (p *party) clusterBinding() cache.ObjectName { return cache.NewObjectName(p.tenant, "cluster") }

func (p *party) bindTo(name, secret string) {
	p.Helper()
	w := *p.world
	w.secret = secret
	w.bind(p.T, name)
}

// data is what the Secret holds.
func (p *party) data() []byte {
	p.Helper()
	return get[corev1.Secret](p.T, p.app, secretsGVR, v1alpha1.Namespace, p.tenant).Data[v1alpha1.KubeconfigKey]
}

func (p *party) write(name string, data []byte) {
	p.Helper()
	u := secret(v1alpha1.Namespace, name, data)
	u.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "kubectl-bind"})
	p.app.apply(p.T, u)
}

// madeByKlutch has the Secret look as Klutch's CLI makes it, which has the API server complete a
// name, or as Klutch's konnector makes a deleted one again, which has the whole one.
func (p *party) madeByKlutch(generateName string) {
	p.Helper()
	u := secret(v1alpha1.Namespace, p.tenant, p.data())
	u.SetGenerateName(generateName)
	secrets := p.app.dyn.Resource(secretsGVR).Namespace(v1alpha1.Namespace)
	if err := secrets.Delete(p.Context(), p.tenant, metav1.DeleteOptions{}); err != nil {
		p.Fatal(err)
	}
	if _, err := secrets.Create(p.Context(), u, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
}

// atKlutch gives the App Cluster a token that never ends, without the right to leave.
func (p *party) atKlutch() {
	p.Helper()
	p.mayNotLeave()
	u := object("v1", "Secret", p.tenant, "klutchs", map[string]any{"type": "kubernetes.io/service-account-token"})
	u.SetAnnotations(map[string]string{"kubernetes.io/service-account.name": v1alpha1.TenantServiceAccount})
	p.controlPlane.apply(p.T, u)
	var token []byte
	eventually(p.T, func() error {
		made, err := find[corev1.Secret](p.T, p.controlPlane, secretsGVR, p.tenant, "klutchs")
		if err != nil || len(made.Data["token"]) == 0 {
			return fmt.Errorf("no token yet: %w", err)
		}
		token = made.Data["token"]
		return nil
	})
	k, err := kubeconfig.Read(p.data())
	if err != nil {
		p.Fatal(err)
	}
	k.Token = string(token)
	data, err := k.Write()
	if err != nil {
		p.Fatal(err)
	}
	p.write(p.tenant, data)
	p.madeByKlutch("kubeconfig-")
}

func (p *party) heldBy(uid string) {
	p.Helper()
	p.controlPlane.patchStatus(p.T, clustersGVR, p.tenant, "cluster", map[string]any{"clusterUID": uid})
}

func (p *party) tamper() {
	p.Helper()
	p.write(p.tenant, bytes.Replace(p.data(), []byte("    token:"), []byte("    exec: {apiVersion: client.authentication.k8s.io/v1, command: id}\n    token:"), 1))
}

// silence has the Secret lead to what takes connections and never says a word.
func (p *party) silence() {
	p.Helper()
	var config net.ListenConfig
	l, err := config.Listen(p.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = l.Close() })
	k, err := kubeconfig.Read(p.data())
	if err != nil {
		p.Fatal(err)
	}
	k.Server = "https://" + l.Addr().String()
	data, err := k.Write()
	if err != nil {
		p.Fatal(err)
	}
	p.write(p.tenant, data)
}

func (p *party) unanchor() {
	p.Helper()
	if err := p.controlPlane.kube.CoreV1().Secrets(p.tenant).Delete(p.Context(), "klutch-binder", metav1.DeleteOptions{}); err != nil {
		p.Fatal(err)
	}
}

// mayNotLeave takes the rights away that only a newer platform gives.
func (p *party) mayNotLeave() {
	p.Helper()
	i := slices.IndexFunc(p.manifests(), func(u *unstructured.Unstructured) bool { return u.GetKind() == "Role" })
	role := p.manifests()[i]
	role.Object["rules"] = slices.DeleteFunc(role.Object["rules"].([]any), func(r any) bool {
		return fmt.Sprint(r.(map[string]any)["verbs"]) == "[delete]"
	})
	p.controlPlane.apply(p.T, role)
	eventually(p.T, func() error {
		err := p.thief.Resource(clustersGVR).Namespace(p.tenant).Delete(p.Context(), "cluster", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("it may delete: %w", err)
		}
		return nil
	})
}

// leaveObject leaves an object that the App Cluster does not know of.
func (p *party) leaveObject() {
	p.Helper()
	export := renamed(read(p.T, filepath.Join("testdata", "widgets.yaml"))[0], "gizmos", "Gizmo")
	p.offer(p.T, export.DeepCopy())
	export.SetNamespace(p.tenant)
	p.controlPlane.apply(p.T, export)
	p.controlPlane.apply(p.T, object(v1alpha1.GroupVersion.String(), "APIServiceNamespace", p.tenant, "team", nil))
	service := p.tenant + "-team"
	p.controlPlane.apply(p.T, object("v1", "Namespace", "", service, nil),
		object("rbac.authorization.k8s.io/v1", "Role", service, "klutch-binder", map[string]any{"rules": []any{
			map[string]any{"apiGroups": []any{"example.org"}, "resources": []any{"gizmos"}, "verbs": []any{"list"}},
		}}),
		object("rbac.authorization.k8s.io/v1", "RoleBinding", service, "klutch-binder", map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "klutch-binder"},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": p.tenant, "name": v1alpha1.TenantServiceAccount}},
		}), object("example.org/v1", "Gizmo", service, "one", map[string]any{"spec": map[string]any{"size": int64(1)}}))
	p.controlPlane.patchStatus(p.T, requestedGVR, p.tenant, "team", map[string]any{"namespace": service})
}

// try is a new request with the copy of the token.
func (p *party) try() error {
	_, err := p.thief.Resource(clustersGVR).Namespace(p.tenant).List(p.Context(), metav1.ListOptions{})
	return err
}

func (p *party) alive() {
	p.Helper()
	eventually(p.T, p.try) // rights take a moment
}

func (p *party) gone(s *side, gvr schema.GroupVersionResource, name cache.ObjectName) {
	p.Helper()
	if err := goneFrom(p.T, s, gvr, name.Namespace, name.Name); err != nil {
		p.Error(err)
	}
}
