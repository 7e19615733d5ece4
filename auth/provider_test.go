// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

const (
	clientID     = "klutch"
	clientSecret = "canary-client-secret-0123456789abcdef"
)

// A party is a server that relies on an issuer, and the people before it.
type party struct {
	issuer   *testissuer.Issuer
	provider *auth.Provider
}

func newParty(t *testing.T, opts testissuer.Options, cfg auth.Config) *party {
	t.Helper()
	opts.Users = map[string]testissuer.User{
		"ada":     {Password: "engine", Subject: "42", Name: "Ada Lovelace", Email: "ada@example.com", Groups: []string{"developers", "poets"}},
		"mallory": {Password: "evil", Subject: "666"},
	}
	opts.Clients = map[string]testissuer.Client{clientID: {Secret: clientSecret}}
	p := &party{issuer: testissuer.Start(t, opts)}
	landing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(landing.Close)
	cfg.Issuer, cfg.ClientID, cfg.ClientSecret = p.issuer.URL(), clientID, clientSecret
	cfg.RedirectURL = landing.URL + "/callback"
	p.provider = newProvider(t, cfg)
	return p
}

func newProvider(t *testing.T, cfg auth.Config) *auth.Provider {
	t.Helper()
	provider, err := auth.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// begin runs a login up to the callback.
func (p *party) begin(t *testing.T, user, password string) (auth.Attempt, url.Values) {
	t.Helper()
	attempt, loginURL, err := p.provider.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: user, Password: password})
	page, err := browser.Visit(t.Context(), loginURL)
	if err != nil {
		t.Fatal(err)
	}
	return attempt, page.URL.Query()
}

func (p *party) login(t *testing.T) (*auth.Identity, error) {
	t.Helper()
	attempt, callback := p.begin(t, "ada", "engine")
	return p.provider.Finish(t.Context(), attempt, callback)
}

