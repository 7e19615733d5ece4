// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ExampleClient shows a program that binds on its own terms.
func ExampleClient() {
	client, err := NewClient("https://klutch.example.com/export", ClientOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	login := func(ctx context.Context) (*v1alpha1.BindingResponse, error) {
		backend, err := client.Discover(ctx)
		if err != nil {
			return nil, err
		}
		return client.Login(ctx, backend, LoginOptions{
			Services: []string{"postgresqlinstances.anynines.com"},
			Prompt:   func(url, code string) { fmt.Println("visit", url, "and compare", code) },
		})
	}
	_ = login // blocks until the person is done
	// Output:
}

// A fakeBackend is a backend without an issuer: every visitor is logged in.
type fakeBackend struct {
	*httptest.Server
	token func(w http.ResponseWriter, form url.Values, state string) // nil answers well
	asked url.Values                                                 // of the last authorize request
}

func newFakeBackend(t *testing.T) *fakeBackend {
	t.Helper()
	b := &fakeBackend{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, b.document()) })
	mux.HandleFunc("GET /authorize", b.authorize)
	mux.HandleFunc("POST /token", b.redeem)
	b.Server = httptest.NewServer(mux)
	t.Cleanup(b.Close)
	return b
}

func (b *fakeBackend) document() map[string]any {
	return map[string]any{
		"apiVersion": "v1alpha1", "kind": "BindingProvider", "version": "v1.0.0", "providerPrettyName": "Fake",
		"authenticationMethods": []any{map[string]any{"method": "OAuth2CodeGrant", "oauth2CodeGrant": map[string]any{
			"authenticatedURL": b.URL + "/authorize", "tokenURL": b.URL + "/token", "issuer": b.URL,
		}}},
	}
}

func (b *fakeBackend) authorize(w http.ResponseWriter, r *http.Request) {
	b.asked = r.URL.Query()
	answer := url.Values{"code": {"one-time"}, "state": {b.asked.Get("state")}, "iss": {b.URL}}
	http.Redirect(w, r, b.asked.Get("redirect_uri")+"?"+answer.Encode(), http.StatusSeeOther)
}

func (b *fakeBackend) redeem(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	state := b.asked.Get("state")
	switch {
	case b.token != nil:
		b.token(w, r.PostForm, state)
	case r.PostForm.Get("code") != "one-time" || oauth2.S256ChallengeFromVerifier(r.PostForm.Get("code_verifier")) != b.asked.Get("code_challenge"):
		w.WriteHeader(http.StatusBadRequest)
		writeJSON(w, map[string]any{"error": "invalid_grant", "error_description": "no such code"})
	default:
		writeJSON(w, bindingResponse(state))
	}
}

