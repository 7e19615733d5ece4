// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

// trusting is a client that knows one certificate.
func trusting(t *testing.T, ca []byte) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate in the PEM")
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

func TestP8SlowOrHugeIssuer(t *testing.T) {
	for _, path := range []string{"/.well-known/openid-configuration", "/keys", "/token"} {
		for name, tt := range map[string]struct {
			faults testissuer.Faults
			ok     bool
		}{
			"large": {faults: testissuer.Faults{Padding: 1 << 19}, ok: true},
			"huge":  {faults: testissuer.Faults{Padding: 1 << 20}},
			"slow":  {faults: testissuer.Faults{Delay: time.Hour}},
			"away":  {faults: testissuer.Faults{Redirect: "http://localhost:1/"}},
			"round": {faults: testissuer.Faults{Redirect: "?again"}},
		} {
			t.Run(name+path, func(t *testing.T) {
				client := &http.Client{}
				if tt.faults.Delay > 0 {
					client.Timeout = 500 * time.Millisecond
				}
				p := newParty(t, testissuer.Options{}, auth.Config{HTTPClient: client})
				tt.faults.Path = path
				p.issuer.Misbehave(tt.faults)
				attempt, loginURL, err := p.provider.Begin(t.Context())
				if err == nil {
					page, visitErr := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Password: "engine"}).Visit(t.Context(), loginURL)
					if visitErr != nil {
						t.Fatal(visitErr)
					}
					_, err = p.provider.Finish(t.Context(), attempt, page.URL.Query())
				}
				if (err == nil) != tt.ok {
					t.Fatalf("login = %v, want success %t", err, tt.ok)
				}
				if err != nil && len(err.Error()) > 500 {
					t.Errorf("the error is as huge as the answer: %d bytes", len(err.Error()))
				}
			})
		}
	}
}

func TestP8Bounded(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/hop3", redirectTo("/hop2"))
	mux.HandleFunc("/hop2", redirectTo("/hop1"))
	mux.HandleFunc("/hop1", redirectTo("/end"))
	mux.HandleFunc("/hop4", redirectTo("/hop3"))
	mux.HandleFunc("/size/ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) })
	mux.HandleFunc("/size/over", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<20+1)) })
	mux.HandleFunc("/end", func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	other := httptest.NewServer(redirectTo(server.URL + "/end"))
	t.Cleanup(other.Close)

	tests := map[string]struct {
		url string
		ok  bool
	}{
		"plain":                    {url: server.URL + "/end", ok: true},
		"three redirects":          {url: server.URL + "/hop3", ok: true},
		"four redirects":           {url: server.URL + "/hop4"},
		"redirect to another port": {url: other.URL},
		"1 MB":                     {url: server.URL + "/size/ok", ok: true},
		"1 MB and a byte":          {url: server.URL + "/size/over"},
		"plain http":               {url: "http://192.0.2.1/"},
		"user information":         {url: strings.Replace(server.URL, "//", "//a:b@", 1)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := get(t, auth.Bounded(nil), tt.url); (err == nil) != tt.ok {
				t.Errorf("GET %s = %v, want success %t", tt.url, err, tt.ok)
			}
		})
	}
}

func TestBoundedKeepsTheClient(t *testing.T) {
	original := &http.Client{Timeout: time.Minute}
	if got := auth.Bounded(original); got == original || got.Timeout != time.Minute || original.Transport != nil {
		t.Errorf("Bounded = %+v of %+v, want a copy with its timeout", got, original)
	}
	if got := auth.Bounded(nil); got.Timeout != 15*time.Second {
		t.Errorf("timeout = %s, want 15s", got.Timeout)
	}
}

func redirectTo(target string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) }
}

func get(t *testing.T, client *http.Client, target string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}
