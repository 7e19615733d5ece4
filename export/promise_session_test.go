// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/auth"
)

// TestP5SessionsEnd: one that is idle after ten minutes, one that is used after thirty,
// and what the browser is told of it is true, and not for scripts or plain http.
func TestP5SessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sealer := must(auth.NewSealer(bytes.Repeat([]byte("k"), 32)))
		h := newHandler(&Exporter{opts: Options{Sealer: sealer}, external: &url.URL{Scheme: "https", Host: "backend.example"}})
		s := &session{ID: "s", Identity: auth.Identity{Issuer: "i", Subject: "ada"}, Since: time.Now()}
		keep := func() *http.Cookie {
			w := httptest.NewRecorder()
			if err := h.keepSession(t.Context(), w, s); err != nil {
				t.Fatal(err)
			}
			return w.Result().Cookies()[0]
		}
		open := func(c *http.Cookie) bool {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/services", http.NoBody)
			r.AddCookie(c)
			w := httptest.NewRecorder()
			_, ok := h.openSession(w, r)
			if ok == (w.Code == http.StatusUnauthorized) {
				t.Errorf("open: %t with status %d", ok, w.Code)
			}
			return ok
		}
		first, cookie := keep(), keep()
		for minute := 1; minute < 30; minute++ {
			time.Sleep(time.Minute)
			if got, want := open(first), minute < 10; got != want {
				t.Errorf("idle for %d minutes: open is %t", minute, got)
			}
			if !open(cookie) {
				t.Fatalf("used, and ended after %d minutes", minute)
			}
			cookie = keep()
		}
		want := &http.Cookie{Name: sessionCookie, Path: "/", MaxAge: 60, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
		got := *cookie
		got.Value, got.Raw = "", ""
		if diff := cmp.Diff(want, &got); diff != "" {
			t.Errorf("cookie of a session with a minute left (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		if open(cookie) {
			t.Error("used, and open after thirty minutes")
		}
	})
}
