// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A visitor has a session and no patience for real time.
type visitor struct {
	handler http.Handler
	cookie  *http.Cookie
}

func newVisitor() *visitor {
	services := shop{sold("widgets", "developers")}
	sealer := must(auth.NewSealer(bytes.Repeat([]byte("k"), 32)))
	e := must(New(&rest.Config{Host: "https://127.0.0.1:1"}, Options{
		ExternalURL: "https://klutch.example.org", Sealer: sealer, Catalog: services, Authorizer: services,
		Provider: must(auth.New(auth.Config{Issuer: "https://issuer.example.org", ClientID: "klutch", RedirectURL: "https://klutch.example.org/callback"})),
	}))
	s := session{Identity: auth.Identity{Subject: "ada", Groups: []string{"developers"}}, Since: time.Now()}
	sealed := must(sealer.SealUntil(sessionCookie, must(json.Marshal(s)), time.Now().Add(sessionIdle)))
	return &visitor{e.Handler(), cookie(sessionCookie, sealed, sessionIdle)}
}

// look visits the services, with the newest cookie.
func (v *visitor) look(t *testing.T) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/services", http.NoBody)
	r.AddCookie(v.cookie)
	w := httptest.NewRecorder()
	v.handler.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		v.cookie = c
	}
	return w.Code
}

// TestP5Expiry: a session ends ten minutes after it was last used, and half an hour
// after it began.
func TestP5Expiry(t *testing.T) {
	for name, pauses := range map[string][]time.Duration{ // before each visit, of which the last one fails
		"used in time": {9 * time.Minute, 9 * time.Minute, 9 * time.Minute, 4 * time.Minute},
		"used often":   slices.Repeat([]time.Duration{time.Minute}, 30), "left alone": {25 * time.Hour},
		"used too late": {time.Second, 10*time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVisitor()
				for i, pause := range pauses {
					time.Sleep(pause)
					want := http.StatusOK
					if i == len(pauses)-1 {
						want = http.StatusUnauthorized
					}
					if got := v.look(t); got != want {
						t.Fatalf("visit %d: %d, want %d", i, got, want)
					}
				}
			})
		})
	}
}

func TestClaimWords(t *testing.T) {
	named := claim("secrets", v1alpha1.OwnerConsumer)
	named.Selector.Names = []string{"a", "b"}
	all := claim("configmaps", "")
	all.Required = true
	for want, c := range map[string]v1alpha1.PermissionClaim{
		"Reads secrets of your namespaces: only those called a, b. You may refuse.":   named,
		"Writes configmaps into your namespaces: any of them that the service makes.": all,
	} {
		if got := claimWords(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
