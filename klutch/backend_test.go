// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export"
)

// P29: all replicas get the same keys, also when they start at once; a key that is
// added seals, and the old one still opens.
func TestP29SessionKeys(t *testing.T) {
	client := fake.NewClientset()
	sessionKeys := func() ([][]byte, error) {
		secret, err := sessionSecretOf(t.Context(), client, "klutch-backend")
		if err != nil {
			return nil, err
		}
		return sealingOrder(secret.Data, time.Now()), nil
	}
	got := make([][][]byte, 10)
	var replicas sync.WaitGroup
	for i := range got {
		replicas.Go(func() {
			keys, err := sessionKeys()
			if err != nil {
				t.Error(err)
			}
			got[i] = keys
		})
	}
	replicas.Wait()
	for _, keys := range got {
		if len(keys) != 1 || len(keys[0]) != sessionKeySize || cmp.Diff(got[0], keys) != "" {
			t.Errorf("keys: %d", len(keys))
		}
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: sessionSecret, Namespace: "klutch-backend"},
		Data:       map[string][]byte{"1": got[0][0], "2": []byte("newer")},
	}
	if _, err := client.CoreV1().Secrets("klutch-backend").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	keys, err := sessionKeys()
	if diff := cmp.Diff([][]byte{[]byte("newer"), got[0][0]}, keys); diff != "" || err != nil {
		t.Errorf("%s %v", diff, err)
	}
}

func TestP23PlainHTTP(t *testing.T) {
	for _, test := range []struct {
		backend Backend
		ok      bool
	}{
		{Backend{ListenAddress: "127.0.0.1:0"}, true},
		{Backend{ListenAddress: "[::1]:0"}, true},
		{Backend{ListenAddress: "localhost:0"}, true},
		{Backend{ListenAddress: ":8080"}, false},
		{Backend{ListenAddress: "0.0.0.0:8080"}, false},
		{Backend{ListenAddress: "10.0.0.1:8080"}, false},
		{Backend{ListenAddress: ":8080", PlainHTTP: true}, true},
		{Backend{ListenAddress: ":8080", TLSCertFile: "/nowhere", TLSKeyFile: "/nowhere"}, false},
	} {
		if _, err := test.backend.tls(); (err == nil) != test.ok {
			t.Errorf("%+v: %v", test.backend, err)
		}
	}
}

func TestBackendEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := Backend{
		Config:        &rest.Config{Host: "https://127.0.0.1:1"},
		Login:         auth.Config{Issuer: "https://login.example.com", ClientID: "klutch"},
		Options:       export.Options{ExternalURL: "https://bind.example.com"},
		SessionKeys:   [][]byte{make([]byte, sessionKeySize)},
		ListenAddress: "127.0.0.1:0", HealthAddress: "127.0.0.1:0",
	}
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.ListenAddress = "256.0.0.1:0"
	if err := b.Run(t.Context()); err == nil {
		t.Error("runs without a place to listen at")
	}
}

// The metrics of a backend inside another program stand where Prometheus looks for them, and
// the hooks of that program go on to be called.
func TestBackendMeasured(t *testing.T) {
	var heard []string
	b := Backend{
		Observe:    func(*export.Exporter) { heard = append(heard, "exporter") },
		IssuerSeen: func(name string, _ bool) { heard = append(heard, name) },
		Options: export.Options{Version: "v7", Handshake: export.Handshake{Hooks: export.Hooks{
			Login:   func(export.LoginResult) { heard = append(heard, "login") },
			Request: func(route string, _ int, _ time.Duration) { heard = append(heard, route) },
		}}},
	}.Measured()
	b.Observe(&export.Exporter{})
	b.IssuerSeen("partners", false)
	b.Options.Handshake.Hooks.Login(export.LoginRefused)
	b.Options.Handshake.Hooks.Request("/token", http.StatusOK, time.Millisecond)
	if diff := cmp.Diff([]string{"exporter", "partners", "login", "/token"}, heard); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
	page := httptest.NewRecorder()
	health(b.Metrics, nil).ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, counted := range []string{`klutch_build_info{commit="",version="v7"} 1`, `klutch_issuer_up{issuer="partners"} 0`, `klutch_logins_total{result="refused"} 1`, `klutch_http_request_duration_seconds_count{code="200",route="/token"} 1`} {
		if !strings.Contains(page.Body.String(), counted) {
			t.Errorf("no %s in\n%s", counted, page.Body)
		}
	}
}
