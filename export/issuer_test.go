// SPDX-License-Identifier: Apache-2.0

package export

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

// openBazaar is a counter with two issuers, at each of which there is an ada. The
// second sends no iss parameter, as Dex.
func openBazaar(t *testing.T) (c *counter, partner *testissuer.Issuer) {
	t.Helper()
	partner = testissuer.Start(t, testissuer.Options{
		Profile: testissuer.Dex, Users: map[string]testissuer.User{"ada": {Password: "lovelace", Name: "Ada of the partner", Groups: []string{"developers"}}},
	})
	c = openCounter(t, func(o *Options) {
		o.Handshake.Issuers = []Issuer{{Name: "partner", Title: "Our <partner>", Provider: must(auth.New(auth.Config{
			Issuer: partner.URL(), ClientID: "klutch", RedirectURL: must(CallbackURL(o.ExternalURL, "partner")),
		}))}}
	})
	return c, partner
}

// signInWith follows a link of the page on which a person says where the account is.
func (c *counter) signInWith(b *testissuer.Browser, i int, password string) *testissuer.Page {
	c.t.Helper()
	page := must(b.Get(c.t.Context(), c.authorizeURL()))
	checkPage(c.t, "issuers", page.Body)
	var links []string
	for _, n := range elements(c.t, page.Body) {
		if n.Data == "a" {
			links = append(links, attribute(n, "href"))
		}
	}
	if len(links) != 2 || strings.Contains(page.Body, "<partner>") {
		c.t.Fatalf("links %v in\n%s", links, page.Body)
	}
	page = must(b.Get(c.t.Context(), c.url+links[i]))
	page.Forms[0].Fields.Set("username", "ada")
	page.Forms[0].Fields.Set("password", password)
	return must(b.Submit(c.t.Context(), page.Forms[0]))
}

func TestP14IssuersAreToldApart(t *testing.T) {
	c, partner := openBazaar(t)
	for i, want := range []string{c.issuer.URL(), partner.URL()} {
		page := c.signInWith(c.browser("ada", ""), i, []string{"engine", "lovelace"}[i])
		if page.URL.Path != "/services" || !strings.Contains(page.Body, "by "+want) {
			t.Errorf("%d: %s\n%s", i, page.URL, page.Body)
		}
	}
	if a, b := (tenant.Holder{Issuer: c.issuer.URL(), Subject: "ada", Cluster: "c1"}), (tenant.Holder{Issuer: partner.URL(), Subject: "ada", Cluster: "c1"}); a.Namespace("x") == b.Namespace("x") {
		t.Error("two issuers share a tenant")
	}
	if answer := c.do(http.MethodGet, strings.TrimPrefix(c.authorizeURL("issuer", "other"), c.url), ""); answer.Status != http.StatusBadRequest {
		t.Errorf("unknown issuer: %d", answer.Status)
	}
}

// P3: an answer of one issuer is none to a login with another, also where it has no
// iss parameter to tell (RFC 9700 section 4.4).
func TestP3MixUp(t *testing.T) {
	c, _ := openBazaar(t)
	for name, path := range map[string]string{"the other's path": "/callback/partner", "a path of no issuer": "/callback/x"} {
		begun := c.do(http.MethodGet, strings.TrimPrefix(c.authorizeURL("issuer", ""), c.url), "")
		state := must(url.Parse(begun.Header.Get("Location"))).Query().Get("state")
		answer := c.do(http.MethodGet, path+"?code=stolen&state="+state, "", "Cookie", txnCookie+"="+begun.Cookies[0].Value)
		if answer.Status != http.StatusBadRequest || len(answer.Cookies) != 0 {
			t.Errorf("%s: %d %v", name, answer.Status, answer.Cookies)
		}
	}
	begun := c.do(http.MethodGet, strings.TrimPrefix(c.authorizeURL("issuer", "partner"), c.url), "")
	target := must(url.Parse(begun.Header.Get("Location"))).Query()
	if target.Get("redirect_uri") != c.url+"/callback/partner" {
		t.Errorf("redirect_uri: %s", target.Get("redirect_uri"))
	}
	for name, path := range map[string]string{
		"the first's path": "/callback?code=stolen&state=" + target.Get("state"),
		"another iss":      "/callback/partner?code=stolen&state=" + target.Get("state") + "&iss=" + url.QueryEscape(c.issuer.URL()),
	} {
		answer := c.do(http.MethodGet, path, "", "Cookie", txnCookie+"="+begun.Cookies[0].Value)
		if answer.Status != http.StatusBadRequest && answer.Status != http.StatusForbidden || strings.Contains(answer.Header.Get("Refresh"), "code=") {
			t.Errorf("%s: %d %v", name, answer.Status, answer.Header)
		}
	}
}

func TestIssuersHaveNamesOfTheirOwn(t *testing.T) {
	first := must(auth.New(auth.Config{Issuer: "https://a.example", ClientID: "x"}))
	second := must(auth.New(auth.Config{Issuer: "https://b.example", ClientID: "x"}))
	third := must(auth.New(auth.Config{Issuer: "https://c.example", ClientID: "x"}))
	for name, issuers := range map[string][]Issuer{
		"no name":     {{Provider: second}},
		"one path":    {{Name: "../x", Provider: second}},
		"same name":   {{Name: "b", Provider: second}, {Name: "b", Provider: second}},
		"same issuer": {{Name: "b", Provider: first}},
		"no provider": {{Name: "b"}},
		"their names": {{Name: "b", Provider: second, Users: Users{UsernamePrefix: "oidc:b:"}}},
		"no prefix":   {{Name: "b", Provider: second, Users: Users{GroupsPrefix: "-"}}},
		"each other": {
			{Name: "b", Provider: second}, {Name: "c", Provider: third, Users: Users{UsernamePrefix: "oidc-b:c:"}},
		},
		"claim": {{Name: "b", Provider: second, Users: Users{UsernameClaim: "name"}}},
	} {
		if (Handshake{Issuers: issuers}).validateIssuers(first, Users{}) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	h := Handshake{Issuers: []Issuer{{Name: "b", Provider: second}}, Machines: auth.Providers{first, second, third}}
	if err := h.validateIssuers(first, Users{}); err != nil {
		t.Error(err)
	}
	for name, users := range map[string]Users{"no prefix": {UsernamePrefix: "-"}, "their prefix": {GroupsPrefix: "https://c.example"}} {
		if (Handshake{Machines: h.Machines}).validateIssuers(first, users) == nil {
			t.Errorf("machines and people with %s: accepted", name)
		}
	}
	if err := (Handshake{Machines: auth.Providers{first}}).validateIssuers(first, Users{UsernamePrefix: "-"}); err != nil {
		t.Errorf("machines of the issuer of people: %v", err)
	}
	a := reviews{users: Users{}, others: h.users(first), first: first}
	got := map[string]string{}
	for _, p := range h.Machines {
		id := &auth.Identity{Issuer: p.Issuer(), Subject: "ada", Groups: []string{"dev"}}
		users, _ := a.usersOf(id.Issuer)
		got[users.user(id)] = users.groups(id)[1]
	}
	if _, known := a.usersOf("https://gone.example"); known {
		t.Error("the people of an issuer that is gone have the names of another's")
	}
	if diff := cmp.Diff(map[string]string{"oidc:ada": "oidc:dev", "oidc-b:ada": "oidc-b:dev", "https://c.example#ada": "https://c.example#dev"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
