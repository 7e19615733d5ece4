// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

const audience = "https://klutch.example.com"

func machineIssuer(t *testing.T, profile testissuer.Profile) *testissuer.Issuer {
	t.Helper()
	return testissuer.Start(t, testissuer.Options{
		Profile: profile,
		Users:   map[string]testissuer.User{"ada": {}},
		Clients: map[string]testissuer.Client{
			"robot": {Secret: clientSecret, Scopes: []string{"klutch/bind", "other"}, Audiences: []string{audience}},
			"alien": {Secret: clientSecret, Scopes: []string{"klutch/bind"}, Audiences: []string{"https://another.example.com"}},
		},
	})
}

func machineProvider(t *testing.T, issuer *testissuer.Issuer, cfg auth.Config) *auth.Provider {
	t.Helper()
	cfg.Issuer, cfg.ClientID, cfg.Audiences = issuer.URL(), clientID, []string{audience, "robot"}
	return newProvider(t, cfg)
}

func machineToken(t *testing.T, issuer *testissuer.Issuer, client string, scopes ...string) string {
	t.Helper()
	token, err := issuer.MachineToken(client, scopes...)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestMachineLogsIn(t *testing.T) {
	for profile, want := range map[testissuer.Profile]auth.Identity{
		"":                  {Subject: "robot", Name: "robot"},
		testissuer.Keycloak: {Subject: "b3f5b6f2-robot", Name: "service-account-robot"},
		testissuer.Cognito:  {Subject: "robot", Name: "robot"},
	} {
		t.Run("as "+string(profile), func(t *testing.T) {
			issuer := machineIssuer(t, profile)
			tokens, err := auth.MachineTokens(t.Context(), auth.MachineOptions{
				Issuer: issuer.URL(), ClientID: "robot", ClientSecret: clientSecret, Scopes: []string{"klutch/bind"},
			})
			if err != nil {
				t.Fatal(err)
			}
			token, err := tokens.Token()
			if err != nil {
				t.Fatal(err)
			}
			got, err := machineProvider(t, issuer, auth.Config{}).VerifyMachine(t.Context(), token.AccessToken, "klutch/bind")
			if err != nil {
				t.Fatal(err)
			}
			want.Issuer, want.Expiry = issuer.URL(), got.Expiry
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
			if left := time.Until(got.Expiry); left < 59*time.Minute || left > time.Hour {
				t.Errorf("identity expires in %s", left)
			}
		})
	}
}

func TestP4OnlyAMachinesTokenForUsCounts(t *testing.T) {
	claims := func(pairs ...any) testissuer.Faults {
		f := testissuer.Faults{Claims: map[string]any{}}
		for i := 0; i < len(pairs); i += 2 {
			f.Claims[pairs[i].(string)] = pairs[i+1]
		}
		return f
	}
	tests := map[string]struct {
		faults testissuer.Faults
		want   error
	}{
		"none":                              {},
		"alg none":                          {faults: testissuer.Faults{Algorithm: "none"}, want: auth.ErrToken},
		"alg HS256 with a published key":    {faults: testissuer.Faults{Algorithm: "HS256"}, want: auth.ErrToken},
		"wrong key":                         {faults: testissuer.Faults{WrongKey: true}, want: auth.ErrToken},
		"another issuer":                    {faults: claims("iss", "https://evil.example"), want: auth.ErrToken},
		"no issuer":                         {faults: claims("iss", nil), want: auth.ErrToken},
		"another audience":                  {faults: claims("aud", "another"), want: auth.ErrToken},
		"our audience among others":         {faults: claims("aud", []string{"another", audience})},
		"no audience":                       {faults: claims("aud", nil), want: auth.ErrToken},
		"no audience, as Cognito":           {faults: claims("aud", nil, "token_use", "access")},
		"no audience, another client":       {faults: claims("aud", nil, "token_use", "access", "client_id", "x"), want: auth.ErrToken},
		"no audience, no client":            {faults: claims("aud", nil, "token_use", "access", "client_id", nil), want: auth.ErrToken},
		"an ID token of Cognito":            {faults: claims("token_use", "id"), want: auth.ErrToken},
		"an ID token of Keycloak":           {faults: claims("typ", "ID"), want: auth.ErrToken},
		"a refresh token of Keycloak":       {faults: claims("typ", "Refresh"), want: auth.ErrToken},
		"a token of RFC 9068":               {faults: claims("typ", "at+jwt")},
		"an ID token, by its nonce":         {faults: claims("nonce", "n"), want: auth.ErrToken},
		"an ID token, by its at_hash":       {faults: claims("at_hash", "h"), want: auth.ErrToken},
		"expired":                           {faults: testissuer.Faults{Skew: -2 * time.Hour}, want: auth.ErrToken},
		"no expiry":                         {faults: claims("exp", nil), want: auth.ErrToken},
		"from the future":                   {faults: testissuer.Faults{Skew: 10 * time.Minute}, want: auth.ErrToken},
		"not yet valid":                     {faults: claims("nbf", time.Now().Add(time.Hour).Unix()), want: auth.ErrToken},
		"no subject":                        {faults: claims("sub", nil), want: auth.ErrToken},
		"the login client's":                {faults: claims("aud", clientID), want: auth.ErrToken},
		"the login client's, by azp":        {faults: claims("aud", clientID, "azp", clientID), want: auth.ErrToken},
		"a logout token":                    {faults: logout("logout+jwt"), want: auth.ErrToken},
		"a logout token without a type":     {faults: logout(testissuer.Absent), want: auth.ErrToken},
		"a token of another type":           {faults: testissuer.Faults{Type: "secevent+jwt"}, want: auth.ErrToken},
		"a logout token of Keycloak":        {faults: claims("typ", "Logout"), want: auth.ErrToken},
		"a session, by its sid":             {faults: claims("sid", "s", "auth_time", 1), want: auth.ErrToken},
		"a person's access token, as Okta":  {faults: claims("sub", "ada", "client_id", nil, "cid", "cli", "uid", "u", "auth_time", 1, "scope", nil, "scp", []string{"klutch/bind"}), want: auth.ErrToken},
		"a person's of RFC 9068":            {faults: personsToken(), want: auth.ErrToken},
		"a machine's with auth_time":        {faults: claims("auth_time", 1)}, // Amazon Cognito
		"an ID token, by its c_hash":        {faults: claims("c_hash", "h"), want: auth.ErrToken},
		"no scope":                          {faults: claims("scope", nil), want: auth.ErrScope},
		"another scope":                     {faults: claims("scope", "klutch/binder klutch"), want: auth.ErrScope},
		"the scope in another case":         {faults: claims("scope", "KLUTCH/BIND"), want: auth.ErrScope},
		"the scope with blanks around":      {faults: claims("scope", "  other  klutch/bind ")},
		"the scope as a list":               {faults: claims("scope", []string{"other", "klutch/bind"})},
		"the scope as scp":                  {faults: claims("scope", nil, "scp", []string{"klutch/bind"})},
		"the scope as scp in one string":    {faults: claims("scope", nil, "scp", "other klutch/bind")},
		"two scopes that are one in a list": {faults: claims("scope", []string{"other klutch/bind"}), want: auth.ErrScope},
		"a scope that is a number":          {faults: claims("scope", 1), want: auth.ErrToken},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			issuer := machineIssuer(t, "")
			issuer.Misbehave(tt.faults)
			token := machineToken(t, issuer, "robot", "klutch/bind")
			id, err := machineProvider(t, issuer, auth.Config{}).VerifyMachine(t.Context(), token, "klutch/bind")
			if !errors.Is(err, tt.want) || (err == nil) != (id != nil) {
				t.Errorf("VerifyMachine = %v, %v, want error %v", id, err, tt.want)
			}
			if err != nil && (strings.Contains(err.Error(), "eyJ") || len(err.Error()) > 500) {
				t.Errorf("error gives too much away: %v", err)
			}
		})
	}
}

