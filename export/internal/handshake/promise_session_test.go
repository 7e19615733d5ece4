// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
)

// TestP5SessionsEnd: one that is idle after ten minutes, one that is used after thirty,
// and what the browser is told of it is true, and not for scripts or plain http.
func TestP5SessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(nil)
		s := &session{ID: "s", Identity: auth.Identity{Issuer: "i", Subject: "ada"}, Since: time.Now()}
		keep := func() *http.Cookie {
			w := httptest.NewRecorder()
			if err := h.sessions.keep(t.Context(), w, s); err != nil {
				t.Fatal(err)
			}
			return w.Result().Cookies()[0]
		}
		open := func(c *http.Cookie) bool {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/services", http.NoBody)
			r.AddCookie(c)
			w := httptest.NewRecorder()
			_, ok := h.sessions.open(w, r)
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
		want := &http.Cookie{Name: SessionCookie, Path: "/", MaxAge: 60, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
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

// TestP5LongestSession: all that a program may ask for fits a cookie, with a person whose names are
// as long as they may be, and on its way to the issuer.
func TestP5LongestSession(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	l := login{Redirect: "http://127.255.255.255:65535/callback", State: long(200), Challenge: long(43), Cluster: long(64), Offer: true}
	for len(l.Services) < offer.MaxAsked {
		l.Services = append(l.Services, long(longestAsked/offer.MaxAsked))
	}
	params := url.Values{"client_id": {ClientID}, "code_challenge_method": {"S256"}}
	if wrong := l.wrong(params); wrong != "" {
		t.Fatal(wrong)
	}
	h := newTestServer(nil)
	if err := h.cookies.set(httptest.NewRecorder(), TxnCookie, transaction{l, auth.Attempt{State: long(43), Nonce: long(43), Verifier: long(43)}, long(63)}, txnLife); err != nil {
		t.Error(err)
	}
	person := auth.Identity{Issuer: long(100), Subject: long(255), Name: long(200), Email: long(254), Expiry: time.Now()}
	device := &auth.Device{ID: long(26), UserCode: "BCDFG-HJKLM", Expiry: time.Now()}
	l.UserCode = device.UserCode
	if err := h.sessions.keep(t.Context(), httptest.NewRecorder(), &session{ID: long(26), Login: l, Identity: person, GroupsKept: true, Claimed: time.Now(), Device: device, Since: time.Now()}); err != nil {
		t.Error(err)
	}
	l.Services[0] += long(longestAsked%offer.MaxAsked + 1)
	if l.wrong(params) == "" {
		t.Error("one more is taken")
	}
}

// TestP5LongestAnswer: what a login ends with fits a cookie, be it why none of many services can be had
// or the code for as many as may be chosen at once.
func TestP5LongestAnswer(t *testing.T) {
	h := newTestServer(nil)
	names := func(n, each int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%02d%s", i, strings.Repeat("x", each-2)))
		}
		return all
	}
	o := &offering{Unknown: names(longestAsked/250, 250)}
	for _, name := range names(20, 60) {
		o.Allowed = append(o.Allowed, offer.Service{Resource: schema.GroupResource{Resource: name}})
	}
	s := &session{
		ID:       strings.Repeat("x", 26),
		Login:    login{Redirect: "http://127.0.0.1:65535/callback", State: strings.Repeat("x", 43), Challenge: strings.Repeat("x", 43), Cluster: strings.Repeat("x", 36)},
		Identity: auth.Identity{Issuer: "https://" + strings.Repeat("x", 50), Subject: strings.Repeat("x", 36)},
	}
	for name, end := range map[string]func(http.ResponseWriter, *http.Request){
		"a refusal": func(w http.ResponseWriter, r *http.Request) {
			h.endings.finish(w, r, s, refusalValues(o.answer()), o.problem())
		},
		"a code": func(w http.ResponseWriter, r *http.Request) {
			h.endings.sendCode(w, r, s, grant{Tenant: strings.Repeat("x", 30), Services: names(longestAsked/30, 30)})
		},
	} {
		answer := httptest.NewRecorder()
		if end(answer, httptest.NewRequest(http.MethodGet, "/", nil)); answer.Code != http.StatusSeeOther {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
	}
}

// TestP3CopyOfACookie: a session gives one answer. A copy of its cookie that was made
// before gives none after it, not even at once, and leads nowhere any more.
func TestP3CopyOfACookie(t *testing.T) {
	h := newTestServer(func(o *Options) { o.Devices = &store{} })
	s := &session{ID: "s", Identity: auth.Identity{Issuer: "i", Subject: "ada"}, Since: time.Now(), Login: login{Redirect: "http://127.0.0.1:1/callback"}}
	kept := httptest.NewRecorder()
	if err := h.sessions.keep(t.Context(), kept, s); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/bind", http.NoBody)
	r.AddCookie(kept.Result().Cookies()[0])
	var opened []*session
	for range 3 {
		copied, ok := h.sessions.open(httptest.NewRecorder(), r)
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
			h.endings.finish(w, r, copied, url.Values{"code": {"c"}}, problem{})
			codes[i] = w.Code
		})
	}
	answers.Wait()
	slices.Sort(codes)
	if !slices.Equal(codes, []int{http.StatusSeeOther, http.StatusUnauthorized, http.StatusUnauthorized}) {
		t.Errorf("three copies are answered %v", codes)
	}
	if _, ok := h.sessions.open(httptest.NewRecorder(), r); ok {
		t.Error("a copy is good after the bind")
	}
}

// newTestServer is a server that needs no cluster and no issuer.
// TestP5CookiesAreSecure: but for plain http to this machine, cookies travel over TLS alone
// and belong to one host.
func TestP5CookiesAreSecure(t *testing.T) {
	for external, secure := range map[string]bool{
		"https://bind.example.com": true, "https://localhost:8443": true, "https://127.0.0.1": true, "http://192.168.1.5": true,
		"http://localhost.example.com": true, "http://127.0.0.1.example.com": true, "http://0.0.0.0:8080": true,
		"http://localhost:8080": false, "http://127.0.0.1:8080": false, "http://[::1]:8080": false,
	} {
		u, err := url.Parse(external)
		if err != nil {
			t.Fatal(err)
		}
		h := newTestServer(func(o *Options) { o.External = u })
		for _, name := range []string{TxnCookie, SessionCookie, doneCookie} {
			c := h.cookies.cookie(name, "v", time.Minute)
			if c.Secure != secure || strings.HasPrefix(c.Name, "__Host-") != secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" {
				t.Errorf("%s: %+v", external, c)
			}
		}
	}
}

func newTestServer(tune func(*Options)) *Server {
	sealer, err := auth.NewSealer(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		panic(err)
	}
	opts := &Options{
		External: &url.URL{Scheme: "https", Host: "backend.example"}, Sealer: func() *auth.Sealer { return sealer }, PerAddress: 600, PerSubject: 60,
	}
	if tune != nil {
		tune(opts)
	}
	return newServer(opts)
}

// A store is an [auth.DeviceStore] of one process.
type store struct{ values sync.Map }

func (s *store) Create(_ context.Context, key string, value []byte, _ time.Time) error {
	if _, taken := s.values.LoadOrStore(key, value); taken {
		return auth.ErrDeviceTaken
	}
	return nil
}

func (s *store) Get(_ context.Context, key string) ([]byte, error) {
	value, ok := s.values.Load(key)
	if data, is := value.([]byte); ok && is {
		return data, nil
	}
	return nil, auth.ErrDevicePending
}
