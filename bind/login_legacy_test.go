// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// The login of backends without a token endpoint takes the answer in either
// alphabet, and nothing else ends it.
func TestLoginThroughBrowser(t *testing.T) {
	for _, encoding := range map[string]*base64.Encoding{"std": base64.StdEncoding, "url": base64.URLEncoding, "raw": base64.RawURLEncoding} {
		b := newFakeBackend(t)
		c := mustClient(t, b.URL)
		r, err := c.Login(t.Context(), withoutTokenEndpoint(b.URL), LoginOptions{ClusterID: "abc123", Open: func(target string) error {
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

// withoutTokenEndpoint is what a backend says of itself that knows the legacy login alone.
func withoutTokenEndpoint(backend string) *v1alpha1.BindingProvider {
	return &v1alpha1.BindingProvider{AuthenticationMethods: []v1alpha1.AuthenticationMethod{{
		Method: v1alpha1.MethodOAuth2CodeGrant, OAuth2CodeGrant: &v1alpha1.OAuth2CodeGrant{AuthenticatedURL: backend + "/authorize"},
	}}}
}