// personsToken makes a token one that a person has let a program get.
func personsToken() testissuer.Faults {
	return testissuer.Faults{Type: "at+jwt", Claims: map[string]any{"sub": "ada", "client_id": "cli", "auth_time": 1}}
}

const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// logout makes a token one that tells of the end of a session, otherwise in order.
func logout(kind string) testissuer.Faults {
	return testissuer.Faults{Type: kind, Claims: map[string]any{"events": map[string]any{logoutEvent: map[string]any{}}, "sid": "s"}}
}

// An issuer that does not put nonce and at_hash into an ID token, such as after a
// refresh, leaves nothing that tells it from an access token but the latter's own mark.
func TestP4OnlyWhatSaysThatItIsAMachinesCounts(t *testing.T) {
	person := map[string]any{"client_id": nil, "scope": nil}
	with := func(pairs ...any) map[string]any {
		claims := maps.Clone(person)
		for i := 0; i < len(pairs); i += 2 {
			claims[pairs[i].(string)] = pairs[i+1]
		}
		return claims
	}
	auth0 := auth.Claim{Name: "gty", Value: "client-credentials"}
	for name, tt := range map[string]struct {
		claims map[string]any
		kind   string
		mark   auth.Claim
		scopes []string
		ok     bool
	}{
		"nothing":                           {claims: person},
		"typ Bearer alone, of a person":     {claims: with("typ", "Bearer", "azp", "cli")},
		"another client's":                  {claims: with("client_id", "cli")},
		"the type of RFC 9068":              {claims: person, kind: "at+jwt", ok: true},
		"its media type in another case":    {claims: person, kind: "application/AT+JWT", ok: true},
		"the scope that is demanded":        {claims: with("scope", "klutch/bind"), scopes: []string{"klutch/bind"}, ok: true},
		"a scope that is not demanded":      {claims: with("scope", "klutch/bind")},
		"token_use":                         {claims: with("token_use", "access"), ok: true},
		"a service account of Keycloak":     {claims: with("typ", "Bearer", "client_id", "cli"), ok: true},
		"the client itself":                 {claims: with("client_id", "robot"), ok: true},
		"the client itself, as Okta":        {claims: with("cid", "robot"), ok: true},
		"a claim that is not configured":    {claims: with("gty", "client-credentials")},
		"the claim that is named":           {claims: with("gty", "client-credentials"), mark: auth0, ok: true},
		"the claim that is named, a list":   {claims: with("gty", []string{"x", "client-credentials"}), mark: auth0, ok: true},
		"the claim with another value":      {claims: with("gty", "password"), mark: auth0},
		"the claim that is named is needed": {claims: person, kind: "at+jwt", mark: auth0},
		"the claim is no text":              {claims: with("gty", 1), mark: auth0},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := machineIssuer(t, "")
			issuer.Misbehave(testissuer.Faults{Claims: tt.claims, Type: tt.kind})
			token := machineToken(t, issuer, "robot")
			id, err := machineProvider(t, issuer, auth.Config{MachineClaim: tt.mark}).VerifyMachine(t.Context(), token, tt.scopes...)
			if (err == nil) != tt.ok || !tt.ok && !errors.Is(err, auth.ErrToken) {
				t.Errorf("VerifyMachine = %v, %v, want success %t", id, err, tt.ok)
			}
		})
	}
}

