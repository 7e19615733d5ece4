// SPDX-License-Identifier: Apache-2.0

package export

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

// token is an access token as the issuer gives it to a machine.
func (c *counter) token(user, audience string, claims map[string]any) string {
	c.t.Helper()
	c.issuer.Misbehave(testissuer.Faults{Claims: claims})
	defer c.issuer.Misbehave(testissuer.Faults{})
	return must(c.issuer.AccessToken(user, audience))
}

func (c *counter) bindMachine(token, body string) (reply, handshake.OAuthError) {
	c.t.Helper()
	resp := c.do(http.MethodPost, "/bind-noninteractive", body, "Authorization", "Bearer "+token, "Content-Type", "application/json")
	var said handshake.OAuthError
	if err := json.Unmarshal([]byte(resp.Body), &said); err != nil {
		c.t.Fatalf("%s: %v", resp.Body, err)
	}
	return resp, said
}

func TestMachineIsRefused(t *testing.T) {
	c := openCounter(t, func(o *Options) { o.Handshake.MachineScopes = []string{"klutch/bind"} })
	const widgets = `{"clusterID": "c1", "apis": [{"group": "example.org", "resource": "widgets"}]}`
	scope := map[string]any{"scope": "openid klutch/bind"}
	good := c.token("ada", "klutch-machines", scope)
	for name, test := range map[string]struct {
		token, body string
		status      int
		code, says  string
	}{
		"no token":       {"", widgets, 401, "invalid_request", "Authorization: Bearer TOKEN"},
		"no JWT":         {"opaque", widgets, 401, "invalid_token", "get a new token"},
		"wrong audience": {c.token("ada", "another", scope), widgets, 401, "invalid_token", "get a new token"},
		"expired":        {c.token("ada", "klutch-machines", map[string]any{"exp": 1, "scope": "klutch/bind"}), widgets, 401, "invalid_token", "get a new token"},
		"other issuer":   {c.token("ada", "klutch-machines", map[string]any{"iss": "https://evil.example"}), widgets, 401, "invalid_token", "not trusted"},
		"scope":          {c.token("ada", "klutch-machines", map[string]any{"scope": "openid"}), widgets, 403, "insufficient_scope", "klutch/bind"},
		"no JSON":        {good, "x", 400, "invalid_request", `{"clusterID": "NAME"`},
		"huge":           {good, strings.Repeat(" ", handshake.MaxBody) + widgets, 400, "invalid_request", "too long"},
		"no cluster":     {good, `{"apis": [{"group": "example.org", "resource": "widgets"}]}`, 400, "invalid_request", "clusterID"},
		"no API":         {good, `{"clusterID": "c1"}`, 400, "invalid_request", "apis must have"},
		"bad API":        {good, `{"clusterID": "c1", "apis": [{"group": "a b", "resource": "../x"}]}`, 400, "invalid_request", "malformed"},
		"not allowed":    {good, strings.Replace(widgets, "widgets", "gizmos", 1), 403, "access_denied", "on offer: widgets.example.org"},
		"not on offer":   {good, strings.Replace(widgets, "widgets", "nothing", 1), 404, "invalid_scope", "on offer: widgets.example.org"},
		"not there":      {good, strings.Replace(widgets, "widgets", "ghosts", 1), 409, "invalid_scope", "not there at the moment"},
		"cluster-scoped": {good, strings.Replace(widgets, "widgets", "continents", 1), 409, "invalid_scope", "offer a namespaced API"},
		"one of two":     {good, strings.Replace(widgets, "]", `, {"group": "example.org", "resource": "gizmos"}]`, 1), 403, "access_denied", "gizmos.example.org"},
		"cluster down":   {good, widgets, 503, "temporarily_unavailable", "try again in a minute"},
	} {
		resp, said := c.bindMachine(test.token, test.body)
		if resp.Status != test.status || said.Code != test.code || !strings.Contains(resp.Body, strings.ReplaceAll(test.says, `"`, `\"`)) || said.Next == "" {
			t.Errorf("%s: %d %s", name, resp.Status, resp.Body)
		}
		if got := resp.Header.Get("WWW-Authenticate"); (test.status == 401 || test.code == "insufficient_scope") != strings.HasPrefix(got, "Bearer") {
			t.Errorf("%s: WWW-Authenticate: %q", name, got)
		}
		if (test.status == 503) != (resp.Header.Get("Retry-After") != "") {
			t.Errorf("%s: Retry-After: %q", name, resp.Header.Get("Retry-After"))
		}
	}
	for _, written := range c.writes.seen() {
		if written != "POST /api/v1/namespaces" { // of the one that may
			t.Errorf("written: %s", written)
		}
	}
}

func TestNoMachines(t *testing.T) {
	c := openCounter(t, func(o *Options) { o.Handshake.Machines = nil })
	resp, said := c.bindMachine(c.token("ada", "klutch-machines", nil), "{}")
	if resp.Status != http.StatusNotFound || !strings.Contains(said.Next, "kubectl bind "+c.url) {
		t.Errorf("%d %s", resp.Status, resp.Body)
	}
}

func TestMachinesIssuerIsDown(t *testing.T) {
	c := openCounter(t)
	token := c.token("ada", "klutch-machines", nil)
	c.issuer.Misbehave(testissuer.Faults{Down: true})
	resp, said := c.bindMachine(token, "{}")
	if resp.Status != http.StatusServiceUnavailable || said.Code != handshake.CodeUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", resp.Status, resp.Body)
	}
}

// P4: what tells of people lets no machine in: neither their ID tokens, for the audience
// of machines or the client with which they sign in, nor what tells that they have left.
func TestP4PeopleAreNoMachines(t *testing.T) {
	c := openCounter(t)
	logout := map[string]any{"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}}
	for name, token := range map[string]string{
		"an ID token":                      must(c.issuer.IDToken("ada", "klutch-machines")),
		"an ID token for the login client": must(c.issuer.IDToken("ada", "klutch")),
		"an access token for that client":  c.token("ada", "klutch", nil),
		"a logout token":                   c.token("ada", "klutch-machines", logout),
	} {
		if resp, said := c.bindMachine(token, `{"clusterID": "c1", "apis": [{"group": "example.org", "resource": "widgets"}]}`); resp.Status != 401 || said.Code != "invalid_token" {
			t.Errorf("%s: %d %s", name, resp.Status, resp.Body)
		}
	}
	if made := c.writes.seen(); len(made) > 0 {
		t.Errorf("written: %v", made)
	}
}

// P4: the audience of machines is no client with which people sign in at that issuer.
func TestP4MachinesHaveAnAudienceOfTheirOwn(t *testing.T) {
	provider := func(issuer, client string, audiences ...string) *auth.Provider {
		return must(auth.New(auth.Config{Issuer: issuer, ClientID: client, Audiences: audiences}))
	}
	const ours, theirs = "https://ours.example", "https://theirs.example"
	h := Handshake{Issuers: []Issuer{{Name: "b", Provider: provider(theirs, "klutch-b")}}}
	for name, test := range map[string]struct {
		machines *auth.Provider
		ok       bool
	}{
		"their own":               {provider(ours, "", "machines"), true},
		"the first issuer's":      {provider(ours, "", "machines", "klutch"), false},
		"a further issuer's":      {provider(theirs, "", "klutch-b"), false},
		"the name of another one": {provider(theirs, "", "klutch"), true},
	} {
		h.Machines = auth.Providers{test.machines}
		if err := h.validateIssuers(provider(ours, "klutch"), Users{}); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