func TestLogin(t *testing.T) {
	tests := map[string]struct {
		opts   testissuer.Options
		groups []string
	}{
		"plain":       {groups: []string{"developers", "poets"}},
		"RS256":       {opts: testissuer.Options{Algorithm: "RS256"}, groups: []string{"developers", "poets"}},
		"EdDSA":       {opts: testissuer.Options{Algorithm: "EdDSA"}, groups: []string{"developers", "poets"}},
		"as Dex":      {opts: testissuer.Options{Profile: testissuer.Dex, URL: "/dex"}, groups: []string{"developers", "poets"}},
		"as Keycloak": {opts: testissuer.Options{Profile: testissuer.Keycloak, URL: "/realms/a"}, groups: []string{"/developers", "/poets"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newParty(t, tt.opts, auth.Config{})
			got, err := p.login(t)
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(got.Expiry); left < 59*time.Minute || left > time.Hour {
				t.Errorf("identity expires in %s, want one hour", left)
			}
			got.Expiry = time.Time{}
			want := &auth.Identity{Issuer: p.issuer.URL(), Subject: "42", Name: "Ada Lovelace", Email: "ada@example.com", Groups: tt.groups}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCodeIsSentOnce(t *testing.T) {
	for _, methods := range [][]string{nil, {"client_secret_basic"}, {"client_secret_post"}} {
		for _, faults := range []testissuer.Faults{{}, {TokenError: "invalid_grant"}} {
			counter := &counter{}
			p := newParty(t, testissuer.Options{AuthMethods: methods}, auth.Config{HTTPClient: &http.Client{Transport: counter}})
			p.issuer.Misbehave(faults)
			if _, err := p.login(t); (err == nil) != (faults.TokenError == "") {
				t.Errorf("login with %v = %v", methods, err)
			}
			if n := counter.posts.Load(); n != 1 {
				t.Errorf("the code was sent %d times, want once", n)
			}
		}
	}
}

// counter counts POST requests.
type counter struct{ posts atomic.Int32 }

func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost {
		c.posts.Add(1)
	}
	return http.DefaultTransport.RoundTrip(req)
}

func TestPublicClient(t *testing.T) {
	issuer := testissuer.Start(t, testissuer.Options{AutoApprove: "ada", Clients: map[string]testissuer.Client{"public": {}}})
	landing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(landing.Close)
	p := &party{issuer: issuer, provider: newProvider(t, auth.Config{Issuer: issuer.URL(), ClientID: "public", RedirectURL: landing.URL})}
	if id, err := p.login(t); err != nil || id.Subject != "ada" {
		t.Errorf("login = %v, %v", id, err)
	}
}

func TestLoginOverTLS(t *testing.T) {
	p := newParty(t, testissuer.Options{TLS: true, AutoApprove: "ada"}, auth.Config{})
	if _, _, err := p.provider.Begin(t.Context()); !errors.Is(err, auth.ErrUnavailable) {
		t.Fatalf("Begin with an unknown certificate = %v, want ErrUnavailable", err)
	}
	p.provider = newProvider(t, auth.Config{
		Issuer: p.issuer.URL(), ClientID: clientID, ClientSecret: clientSecret,
		RedirectURL: "http://127.0.0.1:1/callback", HTTPClient: trusting(t, p.issuer.CA()),
	})
	token, err := p.issuer.IDToken("ada", clientID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.provider.Verify(t.Context(), token, ""); err != nil {
		t.Error(err)
	}
}

func TestP2NoSecretInURLs(t *testing.T) {
	p := newParty(t, testissuer.Options{}, auth.Config{})
	attempt, loginURL, err := p.provider.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Password: "engine"})
	page, err := browser.Visit(t.Context(), loginURL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.provider.Finish(t.Context(), attempt, page.URL.Query()); err != nil {
		t.Fatal(err)
	}
	if n := len(browser.URLs()); n != 3 {
		t.Errorf("the browser has been to %d URLs, want 3: form, submit, callback", n)
	}
	for _, visited := range browser.URLs() {
		for _, secret := range []string{clientSecret, "engine", attempt.Verifier, "id_token", "access_token"} {
			if strings.Contains(visited, secret) {
				t.Errorf("%q is in %s", secret, visited)
			}
		}
	}
}

func TestP3OnlyTheLoginThatWasBegun(t *testing.T) {
	p := newParty(t, testissuer.Options{}, auth.Config{})
	mine, callback := p.begin(t, "ada", "engine")
	theirs, theirCallback := p.begin(t, "mallory", "evil")
	with := func(base url.Values, name string, values ...string) url.Values {
		changed := maps.Clone(base)
		if changed[name] = values; len(values) == 0 {
			changed.Del(name)
		}
		return changed
	}
	var refused *auth.Error
	tests := map[string]struct {
		attempt  auth.Attempt
		callback url.Values
		oauth    bool // refused by the issuer, else ErrState
	}{
		"another's callback":                {attempt: mine, callback: theirCallback},
		"another's attempt":                 {attempt: theirs, callback: callback},
		"no attempt":                        {callback: callback},
		"no attempt and no state":           {callback: with(callback, "state", "")},
		"no state":                          {attempt: mine, callback: with(callback, "state")},
		"a prefix of the state":             {attempt: mine, callback: with(callback, "state", mine.State[:10])},
		"the state twice":                   {attempt: mine, callback: with(callback, "state", mine.State, mine.State)},
		"the code twice":                    {attempt: mine, callback: with(callback, "code", callback.Get("code"), theirCallback.Get("code"))},
		"an error with another state":       {attempt: mine, callback: url.Values{"error": {"access_denied"}, "state": {theirs.State}}},
		"another's code under my own state": {attempt: mine, callback: with(callback, "code", theirCallback.Get("code")), oauth: true},
		"no code":                           {attempt: mine, callback: with(callback, "code"), oauth: true},
		"an unknown code":                   {attempt: mine, callback: with(callback, "code", "x"), oauth: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			id, err := p.provider.Finish(t.Context(), tt.attempt, tt.callback)
			if id != nil || tt.oauth != errors.As(err, &refused) || tt.oauth == errors.Is(err, auth.ErrState) {
				t.Errorf("Finish = %v, %v", id, err)
			}
		})
	}
	if _, err := p.provider.Finish(t.Context(), mine, callback); err != nil {
		t.Errorf("Finish of the login itself = %v", err)
	}
	if id, err := p.provider.Finish(t.Context(), mine, callback); !errors.As(err, &refused) || refused.Code != "invalid_grant" {
		t.Errorf("Finish of a replay = %v, %v, want invalid_grant", id, err)
	}
}

func TestP3NonceHoldsWhereTheIssuerIgnoresPKCE(t *testing.T) {
	p := newParty(t, testissuer.Options{}, auth.Config{})
	p.issuer.Misbehave(testissuer.Faults{IgnorePKCE: true, ReuseCodes: true})
	mine, callback := p.begin(t, "ada", "engine")
	_, theirCallback := p.begin(t, "mallory", "evil")
	callback.Set("code", theirCallback.Get("code"))
	noNonce := mine
	noNonce.Nonce = ""
	for _, attempt := range []auth.Attempt{mine, noNonce} {
		if id, err := p.provider.Finish(t.Context(), attempt, callback); !errors.Is(err, auth.ErrToken) {
			t.Errorf("Finish with an injected code = %v, %v, want ErrToken", id, err)
		}
	}
}

func TestP4MisbehavingIssuer(t *testing.T) {
	claims := func(name string, value any) testissuer.Faults {
		return testissuer.Faults{Claims: map[string]any{name: value}}
	}
	tests := map[string]struct {
		faults testissuer.Faults
		want   error // nil: the login succeeds
	}{
		"none":                           {faults: testissuer.Faults{}},
		"alg none":                       {faults: testissuer.Faults{Algorithm: "none"}, want: auth.ErrToken},
		"alg HS256 with a published key": {faults: testissuer.Faults{Algorithm: "HS256", Claims: map[string]any{"at_hash": nil}}, want: auth.ErrToken},
		"wrong key":                      {faults: testissuer.Faults{WrongKey: true}, want: auth.ErrToken},
		"another issuer":                 {faults: claims("iss", "https://evil.example"), want: auth.ErrToken},
		"no issuer":                      {faults: claims("iss", nil), want: auth.ErrToken},
		"another audience":               {faults: claims("aud", "another"), want: auth.ErrToken},
		"no audience":                    {faults: claims("aud", nil), want: auth.ErrToken},
		"the audience of machines":       {faults: claims("aud", "machines"), want: auth.ErrToken},
		"two audiences":                  {faults: claims("aud", []string{clientID, "another"}), want: auth.ErrToken},
		"two audiences and our azp": {faults: testissuer.Faults{Claims: map[string]any{
			"aud": []string{clientID, "another"}, "azp": clientID,
		}}},
		"our azp":                 {faults: claims("azp", clientID)},
		"another azp":             {faults: claims("azp", "another"), want: auth.ErrToken},
		"another nonce":           {faults: claims("nonce", "another"), want: auth.ErrToken},
		"no nonce":                {faults: claims("nonce", nil), want: auth.ErrToken},
		"another at_hash":         {faults: claims("at_hash", "another"), want: auth.ErrToken},
		"no at_hash":              {faults: claims("at_hash", nil)}, // optional in the code flow
		"expired":                 {faults: testissuer.Faults{Skew: -2 * time.Hour}, want: auth.ErrToken},
		"no expiry":               {faults: claims("exp", nil), want: auth.ErrToken},
		"from the future":         {faults: testissuer.Faults{Skew: 10 * time.Minute}, want: auth.ErrToken},
		"from the near future":    {faults: testissuer.Faults{Skew: 30 * time.Second}},
		"not yet valid":           {faults: claims("nbf", time.Now().Add(time.Hour).Unix()), want: auth.ErrToken},
		"no iat":                  {faults: claims("iat", nil), want: auth.ErrToken},
		"no subject":              {faults: claims("sub", nil), want: auth.ErrToken},
		"half a character":        {faults: claims("sub", json.RawMessage(`"ada\ud800"`)), want: auth.ErrToken},
		"a character of control":  {faults: claims("sub", "ada\x00"), want: auth.ErrToken},
		"a subject of 256 bytes":  {faults: claims("sub", strings.Repeat("a", 256)), want: auth.ErrToken},
		"subject is a number":     {faults: claims("sub", 42), want: auth.ErrToken},
		"groups are numbers":      {faults: claims("groups", []int{1}), want: auth.ErrToken},
		"groups are one string":   {faults: claims("groups", "developers")},
		"another iss parameter":   {faults: testissuer.Faults{Iss: "https://evil.example"}, want: auth.ErrIssuer},
		"no iss parameter":        {faults: testissuer.Faults{Iss: testissuer.Absent}, want: auth.ErrIssuer},
		"another issuer's errors": {faults: testissuer.Faults{Iss: "https://evil.example", AuthorizeError: "access_denied"}, want: auth.ErrIssuer},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newParty(t, testissuer.Options{}, auth.Config{Audiences: []string{"machines"}})
			p.issuer.Misbehave(tt.faults)
			id, err := p.login(t)
			if !errors.Is(err, tt.want) || (err == nil) != (id != nil) {
				t.Fatalf("login = %v, %v, want error %v", id, err, tt.want)
			}
			if err != nil && (strings.Contains(err.Error(), "eyJ") || len(err.Error()) > 500) {
				t.Errorf("error gives too much away: %v", err)
			}
		})
	}
}

