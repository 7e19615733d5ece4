// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

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
	config := &rest.Config{Host: server.URL, BearerToken: "secret"}
	c, err := NewClients(config)
	if err != nil {
		t.Fatal(err)
	}
	if config.WrapTransport != nil {
		t.Error("the caller's config was changed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a"}}}
	for name, ask := range map[string]func() error{
		"update": func() error {
			_, err := c.Calls.Resource(Secrets).Namespace("team").Update(ctx, secret, metav1.UpdateOptions{})
			return err
		},
		"list": func() error {
			_, err := c.Watches.Resource(Secrets).List(ctx, metav1.ListOptions{})
			return err
		},
		"watch": func() error {
			_, err := c.Watches.Resource(Secrets).Watch(ctx, metav1.ListOptions{})
			return err
		},
		"watch from a version": func() error {
			_, err := c.Watches.Resource(Secrets).Watch(ctx, metav1.ListOptions{ResourceVersion: "7"})
			return err
		},
		"metadata": func() error {
			_, err := c.Meta.Resource(Secrets).List(ctx, metav1.ListOptions{})
			return err
		},
	} {
		sent.Store(0)
		if err := ask(); sent.Load() != 1 || !fates.Is(err, fates.Overloaded) || fates.Asked(err) != time.Minute || token.Load() != "Bearer secret" {
			t.Errorf("%s: %d requests, the last one with %q, %v, which asks for a pause of %v", name, sent.Load(), token.Load(), err, fates.Asked(err))
		}
	}
}

// Close ends the connections that are not in use, whatever is wrapped around them.
func TestCloseEndsConnections(t *testing.T) {
	closed := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`))
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.StartTLS()
	defer server.Close()
	c, err := NewClients(&rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Calls.Resource(Secrets).Namespace("team").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the connection is still open")
	}
}
