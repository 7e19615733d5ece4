// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/klutch-go/sdk/auth"
)

// TestP27UnrecordedAreCounted: what a flood leaves out of the records is counted.
func TestP27UnrecordedAreCounted(t *testing.T) {
	r := &http.Request{URL: &url.URL{}, RemoteAddr: "192.0.2.1:1"}
	h := newTestServer(nil).visitors
	for range RefusalsPerClient + 3 {
		h.refused(r, "request limited")
	}
	if left := h.refusals.unrecorded.Load(); left != 3 {
		t.Errorf("%d are counted", left)
	}
}

// TestP10FailuresAreLoggedAtAPace: a control plane that fails is no way to fill a log, neither by many requests nor by
// some that are hung up on.
func TestP10FailuresAreLoggedAtAPace(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	h := newTestServer(nil)
	ask := func(ctx context.Context) {
		r := httptest.NewRequestWithContext(logr.NewContext(ctx, log), http.MethodPost, "/device/token", nil)
		answer := httptest.NewRecorder()
		if h.pages.refuseJSON(answer, r, errors.New("the control plane is down")); answer.Code != http.StatusServiceUnavailable {
			t.Errorf("answered with %d", answer.Code)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	ask(gone)
	if len(lines) > 0 {
		t.Errorf("a client that hung up is logged: %q", lines)
	}
	for range 3 * RefusalsPerClient {
		ask(t.Context())
	}
	if left := h.visitors.refusals.unlogged.Load(); len(lines) != RefusalsPerClient || left != 2*RefusalsPerClient {
		t.Errorf("%d lines, %d left out: %q", len(lines), left, lines)
	}
}

// X-Forwarded-For counts only as far as trusted proxies have written it.
func TestP10ClientBehindProxies(t *testing.T) {
	for _, test := range []struct {
		trusted, remote, forwarded, want string
	}{
		{"", "192.0.2.1:5", "198.51.100.1", "192.0.2.1"},
		{"10.0.0.0/8", "192.0.2.1:5", "198.51.100.1", "192.0.2.1"},
		{"10.0.0.0/8", "10.0.0.1:5", "", "10.0.0.1"},
		{"10.0.0.0/8", "10.0.0.1:5", "198.51.100.1", "198.51.100.1"},
		{"10.0.0.0/8", "10.0.0.1:5", "203.0.113.9, 198.51.100.1", "198.51.100.1"},
		{"10.0.0.0/8", "10.0.0.1:5", "198.51.100.1, 10.0.0.2", "198.51.100.1"},
		{"10.0.0.0/8", "10.0.0.1:5", "198.51.100.1, nonsense", "10.0.0.1"},
		{"10.0.0.0/8", "10.0.0.1:5", "198.51.100.1:7000", "198.51.100.1"},
		{"10.0.0.0/8", "10.0.0.1:5", "[2001:db8::1]:7000", "2001:db8::1"},
		{"10.0.0.0/8", "[::ffff:10.0.0.1]:5", "198.51.100.1", "198.51.100.1"},
	} {
		h := &visitors{opts: &Options{}}
		if test.trusted != "" {
			h.opts.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(test.trusted)}
		}
		r := &http.Request{RemoteAddr: test.remote, Header: http.Header{"X-Forwarded-For": {test.forwarded}}}
		if got := h.client(r); got.String() != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// TestP10WaitsAreLimited: a page that waits for a terminal is a look too.
func TestP10WaitsAreLimited(t *testing.T) {
	h := newTestServer(func(o *Options) { o.Devices, o.PerSubject = &store{}, 2 })
	s := &session{ID: "s", Identity: auth.Identity{Issuer: "i", Subject: "ada"}, Login: login{UserCode: "BCDFG-HJKLM"}, Since: time.Now(), Claimed: time.Now()}
	kept := httptest.NewRecorder()
	if err := h.sessions.keep(t.Context(), kept, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{404, 404, 429} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, devicePage, http.NoBody)
		r.AddCookie(kept.Result().Cookies()[0])
		w := httptest.NewRecorder()
		if h.devices.show(w, r); w.Code != want {
			t.Errorf("the wait for a terminal: %d, want %d", w.Code, want)
		}
	}
}
