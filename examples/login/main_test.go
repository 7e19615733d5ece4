// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

func TestP3LoginInOneBrowser(t *testing.T) {
	issuer := testissuer.Start(t, testissuer.Options{Users: map[string]testissuer.User{"ada": {Password: "engine", Groups: []string{"poets"}}}})
	server := httptest.NewUnstartedServer(nil)
	base := "http://" + server.Listener.Addr().String()
	site, err := newSite(auth.Config{Issuer: issuer.URL(), ClientID: "login", RedirectURL: base + "/callback"})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = site
	server.Start()
	t.Cleanup(server.Close)

	browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Password: "engine"})
	page, err := browser.Visit(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	if want := "You are ada, in [\"poets\"].\n"; page.Body != want {
		t.Errorf("page = %q, want %q", page.Body, want)
	}
	for name, other := range map[string]*testissuer.Browser{
		"the same browser again": browser,
		"another browser":        testissuer.NewBrowser(testissuer.BrowserOptions{}),
	} {
		page, err := other.Visit(t.Context(), page.URL.String())
		if err != nil || page.Status != http.StatusForbidden {
			t.Errorf("callback in %s = %v, %v, want it refused", name, page, err)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"http://issuer.example.com"}, {"https://a", "https://b"}} {
		if err := run(args); err == nil {
			t.Errorf("run(%q) succeeded", args)
		}
	}
}
