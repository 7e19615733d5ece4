// SPDX-License-Identifier: Apache-2.0

package redirect_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"testing"

	"github.com/klutch-go/sdk/internal/redirect"
)

// accepted and refused are the corpus of promise P1.
func accepted() []string {
	return []string{
		"http://127.0.0.1:43111/callback",
		"http://[::1]:43111/callback",
		"http://127.0.0.1:1/callback",
		"http://127.0.0.1:65535/callback",
		"http://127.8.9.10:43111/callback",
	}
}

func refused() []string {
	return []string{
		"",
		"http://127.0.0.1.evil.example:1/callback",
		"http://127.0.0.1:1@evil.example/callback",
		`http://127.0.0.1:1\@evil.example/callback`,
		"http://evil.example/callback",
		"http://evil.example:43111/callback",
		"http://93.184.216.34:43111/callback",
		"http://169.254.169.254:80/callback",
		"//evil",
		"//127.0.0.1:1/callback",
		"127.0.0.1:1/callback",
		"javascript:alert(1)",
		"http:127.0.0.1:1/callback",
		"http:/127.0.0.1:1/callback",
		"http:///127.0.0.1:1/callback",
		"HTTP://127.0.0.1:1/callback",
		"http://127.0.0.1:43111/callback#x",
		"http://127.0.0.1:43111/callback#",
		"http://127.0.0.1:43111/callback?x=1",
		"http://127.0.0.1:43111/callback?",
		"http://127.0.0.1:43111/callback/",
		"http://127.0.0.1:43111//callback",
		"http://127.0.0.1:43111/Callback",
		"http://127.0.0.1:43111/",
		"http://127.0.0.1:43111",
		"https://127.0.0.1:1/callback",
		"ftp://127.0.0.1:1/callback",
		"http://0x7f.1:1/callback",
		"http://0x7f000001:1/callback",
		"http://2130706433:1/callback",
		"http://0177.0.0.1:1/callback",
		"http://127.000.000.001:1/callback",
		"http://127.1:1/callback",
		"http://0.0.0.0:1/callback",
		"http://[::]:1/callback",
		"http://127.0.0.1:1/../callback",
		"http://127.0.0.1:1/./callback",
		"http://127.0.0.1:1/callback/..;/",
		"http://127.0.0.1:1/..;/callback",
		"http://127.0.0.1/callback",
		"http://127.0.0.1:/callback",
		"http://127.0.0.1:0/callback",
		"http://127.0.0.1:-1/callback",
		"http://127.0.0.1:+80/callback",
		"http://127.0.0.1:080/callback",
		"http://127.0.0.1:99999/callback",
		"http://127.0.0.1:65536/callback",
		"http://[::ffff:127.0.0.1]:9/callback",
		"http://[::1%25lo]:9/callback",
		"http://[0:0:0:0:0:0:0:1]:9/callback",
		"http://::1:9/callback",
		"http://user@127.0.0.1:1/callback",
		"http://@127.0.0.1:1/callback",
		"http://127.0.0.1%2f:1/callback",
		"http://127.0.0.1:1%2fcallback",
		"http://127.0.0.1:1/%63allback",
		"http://127.0.0.1:1/callback%2f",
		"http://127.0.0.1:1/callback%00",
		"http://127.0.0.1:1/call\tback",
		"http://127.0.0.1:1/callback\r\nSet-Cookie: a=b",
		"http://127.0.0.1:1/callback\n",
		" http://127.0.0.1:1/callback",
		"http://127.0.0.1:1/callback ",
		"http://127。0。0。1:1/callback",
		"http://LOCALHOST:1/callback",
		"http://localhost.:1/callback",
		"http://localhost.evil.example:1/callback",
	}
}

func TestP1RedirectCorpus(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		for _, raw := range accepted() {
			if u, err := redirect.Loopback(raw, legacy); err != nil || u.String() != raw {
				t.Errorf("Loopback(%q, %t) = %v, %v, want it accepted as it is", raw, legacy, u, err)
			}
		}
		for _, raw := range refused() {
			if u, err := redirect.Loopback(raw, legacy); err == nil {
				t.Errorf("Loopback(%q, %t) = %v, want it refused", raw, legacy, u)
			}
		}
	}
}

func TestP1LocalhostIsLegacy(t *testing.T) {
	const raw = "http://localhost:43111/callback"
	if u, err := redirect.Loopback(raw, false); err == nil {
		t.Errorf("Loopback(%q, false) = %v, want it refused", raw, u)
	}
	if u, err := redirect.Loopback(raw, true); err != nil || u.String() != raw {
		t.Errorf("Loopback(%q, true) = %v, %v, want it accepted", raw, u, err)
	}
}

func FuzzP1Loopback(f *testing.F) {
	for _, raw := range append(accepted(), refused()...) {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := redirect.Loopback(raw, false)
		if err != nil {
			return
		}
		again, err := url.Parse(raw)
		if err != nil || again.String() != u.String() {
			t.Fatalf("%q: read as %v and as %v, %v", raw, u, again, err)
		}
		if u.Scheme != "http" || u.Path != redirect.Path || u.RawPath != "" || u.User != nil || u.Opaque != "" {
			t.Errorf("%q: accepted as %#v", raw, u)
		}
		if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			t.Errorf("%q: accepted with query or fragment", raw)
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err != nil || !addr.IsLoopback() {
			t.Errorf("%q: accepted host %s", raw, u.Hostname())
		}
		if port, err := strconv.Atoi(u.Port()); err != nil || port < 1 || port > 65535 {
			t.Errorf("%q: accepted port %s", raw, u.Port())
		}
	})
}

func ExampleLoopback() {
	_, err := redirect.Loopback("http://127.0.0.1:43111/callback", false)
	fmt.Println(err)
	_, err = redirect.Loopback("http://evil.example/callback", false)
	fmt.Println(err)
	// Output:
	// <nil>
	// redirect_uri must be http://127.0.0.1:PORT/callback or http://[::1]:PORT/callback
}
