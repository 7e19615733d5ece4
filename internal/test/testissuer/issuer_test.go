// SPDX-License-Identifier: Apache-2.0

package testissuer_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/internal/test/testissuer"
)

const (
	verifier  = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk" // RFC 7636 appendix B
	challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
	landing   = "http://127.0.0.1:1/callback"
)

func start(t *testing.T) *testissuer.Issuer {
	t.Helper()
	return testissuer.Start(t, testissuer.Options{
		Users:   map[string]testissuer.User{"ada": {Password: "engine"}},
		Clients: map[string]testissuer.Client{"klutch": {Secret: "secret", RedirectURLs: []string{landing}}},
	})
}

func request() url.Values {
	return url.Values{
		"response_type": {"code"}, "client_id": {"klutch"}, "redirect_uri": {landing}, "state": {"s"}, "nonce": {"n"},
		"code_challenge": {challenge}, "code_challenge_method": {"S256"},
	}
}

// post submits the login form and returns the status and the query of the
// callback.
func post(t *testing.T, i *testissuer.Issuer, form url.Values) (int, url.Values) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.PostForm(i.URL()+"/authorize", form)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	target, err := url.Parse(resp.Header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, target.Query()
}

func login(t *testing.T, i *testissuer.Issuer) (code string) {
	t.Helper()
	form := request()
	form.Set("username", "ada")
	form.Set("password", "engine")
	status, callback := post(t, i, form)
	if status != http.StatusSeeOther || callback.Get("state") != "s" || callback.Get("iss") != i.URL() {
		t.Fatalf("login = %d %v", status, callback)
	}
	return callback.Get("code")
}

func TestAuthorizeRefuses(t *testing.T) {
	tests := map[string]struct {
		name, value string
		status      int
		err         string
	}{
		"a wrong password":      {name: "password", value: "x", status: http.StatusUnauthorized},
		"an unknown user":       {name: "username", value: "x", status: http.StatusUnauthorized},
		"an unknown client":     {name: "client_id", value: "x", status: http.StatusBadRequest},
		"another redirect":      {name: "redirect_uri", value: "http://127.0.0.1:2/callback", status: http.StatusBadRequest},
		"plain PKCE":            {name: "code_challenge_method", value: "plain", status: http.StatusSeeOther, err: "invalid_request"},
		"no PKCE":               {name: "code_challenge", value: "", status: http.StatusSeeOther, err: "invalid_request"},
		"another response type": {name: "response_type", value: "token", status: http.StatusSeeOther, err: "unsupported_response_type"},
		"a user who cancels":    {name: "cancel", value: "yes", status: http.StatusSeeOther, err: "access_denied"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			form := request()
			form.Set("username", "ada")
			form.Set("password", "engine")
			form.Set(tt.name, tt.value)
			status, callback := post(t, start(t), form)
			if status != tt.status || callback.Get("error") != tt.err || callback.Has("code") {
				t.Errorf("answer = %d %v, want %d %s", status, callback, tt.status, tt.err)
			}
		})
	}
}

func TestTokenRefuses(t *testing.T) {
	tests := map[string]struct {
		name, value string
		faults      testissuer.Faults
		want        string
	}{
		"nothing":             {},
		"a wrong verifier":    {name: "code_verifier", value: "x", want: "invalid_grant"},
		"no verifier":         {name: "code_verifier", value: "", want: "invalid_grant"},
		"a wrong code":        {name: "code", value: "x", want: "invalid_grant"},
		"a wrong redirect":    {name: "redirect_uri", value: "x", want: "invalid_grant"},
		"a wrong secret":      {name: "client_secret", value: "x", want: "invalid_client"},
		"a wrong client":      {name: "client_id", value: "x", want: "invalid_client"},
		"another grant type":  {name: "grant_type", value: "password", want: "unsupported_grant_type"},
		"PKCE, unless told":   {name: "code_verifier", value: "x", faults: testissuer.Faults{IgnorePKCE: true}},
		"what it is told to":  {faults: testissuer.Faults{TokenError: "server_error"}, want: "server_error"},
		"at other paths only": {faults: testissuer.Faults{Path: "/keys", Down: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			i := start(t)
			form := redemption(login(t, i))
			form.Set(tt.name, tt.value)
			i.Misbehave(tt.faults)
			if answer := redeem(t, i, form); answer["error"] != tt.want && (tt.want != "" || answer["id_token"] == "") {
				t.Errorf("answer = %v, want error %q", answer, tt.want)
			}
		})
	}
}

func TestCodeIsGoodForOne(t *testing.T) {
	i := start(t)
	form := redemption(login(t, i))
	var got []bool
	for _, faults := range []testissuer.Faults{{}, {}, {ReuseCodes: true}} {
		i.Misbehave(faults)
		got = append(got, redeem(t, i, form)["id_token"] != "")
	}
	if diff := cmp.Diff([]bool{true, false, true}, got); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
}

func redemption(code string) url.Values {
	return url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {verifier}, "redirect_uri": {landing},
		"client_id": {"klutch"}, "client_secret": {"secret"},
	}
}

func redeem(t *testing.T, i *testissuer.Issuer, form url.Values) map[string]string {
	t.Helper()
	resp, err := http.PostForm(i.URL()+"/token", form)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, answer := map[string]any{}, map[string]string{}
	if err := json.NewDecoder(resp.Body).Decode(&raw); err != nil {
		t.Fatal(err)
	}
	for name, value := range raw {
		answer[name] = fmt.Sprint(value)
	}
	return answer
}

func ExampleNew() {
	issuer := testissuer.New(testissuer.Options{URL: "http://issuer.example.com"})
	answer := httptest.NewRecorder()
	issuer.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/.well-known/openid-configuration", http.NoBody))
	var document struct{ Issuer string }
	err := json.Unmarshal(answer.Body.Bytes(), &document)
	fmt.Println(document.Issuer, err)
	// Output: http://issuer.example.com <nil>
}

func ExampleNewBrowser() {
	site := http.NewServeMux()
	site.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<!doctype html><form method="post" action="/order">
			<input name="username"><input type="checkbox" name="dish" value="soup" checked><input type="checkbox" name="dish" value="fish">
			<button name="confirm" value="yes">Order</button><button name="cancel" value="yes">Cancel</button></form>`)
	})
	site.HandleFunc("POST /order", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "__Host-order", Value: r.PostFormValue("username"), Path: "/", Secure: true})
		_, _ = fmt.Fprintf(w, `<!doctype html><meta http-equiv="refresh" content="0; url=/done?%s">`, strings.ReplaceAll(r.PostForm.Encode(), "&", "&amp;"))
	})
	site.HandleFunc("GET /done", func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie("__Host-order")
		_, _ = fmt.Fprintln(w, cookie.Value, r.URL.RawQuery, r.Header.Get("Sec-Fetch-Site"), err)
	})
	server := httptest.NewServer(http.NewCrossOriginProtection().Handler(site))
	defer server.Close()

	browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Check: []string{"fish"}})
	page, err := browser.Visit(testContext(), server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(page.Body)
	for _, visited := range browser.URLs() {
		fmt.Println(strings.TrimPrefix(visited, server.URL))
	}
	// Output:
	// ada confirm=yes&dish=soup&dish=fish&username=ada same-origin <nil>
	//
	// /order
	// /done?confirm=yes&dish=soup&dish=fish&username=ada
}
