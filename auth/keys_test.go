// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klutch-go/sdk/auth"
)

// P4: a key that an issuer has taken back, since it was stolen perhaps, ends within minutes,
// also where no other token comes that would have the keys fetched.
func TestP4AKeyThatWasTakenBackEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := robotIssuer()
		asked := requests{next: inMemory{issuer}}
		provider := machineProvider(t, issuer, auth.Config{HTTPClient: &http.Client{Transport: &asked}})
		stolen := machineToken(t, issuer, "robot")
		for range 100 {
			if _, err := provider.VerifyMachine(t.Context(), stolen); err != nil {
				t.Fatal(err)
			}
		}
		issuer.RotateKeys()
		time.Sleep(11 * time.Minute)
		if id, err := provider.VerifyMachine(t.Context(), stolen); !errors.Is(err, auth.ErrToken) {
			t.Errorf("VerifyMachine = %v, %v, want ErrToken", id, err)
		}
		if n := asked.count("/keys"); n != 2 {
			t.Errorf("the keys were fetched %d times", n)
		}
	})
}

// What has keys at another address now, as an issuer after an upgrade, is found there.
func TestKeysMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := robotIssuer()
		moved := false
		provider := machineProvider(t, issuer, auth.Config{HTTPClient: &http.Client{Transport: inMemory{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case moved && r.URL.Path == "/keys":
				http.NotFound(w, r)
			case moved && r.URL.Path == "/.well-known/openid-configuration":
				answer := httptest.NewRecorder()
				issuer.ServeHTTP(answer, r)
				_, _ = w.Write([]byte(strings.Replace(answer.Body.String(), `example.com/keys"`, `example.com/v2/keys"`, 1)))
			default:
				r.URL.Path = strings.TrimPrefix(r.URL.Path, "/v2")
				issuer.ServeHTTP(w, r)
			}
		})}}})
		if _, err := provider.VerifyMachine(t.Context(), machineToken(t, issuer, "robot")); err != nil {
			t.Fatal(err)
		}
		moved = true
		issuer.RotateKeys()
		token := machineToken(t, issuer, "robot")
		if _, err := provider.VerifyMachine(t.Context(), token); !errors.Is(err, auth.ErrUnavailable) {
			t.Errorf("VerifyMachine where the keys were = %v, want ErrUnavailable: the token may be good", err)
		}
		time.Sleep(11 * time.Minute)
		if _, err := provider.VerifyMachine(t.Context(), token); err != nil {
			t.Errorf("VerifyMachine after the keys have moved = %v", err)
		}
	})
}

// P8: an issuer cannot have us compute for minutes with what it calls its keys. What makes no
// sense is the issuer's fault, and not that of who brings a token.
func TestP8KeysThatCostTooMuch(t *testing.T) {
	rsa := func(bits int, more string) string {
		n := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("\xff", bits/8)))
		return fmt.Sprintf(`{"kty":"RSA","n":%q,"e":"AQAB"%s}`, n, more)
	}
	for name, tt := range map[string]struct {
		status int
		keys   string
		want   error
	}{
		"usual ones":          {http.StatusOK, rsa(4096, `,"d":null`) + strings.Repeat(","+rsa(2048, ""), 19), auth.ErrToken},
		"the largest":         {http.StatusOK, rsa(8192, `,"x5t":"`+strings.Repeat("A", 2000)+`"`), auth.ErrToken},
		"of a kind to come":   {http.StatusOK, `{"kty":"AKP","pub":"` + strings.Repeat("A", 4000) + `"}`, auth.ErrToken},
		"a huge one":          {http.StatusOK, rsa(32768, ""), auth.ErrUnavailable},
		"many":                {http.StatusOK, rsa(4096, "") + strings.Repeat(","+rsa(4096, ""), 50), auth.ErrUnavailable},
		"a private one":       {http.StatusOK, rsa(4096, `,"d":"AQAB"`), auth.ErrUnavailable},
		"not one object":      {http.StatusOK, `"key"`, auth.ErrUnavailable},
		"not there":           {http.StatusNotFound, rsa(4096, ""), auth.ErrUnavailable},
		"for others, it says": {http.StatusForbidden, rsa(4096, ""), auth.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := robotIssuer()
			provider := machineProvider(t, issuer, auth.Config{HTTPClient: &http.Client{Transport: inMemory{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/keys" {
					issuer.ServeHTTP(w, r)
					return
				}
				w.WriteHeader(tt.status)
				_, _ = fmt.Fprintf(w, `{"keys":[%s]}`, tt.keys)
			})}}})
			encode := func(v any) string {
				data, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				return base64.RawURLEncoding.EncodeToString(data)
			}
			token := encode(map[string]string{"alg": "RS256"}) + "." +
				encode(map[string]any{"iss": issuer.URL(), "sub": "robot", "aud": audience, "exp": time.Now().Add(time.Hour).Unix()}) + "." +
				base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("\x7f", 4096)))
			began := time.Now()
			if id, err := provider.VerifyMachine(t.Context(), token); !errors.Is(err, tt.want) {
				t.Errorf("VerifyMachine = %v, %v, want %v", id, err, tt.want)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