// A token for a person's login is no machine's, whatever name the issuer gives it.
func TestP4IDTokensOfKnownIssuersAreNoMachines(t *testing.T) {
	for _, profile := range []testissuer.Profile{"", testissuer.Dex, testissuer.Keycloak, testissuer.Cognito} {
		issuer := machineIssuer(t, profile)
		provider := machineProvider(t, issuer, auth.Config{})
		for _, aud := range []string{clientID, audience, "robot"} {
			token, err := issuer.IDToken("ada", aud)
			if err != nil {
				t.Fatal(err)
			}
			if id, err := (auth.Providers{provider}).VerifyMachine(t.Context(), token); !errors.Is(err, auth.ErrToken) {
				t.Errorf("an ID token of %s for %s = %v, %v, want ErrToken", profile, aud, id, err)
			}
		}
	}
}

func TestP4ALoginsIDTokenIsNoMachine(t *testing.T) {
	issuer := machineIssuer(t, testissuer.Keycloak)
	provider := machineProvider(t, issuer, auth.Config{})
	token, err := issuer.IDToken("ada", clientID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Verify(t.Context(), token, ""); err != nil {
		t.Errorf("Verify = %v", err)
	}
	if id, err := provider.VerifyMachine(t.Context(), token); !errors.Is(err, auth.ErrToken) {
		t.Errorf("VerifyMachine = %v, %v, want ErrToken", id, err)
	}
}

func TestSeveralIssuers(t *testing.T) {
	first, second, stranger := machineIssuer(t, ""), machineIssuer(t, testissuer.Keycloak), machineIssuer(t, "")
	providers := auth.Providers{
		machineProvider(t, first, auth.Config{}),
		newProvider(t, auth.Config{Issuer: second.URL(), ClientID: "first client"}),
		machineProvider(t, second, auth.Config{}),
	}
	for issuer, want := range map[*testissuer.Issuer]error{first: nil, second: nil, stranger: auth.ErrToken} {
		id, err := providers.VerifyMachine(t.Context(), machineToken(t, issuer, "robot", "klutch/bind"), "klutch/bind")
		if !errors.Is(err, want) || want == nil && (id == nil || id.Issuer != issuer.URL()) {
			t.Errorf("VerifyMachine of %s = %v, %v, want %v", issuer.URL(), id, err, want)
		}
	}
	if id, err := providers.VerifyMachine(t.Context(), machineToken(t, first, "robot", "other"), "klutch/bind"); !errors.Is(err, auth.ErrScope) {
		t.Errorf("VerifyMachine without the scope = %v, %v, want what its own issuer's Provider says", id, err)
	}
	if id, err := providers.VerifyMachine(t.Context(), machineToken(t, first, "alien", "klutch/bind")); !errors.Is(err, auth.ErrToken) {
		t.Errorf("VerifyMachine for another audience = %v, %v", id, err)
	}
}

// requests counts those to each path.
type requests struct {
	next http.RoundTripper // nil means http.DefaultTransport

	mu sync.Mutex
	by map[string]int
}

func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	if r.by == nil {
		r.by = map[string]int{}
	}
	r.by[req.URL.Path]++
	r.mu.Unlock()
	if r.next != nil {
		return r.next.RoundTrip(req)
	}
	return http.DefaultTransport.RoundTrip(req)
}

