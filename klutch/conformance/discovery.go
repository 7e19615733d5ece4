// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var versionPattern = regexp.MustCompile(`^v?\d+\.\d+\.\d+([-+].*)?$`)

func discoveryChecks() []check {
	return []check{
		{"document", "WIRE 1.10", checkDocument},
		{"login", "WIRE 1.10", checkMethod},
		{"what it names is there", "WIRE 1.10", checkConsistency},
		{"nothing else without a login", "P7", checkStranger},
	}
}

func checkDocument(c checker) {
	got, err := c.http.get(c.Context(), c.URL+"/export")
	c.must("GET /export", err)
	if kind := got.header.Get("Content-Type"); got.status != http.StatusOK || !strings.HasPrefix(kind, "application/json") {
		c.violated("GET /export answers %d %s, not 200 application/json", got.status, kind)
	}
	var p v1alpha1.BindingProvider
	c.must("the document is JSON", json.Unmarshal([]byte(got.body), &p))
	if p.APIVersion != v1alpha1.BindingProviderAPIVersion {
		c.violated("apiVersion is %q, not the bare %q", p.APIVersion, v1alpha1.BindingProviderAPIVersion)
	}
	if p.Kind != "BindingProvider" {
		c.violated("kind is %q, not BindingProvider", p.Kind)
	}
	if !versionPattern.MatchString(p.Version) {
		c.violated("version %q is not a semantic version", p.Version)
	}
	if p.ProviderPrettyName == "" {
		c.violated("providerPrettyName is empty")
	}
}

func checkMethod(c checker) {
	grant := c.grant()
	for field, raw := range map[string]string{"authenticatedURL": grant.AuthenticatedURL, "tokenURL": grant.TokenURL, "deviceURL": grant.DeviceURL, "issuer": grant.Issuer} {
		u, err := url.Parse(raw)
		if raw != "" && (err != nil || u.Scheme+"://"+u.Host != c.URL) {
			c.violated("%s %q is not of the document's origin %s", field, raw, c.URL)
		}
	}
	if grant.TokenURL == "" {
		c.Log("the backend has no token endpoint: its answers travel in URLs")
	}
}

// checkConsistency: each endpoint of the document is one, and the document does not
// depend on the client.
func checkConsistency(c checker) {
	grant := c.grant()
	for field, target := range map[string]string{"authenticatedURL": grant.AuthenticatedURL, "tokenURL": grant.TokenURL, "deviceURL": grant.DeviceURL} {
		if target == "" {
			continue
		}
		method := map[bool]string{true: http.MethodGet, false: http.MethodPost}[field == "authenticatedURL"]
		got, err := c.http.send(c.Context(), method, target, nil, nil)
		c.must(method+" "+target, err)
		if got.status < 400 || got.status >= 500 || got.status == http.StatusNotFound || got.status == http.StatusMethodNotAllowed {
			c.violated("%s of nothing at the %s %s answers %d", method, field, target, got.status)
		}
	}
	one, err := c.http.get(c.Context(), c.URL+"/export")
	c.must("GET /export", err)
	two, err := c.http.send(c.Context(), http.MethodGet, c.URL+"/export", nil, map[string]string{"Cookie": "a=b", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "gopher"})
	c.must("GET /export", err)
	if one.body != two.body {
		c.violated("the document depends on who asks: %s and %s", one.body, two.body)
	}
}

// grant is the login of the document.
func (c checker) grant() *v1alpha1.OAuth2CodeGrant {
	c.Helper()
	p, err := c.provider()
	c.must("the discovery document", err)
	for _, m := range p.AuthenticationMethods {
		if m.Method == v1alpha1.MethodOAuth2CodeGrant && m.OAuth2CodeGrant != nil {
			return m.OAuth2CodeGrant
		}
	}
	c.Fatalf("%s: no authentication method %s", c.basis, v1alpha1.MethodOAuth2CodeGrant)
	return nil
}

// tokenGrant is grant of a backend that has a token endpoint, as ours all have.
func (c checker) tokenGrant() *v1alpha1.OAuth2CodeGrant {
	c.Helper()
	grant := c.grant()
	if grant.TokenURL == "" {
		c.Skip("the backend has no token endpoint")
	}
	return grant
}

// checkStranger: the offer is shown only after a login.
func checkStranger(c checker) {
	for _, path := range []string{"/", "/export", "/services", "/resources", "/bind", "/done", "/callback", "/token", "/bind-noninteractive", "/debug/pprof/", "/metrics"} {
		got, err := c.http.get(c.Context(), c.URL+path)
		c.must("GET "+path, err)
		switch {
		case got.status >= http.StatusInternalServerError:
			c.violated("GET %s answers %d to a stranger", path, got.status)
		case strings.Contains(got.body, c.service.Resource):
			c.violated("GET %s shows %s to a stranger", path, c.Service)
		}
	}
}