func bindingResponse(session string) map[string]any {
	return map[string]any{
		"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "BindingResponse",
		"authentication": map[string]any{"oauth2CodeGrant": map[string]any{"sid": session, "id": "https://issuer/ada"}},
		"kubeconfig":     []byte("the kubeconfig"),
		"requests": []any{map[string]any{
			"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "APIServiceExportRequest", "metadata": map[string]any{"name": "things.example.com"},
			"spec": map[string]any{"resources": []any{map[string]any{"group": "example.com", "resource": "things"}}}, "status": map[string]any{},
		}},
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func mustClient(t *testing.T, backend string) *Client {
	t.Helper()
	c, err := NewClient(backend, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDiscover(t *testing.T) {
	body := func(contentType, body string, code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	document := func(change func(doc, grant map[string]any)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			b := &fakeBackend{Server: &httptest.Server{URL: "http://" + r.Host}}
			d := b.document()
			m := d["authenticationMethods"].([]any)[0].(map[string]any)
			change(d, m["oauth2CodeGrant"].(map[string]any))
			writeJSON(w, d)
		}
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		want    string // "" is success
	}{
		{"good", document(func(_, _ map[string]any) {}), ""},
		{"without a token endpoint", document(func(_, g map[string]any) { delete(g, "tokenURL") }), ""},
		{"a web page", body("text/html; charset=utf-8", "<!doctype html>", 200), "answers with a web page: not a Klutch backend"},
		{"404", body("text/plain", "no", 404), "answers 404 Not Found (text/plain): not a Klutch backend"},
		{"other JSON", body("application/json", `{"kind":"Status","apiVersion":"v1"}`, 200), `kind "Status", apiVersion "v1": not a Klutch backend`},
		{"group in the version", document(func(d, _ map[string]any) { d["apiVersion"] = "klutch.anynines.com/v1alpha1" }), "not a Klutch backend"},
		{"no login", document(func(d, _ map[string]any) { d["authenticationMethods"] = []any{} }), "offers no login"},
		{"another login", document(func(d, _ map[string]any) {
			d["authenticationMethods"].([]any)[0].(map[string]any)["method"] = "Telepathy"
		}), "offers no login"},
		{"login elsewhere", document(func(_, g map[string]any) { g["authenticatedURL"] = "https://evil.example/authorize" }), "to another place"},
		{"login with a program", document(func(_, g map[string]any) { g["authenticatedURL"] = "javascript:alert(1)" }), "to another place"},
		{"token elsewhere", document(func(_, g map[string]any) { g["tokenURL"] = "https://evil.example/token" }), "to another place"},
		{"device elsewhere", document(func(_, g map[string]any) { g["deviceURL"] = "https://evil.example/device" }), "to another place"},
		{"other user info", document(func(_, g map[string]any) {
			g["tokenURL"] = strings.Replace(g["tokenURL"].(string), "http://", "http://a@", 1)
		}), "to another place"},
		{"P8 huge", func(w http.ResponseWriter, _ *http.Request) {
			for range 1100 {
				_, _ = io.WriteString(w, strings.Repeat(" ", 1<<10))
			}
		}, "larger than 1 MB"},
		{"P8 huge headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 32<<10)) }, "headers exceeded"},
		{"P8 redirects without end", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/export", http.StatusFound) }, "too many redirects"},
		{"P8 another host", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.2:1/export?token=canary", http.StatusFound)
		}, "another origin"},
		{"P8 never answers", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(c.handler)
			defer server.Close()
			client := mustClient(t, server.URL+"/export")
			if strings.Contains(c.name, "never") {
				client.http.Timeout = 50 * time.Millisecond
			}
			_, err := client.Discover(t.Context())
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error = %v, want %q", err, c.want)
			case err != nil && strings.Contains(err.Error(), "canary"):
				t.Errorf("error repeats a query: %v", err)
			}
		})
	}
}

func TestP8RedirectsOnTheSameOrigin(t *testing.T) {
	b := newFakeBackend(t)
	export := b.Config.Handler
	hops := 0
	b.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hops++; hops <= 3 {
			http.Redirect(w, r, fmt.Sprintf("/hop/%d", hops), http.StatusFound)
			return
		}
		r.URL.Path = "/export"
		export.ServeHTTP(w, r)
	})
	if _, err := mustClient(t, b.URL).Discover(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestP23PlainHTTP(t *testing.T) {
	for _, backend := range []string{"http://klutch.example.com/export", "http://127.0.0.1.evil.example/export", "http://0.0.0.0:1/export"} {
		if _, err := NewClient(backend, ClientOptions{}); !errors.Is(err, ErrScheme) || !strings.Contains(err.Error(), "must be https") {
			t.Errorf("%s: error = %v", backend, err)
		}
	}
	for _, backend := range []string{"", "ftp://a/export", "klutch.example.com", "https://"} {
		if _, err := NewClient(backend, ClientOptions{}); err == nil {
			t.Errorf("NewClient(%q) took it", backend)
		}
	}
}

func TestP23Certificates(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	b := &fakeBackend{Server: server}
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, b.document()) })
	if _, err := mustClient(t, server.URL).Discover(t.Context()); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("unknown authority: error = %v", err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client, err := NewClient(server.URL, ClientOptions{CAData: ca})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discover(t.Context()); err != nil {
		t.Errorf("with its authority: %v", err)
	}
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	wrong, err := NewClient("https://localhost:"+port, ClientOptions{CAData: ca})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.Discover(t.Context()); err == nil || !strings.Contains(err.Error(), "not localhost") {
		t.Errorf("wrong name: error = %v", err)
	}
	if _, err := NewClient(server.URL, ClientOptions{CAData: []byte("nonsense")}); err == nil {
		t.Error("took nonsense for a certificate authority")
	}
}
