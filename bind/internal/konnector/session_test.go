// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// revocable serves what a heartbeat asks for until the token is revoked, and counts how often the
// heartbeat has asked.
func revocable(t *testing.T) (place *kubeconfig.Kubeconfig, revoked *atomic.Bool, beats *atomic.Int64) {
	t.Helper()
	revoked, beats = &atomic.Bool{}, &atomic.Int64{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		code := http.StatusNotFound
		switch path := r.URL.Path; {
		case revoked.Load():
			answer, code = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonUnauthorized, Code: http.StatusUnauthorized}, http.StatusUnauthorized
		case path == "/api/v1/namespaces/tenant":
			answer, code = map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "tenant", "uid": "u"}}, http.StatusOK
		case strings.HasSuffix(path, "/clusterbindings/cluster"), strings.HasSuffix(path, "/clusterbindings/cluster/status"):
			if r.Method == http.MethodGet {
				beats.Add(1)
			}
			answer, code = map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ClusterBinding", "metadata": map[string]any{"name": "cluster", "namespace": "tenant"},
				"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"name": "kubeconfig"}}, "status": map[string]any{"clusterUID": "app"},
			}, http.StatusOK
		}
		w.WriteHeader(code)
		data, err := json.Marshal(answer)
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &kubeconfig.Kubeconfig{Server: server.URL, CAData: ca, Namespace: "tenant", Token: "t"}, revoked, beats
}

// The first answer to any request that the credential is not valid says so at once: the heartbeat's
// own request, with nothing wrong, is not due for a quarter of a minute.
func TestFirstUnauthorized(t *testing.T) {
	list := func(client dynamic.Interface) error {
		_, err := client.Resource(cluster.APIServiceExports).Namespace("tenant").List(t.Context(), metav1.ListOptions{})
		return err
	}
	for name, ask := range map[string]func(*session) error{
		"a call":  func(s *session) error { return list(s.Calls) },
		"a watch": func(s *session) error { return list(s.Watches) },
		"metadata": func(s *session) error {
			_, err := s.Meta.Resource(cluster.Secrets).Namespace("tenant").List(t.Context(), metav1.ListOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			place, revoked, beats := revocable(t)
			s := &session{place: *place, shared: &shared{
				app:  &appCluster{uid: "app", bindings: cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, nil)},
				opts: Options{HeartbeatInterval: 5 * time.Minute, Version: "v1.0.0"},
			}}
			config, token, err := place.Rotating()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.connect(config); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			secret := &kubeconfigSecret{informer: cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, nil)}
			s.heartbeat = newHeartbeat(s.shared, secret, s.place, token, s.Calls)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.heartbeat.queue.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			s.heartbeat.lookNow()
			until(t, func() bool { return s.heartbeat.isWell() })
			before := beats.Load()
			revoked.Store(true)
			_ = ask(s) // it is refused
			began := time.Now()
			until(t, func() bool { return s.heartbeat.snapshot().connected().Reason == v1alpha1.ReasonTokenRevoked })
			if took := time.Since(began); took > probeEvery/2 || beats.Load() != before {
				t.Errorf("told after %s, and %d answers of before", took, beats.Load()-before)
			}
		})
	}
}

// until waits until a condition is true.
func until(t *testing.T, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > probeEvery {
			t.Fatal("it does not become so")
		}
	}
}

// A service namespace holds the objects of an API also where its provider has changed clusterScopedIsolation of late,
// which the App Cluster has not consented to. Of an API that has no objects in namespaces none are looked for in vain.
func TestHoldsAlsoAfterAnotherIsolation(t *testing.T) {
	for name, test := range map[string]struct {
		wide bool // there
		want string
	}{"namespaced there": {want: "widgets.example.org order"}, "cluster-scoped there": {wide: true}} {
		t.Run(name, func(t *testing.T) {
			w := claimWorldOf(t, test.wide)
			w.controlPlane.Serve(fakecluster.Resource{GroupVersionResource: cluster.APIServiceExports, Kind: "APIServiceExport"})
			w.export.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceExport"}
			w.export.Name, w.export.Spec.Scope, w.export.Spec.ClusterScopedIsolation = "widgets.example.org", v1alpha1.ClusterScope, v1alpha1.IsolationPrefixed
			order := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "metadata": map[string]any{"name": "order"}}}
			namespace := "service"
			if test.wide {
				namespace = ""
			}
			_, err := w.controlPlane.Client().Resource(w.widgetsResource()).Namespace(namespace).Create(t.Context(), order, metav1.CreateOptions{})
			if err == nil {
				_, err = w.controlPlane.Client().Resource(cluster.APIServiceExports).Namespace("tenant").Create(t.Context(), cluster.Manifest(w.export), metav1.CreateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := w.session.holds(t.Context(), "service"); got != test.want || err != nil {
				t.Errorf("holds %q, %v, want %q", got, err, test.want)
			}
		})
	}
}
