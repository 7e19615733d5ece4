// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/inflight"
)

// A webhook that denies with Retry-After costs a request an ask, whatever client-go would make of it,
// and the caller hears for how long it denies.
func TestEachRequestIsSentOnce(t *testing.T) {
	var sent atomic.Int32
	var token atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Add(1)
		token.Store(r.Header.Get("Authorization"))
		denial := apierrors.NewTooManyRequests(`admission webhook "slow.example.org" denied the request: not now`, 60).ErrStatus
		denial.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(int(denial.Code))
		_ = json.NewEncoder(w).Encode(denial)
	}))
	defer server.Close()
	e, err := New(&rest.Config{Host: server.URL, BearerToken: "secret"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, ask := range map[string]func() error{
		"create": func() error {
			_, err := e.clients.Kube.RbacV1().Roles("team").Create(ctx, &rbacv1.Role{}, metav1.CreateOptions{})
			return err
		},
		"read": func() error {
			_, err := e.clients.Dyn.Resource(tenant.ExportResource).Namespace("team").Get(ctx, "a", metav1.GetOptions{})
			return err
		},
		"delete": func() error {
			return e.clients.Meta.Resource(tenant.ExportResource).Namespace("team").Delete(ctx, "a", metav1.DeleteOptions{})
		},
		"list": func() error {
			_, err := e.watches.Dyn.Resource(tenant.ExportResource).List(ctx, metav1.ListOptions{})
			return err
		},
		"watch": func() error {
			_, err := e.watches.Meta.Resource(tenant.ExportResource).Watch(ctx, metav1.ListOptions{ResourceVersion: "7"})
			return err
		},
	} {
		sent.Store(0)
		if err := ask(); sent.Load() != 1 || !fates.Is(err, fates.Overloaded) || fates.Asked(err) != time.Minute || token.Load() != "Bearer secret" {
			t.Errorf("%s: %d requests, the last one with %q, %v, which asks for a pause of %v", name, sent.Load(), token.Load(), err, fates.Asked(err))
		}
	}
}

// A request for which a person waits is sent again while the API server has too much to do for a moment, and
// once where it asks for a minute.
func TestRequestsOfPeopleAreSentAgain(t *testing.T) {
	for after, want := range map[string]int32{"1": 2, "60": 1} {
		var sent atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if sent.Add(1) > 1 {
				_, _ = w.Write([]byte(`{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1"}`))
				return
			}
			w.Header().Set("Retry-After", after)
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		e, err := New(&rest.Config{Host: server.URL}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.clients.Kube.RbacV1().Roles("team").Get(inflight.Patient(t.Context()), "a", metav1.GetOptions{})
		server.Close()
		if sent.Load() != want || (err == nil) != (want > 1) {
			t.Errorf("after %s s: %d requests, %v", after, sent.Load(), err)
		}
	}
}
