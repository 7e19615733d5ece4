// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/internal/test/testissuer/chromium"
	"github.com/klutch-go/sdk/internal/test/testissuer/oidcprovider"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// market has all that a page may have to show.
func market(o *Options) {
	postgres, lamps, vases := sold("postgresqlinstances", "developers"), sold("lamps", "developers"), sold("vases", "developers")
	postgres.Title, postgres.Description = "PostgreSQL", "PostgreSQL, from a single nano server to a replicated cluster."
	postgres.DocumentationURL, postgres.Categories = "https://www.postgresql.org/docs/", []string{"databases", "SQL"}
	postgres.Versions = []string{"v1", "v1beta1"}
	lamps.Title, lamps.Description = "Lamps", ""
	vases.DocumentationURL, vases.Title = "javascript:alert(1)", strings.Repeat("endless", 30)
	vases.PermissionClaims = append(vases.PermissionClaims, v1alpha1.PermissionClaim{
		GroupResource: v1alpha1.GroupResource{Resource: "configmaps"}, Version: "v1",
		Selector: v1alpha1.ResourceSelector{Owner: v1alpha1.OwnerConsumer, LabelSelectors: []map[string]string{{"tier": "gold"}}},
	})
	continents := sold("continents", "developers")
	continents.Scope = v1alpha1.ClusterScope
	services := shop{postgres, lamps, vases, continents, sold("gizmos", "operators")}
	o.Catalog, o.Authorizer, o.Name = services, services, "Data services of the platform team"
	o.Handshake.Devices, o.Handshake.LegacyCLI = &deviceMemory{}, true
}

// A person sits before a real browser.
type person struct {
	*chromium.Page
	c *counter
}

func newPerson(t *testing.T, tune func(*Options)) person {
	t.Helper()
	return person{chromium.Start(t, chromium.Options{}), openCounter(t, tune)}
}

// signIn follows a link, and logs in at the issuer that it leads to.
func (p person) signIn(link string) {
	p.Helper()
	p.Open(link)
	p.Await(`document.activeElement.name == "username"`)
	p.Type("ada")
	p.Press("Tab")
	p.Type("engine")
	p.Press("Enter")
	p.Await(`location.origin == "` + p.c.url + `" && document.readyState == "complete"`)
}

// inspect measures the page in both schemes, wide and narrow. With
// SCREENSHOTS=folder it leaves pictures there.
func (p person) inspect(name string) {
	p.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.Prefer(scheme)
		for _, width := range []int{1000, 320} {
			p.Resize(width, 800)
			if flaws := p.Flaws(); len(flaws) > 0 {
				p.Errorf("%s, %s, %d wide:\n%s", name, scheme, width, strings.Join(flaws, "\n"))
			}
			if dir := os.Getenv("SCREENSHOTS"); dir != "" {
				p.Screenshot(filepath.Join(dir, fmt.Sprintf("%s-%s-%d.png", strings.ReplaceAll(name, " ", "-"), scheme, width)))
			}
		}
	}
}

func (p person) reads(words ...string) {
	p.Helper()
	var text string
	p.Eval("document.body.innerText", &text)
	for _, w := range words {
		if !strings.Contains(text, w) {
			p.Errorf("the page does not say %q:\n%s", w, text)
		}
	}
}

func (p person) hasNoComplaint() {
	p.Helper()
	if complaints := p.Complaints(); len(complaints) > 0 {
		p.Errorf("the browser complains:\n%s", strings.Join(complaints, "\n"))
	}
}

// TestP11PagesInABrowser: they can be read, and the browser objects to none.
func TestP11PagesInABrowser(t *testing.T) {
	p := newPerson(t, market)
	asked := strings.ReplaceAll(p.c.authorizeURL("service", "lamps.example.org"), "&state=", "&service=gizmos.example.org&service=continents.example.org&service=unicorns.example.org&state=")
	p.signIn(asked)
	p.inspect("services")
	p.reads("You may not bind this", "gizmos.example.org", "This is not on offer", "unicorns.example.org", "databases", "Documentation", "versions v1, v1beta1",
		"This is not for App Clusters", "continents.example.org", "Reads configmaps of your namespaces: only those with the labels tier=gold. You may refuse.")
	var links, boxes []string
	p.Eval(`[...document.links].map((a) => a.href)`, &links)
	p.Eval(`[...document.querySelectorAll(":checked")].map((e) => e.value)`, &boxes)
	if diff := cmp.Diff([][]string{{"https://www.postgresql.org/docs/"}, {"lamps.example.org"}}, [][]string{links, boxes}); diff != "" {
		t.Errorf("links and chosen services (-want +got):\n%s", diff)
	}
	for name, link := range map[string]string{
		"legacy": "/authorize?p=1&s=abc123&c=xyz789", "confirm": "/authorize?user_code=BCDFG-HJKLM",
	} {
		p.signIn(p.c.url + link)
		p.inspect(name)
	}
	for name, link := range map[string]string{
		"home": "/", "device": "/device?user_code=", "wrong code": "/device?user_code=x", "code": "/device?user_code=BCDFG-HJKLM",
	} {
		p.Open(p.c.url + link)
		p.inspect(name)
	}
	p.hasNoComplaint()
	p.Open(p.c.url + "/authorize")
	p.inspect("bad link")
	p.signIn(p.c.authorizeURL())
	p.PressUntil("Tab", 10, `document.activeElement.matches("form[action='/bind'] button")`)
	p.Press("Enter")
	p.Await(`document.querySelector("[role=alert]")?.innerText.includes("Choose at least one service")`)
	p.inspect("nothing chosen")
}

