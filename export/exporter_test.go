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
