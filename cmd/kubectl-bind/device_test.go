// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// deviceMemory is a store for one replica.
type deviceMemory struct{ values sync.Map }

func (m *deviceMemory) Create(_ context.Context, key string, value []byte, _ time.Time) error {
	if _, taken := m.values.LoadOrStore(key, value); taken {
		return auth.ErrDeviceTaken
	}
	return nil
}

func (m *deviceMemory) Get(_ context.Context, key string) ([]byte, error) {
	value, ok := m.values.Load(key)
	if !ok {
		return nil, auth.ErrDevicePending
	}
	return value.([]byte), nil
}

// guarded offers one service that no person may bind.
type guarded struct{}

func (guarded) Services(context.Context) ([]export.Service, error) {
	return []export.Service{{
		Template: cache.NewObjectName("", "things"), Resource: schema.GroupResource{Group: "example.com", Resource: "things"},
		Kind: "Thing", Scope: v1alpha1.NamespacedScope, Version: "v1", Versions: []string{"v1"}, Title: "Things",
	}}, nil
}

func (guarded) Authorize(context.Context, *auth.Identity, export.Service) error {
	return fmt.Errorf("%w: not for you", export.ErrForbidden)
}

// A deviceBackend is a real handler that has no cluster, in front of which programs
// are told to poll faster.
type deviceBackend struct {
	*httptest.Server
	codes  chan string   // user codes
	polled chan struct{} // tells the test of a poll
}

func newDeviceBackend(t *testing.T, devices auth.DeviceStore) *deviceBackend {
	t.Helper()
	issuer := testissuer.Start(t, testissuer.Options{Users: map[string]testissuer.User{"ada": {Password: "engine"}}})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + listener.Addr().String()
	provider, err := auth.New(auth.Config{Issuer: issuer.URL(), ClientID: "klutch", RedirectURL: base + "/callback"})
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := auth.NewSealer(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		t.Fatal(err)
	}
	exporter, err := export.New(&rest.Config{Host: "https://127.0.0.1:1"}, export.Options{
		Name: "Real Services", ExternalURL: base, Sealer: sealer, Provider: provider, Catalog: guarded{}, Authorizer: guarded{},
		Handshake: export.Handshake{Devices: devices},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &deviceBackend{codes: make(chan string, 1), polled: make(chan struct{})}
	b.Server = httptest.NewUnstartedServer(b.hurry(exporter.Handler()))
	_ = b.Listener.Close()
	b.Listener = listener
	b.Start()
	t.Cleanup(b.Close)
	return b
}

func (b *deviceBackend) hurry(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "POST /device":
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			var begun map[string]any
			_ = json.Unmarshal(answer.Body.Bytes(), &begun)
			begun["interval"] = 1
			reply(w, begun)
			b.codes <- begun["user_code"].(string)
		case "POST /token":
			next.ServeHTTP(w, r)
			select {
			case b.polled <- struct{}{}:
			default:
			}
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// RoundTrip is that of a browser which looks again when the terminal has polled.
func (b *deviceBackend) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && r.URL.Path == "/device" && r.URL.RawQuery == "" && r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		select {
		case <-b.polled:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

// person types the code, signs in, confirms the code, and goes where that leads.
func (b *deviceBackend) person(ctx context.Context, code string) (*testissuer.Page, error) {
	browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Password: "engine", Transport: b})
	page, err := browser.Get(ctx, b.URL+"/device")
	if err != nil {
		return nil, err
	}
	page.Forms[0].Fields.Set("user_code", strings.ToLower(code))
	page, err = browser.Submit(ctx, page.Forms[0])
	if err != nil || !strings.Contains(page.Body, `href="/authorize?user_code=`+code) {
		return nil, fmt.Errorf("no way to sign in: %w", errors.Join(err, errors.New(page.Body)))
	}
	return browser.Visit(ctx, b.URL+"/authorize?"+url.Values{"user_code": {code}}.Encode())
}

var regexpUserCode = regexp.MustCompile(`[A-Z]{5}-[A-Z]{5}`)

func loginOnDevice(t *testing.T, m terminal, backend string, args ...string) result {
	t.Helper()
	app := newFakeAPI(t, map[string]any{"/api/v1/namespaces/klutch-bind": map[string]any{
		"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "klutch-bind", "uid": "u"},
	}})
	r := m.run(t.Context(), append([]string{backend, "--kubeconfig", app.kubeconfig(t), "--skip-konnector"}, args...)...)
	if w := app.writes(); len(w) > 0 {
		t.Errorf("wrote %v", w)
	}
	u, _ := url.Parse(backend)
	r.errOut = regexp.MustCompile(`http://\S*/authorize\?\S+`).ReplaceAllString(r.errOut, "LOGIN-URL")
	r.errOut = regexpCode.ReplaceAllString(regexpUserCode.ReplaceAllString(r.errOut, "CODE"), "CODE")
	return r.replaced(u.Host, "HOST")
}

// The whole way there and back with a real backend: what it tells the person, it
// tells the terminal.
func TestLoginOnAnotherDevice(t *testing.T) {
	b := newDeviceBackend(t, &deviceMemory{})
	var person sync.WaitGroup
	person.Go(func() {
		page, err := b.person(t.Context(), <-b.codes)
		if err != nil || page.URL.Path != "/done" {
			t.Errorf("the person ends at %+v, %v", page, err)
		}
	})
	r := loginOnDevice(t, terminal{}, b.URL, "--device", "--service", "things.example.com", "--timeout", "5m")
	person.Wait()
	golden(t, "login-device-denied.txt", r.String())
}

func TestDeviceHints(t *testing.T) {
	for _, c := range []struct {
		name  string
		store auth.DeviceStore
		until string
		args  []string
	}{
		{"unknown", nil, "", []string{"--device"}},
		{"abandoned", &deviceMemory{}, "Waiting for you to finish there", []string{"--device"}},
		{"instead", &deviceMemory{}, "No browser can be opened here", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			golden(t, "login-device-"+c.name+".txt", loginOnDevice(t, terminal{until: c.until}, newDeviceBackend(t, c.store).URL, c.args...).String())
		})
	}
}
