// SPDX-License-Identifier: Apache-2.0

package testissuer_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/internal/test/testissuer"
)

func startAs(t *testing.T, profile testissuer.Profile, scopes []string) *testissuer.Issuer {
	t.Helper()
	return testissuer.Start(t, testissuer.Options{
		URL: "/base", Profile: profile, Scopes: scopes,
		Users: map[string]testissuer.User{"ada": {
			Password: "engine", Name: "Ada", Email: "ada@example.com", Unverified: true, Groups: []string{"developers"},
		}},
		Clients: map[string]testissuer.Client{
			"klutch": {Secret: "secret", RedirectURLs: []string{landing}},
			"cli":    {},
			"robot":  {Secret: "secret", Scopes: []string{"klutch/bind"}, Audiences: []string{"klutch"}},
		},
	})
}

// endpoints are what an issuer says of itself.
type endpoints struct {
	Authorize string   `json:"authorization_endpoint"`
	Token     string   `json:"token_endpoint"`
	Keys      string   `json:"jwks_uri"`
	Device    string   `json:"device_authorization_endpoint"`
	SendsIss  bool     `json:"authorization_response_iss_parameter_supported"`
	Grants    []string `json:"grant_types_supported"`
}

func discover(t *testing.T, i *testissuer.Issuer) endpoints {
	t.Helper()
	resp, err := http.Get(i.URL() + "/.well-known/openid-configuration")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var e endpoints
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestProfilesPaths(t *testing.T) {
	for profile, want := range map[testissuer.Profile]endpoints{
		"":                  {Authorize: "/authorize", Token: "/token", Keys: "/keys", Device: "/device_authorization", SendsIss: true},
		testissuer.Dex:      {Authorize: "/auth", Token: "/token", Keys: "/keys", Device: "/device/code"},
		testissuer.Keycloak: {Authorize: "/protocol/openid-connect/auth", Token: "/protocol/openid-connect/token", Keys: "/protocol/openid-connect/certs", Device: "/protocol/openid-connect/auth/device", SendsIss: true},
		testissuer.Cognito:  {Authorize: "/oauth2/authorize", Token: "/oauth2/token", Keys: "/.well-known/jwks.json"},
	} {
		i := startAs(t, profile, nil)
		got := discover(t, i)
		got.Grants = nil
		for _, u := range []*string{&got.Authorize, &got.Token, &got.Keys, &got.Device} {
			*u = strings.TrimPrefix(*u, i.URL())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", profile, diff)
		}
	}
}

// loginFor logs ada in and returns the claims of her ID token, or the error.
func loginFor(t *testing.T, i *testissuer.Issuer, scope string) (map[string]any, string) {
	t.Helper()
	form := request()
	form.Set("scope", scope)
	form.Set("username", "ada")
	form.Set("password", "engine")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	e := discover(t, i)
	resp, err := client.PostForm(e.Authorize, form)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	target, err := url.Parse(resp.Header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	callback := target.Query()
	if got := callback.Has("iss"); got != e.SendsIss {
		t.Errorf("callback has an iss parameter: %t, announced: %t", got, e.SendsIss)
	}
	if callback.Has("error") {
		return nil, callback.Get("error")
	}
	answer := ask(t, e.Token, redemption(callback.Get("code")))
	token, _ := answer["id_token"].(string)
	if token == "" {
		return nil, "no ID token"
	}
	return claimsOf(t, token), ""
}

func ask(t *testing.T, endpoint string, form url.Values) map[string]any {
	t.Helper()
	resp, err := http.PostForm(endpoint, form)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func claimsOf(t *testing.T, token string) map[string]any {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestProfilesClaims(t *testing.T) {
	tests := map[string]struct {
		profile testissuer.Profile
		scopes  []string // that the issuer knows
		scope   string
		want    map[string]any // nil: is not there
		refused string
	}{
		"plain gives all":                {scope: "", want: map[string]any{"groups": []any{"developers"}, "email_verified": false, "name": "Ada", "typ": nil}},
		"plain ignores scopes":           {scope: "openid whatever", want: map[string]any{"name": "Ada"}},
		"plain, told its scopes":         {scopes: []string{"openid"}, scope: "openid groups", refused: "invalid_scope"},
		"Dex":                            {profile: testissuer.Dex, scope: "openid profile email groups", want: map[string]any{"groups": []any{"developers"}, "email": "ada@example.com", "email_verified": false, "azp": nil}},
		"Dex, not asked for groups":      {profile: testissuer.Dex, scope: "openid email", want: map[string]any{"groups": nil, "name": nil, "email": "ada@example.com"}},
		"Dex, an unknown scope":          {profile: testissuer.Dex, scope: "openid roles", refused: "invalid_scope"},
		"Keycloak":                       {profile: testissuer.Keycloak, scope: "openid profile groups", want: map[string]any{"groups": []any{"/developers"}, "typ": "ID", "azp": "klutch", "email": nil}},
		"Keycloak, without groups scope": {profile: testissuer.Keycloak, scopes: []string{"openid", "profile", "email"}, scope: "openid profile email groups", refused: "invalid_scope"},
		"Keycloak, without openid":       {profile: testissuer.Keycloak, scope: "profile", refused: "no ID token"},
		"Cognito":                        {profile: testissuer.Cognito, scope: "openid profile email", want: map[string]any{"cognito:groups": []any{"developers"}, "groups": nil, "token_use": "id", "cognito:username": "ada"}},
		"Cognito knows no groups scope":  {profile: testissuer.Cognito, scope: "openid groups", refused: "invalid_scope"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			claims, refused := loginFor(t, startAs(t, tt.profile, tt.scopes), tt.scope)
			got := map[string]any{}
			for claim := range tt.want {
				got[claim] = claims[claim]
			}
			if diff := cmp.Diff(tt.want, got); refused != tt.refused || tt.want != nil && diff != "" {
				t.Errorf("refused %q, want %q; claims (-want +got):\n%s", refused, tt.refused, diff)
			}
		})
	}
}

func TestClientCredentials(t *testing.T) {
	form := func(client, secret, scope string) url.Values {
		return url.Values{"grant_type": {"client_credentials"}, "client_id": {client}, "client_secret": {secret}, "scope": {scope}}
	}
	tests := map[string]struct {
		profile testissuer.Profile
		form    url.Values
		want    map[string]any
		err     string
	}{
		"plain":           {form: form("robot", "secret", ""), want: map[string]any{"aud": []any{"klutch"}, "scope": "klutch/bind", "sub": "robot"}},
		"Keycloak":        {profile: testissuer.Keycloak, form: form("robot", "secret", "klutch/bind"), want: map[string]any{"aud": []any{"klutch"}, "scope": "profile email klutch/bind", "azp": "robot", "typ": "Bearer"}},
		"Cognito":         {profile: testissuer.Cognito, form: form("robot", "secret", ""), want: map[string]any{"aud": nil, "token_use": "access", "client_id": "robot"}},
		"Dex":             {profile: testissuer.Dex, form: form("robot", "secret", ""), err: "unsupported_grant_type"},
		"another scope":   {form: form("robot", "secret", "all"), err: "invalid_scope"},
		"a wrong secret":  {form: form("robot", "x", ""), err: "invalid_client"},
		"a public client": {form: form("cli", "", ""), err: "unauthorized_client"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, discover(t, startAs(t, tt.profile, nil)).Token, tt.form)
			if refused, _ := answer["error"].(string); refused != tt.err {
				t.Fatalf("answer = %v, want error %q", answer, tt.err)
			}
			token, _ := answer["access_token"].(string)
			got := map[string]any{}
			for claim := range tt.want {
				got[claim] = claimsOf(t, token)[claim]
			}
			if diff := cmp.Diff(tt.want, got); tt.want != nil && diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMachineTokenIsOfAClient(t *testing.T) {
	if token, err := startAs(t, "", nil).MachineToken("nobody"); err == nil {
		t.Errorf("MachineToken = %s", token)
	}
}

func TestDeviceFlow(t *testing.T) {
	for _, profile := range []testissuer.Profile{"", testissuer.Dex, testissuer.Keycloak} {
		i := startAs(t, profile, nil)
		e := discover(t, i)
		begin := func() map[string]any {
			return ask(t, e.Device, url.Values{"client_id": {"cli"}, "scope": {"openid"}, "code_challenge": {challenge}})
		}
		poll := func(begun map[string]any, client, verifier string) any {
			answer := ask(t, e.Token, url.Values{
				"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "client_id": {client},
				"device_code": {begun["device_code"].(string)}, "code_verifier": {verifier},
			})
			if answer["id_token"] != nil {
				return "a token"
			}
			return answer["error"]
		}
		yes, no := begin(), begin()
		got := []any{poll(yes, "cli", verifier), poll(yes, "cli", verifier), poll(yes, "robot", verifier)}
		decideOnPage(t, yes, false)
		decideOnPage(t, no, true)
		got = append(got, poll(no, "cli", verifier), poll(yes, "cli", verifier))
		want := []any{"authorization_pending", "slow_down", "invalid_client", "access_denied", "slow_down"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: polls (-want +got):\n%s", profile, diff)
		}
		good := begin()
		decideOnPage(t, good, false)
		if got := poll(good, "cli", verifier); got != "a token" {
			t.Errorf("%s: poll after a yes = %v", profile, got)
		}
		if got := poll(good, "cli", verifier); got != "invalid_grant" {
			t.Errorf("%s: second poll after a yes = %v", profile, got)
		}
	}
}

func decideOnPage(t *testing.T, begun map[string]any, no bool) {
	t.Helper()
	browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Password: "engine", Decide: func(form *testissuer.Form) {
		form.Fields.Set("user_code", begun["user_code"].(string))
		if no {
			form.Fields.Set("cancel", "yes")
		}
	}})
	page, err := browser.Visit(t.Context(), begun["verification_uri"].(string))
	if err != nil || page.Status != http.StatusOK || !strings.Contains(page.Body, "Go back") {
		t.Fatalf("device page = %+v, %v", page, err)
	}
}

func TestDevicePageRefuses(t *testing.T) {
	i := startAs(t, "", nil)
	for name, tt := range map[string]struct {
		code, password string
		status         int
	}{
		"an unknown code":  {"XXXX-XXXX", "engine", http.StatusNotFound},
		"a wrong password": {"XXXX-XXXX", "wrong", http.StatusUnauthorized},
	} {
		browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Password: tt.password})
		page, err := browser.Visit(t.Context(), i.URL()+"/device?user_code="+tt.code)
		if err != nil || page.Status != tt.status {
			t.Errorf("%s = %v, %v, want %d", name, page, err, tt.status)
		}
	}
}

// The standard client of others agrees with the device endpoints.
func TestDeviceFlowWithOAuth2(t *testing.T) {
	i := testissuer.Start(t, testissuer.Options{AutoApprove: "ada", PollEvery: 1e9})
	e := discover(t, i)
	cfg := oauth2.Config{ClientID: "cli", Scopes: []string{"openid"}, Endpoint: oauth2.Endpoint{DeviceAuthURL: e.Device, TokenURL: e.Token}}
	begun, err := cfg.DeviceAuth(t.Context(), oauth2.S256ChallengeOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	decideOnPage(t, map[string]any{"user_code": begun.UserCode, "verification_uri": begun.VerificationURI}, false)
	token, err := cfg.DeviceAccessToken(t.Context(), begun, oauth2.VerifierOption(verifier))
	if err != nil || token.Extra("id_token") == nil {
		t.Errorf("token = %v, %v", token, err)
	}
}
