// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

// records are the audit records of an event that a backend without a cluster has left.
func (c *counter) records(event string) (found []string) {
	for line := range strings.Lines(c.log.String()) {
		if strings.HasPrefix(line, "audit ") && strings.Contains(line, fmt.Sprintf("%q=%q ", "msg", event)) {
			found = append(found, line)
		}
	}
	return found
}

// TestP27Refusals: each refusal that matters leaves one record, which says who asked, and
// by the ID that the answer has too, but nothing that is secret.
func TestP27Refusals(t *testing.T) {
	c, _ := openDeviceCounter(t, func(o *Options) { o.Handshake.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	const canary = "canary-c4n4ry"
	code := must(c.sealer.Seal(handshake.CodePurpose, []byte(`{"id":"x","tenant":"t","login":{"redirect":"r","challenge":"c"}}`)))
	form := func(pairs ...string) string {
		v := url.Values{"client_id": {handshake.ClientID}, "code_verifier": {canary}}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return v.Encode()
	}
	for i, test := range []struct {
		name, method, path, body string
		header                   []string
		event, says              string
	}{
		{"wrong browser", "GET", "/callback?code=" + canary + "&state=" + canary, "", nil, "callback refused", "no valid cookie"},
		{"forged cookie", "GET", "/services", "", []string{"Cookie", sessionCookie + "=" + canary}, "cookie refused", handshake.SessionCookie},
		{"cross-site POST", "POST", "/logout", "x=" + canary, []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, "form refused", "https://evil.example"},
		{"wrong verifier", "POST", "/token", form("grant_type", "authorization_code", "code", code), nil, "code refused", "another login"},
		{"forged code", "POST", "/token", form("grant_type", "authorization_code", "code", canary), nil, "code refused", "not a code"},
		{"forged device code", "POST", "/token", form("grant_type", handshake.DeviceGrantType, "device_code", canary), nil, "code refused", "not a device code"},
		{"forged token", "POST", "/bind-noninteractive", "{}", []string{"Authorization", "Bearer " + canary}, "machine refused", "invalid_token"},
	} {
		client := fmt.Sprintf("192.0.2.%d", i+1)
		resp := c.do(test.method, test.path, test.body, append(test.header, "X-Forwarded-For", client)...)
		id := resp.Header.Get(handshake.RequestHeader)
		if !slices.ContainsFunc(c.records(test.event), func(record string) bool {
			return strings.Contains(record, fmt.Sprintf("%q=%q %q=%q", "request", id, "client", client)) && strings.Contains(record, test.says)
		}) || id == "" || resp.Status < 400 {
			t.Errorf("%s: answered %d, and no record of it:\n%s", test.name, resp.Status, c.log)
		}
	}
	if strings.Contains(c.log.String(), canary) || strings.Contains(c.log.String(), code) {
		t.Errorf("a secret is in the log:\n%s", c.log)
	}
}

// TestP27WrongState: a callback of another login than the one in flight.
func TestP27WrongState(t *testing.T) {
	c := openCounter(t)
	b := c.browser("ada", "engine")
	if _, err := b.Get(t.Context(), c.authorizeURL()); err != nil {
		t.Fatal(err)
	}
	page, err := b.Get(t.Context(), c.url+"/callback?code=x&state=another")
	if err != nil || page.Status != http.StatusBadRequest {
		t.Fatalf("%+v, %v", page, err)
	}
	if got := c.records("callback refused"); len(got) != 1 || !strings.Contains(got[0], "does not belong to this login") {
		t.Errorf("records: %q", got)
	}
}

// TestP27Flood: however many requests are refused, few records say so, and no refusal is
// lost: the records count those that were left out.
func TestP27Flood(t *testing.T) {
	c := openCounter(t, func(o *Options) { o.Handshake.Limits.PerAddress = 1 })
	for range 200 {
		c.do(http.MethodGet, "/export", "")
	}
	if got := c.records("request limited"); len(got) == 0 || len(got) > 2*handshake.RefusalsPerClient {
		t.Errorf("%d records of 200 requests", len(got))
	}
}

// TestP27FloodHidesNothing: however many addresses strangers have, what they make up leaves
// out neither records of another kind nor that of a code which was taken.
func TestP27FloodHidesNothing(t *testing.T) {
	c, _ := openDeviceCounter(t, func(o *Options) { o.Handshake.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	code := must(c.sealer.Seal(handshake.CodePurpose, []byte(`{"id":"x","tenant":"t","login":{"redirect":"r","challenge":"c"}}`)))
	redeem := func(code, from string) {
		form := url.Values{"client_id": {handshake.ClientID}, "grant_type": {"authorization_code"}, "code_verifier": {"v"}, "code": {code}}
		c.do(http.MethodPost, "/token", form.Encode(), "X-Forwarded-For", from)
	}
	began := time.Now()
	for i := range 2 * handshake.RefusalsInAll {
		redeem("made up", fmt.Sprintf("2001:db8:%x::1", i))
	}
	redeem(code, "192.0.2.1")
	got := c.records("code refused")
	most := handshake.RefusalsInAll + 2 + int(time.Since(began).Minutes()*handshake.RefusalsInAll) // a slow machine gives the flood time for more
	if len(got) > most || !strings.Contains(got[len(got)-1], "another login") {
		t.Errorf("of a code that was taken there is no record among %d, at most %d", len(got), most)
	}
	c.do(http.MethodPost, "/bind-noninteractive", "{}", "Authorization", "Bearer x", "X-Forwarded-For", "192.0.2.2")
	if got := c.records("machine refused"); len(got) != 1 {
		t.Errorf("of a token that was refused there are %d records", len(got))
	}
	for range 2 * handshake.RefusalsPerClient {
		redeem(code, "192.0.2.1")
	}
	if more := len(c.records("code refused")) - len(got); more > handshake.RefusalsPerClient {
		t.Errorf("one code leaves %d more records", more)
	}
}

// TestP27RequestID: only a trusted proxy names requests, and only in plain words. People
// read the name on the page of an error.
func TestP27RequestID(t *testing.T) {
	for name, test := range map[string]struct {
		trusted string
		said    string
		taken   bool
	}{
		"of a proxy":     {"127.0.0.0/8", "0123456789abcdef-1", true},
		"of a stranger":  {"192.0.2.0/24", "0123456789abcdef-1", false},
		"markup":         {"127.0.0.0/8", "<b>0123456789</b>", false},
		"too long":       {"127.0.0.0/8", strings.Repeat("x", 65), false},
		"too short":      {"127.0.0.0/8", "x", false},
		"nothing at all": {"127.0.0.0/8", "", false},
	} {
		c := openCounter(t, func(o *Options) { o.Handshake.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(test.trusted)} })
		resp := c.do(http.MethodGet, "/services", "", handshake.RequestHeader, test.said, "Accept", "text/html")
		id := resp.Header.Get(handshake.RequestHeader)
		if (id == test.said) != test.taken || !handshake.RequestPattern.MatchString(id) || !strings.Contains(resp.Body, "<code>"+id+"</code>") {
			t.Errorf("%s: %q\n%s", name, id, resp.Body)
		}
	}
}

// TestP27RefusedLoginHasAnID: what a login leaves has the ID of its request too.
func TestP27RefusedLoginHasAnID(t *testing.T) {
	c := openCounter(t)
	c.issuer.Misbehave(testissuer.Faults{AuthorizeError: "access_denied"})
	_, _ = c.browser("ada", "engine").Get(t.Context(), c.authorizeURL()) // which ends at a terminal that is not there
	if got := c.records("login refused"); len(got) != 1 || !strings.Contains(got[0], `"client"="127.0.0.1"`) || !strings.Contains(got[0], `"request"=`) {
		t.Errorf("records: %q", got)
	}
}
