// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The token goes to the one host that it is for, and may change at any time.
func TestRotatingToken(t *testing.T) {
	var seen []string
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, "elsewhere "+r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		if r.URL.Path == "/away" {
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := &Token{host: u.Host}
	client := &http.Client{Transport: c.wrap(server.Client().Transport)}
	get := func(path string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	for _, token := range []string{"first", "second"} {
		c.value.Store(&token)
		if err := get("/"); err != nil {
			t.Fatal(err)
		}
	}
	if err := get("/away"); !errors.Is(err, errElsewhere) {
		t.Errorf("a redirect: %v, want %v", err, errElsewhere)
	}
	if diff := cmp.Diff([]string{"Bearer first", "Bearer second", "Bearer second"}, seen); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