// TestKeyboardOrder goes through the page as it reads, and out by the last button.
func TestKeyboardOrder(t *testing.T) {
	p := newPerson(t, market)
	told := make(chan url.Values, 9)
	terminal := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told <- r.URL.Query() }))
	t.Cleanup(terminal.Close)
	p.signIn(p.c.authorizeURL("redirect_uri", terminal.URL+"/callback"))
	var order []string
	for range 7 {
		p.Press("Tab")
		var at string
		p.Eval(`(e => e.value || e.textContent + (getComputedStyle(e).outlineStyle == "none" ? " without a ring" : ""))(document.activeElement)`, &at)
		order = append(order, at)
	}
	want := []string{
		"postgresqlinstances.example.org", "Documentation of PostgreSQL (in a new tab)", "lamps.example.org", "vases.example.org",
		"Bind the chosen services", "Sign out", "postgresqlinstances.example.org",
	}
	if diff := cmp.Diff(want[:6], order[:6]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.PressUntil("Tab", 10, `document.activeElement.innerText == "Sign out"`)
	p.Press("Enter")
	p.Await(`document.title.startsWith("Signed out")`)
	p.inspect("signed out")
	p.PressUntil("Tab", 3, `document.activeElement.innerText == "Tell your terminal"`)
	p.Press("Enter")
	p.Await(`location.pathname == "/callback"`)
	if answer := <-told; answer.Get("error_description") != "the person signed out" || answer.Get("state") != "s" || answer.Has("code") {
		t.Errorf("the terminal is told %v", answer)
	}
	p.hasNoComplaint()
	p.Open(p.c.url + "/services")
	p.reads("You are not signed in")
}

func TestNothingOnOffer(t *testing.T) {
	p := newPerson(t, func(o *Options) {
		none := shop{sold("gizmos", "operators")}
		o.Catalog, o.Authorizer = none, none
	})
	p.signIn(p.c.authorizeURL())
	p.inspect("nothing")
	p.reads("There is nothing on offer for you", "Sign out")
	if slices.Contains(p.URLs(), p.c.url+"/done") {
		t.Error("the login has ended")
	}
	p.hasNoComplaint()
}

// TestCertifiedProvider signs in at an issuer of others, which the OpenID Foundation
// has certified, and gets to the page.
func TestCertifiedProvider(t *testing.T) {
	var issuer string
	c := openCounter(t, func(o *Options) {
		issuer = oidcprovider.Start(t, oidcprovider.Options{
			Users:   map[string]map[string]any{"ada": {"name": "Ada Lovelace", "groups": []string{"developers"}}},
			Clients: []map[string]any{{"client_id": "klutch", "client_secret": "a secret of the test", "redirect_uris": []string{o.ExternalURL + handshake.CallbackPath}, "scope": "openid profile email groups"}},
		})
		o.Provider = must(auth.New(auth.Config{Issuer: issuer, ClientID: "klutch", ClientSecret: "a secret of the test", RedirectURL: o.ExternalURL + handshake.CallbackPath}))
	})
	b := c.browser("", "any")
	page := must(b.Get(t.Context(), c.authorizeURL()))
	for range 2 { // who they are, and that they agree
		if len(page.Forms) == 0 {
			break
		}
		page.Forms[0].Fields.Set("login", "ada")
		page = must(b.Submit(t.Context(), page.Forms[0]))
	}
	if page.URL.Path != "/services" || !strings.Contains(page.Body, "Ada Lovelace") || !strings.Contains(page.Body, "by "+issuer) || !strings.Contains(page.Body, `value="widgets.example.org"`) {
		t.Errorf("%s:\n%s", page.URL, page.Body)
	}
}

func TestClaimWords(t *testing.T) {
	selected := func(owner v1alpha1.Owner, s v1alpha1.ResourceSelector) v1alpha1.PermissionClaim {
		c := claim("secrets", owner)
		c.Selector = s
		c.Selector.Owner, c.Required = owner, true
		return c
	}
	optional := claim("secrets", v1alpha1.OwnerConsumer)
	optional.Selector.Names = []string{"a", "b"}
	replacing := selected("", v1alpha1.ResourceSelector{})
	replacing.Create = &v1alpha1.CreateOptions{ReplaceExisting: true}
	for want, c := range map[string]v1alpha1.PermissionClaim{
		"Reads secrets of your namespaces: only those called a, b. You may refuse.":                                                          optional,
		"Writes secrets into your namespaces: any of them that the service makes.":                                                           selected("", v1alpha1.ResourceSelector{Names: []string{"*"}, Namespaces: []string{"*"}}),
		"Reads secrets of your namespaces: all of them.":                                                                                     selected(v1alpha1.OwnerConsumer, v1alpha1.ResourceSelector{}),
		"Reads secrets of your namespaces x, y: only those with the labels a=1,b=2 or c=3.":                                                  selected(v1alpha1.OwnerConsumer, v1alpha1.ResourceSelector{Namespaces: []string{"x", "y"}, LabelSelectors: []map[string]string{{"a": "1", "b": "2"}, {"c": "3"}}}),
		"Writes secrets into your namespaces: only those that your own objects of this service name in a.b; and of these those with type=x.": selected("", v1alpha1.ResourceSelector{References: []v1alpha1.Reference{{Path: "a.b"}}, FieldSelectors: []string{"type=x"}}),
		"Writes secrets into your namespaces: any of them that the service makes. Replaces what is there already under the same name.":       replacing,
	} {
		if got := handshake.ClaimWords(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
