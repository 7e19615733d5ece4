// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/internal/test/testissuer/oidcprovider"
)

// certified is a provider that others have written and the OpenID Foundation has
// certified, with one client of each kind.
func certified(t *testing.T, landing string) string {
	t.Helper()
	return oidcprovider.Start(t, oidcprovider.Options{
		Users: map[string]map[string]any{
			"ada": {"name": "Ada Lovelace", "email": "ada@example.com", "email_verified": true, "groups": []string{"developers"}},
		},
		Clients: []map[string]any{
			{
				"client_id": clientID, "client_secret": clientSecret, "redirect_uris": []string{landing},
				"scope": "openid profile email groups",
			},
			{
				"client_id": "robot", "client_secret": clientSecret, "redirect_uris": []string{}, "response_types": []string{},
				"grant_types": []string{"client_credentials"},
			},
			{
				"client_id": "cli", "token_endpoint_auth_method": "none", "redirect_uris": []string{}, "response_types": []string{},
				"grant_types": []string{"urn:ietf:params:oauth:grant-type:device_code"}, "scope": "openid",
			},
		},
		Audience: "https://klutch.example.com",
		Scopes:   []string{"klutch/bind", "other"},
	})
}

// consenting is a person who fills in the provider's own form, and consents.
func consenting() *testissuer.Browser {
	return testissuer.NewBrowser(testissuer.BrowserOptions{Password: "any", Decide: func(form *testissuer.Form) {
		if form.Fields.Has("login") {
			form.Fields.Set("login", "ada")
		}
	}})
}

func TestCertifiedProvider(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	landing := server.URL + "/callback"
	issuer := certified(t, landing)
	provider := newProvider(t, auth.Config{
		Issuer: issuer, ClientID: clientID, ClientSecret: clientSecret, RedirectURL: landing,
		Audiences: []string{"https://klutch.example.com"},
	})
	t.Run("a person logs in", func(t *testing.T) { certifiedLogin(t, provider, issuer) })
	t.Run("a machine logs in", func(t *testing.T) { certifiedMachine(t, provider, issuer) })
	t.Run("a device logs in", func(t *testing.T) { certifiedDevice(t, issuer) })
}

func certifiedLogin(t *testing.T, provider *auth.Provider, issuer string) {
	t.Helper()
	attempt, loginURL, err := provider.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := consenting().Visit(t.Context(), loginURL)
	if err != nil {
		t.Fatal(err)
	}
	callback := page.URL.Query()
	if callback.Get("iss") != issuer {
		t.Errorf("callback = %v, want iss %s", callback, issuer)
	}
	forged := attempt
	forged.Nonce = "another"
	got, err := provider.Finish(t.Context(), attempt, callback)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(got.Expiry); left < 59*time.Minute || left > time.Hour {
		t.Errorf("identity expires in %s", left)
	}
	got.Expiry = time.Time{}
	want := &auth.Identity{Issuer: issuer, Subject: "ada", Name: "Ada Lovelace", Email: "ada@example.com", Groups: []string{"developers"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	var refused *auth.Error
	if id, err := provider.Finish(t.Context(), forged, callback); !errors.As(err, &refused) || refused.Code != "invalid_grant" {
		t.Errorf("Finish of a replay = %v, %v, want invalid_grant", id, err)
	}
}

func certifiedMachine(t *testing.T, provider *auth.Provider, issuer string) {
	t.Helper()
	for scope, want := range map[string]error{"klutch/bind": nil, "other": auth.ErrScope} {
		tokens, err := auth.MachineTokens(t.Context(), auth.MachineOptions{
			Issuer: issuer, ClientID: "robot", ClientSecret: clientSecret, Scopes: []string{scope},
			Params: url.Values{"resource": {"https://klutch.example.com"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		token, err := tokens.Token()
		if err != nil {
			t.Fatal(err)
		}
		id, err := auth.Providers{provider}.VerifyMachine(t.Context(), token.AccessToken, "klutch/bind")
		if !errors.Is(err, want) || want == nil && (id == nil || id.Subject != "robot" || id.Name != "robot" || id.Issuer != issuer) {
			t.Errorf("VerifyMachine with scope %s = %+v, %v, want %v", scope, id, err, want)
		}
	}
}

func certifiedDevice(t *testing.T, issuer string) {
	t.Helper()
	grant, err := auth.LoginDevice(t.Context(), auth.DeviceOptions{
		DeviceURL: issuer + "/device/auth", ClientID: "cli", Params: url.Values{"scope": {"openid"}},
		Prompt: func(d *oauth2.DeviceAuthResponse) {
			if _, err := consenting().Visit(t.Context(), d.VerificationURIComplete); err != nil {
				t.Error(err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	grant.Device.Interval = 1
	body, err := grant.Redeem(t.Context(), auth.TokenEndpoint(issuer+"/token", nil))
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		IDToken string `json:"id_token"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.IDToken == "" {
		t.Errorf("answer = %.200s, %v, want an ID token", body, err)
	}
}
