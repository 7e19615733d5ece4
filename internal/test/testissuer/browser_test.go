// SPDX-License-Identifier: Apache-2.0

package testissuer_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/internal/test/testissuer"
)

func testContext() context.Context { return context.Background() }

func TestBrowserStopsAtAFormThatComesBack(t *testing.T) {
	i := start(t)
	browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Password: "wrong"})
	page, err := browser.Visit(t.Context(), i.URL()+"/authorize?"+request().Encode())
	if err != nil {
		t.Fatal(err)
	}
	if page.Status != http.StatusUnauthorized || len(browser.URLs()) != 2 {
		t.Errorf("status = %d after %v", page.Status, browser.URLs())
	}
}

func TestBrowserLeavesACircle(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Refresh", "0;URL='/'") }))
	t.Cleanup(server.Close)
	if page, err := testissuer.NewBrowser(testissuer.BrowserOptions{}).Visit(t.Context(), server.URL); err == nil {
		t.Errorf("Visit = %v, want an error", page.URL)
	}
}

func TestBrowserDecides(t *testing.T) {
	browser := testissuer.NewBrowser(testissuer.BrowserOptions{Decide: func(form *testissuer.Form) { form.Fields.Set("cancel", "yes") }})
	_, err := browser.Visit(t.Context(), start(t).URL()+"/authorize?"+request().Encode())
	if err == nil { // no program listens at the callback
		t.Fatal("the browser has not been sent back")
	}
	urls := browser.URLs()
	if last := urls[len(urls)-1]; len(urls) != 3 || last[:len(landing)] != landing {
		t.Errorf("the browser has been to %v", urls)
	}
}

func TestBrowserKeepsCookiesAsBrowsersDo(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, c := range []*http.Cookie{
			{Name: "plain"},
			{Name: "secure", Secure: true},
			{Name: "__Host-good", Secure: true, Path: "/"},
			{Name: "__Host-insecure", Path: "/"},
			{Name: "__Host-path", Secure: true, Path: "/x"},
			{Name: "__Host-domain", Secure: true, Path: "/", Domain: "127.0.0.1"},
		} {
			c.Value = "x"
			http.SetCookie(w, c)
		}
	}))
	t.Cleanup(server.Close)
	browser := testissuer.NewBrowser(testissuer.BrowserOptions{})
	if _, err := browser.Visit(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	kept := map[string]bool{}
	for _, c := range browser.Cookies(server.URL) {
		kept[c.Name] = true
	}
	if diff := cmp.Diff(map[string]bool{"plain": true, "secure": true, "__Host-good": true}, kept); diff != "" {
		t.Errorf("cookies (-want +got):\n%s", diff)
	}
}

func TestBrowserSaysWhereItComesFrom(t *testing.T) {
	for name, tt := range map[string]struct {
		policy, action, site, origin string
	}{
		"same origin":              {action: "/end", site: "same-origin"},
		"same origin, no referrer": {policy: "no-referrer", action: "/end", site: "same-origin", origin: "null"},
		"another site":             {site: "cross-site"},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan http.Header, 1)
			end := func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }
			other := httptest.NewServer(http.HandlerFunc(end))
			t.Cleanup(other.Close)
			mux := http.NewServeMux()
			mux.HandleFunc("POST /end", end)
			mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				w.Header().Set("Referrer-Policy", tt.policy)
				action := tt.action
				if action == "" {
					action = "http://localhost" + other.URL[len("http://127.0.0.1"):]
				}
				_, _ = w.Write([]byte(`<form method="post" action="` + action + `"></form>`))
			})
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			if _, err := testissuer.NewBrowser(testissuer.BrowserOptions{}).Visit(t.Context(), server.URL); err != nil {
				t.Fatal(err)
			}
			header := <-got
			if tt.origin == "" {
				tt.origin = server.URL
			}
			if header.Get("Sec-Fetch-Site") != tt.site || header.Get("Origin") != tt.origin {
				t.Errorf("Sec-Fetch-Site %s, Origin %s", header.Get("Sec-Fetch-Site"), header.Get("Origin"))
			}
		})
	}
}

func TestPatientBrowserWaits(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			w.Header().Set("Refresh", "3600; url=/later")
		}
	}))
	t.Cleanup(server.Close)
	for patient, want := range map[bool]error{true: context.DeadlineExceeded, false: nil} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if patient {
			ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		}
		_, err := testissuer.NewBrowser(testissuer.BrowserOptions{Patient: patient}).Visit(ctx, server.URL+"/")
		cancel()
		if !errors.Is(err, want) {
			t.Errorf("patient %t: %v, want %v", patient, err, want)
		}
	}
}
