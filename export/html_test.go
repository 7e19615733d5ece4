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
	c := openCounter(t, func(o *Options) { o.Handshake.LegacyCLI = true })
	pages := map[string]string{
		"services": c.signIn(c.browser("ada", "engine"), "ada", "engine", "service", "widgets.example.org").Body,
		"legacy":   c.legacyPage(c.browser("ada", "engine")),
		"logout":   c.do(http.MethodPost, "/logout", "").Body,
	}
	for name, path := range map[string]string{"home": "/", "signed out": "/services", "done": "/done", "bad link": "/authorize"} {
		pages[name] = c.do(http.MethodGet, path, "", "Accept", "text/html").Body
	}
	for name, page := range pages {
		checkPage(t, name, page)
	}
	if !strings.Contains(pages["legacy"], `class="widgets"`) || !strings.Contains(pages["services"], "checkbox") {
		t.Error("not the pages that are meant")
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