func (r *requests) count(path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[path]
}

func TestP10UnknownIssuerCostsNoRequest(t *testing.T) {
	var asked requests
	trusted, stranger := machineIssuer(t, ""), machineIssuer(t, "")
	provider := machineProvider(t, trusted, auth.Config{HTTPClient: &http.Client{Transport: &asked}})
	good := machineToken(t, trusted, "robot")
	for name, raw := range map[string]string{
		"of a stranger":  machineToken(t, stranger, "robot"),
		"empty":          "",
		"two parts":      good[:strings.LastIndex(good, ".")],
		"four parts":     good + ".x",
		"not base64":     "a.%.c",
		"not JSON":       "a.YWJj.c",
		"a huge one":     "a." + strings.Repeat("A", 1<<20) + ".c",
		"without issuer": "a.e30.c",
	} {
		for call, verify := range map[string]func() (*auth.Identity, error){
			"Providers":     func() (*auth.Identity, error) { return auth.Providers{provider}.VerifyMachine(t.Context(), raw) },
			"VerifyMachine": func() (*auth.Identity, error) { return provider.VerifyMachine(t.Context(), raw) },
			"Verify":        func() (*auth.Identity, error) { return provider.Verify(t.Context(), raw, "") },
		} {
			if id, err := verify(); !errors.Is(err, auth.ErrToken) {
				t.Errorf("%s of a token %s = %v, %v, want ErrToken", call, name, id, err)
			}
		}
	}
	if len(asked.by) != 0 {
		t.Errorf("the issuer was asked: %v", asked.by)
	}
}

func TestP10JunkCostsFewFetchesOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := robotIssuer()
		asked := requests{next: inMemory{issuer}}
		provider := machineProvider(t, issuer, auth.Config{HTTPClient: &http.Client{Transport: &asked}})
		good := machineToken(t, issuer, "robot", "klutch/bind")
		issuer.Misbehave(testissuer.Faults{WrongKey: true})
		wrong := machineToken(t, issuer, "robot", "klutch/bind")
		issuer.Misbehave(testissuer.Faults{})
		unknown := machineIssuerTwin(t, issuer)
		verify := func(raw string, want error) {
			t.Helper()
			if id, err := provider.VerifyMachine(t.Context(), raw, "klutch/bind"); !errors.Is(err, want) || err == nil != (want == nil) {
				t.Errorf("VerifyMachine = %v, %v, want %v", id, err, want)
			}
			synctest.Wait() // the next token must not share the fetch of this one
		}
		verify(good, nil)
		for range 100 {
			verify(wrong, auth.ErrToken)
			verify(unknown, auth.ErrToken)
			verify(good, nil)
		}
		// One of the three was spent on the issuer's endpoints.
		if n := asked.count("/keys") + asked.count("/.well-known/openid-configuration"); n != 3 {
			t.Errorf("200 junk tokens made us ask the issuer %d times, want 3: %v", n, asked.by)
		}
		issuer.RotateKeys()
		rotated := machineToken(t, issuer, "robot", "klutch/bind")
		verify(rotated, auth.ErrToken) // only junk could have used the budget up
		time.Sleep(31 * time.Second)
		verify(rotated, nil)
		verify(rotated, nil)
		if n := asked.count("/keys"); n != 3 {
			t.Errorf("the keys were fetched %d times, want 3", n)
		}
	})
}

// robotIssuer is an issuer to be reached in memory.
func robotIssuer() *testissuer.Issuer {
	return testissuer.New(testissuer.Options{
		URL:     "https://issuer.example.com",
		Clients: map[string]testissuer.Client{"robot": {Scopes: []string{"klutch/bind"}, Audiences: []string{audience}}},
	})
}

// inMemory is a network to one server that needs no sockets.
type inMemory struct{ http.Handler }

func (n inMemory) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	n.ServeHTTP(answer, req)
	return answer.Result(), nil
}

// machineIssuerTwin returns a token of the issuer's name with a key ID that it
// does not know.
func machineIssuerTwin(t *testing.T, issuer *testissuer.Issuer) string {
	t.Helper()
	twin := testissuer.New(testissuer.Options{URL: issuer.URL(), Clients: map[string]testissuer.Client{"robot": {Audiences: []string{audience}}}})
	return machineToken(t, twin, "robot", "klutch/bind")
}

// Logins do not pay for the junk of others.
func TestP10JunkStopsNoLogin(t *testing.T) {
	p := newParty(t, testissuer.Options{}, auth.Config{Audiences: []string{audience}})
	if _, err := p.login(t); err != nil {
		t.Fatal(err)
	}
	twin := testissuer.New(testissuer.Options{URL: p.issuer.URL(), Users: map[string]testissuer.User{"ada": {}}})
	for range 10 {
		junk, err := twin.IDToken("ada", clientID)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := p.provider.Verify(t.Context(), junk, ""); !errors.Is(err, auth.ErrToken) {
			t.Fatalf("Verify = %v, %v", id, err)
		}
	}
	p.issuer.RotateKeys()
	if _, err := p.login(t); err != nil {
		t.Errorf("login after a rotation = %v", err)
	}
}

func TestP10IssuerThatIsDownIsNotHammered(t *testing.T) {
	for name, known := range map[string]bool{"from the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { issuerThatIsDownIsNotHammered(t, known) })
		})
	}
}

