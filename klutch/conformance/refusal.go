// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"net/url"
	"strings"
)

func refusalChecks() []check {
	return []check{
		{"redirect elsewhere", "P1", checkRedirects},
		{"login without proof", "RFC 7636, SECURITY 2", checkProof},
		{"change by GET", "P6", checkSafeMethods},
		{"form of another site", "P6", checkCrossSite},
		{"pages are inert", "P11", checkHeaders},
		{"token endpoint takes no nonsense", "RFC 6749 5.2", checkTokenNonsense},
		{"large body", "P8", checkLargeBody},
	}
}

// request is a good authorization request of kubectl-bind.
func request() url.Values {
	return url.Values{
		"response_type": {"code"}, "client_id": {"kubectl-bind"}, "redirect_uri": {"http://127.0.0.1:43111/callback"},
		"state": {"conformance"}, "c": {"conformance-1"},
		"code_challenge": {"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"}, "code_challenge_method": {"S256"},
	}
}

// authorize sends request with one parameter changed, or none.
func (c checker) authorize(name, value string) answer {
	c.Helper()
	query := request()
	if name != "" {
		query.Set(name, value)
	}
	got, err := c.http.get(c.Context(), c.tokenGrant().AuthenticatedURL+"?"+query.Encode())
	c.must("authorization request", err)
	return got
}

// refusedWith fails unless a stranger's request with that parameter ends on the spot.
func (c checker) refusedWith(name, value string) {
	c.Helper()
	got := c.authorize(name, value)
	if got.status < 400 || got.status >= 500 || got.header.Get("Location") != "" || got.header.Get("Refresh") != "" {
		c.violated("%s=%q is answered with %d and leads to %q", name, value, got.status, got.header.Get("Location")+got.header.Get("Refresh"))
	}
}

func (c checker) accepted(name, value string) {
	c.Helper()
	if got := c.authorize(name, value); got.status >= 400 {
		c.violated("%s=%q is answered with %d", name, value, got.status)
	}
}

func checkRedirects(c checker) {
	c.accepted("redirect_uri", "http://127.0.0.1:43111/callback")
	c.accepted("redirect_uri", "http://[::1]:43111/callback")
	for _, target := range []string{
		"", "http://127.0.0.1.evil.example:1/callback", "http://127.0.0.1:1@evil.example/callback", `http://127.0.0.1:1\@evil.example/callback`,
		"http://evil.example/callback", "https://evil.example/callback", "//evil", "javascript:alert(1)", "http://127.0.0.1:1/callback#x", "http://127.0.0.1:1/callback?x=1",
		"https://127.0.0.1:1/callback", "http://0x7f.1:1/callback", "http://127.1:1/callback", "http://0.0.0.0:1/callback", "http://127.0.0.1:1/../callback",
		"http://127.0.0.1/callback", "http://127.0.0.1:0/callback", "http://127.0.0.1:99999/callback", "http://[::ffff:127.0.0.1]:9/callback",
		"http://127.0.0.1:1/callback%2f..", "http://127.0.0.1:1/\tcallback", "http://127.0.0.1:1/callback\r\nLocation: http://evil", "http://127.0.0.1:1/..;/callback",
	} {
		c.refusedWith("redirect_uri", target)
	}
}

func checkProof(c checker) {
	c.accepted("", "")
	for _, bad := range [][2]string{
		{"state", ""},
		{"code_challenge", ""},
		{"code_challenge", "short"},
		{"code_challenge_method", "plain"},
		{"code_challenge_method", ""},
		{"client_id", "somebody"},
		{"response_type", "token"},
	} {
		c.refusedWith(bad[0], bad[1])
	}
}

func checkSafeMethods(c checker) {
	c.tokenGrant()
	for _, path := range []string{"/bind?service=" + c.Service, "/token?grant_type=authorization_code&code=x", "/logout", "/bind-noninteractive"} {
		got, err := c.http.get(c.Context(), c.URL+path)
		c.must("GET "+path, err)
		if got.status < 400 {
			c.violated("GET %s answers %d", path, got.status)
		}
	}
}

func checkCrossSite(c checker) {
	c.tokenGrant()
	for _, header := range []map[string]string{{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}} {
		got, err := c.http.post(c.Context(), c.URL+"/bind", url.Values{"service": {c.Service}}, header)
		c.must("POST /bind", err)
		if got.status != http.StatusForbidden {
			c.violated("POST /bind with %v answers %d, not 403", header, got.status)
		}
	}
}

func checkHeaders(c checker) {
	got := c.authorize("state", "")
	policy := got.header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "form-action 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			c.violated("Content-Security-Policy %q lacks %q", policy, part)
		}
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
		if got := got.header.Get(name); got != want {
			c.violated("%s is %q, not %q", name, got, want)
		}
	}
}

func checkTokenNonsense(c checker) {
	target := c.tokenGrant().TokenURL
	for name, form := range map[string]url.Values{
		"nothing":       {},
		"unknown grant": {"grant_type": {"password"}, "client_id": {"kubectl-bind"}},
		"unknown code":  {"grant_type": {"authorization_code"}, "client_id": {"kubectl-bind"}, "code": {"x"}, "code_verifier": {strings.Repeat("x", 43)}},
	} {
		got, err := c.http.post(c.Context(), target, form, nil)
		c.must("POST to the token endpoint", err)
		if got.status != http.StatusBadRequest && got.status != http.StatusUnauthorized || !strings.Contains(got.body, `"error"`) {
			c.violated("%s: %d %s, not an OAuth error", name, got.status, got.body)
		}
		if got.header.Get("Cache-Control") != "no-store" {
			c.violated("%s: the answer may be stored", name)
		}
	}
}

func checkLargeBody(c checker) {
	got, err := c.http.post(c.Context(), c.tokenGrant().TokenURL, url.Values{"code": {strings.Repeat("x", 4<<20)}}, nil)
	if err == nil && (got.status < 400 || got.status >= 500) {
		c.violated("a form of 4 MB is answered with %d", got.status)
	}
}
