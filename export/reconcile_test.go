// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestHalfMade: what a bind that crashed has left is completed where a person may
// have got a credential, and deleted where no one can have.
func TestHalfMade(t *testing.T) {
	w := newStillWorld(t)
	e := must(New(w.config, Options{}))
	made := func(user string) string {
		return must(e.tenants.EnsureTenantNamespace(t.Context(), &tenant.Record{Identity: auth.Identity{Issuer: w.issuer.URL(), Subject: user}, Cluster: "c1"}))
	}
	empty, asked, recorded := made("empty"), made("asked"), made("recorded")
	w.apply(object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: team-a, namespace: " + asked + "}}"))
	if err := e.tenants.Rights.Enter(t.Context(), recorded, v1alpha1.BackendTenantRole); err != nil {
		t.Fatal(err)
	}
	if err := e.tenants.Records.Update(t.Context(), recorded, func(r *tenant.Record) error {
		*r = tenant.Record{Identity: auth.Identity{Issuer: w.issuer.URL(), Subject: "recorded"}, Cluster: "c1", Services: []string{"widgets.example.org"}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c := w.control(e)
	if again := must(c.tenants.Tenants.Reconcile(t.Context(), cache.NewObjectName("", empty))); again <= 0 || again > e.tenants.Opts.Pauses.Bind || w.tenants() != 3 {
		t.Errorf("a bind that may be under way: again in %s, %d tenants", again, w.tenants())
	}
	if _, err := w.dyn.Resource(tenant.ClusterBindingResource).Namespace(empty).Get(t.Context(), v1alpha1.ClusterBindingName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("more was made for it: %v", err)
	}
	w.tune = func(e *Exporter) {
		e.tenants.Opts.Pauses = tenant.Pauses{Bind: time.Millisecond, NewKind: time.Hour, Settle: time.Second, Rotation: time.Minute}
	}
	asks := &writeCounter{reads: true}
	w.config = asks.wrap(w.config)
	w.serve(Options{})
	w.eventually("a tenant without a credential is gone", func(ctx context.Context) (bool, error) {
		_, err := w.admin.CoreV1().Namespaces().Get(ctx, empty, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	w.eventually("the rest is complete", func(ctx context.Context) (bool, error) {
		_, err := w.admin.CoreV1().Secrets(recorded).Get(ctx, v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
		return err == nil, nil
	})
	whole(t, w, recorded)
	if _, err := w.admin.CoreV1().Namespaces().Get(t.Context(), asked, metav1.GetOptions{}); err != nil || w.tenants() != 2 {
		t.Errorf("%d tenants: %v", w.tenants(), err)
	}
	// From now on a heartbeat costs nothing.
	last := time.Now()
	beat := func() {
		last = last.Add(time.Second)
		patch := fmt.Appendf(nil, `{"status":{"heartbeatInterval":"1h0m0s","lastHeartbeatTime":%q,"clusterUID":"app"}}`, last.UTC().Format(time.RFC3339))
		_, err := w.dyn.Resource(tenant.ClusterBindingResource).Namespace(recorded).Patch(t.Context(), "cluster", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
	}
	beat()
	w.eventually("rest", asks.idle)
	before := len(asks.seen())
	for range 7 {
		beat()
	}
	w.eventually("the last heartbeat was seen", func(context.Context) (bool, error) {
		binding, ok := tenant.Lookup(w.exporter.running.Load().caches.ClusterBindings, cache.NewObjectName(recorded, v1alpha1.ClusterBindingName))
		return ok && binding.Status.LastHeartbeatTime.Unix() == last.Unix(), nil
	})
	if more := asks.seen()[before:]; len(more) > 0 {
		t.Errorf("seven heartbeats: %q", more)
	}
	revoked(t, w, recorded)
	byHand(t, w, recorded)
}

// kubeconfigOf is what a tenant could read.
func (w *world) kubeconfigOf(tenant string) string {
	w.t.Helper()
	secret, err := w.admin.CoreV1().Secrets(tenant).Get(w.t.Context(), v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return string(secret.Data[v1alpha1.KubeconfigKey])
}

// revoked: while a token may still be believed that was revoked a moment ago, nothing
// stands where its holder could read the next one. People who log in get it at once.
func revoked(t *testing.T, w *world, tenant string) {
	t.Helper()
	stolen := w.kubeconfigOf(tenant)
	if err := w.admin.CoreV1().Secrets(tenant).Delete(t.Context(), v1alpha1.TokenAnchorSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	starting := must(New(w.config, Options{}))
	for range 2 { // it finds the anchor gone, and then a new one
		data, again, err := starting.tenants.Credentials.Current(t.Context(), tenant, starting.tenants.Opts.Pauses.Settle)
		if err != nil || data != nil || again <= 0 || again > starting.tenants.Opts.Pauses.Settle {
			t.Errorf("a backend that has just started: %d bytes, again in %s, %v", len(data), again, err)
		}
	}
	if w.kubeconfigOf(tenant) != stolen {
		t.Error("a thief can read the next token")
	}
	if data, _, err := starting.tenants.Credentials.Current(t.Context(), tenant, 0); err != nil || string(data) == stolen || string(data) != w.kubeconfigOf(tenant) {
		t.Errorf("a login after it: %v", err)
	}
}

// byHand deletes what a tenant cannot do without: it comes back by itself, and the
// credential is good again.
func byHand(t *testing.T, w *world, tenant string) {
	t.Helper()
	w.apply(object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: team-b, namespace: " + tenant + "}}"))
	space := until(w, "apiservicenamespaces", tenant, "team-b", func(o *v1alpha1.APIServiceNamespace) bool { return o.Status.Namespace != "" }).Status.Namespace
	for what, part := range map[string]struct {
		resource, namespace, name string
	}{
		"role binding of the tenant":                     {"rolebindings", tenant, v1alpha1.TenantRoleBinding},
		"role binding of a service namespace":            {"rolebindings", space, v1alpha1.TenantRoleBinding},
		"role":                                           {"roles", space, v1alpha1.ServiceNamespaceRole},
		"the backend's own role binding":                 {"rolebindings", tenant, v1alpha1.BackendRoleBinding},
		"the backend's own role binding beside services": {"rolebindings", space, v1alpha1.BackendRoleBinding},
	} {
		objects := w.dyn.Resource(rbacv1.SchemeGroupVersion.WithResource(part.resource)).Namespace(part.namespace)
		there := func(ctx context.Context) (bool, error) {
			_, err := objects.Get(ctx, part.name, metav1.GetOptions{})
			return err == nil, nil
		}
		w.eventually(what+" is there", there)
		if err := objects.Delete(t.Context(), part.name, metav1.DeleteOptions{}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		w.eventually(what+" is back", there)
	}
	before := w.kubeconfigOf(tenant)
	if err := w.admin.CoreV1().ServiceAccounts(tenant).Delete(t.Context(), v1alpha1.TenantServiceAccount, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("a token of another service account", func(ctx context.Context) (bool, error) {
		now := w.kubeconfigOf(tenant) //nolint:contextcheck // the world has one
		if now == before {
			return false, nil
		}
		_, err := must(kubernetes.NewForConfig(must(kubeconfig.Read([]byte(now))).RESTConfig())).CoreV1().Namespaces().Get(ctx, tenant, metav1.GetOptions{})
		return err == nil, nil
	})
}
