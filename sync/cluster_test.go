// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	gosync "sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// A webhook that denies one object with Retry-After costs a request an ask, whatever client-go would
// make of it, and keeps no other object of the cluster waiting.
func TestEachRequestIsSentOnce(t *testing.T) {
	var sent atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/other") {
			_, _ = w.Write([]byte(`{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"other"}}`))
			return
		}
		sent.Add(1)
		denial := apierrors.NewTooManyRequests(`admission webhook "slow.example.org" denied the request: not now`, 30).ErrStatus
		denial.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(int(denial.Code))
		_ = json.NewEncoder(w).Encode(denial)
	}))
	defer server.Close()
	c, err := NewCluster(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, ask := range map[string]func() error{
		"apply": func() error {
			_, err := c.writes.Resource(widgets).Namespace("team").Apply(ctx, "a", object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a"}}`), metav1.ApplyOptions{FieldManager: "test"})
			return err
		},
		"delete": func() error {
			return c.writes.Resource(widgets).Namespace("team").Delete(ctx, "a", metav1.DeleteOptions{})
		},
		"read": func() error {
			_, err := c.writes.Resource(widgets).Namespace("team").Get(ctx, "a", metav1.GetOptions{})
			return err
		},
		"list": func() error {
			_, err := c.reads.Resource(widgets).List(ctx, metav1.ListOptions{})
			return err
		},
		"metadata": func() error {
			_, err := c.meta.Resource(secrets).List(ctx, metav1.ListOptions{})
			return err
		},
	} {
		sent.Store(0)
		if err := ask(); sent.Load() != 1 || !fates.Is(err, fates.Overloaded) || fates.Asked(err) != 30*time.Second {
			t.Errorf("%s: %d requests, %v, which asks for a pause of %v", name, sent.Load(), err, fates.Asked(err))
		}
		if _, err := c.writes.Resource(widgets).Namespace("team").Get(ctx, "other", metav1.GetOptions{}); err != nil {
			t.Errorf("another object, after %s: %v", name, err)
		}
	}
}

// I13: the requests that one cluster leaves without an answer, however many, take no place from those to
// another one.
func TestI13LimitOfEachCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const most = 100
	arrived := make(chan struct{}, most)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-ctx.Done():
		}
	}))
	defer silent.Close()
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a"}}`))
	}))
	defer well.Close()
	read := func(c *Cluster) error {
		_, err := c.reader(widgets)(ctx, cache.NewObjectName("team", "a"))
		return err
	}
	var both [2]*Cluster
	for i, host := range []string{silent.URL, well.URL} {
		var err error
		if both[i], err = NewCluster(&rest.Config{Host: host}); err != nil {
			t.Fatal(err)
		}
	}
	var wg gosync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range most {
		wg.Go(func() { _ = read(both[0]) })
	}
	<-arrived
	for range most {
		if err := read(both[1]); err != nil {
			t.Fatalf("the cluster that answers: %v", err)
		}
	}
}

func TestIdentity(t *testing.T) {
	fake := fakecluster.New()
	c, err := NewClusterForClients(fake.Client(), nil)
	if err != nil {
		t.Fatal(err)
	}
	spaces := fake.Client().Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	for _, tc := range []struct {
		of        *Cluster
		namespace string
	}{{c, metav1.NamespaceSystem}, {c.IdentifiedBy("default"), "default"}, {c, metav1.NamespaceSystem}} {
		want, err := spaces.Get(t.Context(), tc.namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := tc.of.uid(t.Context(), func(error) {})
		if err != nil || got == "" || got != want.GetUID() {
			t.Errorf("identity is %q, %v, want that of %s, %s", got, err, tc.namespace, want.GetUID())
		}
		if again, err := tc.of.readUID(t.Context()); err != nil || again != got {
			t.Errorf("identity is %q, %v at the second look, %q at the first", again, err, got)
		}
	}
	if got, err := c.IdentifiedBy("hidden").uid(t.Context(), func(error) {}); err != nil || got != "" {
		t.Errorf("identity by what cannot be read is %q, %v", got, err)
	}
}
