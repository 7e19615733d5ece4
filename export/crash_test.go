// SPDX-License-Identifier: Apache-2.0

package export

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var errCrash = errors.New("crash")

// A crash ends a program at its n-th write: before the API server has got it, or
// when it has done it but nobody has read the answer.
type crash struct {
	at      int64
	after   bool
	writes  atomic.Int64
	crashed atomic.Bool
}

func (c *crash) wrap(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return c.send(next, r) })
	})
	return config
}

func (c *crash) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if c.crashed.Load() {
		return nil, errCrash
	}
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "reviews") || c.writes.Add(1) != c.at {
		return next.RoundTrip(r)
	}
	c.crashed.Store(true)
	if c.after {
		resp, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(errCrash, resp.Body.Close())
	}
	return nil, errCrash
}

// crashes ends a backend at each write of a bind, and has another one go on. The
// tenants have a prefix of their own, so that other steps do not meet them.
func crashes(t *testing.T, w *world) {
	t.Helper()
	const prefix = "crash"
	bind := func(config *rest.Config, subject string) (string, error) {
		e := must(New(config, Options{NamespacePrefix: prefix}))
		return e.bindTenant(t.Context(), record{
			Identity: auth.Identity{Issuer: w.issuer.URL(), Subject: subject}, Cluster: "c1", Services: []string{"widgets.example.org"},
		})
	}
	points := 0
	for n := int64(1); n <= 12; n++ { // more than a bind has
		for _, after := range []bool{false, true} {
			c := &crash{at: n, after: after}
			subject := fmt.Sprintf("crash-%d-%t", n, after)
			_, err := bind(c.wrap(w.config), subject)
			if !c.crashed.Load() {
				continue
			}
			points++
			if err == nil {
				t.Errorf("write %d: the bind of a program that crashed succeeded", n)
			}
			namespace, err := bind(w.config, subject)
			if err != nil {
				t.Errorf("after a crash at write %d (done: %t): %v", n, after, err)
				continue
			}
			whole(t, w, namespace)
		}
	}
	// The controllers are at it too, and may be faster with some of the writes.
	if points < 4 {
		t.Errorf("only %d points at which to crash", points)
	}
}

// whole compares what is in a tenant namespace with what has to be.
func whole(t *testing.T, w *world, namespace string) {
	t.Helper()
	_, account := w.admin.CoreV1().ServiceAccounts(namespace).Get(t.Context(), v1alpha1.TenantServiceAccount, metav1.GetOptions{})
	_, rights := w.admin.RbacV1().RoleBindings(namespace).Get(t.Context(), v1alpha1.TenantServiceAccount, metav1.GetOptions{})
	_, binding := w.dyn.Resource(clusterBindingResource).Namespace(namespace).Get(t.Context(), v1alpha1.ClusterBindingName, metav1.GetOptions{})
	secret, credential := w.admin.CoreV1().Secrets(namespace).Get(t.Context(), v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
	_, record := w.admin.CoreV1().Secrets(namespace).Get(t.Context(), recordSecret, metav1.GetOptions{})
	for what, err := range map[string]error{"account": account, "rights": rights, "binding": binding, "credential": credential, "record": record} {
		if err != nil {
			t.Errorf("%s of %s: %v (missing: %t)", what, namespace, err, apierrors.IsNotFound(err))
		}
	}
	if secret != nil && len(secret.Data[v1alpha1.KubeconfigKey]) == 0 {
		t.Errorf("the kubeconfig of %s is empty", namespace)
	}
	if services := must(readServices(t, w, namespace)); !cmp.Equal(services, []string{"widgets.example.org"}) {
		t.Errorf("services of %s: %q", namespace, services)
	}
}

func readServices(t *testing.T, w *world, namespace string) ([]string, error) {
	t.Helper()
	r, _, err := w.exporter.readRecord(t.Context(), namespace)
	if err != nil {
		return nil, err
	}
	return r.Services, nil
}
