// SPDX-License-Identifier: Apache-2.0

package chromium_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klutch-go/sdk/internal/test/testissuer/chromium"
)

func serve(t *testing.T, policy, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>Test</title>%s<p id="said">%s`, body, r.FormValue("word"))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestKeyboard(t *testing.T) {
	p := chromium.Start(t, chromium.Options{})
	p.Open(serve(t, "", `<form method="post"><label>Word <input name="word"></label><button>Go</button></form><script>document.title = "run"</script>`))
	p.Press("Tab")
	p.Type("hello")
	p.Press("Tab", "Enter")
	p.Await(`document.getElementById("said")?.innerText == "hello"`)
	var title string
	if p.Eval("document.title", &title); title != "Test" {
		t.Errorf("title %q: the page has run a script", title)
	}
}

func TestComplaints(t *testing.T) {
	p := chromium.Start(t, chromium.Options{})
	p.Open(serve(t, "default-src 'none'", `<link rel="stylesheet" href="/x.css">`))
	if got := strings.Join(p.Complaints(), "\n"); !strings.Contains(got, "x.css") {
		t.Errorf("complaints %q", got)
	}
}

func TestFlaws(t *testing.T) {
	p := chromium.Start(t, chromium.Options{})
	p.Resize(320, 640)
	for body, want := range map[string]string{
		`<p>good</p><button style="padding:2em">good</button>`:                             "",
		`<p style="color:#777">grey</p>`:                                                   `p "grey": contrast of text is 4.48, less than 4.5`,
		`<div style="background:#000"><p style="color:#0008;background:#fff8">x</p></div>`: "contrast of text",
		`<p style="white-space:nowrap">` + strings.Repeat("wide", 99) + `</p>`:             "wide, the window 320",
		`<button style="width:20px">x</button>`:                                            "less than 24 by 24",
		`<input type="text" style="border:1px solid #ddd;height:30px">`:                    "contrast of border",
	} {
		p.Open(serve(t, "", body))
		if got := strings.Join(p.Flaws(), "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: flaws %q, want %q", body, got, want)
		}
	}
}