func TestP4DexSendsNoIss(t *testing.T) {
	p := newParty(t, testissuer.Options{Profile: testissuer.Dex}, auth.Config{})
	p.issuer.Misbehave(testissuer.Faults{Iss: "https://evil.example"})
	if id, err := p.login(t); !errors.Is(err, auth.ErrIssuer) {
		t.Errorf("login with another iss = %v, %v, want ErrIssuer also where none is announced", id, err)
	}
}

func TestP4DiscoveryMismatch(t *testing.T) {
	p := newParty(t, testissuer.Options{}, auth.Config{})
	p.issuer.Misbehave(testissuer.Faults{DiscoveryIssuer: "https://evil.example"})
	_, _, err := p.provider.Begin(t.Context())
	var mismatch *oidc.IssuerMismatchError
	if !errors.Is(err, auth.ErrUnavailable) || !errors.As(err, &mismatch) {
		t.Errorf("Begin = %v, want the mismatch", err)
	}
}

func TestIssuerSaysNo(t *testing.T) {
	tests := map[string]struct {
		faults testissuer.Faults
		want   *auth.Error
	}{
		"at login":   {faults: testissuer.Faults{AuthorizeError: "access_denied"}, want: &auth.Error{Code: "access_denied", Description: "on request"}},
		"at the end": {faults: testissuer.Faults{TokenError: "invalid_client"}, want: &auth.Error{Code: "invalid_client", Description: "on request"}},
		"with tricks": {
			faults: testissuer.Faults{AuthorizeError: "\x1b[31mred\u202e" + strings.Repeat("x", 10000)},
			want:   &auth.Error{Code: "?[31mred?" + strings.Repeat("x", 300-11) + "...", Description: "on request"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newParty(t, testissuer.Options{}, auth.Config{})
			p.issuer.Misbehave(tt.faults)
			_, err := p.login(t)
			var got *auth.Error
			if !errors.As(err, &got) {
				t.Fatalf("login = %v, want an *auth.Error", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIssuerComesBack(t *testing.T) {
	p := newParty(t, testissuer.Options{}, auth.Config{})
	p.issuer.Misbehave(testissuer.Faults{Down: true})
	_, _, err := p.provider.Begin(t.Context())
	if !errors.Is(err, auth.ErrUnavailable) || !strings.Contains(err.Error(), "503") {
		t.Errorf("Begin = %v, want ErrUnavailable with the status", err)
	}
	p.issuer.Misbehave(testissuer.Faults{})
	attempt, callback := p.begin(t, "ada", "engine")

	p.issuer.Misbehave(testissuer.Faults{Down: true})
	if _, err := p.provider.Finish(t.Context(), attempt, callback); !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("Finish = %v, want ErrUnavailable", err)
	}
	p.issuer.Misbehave(testissuer.Faults{Path: "/keys", Down: true})
	if _, err := p.provider.Finish(t.Context(), attempt, callback); !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("Finish without keys = %v, want ErrUnavailable", err)
	}
	p.issuer.Misbehave(testissuer.Faults{ReuseCodes: true})
	if _, err := p.provider.Finish(t.Context(), attempt, callback); err != nil {
		t.Errorf("Finish = %v", err)
	}
}

func TestKeyRotation(t *testing.T) {
	p := newParty(t, testissuer.Options{}, auth.Config{})
	for range 3 {
		if _, err := p.login(t); err != nil {
			t.Fatal(err)
		}
		p.issuer.RotateKeys()
	}
}

func TestManyGroups(t *testing.T) {
	groups := make([]string, 500)
	for i := range groups {
		groups[i] = fmt.Sprintf("a-group-with-a-rather-long-name-%03d", i)
	}
	p := newParty(t, testissuer.Options{}, auth.Config{GroupsClaim: "roles"})
	p.issuer.Misbehave(testissuer.Faults{Claims: map[string]any{"roles": groups}})
	id, err := p.login(t)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(groups, id.Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// P8, P10: what an issuer says of a person is kept with each session and sent to the API server for
// each service: it is no more than both can take, whatever the issuer sends.
func TestP10AnIdentityIsSmall(t *testing.T) {
	p := newParty(t, testissuer.Options{}, auth.Config{})
	with := func(claims map[string]any) (*auth.Identity, error) {
		p.issuer.Misbehave(testissuer.Faults{Claims: claims})
		return p.login(t)
	}
	long := strings.Repeat("é", 1<<17)
	for _, name := range []string{"name", "preferred_username"} {
		id, err := with(map[string]any{"name": "", name: long})
		if err != nil || len(id.Name) > 200 || !strings.HasPrefix(id.Name, "éé") {
			t.Errorf("%s: %v, %v", name, id, err)
		}
	}
	if id, err := with(map[string]any{"email": long + "@example.com"}); err != nil || id.Email != "" {
		t.Errorf("email: %v, %v", id, err)
	}
	for _, groups := range []any{long, strings.Fields(strings.Repeat("group ", 1<<14))} {
		if id, err := with(map[string]any{"groups": groups}); !errors.Is(err, auth.ErrToken) || !strings.Contains(err.Error(), "claim groups has") {
			t.Errorf("groups: %v, %v", id, err)
		}
	}
	if id, err := with(map[string]any{"groups": strings.Fields(strings.Repeat("group ", 1<<12))}); err != nil || len(id.Groups) != 1<<12 {
		t.Errorf("4096 groups: %v, %v", id, err)
	}
}

func TestP4EmailMustBeVerified(t *testing.T) {
	for name, tt := range map[string]struct {
		verified any
		want     string
	}{
		"verified":                {verified: true, want: "ada@example.com"},
		"verified, as a string":   {verified: "true", want: "ada@example.com"},
		"unverified":              {verified: false},
		"unverified, as a string": {verified: "false"},
		"unverified, in capitals": {verified: "False"},
		"unverified, as a number": {verified: 0},
		"verified at some time":   {verified: "2026-01-01"},
		"nothing said":            {verified: nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParty(t, testissuer.Options{}, auth.Config{})
			p.issuer.Misbehave(testissuer.Faults{Claims: map[string]any{"email_verified": tt.verified}})
			id, err := p.login(t)
			if err != nil {
				t.Fatal(err)
			}
			if id.Email != tt.want {
				t.Errorf("email = %q, want %q", id.Email, tt.want)
			}
		})
	}
}

func TestVerifyMachines(t *testing.T) {
	tests := map[string]struct {
		claims map[string]any
		nonce  string
		ok     bool
	}{
		"for us":                             {ok: true},
		"for us, issued to another":          {claims: map[string]any{"azp": "robot"}},
		"for machines, issued to one":        {claims: map[string]any{"aud": "machines", "azp": "robot"}},
		"for machines and others":            {claims: map[string]any{"aud": []string{"another", "machines"}}},
		"a logout token":                     {claims: map[string]any{"events": map[string]any{logoutEvent: map[string]any{}}}},
		"for another":                        {claims: map[string]any{"aud": "another"}},
		"for machines, where a login is due": {claims: map[string]any{"aud": "machines", "nonce": "n"}, nonce: "n"},
		"of another login":                   {claims: map[string]any{"nonce": "m"}, nonce: "n"},
		"of this login":                      {claims: map[string]any{"nonce": "n"}, nonce: "n", ok: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newParty(t, testissuer.Options{}, auth.Config{Audiences: []string{"machines"}})
			p.issuer.Misbehave(testissuer.Faults{Claims: tt.claims})
			token, err := p.issuer.IDToken("ada", clientID)
			if err != nil {
				t.Fatal(err)
			}
			id, err := p.provider.Verify(t.Context(), token, tt.nonce)
			if (err == nil) != tt.ok || !tt.ok && !errors.Is(err, auth.ErrToken) {
				t.Errorf("Verify = %v, %v, want success %t", id, err, tt.ok)
			}
		})
	}
}

func TestVerifyJunk(t *testing.T) {
	p := newParty(t, testissuer.Options{}, auth.Config{})
	good, err := p.issuer.IDToken("ada", clientID)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	for _, raw := range []string{"", ".", "..", "a.b.c", parts[0] + "." + parts[1] + ".", parts[0] + "." + parts[1], good + ".", "{}"} {
		if id, err := p.provider.Verify(t.Context(), raw, ""); !errors.Is(err, auth.ErrToken) {
			t.Errorf("Verify(%.20q) = %v, %v, want ErrToken", raw, id, err)
		}
	}
}

func TestVerifyClock(t *testing.T) {
	later := time.Now().Add(61 * time.Minute)
	p := newParty(t, testissuer.Options{}, auth.Config{Now: func() time.Time { return later }})
	token, err := p.issuer.IDToken("ada", clientID)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := p.provider.Verify(t.Context(), token, ""); !errors.Is(err, auth.ErrToken) {
		t.Errorf("Verify after an hour = %v, %v, want ErrToken", id, err)
	}
}

func TestNew(t *testing.T) {
	good := auth.Config{Issuer: "https://issuer.example.com", ClientID: "klutch", RedirectURL: "https://klutch.example.com/callback"}
	tests := map[string]struct {
		change func(*auth.Config)
		ok     bool
	}{
		"good":                   {change: func(*auth.Config) {}, ok: true},
		"without a redirect URL": {change: func(c *auth.Config) { c.RedirectURL = "" }, ok: true},
		"loopback issuer":        {change: func(c *auth.Config) { c.Issuer = "http://127.0.0.1:5556/dex" }, ok: true},
		"localhost issuer":       {change: func(c *auth.Config) { c.Issuer = "http://localhost:5556" }, ok: true},
		"no issuer":              {change: func(c *auth.Config) { c.Issuer = "" }},
		"plain http issuer":      {change: func(c *auth.Config) { c.Issuer = "http://issuer.example.com" }},
		"issuer with a query":    {change: func(c *auth.Config) { c.Issuer += "?a=b" }},
		"issuer with a user":     {change: func(c *auth.Config) { c.Issuer = "https://a:b@issuer.example.com" }},
		"no client":              {change: func(c *auth.Config) { c.ClientID = "" }},
		"for machines":           {change: func(c *auth.Config) { c.Audiences = []string{"machines"} }, ok: true},
		"for machines alone":     {change: func(c *auth.Config) { c.ClientID, c.Audiences = "", []string{"machines"} }, ok: true},
		"machines as the login":  {change: func(c *auth.Config) { c.Audiences = []string{"machines", "klutch"} }},
		"plain http redirect":    {change: func(c *auth.Config) { c.RedirectURL = "http://klutch.example.com/callback" }},
		"relative redirect":      {change: func(c *auth.Config) { c.RedirectURL = "/callback" }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tt.change(&cfg)
			if _, err := auth.New(cfg); (err == nil) != tt.ok {
				t.Errorf("New = %v, want success %t", err, tt.ok)
			}
		})
	}
}

// P10: however many strangers begin logins while an issuer is slow, or silent, and
// however many of them leave, it is asked once, and all that wait learn what came of it.
func TestP10StrangersShareAnAnswer(t *testing.T) {
	for name, down := range map[string]bool{"slow": false, "slow, and down": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				issuer := robotIssuer()
				asked := requests{next: inMemory{issuer}}
				provider := machineProvider(t, issuer, auth.Config{HTTPClient: &http.Client{Transport: &asked}})
				issuer.Misbehave(testissuer.Faults{Delay: 5 * time.Second, Down: down})
				var waiting sync.WaitGroup
				for range 100 { // each would have the others wait four seconds more
					waiting.Go(func() {
						gone, leave := context.WithTimeout(t.Context(), 4*time.Second)
						defer leave()
						_, _, _ = provider.Begin(gone)
					})
				}
				synctest.Wait()
				began := time.Now()
				for range 300 {
					waiting.Go(func() {
						if _, _, err := provider.Begin(t.Context()); down != errors.Is(err, auth.ErrUnavailable) || down == (err == nil) {
							t.Errorf("Begin = %v", err)
						}
					})
				}
				waiting.Wait()
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("strangers that leave make the others wait %s", took)
				}
				if n := asked.count("/.well-known/openid-configuration"); n != 1 {
					t.Errorf("the issuer was asked %d times", n)
				}
			})
		})
	}
}

// An issuer that went down is noticed before a person is sent to it.
func TestBeginAsksAnIssuerThatHasBeenSilent(t *testing.T) {
	now := time.Now()
	p := newParty(t, testissuer.Options{}, auth.Config{Now: func() time.Time { return now }})
	p.begin(t, "ada", "engine")
	p.issuer.Misbehave(testissuer.Faults{Down: true})
	if _, _, err := p.provider.Begin(t.Context()); err != nil {
		t.Errorf("Begin right after an answer = %v", err)
	}
	now = now.Add(11 * time.Second)
	if _, _, err := p.provider.Begin(t.Context()); !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("Begin = %v, want ErrUnavailable", err)
	}
	p.issuer.Misbehave(testissuer.Faults{})
	if _, _, err := p.provider.Begin(t.Context()); err != nil {
		t.Errorf("Begin when the issuer is back = %v", err)
	}
}
