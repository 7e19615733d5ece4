// SPDX-License-Identifier: Apache-2.0

package export

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestLegacyCLIIsRefused(t *testing.T) {
	c := openCounter(t)
	resp := c.do(http.MethodGet, "/authorize?p=4000&s=abc123&c=xyz789", "")
	if resp.Status != http.StatusBadRequest || !strings.Contains(resp.Body, "--allow-legacy-cli") || len(resp.Cookies) != 0 {
		t.Errorf("%d %s", resp.Status, resp.Body)
	}
	if resp := c.do(http.MethodGet, "/bind?s=abc123&resource=widgets&group=example.org", ""); resp.Status != http.StatusMethodNotAllowed {
		t.Errorf("link: %d", resp.Status)
	}
}

// P1 for the legacy CLI: localhost is allowed besides, and nothing else.
func TestP1LegacyRedirectTargets(t *testing.T) {
	c := openCounter(t, func(o *Options) { o.Handshake.LegacyCLI = true })
	for query, want := range map[string]int{
		"p=4000":                               303,
		"u=http://localhost:4000/callback":     303,
		"u=http://127.0.0.1:4000/callback":     303,
		"u=http://127.0.0.1:4000/callback&p=1": 303,
		"p=4000@evil.example":                  400,
		"p=4000%2F..%2Fx":                      400,
		"p=":                                   400,
		"p=0":                                  400,
		"u=http://localhost.evil.example:1/callback":      400,
		"u=http://evil.example:1/callback":                400,
		"u=http://localhost:1/other":                      400,
		"u=https://localhost:1/callback":                  400,
		"u=http://localhost:1/callback?x=1":               400,
		"p=4000&s=second":                                 400,
		"p=4000&redirect_uri=http://127.0.0.1:1/callback": 400,
	} {
		if resp := c.do(http.MethodGet, "/authorize?s=abc123&c=xyz789&"+query, ""); resp.Status != want {
			t.Errorf("%s: %d", query, resp.Status)
		}
	}
	for _, query := range []string{"p=1", "p=1&s=a", "p=1&c=a", "p=1&s=a&c=../x"} {
		if resp := c.do(http.MethodGet, "/authorize?"+query, ""); resp.Status != 400 {
			t.Errorf("%s: %d", query, resp.Status)
		}
	}
}

// What a browser test of Klutch clicks on, and who else cannot.
func TestLegacyPage(t *testing.T) {
	c := openCounter(t, func(o *Options) { o.Handshake.LegacyCLI = true })
	b := c.browser("ada", "engine")
	page, err := b.Get(t.Context(), c.url+"/authorize?p=1&s=abc123&c=xyz789")
	if err != nil {
		t.Fatal(err)
	}
	page.Forms[0].Fields.Set("username", "ada")
	page.Forms[0].Fields.Set("password", "engine")
	if page, err = b.Submit(t.Context(), page.Forms[0]); err != nil || page.URL.RequestURI() != "/resources?s=abc123" {
		t.Fatalf("%v %v", page.URL, err)
	}
	const link = "/bind?group=example.org&resource=widgets&s=abc123"
	if want := `<a class="widgets" href="` + strings.ReplaceAll(link, "&", "&amp;") + `"`; !strings.Contains(page.Body, want) {
		t.Errorf("no %s in\n%s", want, page.Body)
	}
	if strings.Contains(page.Body, "gizmos") || strings.Contains(page.Body, "<script") {
		t.Errorf("page:\n%s", page.Body)
	}
	for target, want := range map[string]int{
		strings.Replace(link, "abc123", "abc124", 1):  403,
		strings.Replace(link, "widgets", "gizmos", 1): 403,
		strings.Replace(link, "widgets", "xyz", 1):    404,
		link: 503, // there is no cluster
	} {
		if page, err := b.Get(t.Context(), c.url+target); err != nil || page.Status != want {
			t.Errorf("%s: %+v %v", target, page, err)
		}
	}
	cookie := b.Cookies(c.url)[0]
	for name, header := range map[string][]string{
		"from another site": {"Cookie", cookie.String(), "Sec-Fetch-Site", "cross-site"},
		"not signed in":     {},
	} {
		if resp := c.do(http.MethodGet, link, "", header...); resp.Status != 403 && resp.Status != 401 {
			t.Errorf("%s: %d", name, resp.Status)
		}
	}
	// A session of the safe flow cannot be made to answer in a URL.
	safe := c.browser("ada", "engine")
	c.signIn(safe, "ada", "engine")
	if page, err := safe.Get(t.Context(), c.url+strings.Replace(link, "abc123", "s", 1)); err != nil || page.Status != 403 {
		t.Errorf("safe session: %v %v", page, err)
	}
}

// The decoders of Klutch's CLI and of the URL-safe alphabet read the same.
func TestLegacyPayload(t *testing.T) {
	for _, id := range []string{"plain", "Ünïcödé 漢字 🚀", "????>>>>~~~~\x7f\x7f\x7f\x7f", "a?b~c>d", strings.Repeat("~?>ÿ", 50)} {
		for _, pad := range []string{"", "x", "xx"} {
			want := &v1alpha1.BindingResponse{Kubeconfig: []byte(id + pad)}
			want.Authentication.OAuth2CodeGrant = &v1alpha1.BindingResponseOAuth2CodeGrant{SessionID: pad, ID: pad + id}
			payload, err := handshake.LegacyPayload(want)
			if err != nil {
				t.Fatal(err)
			}
			values, err := url.ParseQuery(url.Values{"response": {payload}}.Encode())
			if err != nil {
				t.Fatal(err)
			}
			for name, alphabet := range map[string]*base64.Encoding{"standard": base64.StdEncoding, "URL-safe": base64.URLEncoding} {
				data, err := alphabet.DecodeString(values.Get("response"))
				got := &v1alpha1.BindingResponse{}
				if err != nil || json.Unmarshal(data, got) != nil {
					t.Errorf("%s %q: %v", name, id, err)
				} else if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s %q (-want +got):\n%s", name, id, diff)
				}
			}
		}
	}
}
