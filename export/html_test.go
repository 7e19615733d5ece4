// SPDX-License-Identifier: Apache-2.0

package export

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/klutch-go/sdk/internal/test/testissuer"
)

// elements are those of a page, in order.
func elements(t *testing.T, page string) []*html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var all []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			all = append(all, n)
		}
	}
	return all
}

func attribute(n *html.Node, name string) string {
	i := slices.IndexFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
	if i < 0 {
		return ""
	}
	return n.Attr[i].Val
}

// What a screen reader needs, on every page: a language, a title, one main, one h1,
// a label for each box, a submit in each form; and nothing that a browser would run
// or load from elsewhere.
func TestPageStructure(t *testing.T) {
	c := openCounter(t, func(o *Options) { o.Handshake.LegacyCLI, o.Handshake.Devices = true, &deviceMemory{} })
	pages := map[string]string{
		"services": c.signIn(c.browser("ada", "engine"), "ada", "engine", "service", "widgets.example.org").Body,
		"legacy":   c.legacyPage(c.browser("ada", "engine")),
		"offer":    c.signIn(c.browser("ada", "engine"), "ada", "engine", "scope", "offer").Body,
		"logout":   c.do(http.MethodPost, "/logout", "").Body,
	}
	for name, path := range map[string]string{
		"home": "/", "signed out": "/services", "done": "/done", "bad link": "/authorize", "no page": "/nothing", "no method": "/bind",
		"user code": "/device?user_code=AAAAA-BBBBB", "issuer down": "/callback?error=x",
	} {
		pages[name] = c.do(http.MethodGet, path, "", "Accept", "text/html").Body
	}
	for name, page := range pages {
		checkPage(t, name, page)
	}
	if !strings.Contains(pages["legacy"], `class="widgets"`) || !strings.Contains(pages["services"], "checkbox") {
		t.Error("not the pages that are meant")
	}
	if page := pages["user code"]; !strings.Contains(page, "no vowel") || !strings.Contains(page, "BCDFG-HJKLM") {
		t.Errorf("of ten letters that are no code: %s", page)
	}
	if page := pages["offer"]; !strings.Contains(page, "Show it to my terminal") || strings.Contains(page, "checkbox") {
		t.Errorf("what is on offer: %s", page)
	}
}

// Whatever is not served is answered by a page, too, and in JSON to programs.
func TestNoSuchPage(t *testing.T) {
	c := openCounter(t)
	for _, r := range []struct {
		method, path string
		status       int
		allow, says  string
	}{
		{http.MethodGet, "/nothing", http.StatusNotFound, "", "There is no such page"},
		{http.MethodPost, "/nothing", http.StatusNotFound, "", "There is no such page"},
		{http.MethodGet, "/bind", http.StatusMethodNotAllowed, "POST", "This page cannot be opened by its address"},
		{http.MethodPut, "/services", http.StatusMethodNotAllowed, "GET, HEAD", "This page cannot be opened by its address"},
	} {
		page := c.do(r.method, r.path, "", "Accept", "text/html,*/*")
		if page.Status != r.status || page.Header.Get("Allow") != r.allow || !strings.Contains(page.Body, "<h1>"+r.says) || !strings.Contains(page.Body, "kubectl bind "+c.url) {
			t.Errorf("%s %s: %d, Allow %q: %s", r.method, r.path, page.Status, page.Header.Get("Allow"), page.Body)
		}
		if answer := c.do(r.method, r.path, "", "Accept", "application/json"); answer.Status != r.status || !strings.HasPrefix(answer.Body, `{"error":"invalid_request"`) {
			t.Errorf("%s %s in JSON: %d %s", r.method, r.path, answer.Status, answer.Body)
		}
	}
	if answer := c.do(http.MethodGet, "/token", ""); answer.Status != http.StatusMethodNotAllowed || !strings.HasPrefix(answer.Body, `{"error":"invalid_request"`) {
		t.Errorf("a program: %d %s", answer.Status, answer.Body)
	}
}

// legacyPage signs ada in with Klutch's own CLI.
func (c *counter) legacyPage(b *testissuer.Browser) string {
	c.t.Helper()
	page := must(b.Get(c.t.Context(), c.url+"/authorize?p=1&s=abc123&c=xyz789"))
	page.Forms[0].Fields.Set("username", "ada")
	page.Forms[0].Fields.Set("password", "engine")
	return must(b.Submit(c.t.Context(), page.Forms[0])).Body
}

func checkPage(t *testing.T, name, page string) {
	t.Helper()
	count, labels, ids := map[string]int{}, map[string]bool{}, map[string]bool{}
	all := elements(t, page)
	for _, n := range all {
		count[n.Data]++
		if id := attribute(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("%s: two elements with id %s", name, id)
			}
			ids[id] = true
		}
		if n.Data == "label" {
			labels[attribute(n, "for")] = true
		}
	}
	for _, tag := range []string{"main", "h1", "title"} {
		if count[tag] != 1 {
			t.Errorf("%s: %d <%s>\n%s", name, count[tag], tag, page)
		}
	}
	for _, n := range all {
		checkElement(t, name, n, labels, ids)
	}
	if count["form"] > count["button"] {
		t.Errorf("%s: a form without a button", name)
	}
}

func checkElement(t *testing.T, page string, n *html.Node, labels, ids map[string]bool) {
	t.Helper()
	switch {
	case n.Data == "script" || n.Data == "style" || n.Data == "img" || n.Data == "iframe":
		t.Errorf("%s: <%s>", page, n.Data)
	case n.Data == "html" && attribute(n, "lang") == "":
		t.Errorf("%s: no language", page)
	case n.Data == "input" && attribute(n, "type") != "hidden" && !labels[attribute(n, "id")]:
		t.Errorf("%s: input %s has no label", page, attribute(n, "id"))
	case n.Data == "button" || attribute(n, "id") == "continue" || attribute(n, "id") == "sign-in":
		if n.PrevSibling != nil && n.PrevSibling.Type == html.TextNode && strings.TrimSpace(n.PrevSibling.Data) != "" ||
			n.NextSibling != nil && n.NextSibling.Type == html.TextNode && strings.TrimSpace(n.NextSibling.Data) != "" {
			t.Errorf("%s: a button inside a sentence", page)
		}
	case n.Data == "link" && !strings.HasPrefix(attribute(n, "href"), "/"):
		t.Errorf("%s: loads %s", page, attribute(n, "href"))
	}
	if about := attribute(n, "aria-describedby"); about != "" && !ids[about] {
		t.Errorf("%s: nothing has id %s", page, about)
	}
	for _, a := range n.Attr {
		if strings.HasPrefix(a.Key, "on") || a.Key == "style" {
			t.Errorf("%s: attribute %s", page, a.Key)
		}
	}
}