func issuerThatIsDownIsNotHammered(t *testing.T, known bool) {
	t.Helper()
	issuer := robotIssuer()
	asked := requests{next: inMemory{issuer}}
	provider := machineProvider(t, issuer, auth.Config{HTTPClient: &http.Client{Transport: &asked}})
	token := machineToken(t, issuer, "robot")
	if known {
		if _, err := provider.VerifyMachine(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		issuer.RotateKeys()
		token = machineToken(t, issuer, "robot")
		time.Sleep(31 * time.Second)
	}
	before := asked.count("/keys") + asked.count("/.well-known/openid-configuration")
	issuer.Misbehave(testissuer.Faults{Down: true})
	verify := func() {
		if id, err := provider.VerifyMachine(t.Context(), token); !errors.Is(err, auth.ErrUnavailable) {
			t.Errorf("VerifyMachine = %v, %v, want ErrUnavailable", id, err)
		}
	}
	var waiting sync.WaitGroup
	for range 50 {
		waiting.Go(verify)
	}
	waiting.Wait()
	for range 10 {
		verify()
	}
	if n := asked.count("/keys") + asked.count("/.well-known/openid-configuration") - before; n > 3 {
		t.Errorf("the issuer was asked %d times, want 3 at most", n)
	}
	issuer.Misbehave(testissuer.Faults{})
	time.Sleep(31 * time.Second)
	if _, err := provider.VerifyMachine(t.Context(), token); err != nil {
		t.Errorf("VerifyMachine when the issuer is back = %v", err)
	}
}

func TestManyMachinesAtOnce(t *testing.T) {
	issuer := machineIssuer(t, "")
	provider := machineProvider(t, issuer, auth.Config{})
	token := machineToken(t, issuer, "robot")
	var waiting sync.WaitGroup
	for range 50 {
		waiting.Go(func() {
			if _, err := provider.VerifyMachine(t.Context(), token); err != nil {
				t.Errorf("VerifyMachine = %v", err)
			}
		})
	}
	waiting.Wait()
}

func TestMachineIsRefusedAToken(t *testing.T) {
	tests := map[string]struct {
		opts   auth.MachineOptions
		faults testissuer.Faults
		code   string
		want   error
	}{
		"wrong secret":  {opts: auth.MachineOptions{ClientID: "robot", ClientSecret: "x"}, code: "invalid_client"},
		"unknown scope": {opts: auth.MachineOptions{ClientID: "robot", ClientSecret: clientSecret, Scopes: []string{"all"}}, code: "invalid_scope"},
		"down":          {opts: auth.MachineOptions{ClientID: "robot", ClientSecret: clientSecret}, faults: testissuer.Faults{Path: "/token", Down: true}, want: auth.ErrUnavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			issuer := machineIssuer(t, "")
			issuer.Misbehave(tt.faults)
			tt.opts.TokenURL = issuer.URL() + "/token"
			tokens, err := auth.MachineTokens(t.Context(), tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			_, err = tokens.Token()
			var refused *auth.Error
			if errors.As(err, &refused); tt.code != "" && (refused == nil || refused.Code != tt.code) || !errors.Is(err, tt.want) && tt.want != nil {
				t.Errorf("Token = %v, want %s%v", err, tt.code, tt.want)
			}
			if strings.Contains(err.Error(), clientSecret) {
				t.Errorf("the secret is in the error: %v", err)
			}
		})
	}
	for _, opts := range []auth.MachineOptions{{}, {Issuer: "http://issuer.example.com", ClientID: "robot"}, {TokenURL: "http://issuer.example.com/token", ClientID: "robot"}, {Issuer: "https://issuer.example.com"}} {
		if _, err := auth.MachineTokens(t.Context(), opts); err == nil {
			t.Errorf("MachineTokens(%+v) succeeded", opts)
		}
	}
}

func TestBearerToken(t *testing.T) {
	for name, tt := range map[string]struct {
		header []string
		want   string
	}{
		"none":                {},
		"a bearer":            {[]string{"Bearer a.b.c"}, "a.b.c"},
		"another case":        {[]string{"bearer a.b.c"}, "a.b.c"},
		"two":                 {[]string{"Bearer a.b.c", "Bearer d.e.f"}, ""},
		"another scheme":      {[]string{"Basic YTpi"}, ""},
		"no token":            {[]string{"Bearer"}, ""},
		"no blank in between": {[]string{"Bearera.b.c"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/?"+url.Values{"access_token": {"in the URL"}}.Encode(), http.NoBody)
			r.Header["Authorization"] = tt.header
			if got := auth.BearerToken(r); got != tt.want {
				t.Errorf("BearerToken = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestBearerChallenge(t *testing.T) {
	for err, want := range map[error]string{
		auth.ErrToken:          `401 Bearer error="invalid_token"`,
		auth.ErrScope:          `403 Bearer error="insufficient_scope"`,
		auth.ErrUnavailable:    "503 ",
		errors.New("whatever"): "500 ",
	} {
		status, authenticate := auth.BearerChallenge(err)
		if got := fmt.Sprint(status, " ", authenticate); got != want {
			t.Errorf("BearerChallenge(%v) = %q, want %q", err, got, want)
		}
	}
}
