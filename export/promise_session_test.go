// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
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

// TestP3CopyOfACookie: a session gives one answer. A copy of its cookie that was made
// before gives none after it, not even at once, and leads nowhere any more.
func TestP3CopyOfACookie(t *testing.T) {
	sealer := must(auth.NewSealer(bytes.Repeat([]byte("k"), 32)))
	h := newHandler(&Exporter{opts: Options{Sealer: sealer, Handshake: Handshake{Devices: &deviceMemory{}}}, external: &url.URL{Scheme: "https", Host: "backend.example"}})
	s := &session{ID: "s", Identity: auth.Identity{Issuer: "i", Subject: "ada"}, Since: time.Now(), Login: login{Redirect: "http://127.0.0.1:1/callback"}}
	kept := httptest.NewRecorder()
	if err := h.keepSession(t.Context(), kept, s); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/bind", http.NoBody)
	r.AddCookie(kept.Result().Cookies()[0])
	var opened []*session
	for range 3 {
		copied, ok := h.openSession(httptest.NewRecorder(), r)
		if !ok {
			t.Fatal("the session is not there")
		}
		opened = append(opened, copied)
	}
	codes := make([]int, len(opened))
	var answers sync.WaitGroup
	for i, copied := range opened {
		answers.Go(func() {
			w := httptest.NewRecorder()
			h.finish(w, r, copied, url.Values{"code": {"c"}}, problem{})
			codes[i] = w.Code
		})
	}
	answers.Wait()
	slices.Sort(codes)
	if !slices.Equal(codes, []int{http.StatusSeeOther, http.StatusUnauthorized, http.StatusUnauthorized}) {
		t.Errorf("three copies are answered %v", codes)
	}
	if _, ok := h.openSession(httptest.NewRecorder(), r); ok {
		t.Error("a copy is good after the bind")
	}
}
