// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
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

// A fakeBackend is a backend without an issuer: whoever comes is logged in.
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

// visit is a browser that follows where it is sent.
func visit(t *testing.T) func(string) error {
	t.Helper()
	return func(target string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
}

func mustClient(t *testing.T, backend string) *Client {
	t.Helper()
	c, err := NewClient(backend, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLogin(t *testing.T) {
	b := newFakeBackend(t)
	c := mustClient(t, b.URL)
	p, err := c.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var shown, code string
	r, err := c.Login(t.Context(), p, LoginOptions{
		ClusterID: "abc123", Services: []string{"things.example.com", "others.example.com"}, Open: visit(t),
		Prompt: func(u, c string) { shown, code = u, c },
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Kubeconfig) != "the kubeconfig" || len(r.Requests) != 1 {
		t.Errorf("response = %+v", r)
	}
	want := url.Values{"c": {"abc123"}, "service": {"things.example.com", "others.example.com"}, "client_id": {"kubectl-bind"}, "response_type": {"code"}, "code_challenge_method": {"S256"}}
	got := maps.Clone(b.asked)
	for k := range got {
		if want[k] == nil {
			delete(got, k)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("authorize query (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(shown, b.URL+"/authorize?") || code != auth.DisplayCode(b.asked.Get("code_challenge")) {
		t.Errorf("prompt showed %q with code %q", shown, code)
	}
}

func TestLoginRefused(t *testing.T) {
	b := newFakeBackend(t)
	c := mustClient(t, b.URL)
	p, err := c.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Login(t.Context(), p, LoginOptions{Open: func(target string) error {
		u, _ := url.Parse(target)
		answer := url.Values{"error": {"access_denied"}, "error_description": {"not you"}, "state": {u.Query().Get("state")}, "iss": {b.URL}}
		return visit(t)(u.Query().Get("redirect_uri") + "?" + answer.Encode())
	}})
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Code != "access_denied" || e.Description != "not you" {
		t.Errorf("error = %v", err)
	}
}

func TestLoginAbandoned(t *testing.T) {
	b := newFakeBackend(t)
	c := mustClient(t, b.URL)
	p, err := c.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Login(ctx, p, LoginOptions{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "wait for the browser") {
		t.Errorf("error = %v", err)
	}
}

func TestRedeem(t *testing.T) {
	reply := func(change func(map[string]any)) func(http.ResponseWriter, url.Values, string) {
		return func(w http.ResponseWriter, _ url.Values, state string) {
			r := bindingResponse(state)
			change(r)
			writeJSON(w, r)
		}
	}
	for _, c := range []struct {
		name  string
		token func(http.ResponseWriter, url.Values, string)
		want  string
	}{
		{"another login's answer", func(w http.ResponseWriter, _ url.Values, _ string) { writeJSON(w, bindingResponse("other")) }, "belongs to another login"},
		{"no login in the answer", reply(func(r map[string]any) { delete(r, "authentication") }), "belongs to another login"},
		{"another kind", reply(func(r map[string]any) { r["kind"] = "Secret" }), "no BindingResponse"},
		{"another version", reply(func(r map[string]any) { r["apiVersion"] = "v1alpha1" }), "no BindingResponse"},
		{"no kubeconfig", reply(func(r map[string]any) { delete(r, "kubeconfig") }), "no kubeconfig"},
		{"not JSON", func(w http.ResponseWriter, _ url.Values, _ string) { _, _ = io.WriteString(w, "<html>\x1b[2J") }, "answer of the backend refused"},
		{"invalid grant", func(w http.ResponseWriter, _ url.Values, _ string) {
			w.WriteHeader(http.StatusBadRequest)
			writeJSON(w, map[string]any{"error": "invalid_grant", "error_description": "used\x1b[2J"})
		}, "invalid_grant: used?[2J"},
		{"server error", func(w http.ResponseWriter, _ url.Values, _ string) {
			http.Error(w, "oops", http.StatusInternalServerError)
		}, "500 Internal Server Error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newFakeBackend(t)
			b.token = c.token
			client := mustClient(t, b.URL)
			p, err := client.Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Login(t.Context(), p, LoginOptions{Open: visit(t)}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want %q", err, c.want)
			}
		})
	}
}

// A token endpoint that redirects would have the code sent elsewhere.
func TestP8RedeemFollowsNothing(t *testing.T) {
	b := newFakeBackend(t)
	var followed atomic.Bool
	b.token = func(w http.ResponseWriter, form url.Values, _ string) {
		followed.Store(followed.Load() || form.Get("again") != "")
		w.Header().Set("Location", "/token?again=1")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	client := mustClient(t, b.URL)
	p, err := client.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Redeem(t.Context(), p, auth.Grant{Code: "c", Verifier: "v", State: "s"}); !errors.Is(err, ErrResponse) || followed.Load() {
		t.Errorf("error = %v, followed %v", err, followed.Load())
	}
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
		if _, err := mustClient(t, backend).Discover(t.Context()); err == nil || !strings.Contains(err.Error(), "must be https") {
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

// The login of backends without a token endpoint takes the answer in either
// alphabet, and nothing else ends it.
func TestLoginThroughBrowser(t *testing.T) {
	for _, encoding := range map[string]*base64.Encoding{"std": base64.StdEncoding, "url": base64.URLEncoding, "raw": base64.RawURLEncoding} {
		b := newFakeBackend(t)
		c := mustClient(t, b.URL)
		p := &v1alpha1.BindingProvider{AuthenticationMethods: []v1alpha1.AuthenticationMethod{{
			Method: v1alpha1.MethodOAuth2CodeGrant, OAuth2CodeGrant: &v1alpha1.OAuth2CodeGrant{AuthenticatedURL: b.URL + "/authorize"},
		}}}
		r, err := c.Login(t.Context(), p, LoginOptions{ClusterID: "abc123", Open: func(target string) error {
			u, _ := url.Parse(target)
			q := u.Query()
			if q.Get("c") != "abc123" || q.Get("s") == "" {
				t.Errorf("query = %v", q)
			}
			callback := "http://127.0.0.1:" + q.Get("p") + "/callback"
			nuisance(t, callback, encoding)
			answer, _ := json.Marshal(bindingResponse(q.Get("s")))
			return visit(t)(callback + "?response=" + url.QueryEscape(encoding.EncodeToString(answer)))
		}})
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Kubeconfig) != "the kubeconfig" {
			t.Errorf("response = %+v", r)
		}
	}
}

func nuisance(t *testing.T, callback string, encoding *base64.Encoding) {
	t.Helper()
	other, _ := json.Marshal(bindingResponse("guessed"))
	for _, c := range []struct {
		method, url, host string
		want              int
	}{
		{http.MethodGet, callback, "", http.StatusBadRequest},
		{http.MethodGet, callback + "?response=%00", "", http.StatusBadRequest},
		{http.MethodGet, callback + "?response=" + url.QueryEscape(encoding.EncodeToString(other)), "", http.StatusBadRequest},
		{http.MethodPost, callback, "", http.StatusMethodNotAllowed},
		{http.MethodGet, callback, "evil.example", http.StatusForbidden},
		{http.MethodGet, strings.TrimSuffix(callback, "/callback") + "/other", "", http.StatusNotFound},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), c.method, c.url, http.NoBody)
		req.Host = c.host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s %s as %q = %d, want %d", c.method, c.url, c.host, resp.StatusCode, c.want)
		}
	}
}

// The identifier is that of other programs for the same namespace.
func TestClusterID(t *testing.T) {
	a, b := clusterID("0f3ab1c2-0000-4000-8000-000000000001"), clusterID("0f3ab1c2-0000-4000-8000-000000000002")
	if len(a) != 6 || a == b || a != clusterID("0f3ab1c2-0000-4000-8000-000000000001") {
		t.Errorf("clusterID = %q and %q", a, b)
	}
}
