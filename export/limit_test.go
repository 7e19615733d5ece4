// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// P10: one address cannot keep the backend busy. Programs are told so in JSON, and
// probes are never turned away.
func TestP10LimitPerAddress(t *testing.T) {
	c := openCounter(t, func(o *Options) {
		o.Handshake.Limits.PerAddress = 5
		o.Handshake.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	const path, noisy, other = "/export", "192.0.2.1", "192.0.2.2"
	for i := range 7 {
		resp := c.do(http.MethodGet, path, "", "X-Forwarded-For", noisy)
		if want := map[bool]int{true: 200, false: 429}[i < 5]; resp.Status != want {
			t.Errorf("request %d: %d", i, resp.Status)
		}
	}
	page := c.do(http.MethodGet, path, "", "X-Forwarded-For", noisy, "Accept", "text/html")
	after, err := strconv.Atoi(page.Header.Get("Retry-After"))
	if err != nil || after < 1 || after > 12 || !strings.Contains(page.Body, fmt.Sprintf("try again in %d s", after)) || page.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("page: %+v %v", page, err)
	}
	for _, path := range []string{"/token", "/bind-noninteractive"} {
		resp := c.do(http.MethodPost, path, "x", "X-Forwarded-For", noisy)
		var said handshake.OAuthError
		if err := json.Unmarshal([]byte(resp.Body), &said); err != nil || resp.Status != 429 || said.Code != "slow_down" || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", path, resp.Status, resp.Body)
		}
	}
	if resp := c.do(http.MethodGet, path, "", "X-Forwarded-For", other); resp.Status != 200 {
		t.Errorf("another address: %d", resp.Status)
	}
	if resp := c.do(http.MethodGet, "/healthz", "", "X-Forwarded-For", noisy); resp.Status != 200 {
		t.Errorf("probe: %d", resp.Status)
	}
}

// P10: nor can one network of IPv6, of whose 65536 addresses each stays below its limit.
func TestP10LimitPerNetwork(t *testing.T) {
	c := openCounter(t, func(o *Options) {
		o.Handshake.Limits.PerAddress = 5
		o.Handshake.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	statuses := map[int]int{}
	for i := range 60 {
		statuses[c.do(http.MethodGet, "/export", "", "X-Forwarded-For", fmt.Sprintf("2001:db8:7:%x::1", i)).Status]++
	}
	if passed := statuses[200]; passed < 8*5 || passed > 8*5+8 || statuses[429] != 60-passed {
		t.Errorf("statuses of one /48: %v", statuses)
	}
	if resp := c.do(http.MethodGet, "/export", "", "X-Forwarded-For", "2001:db8:8::1"); resp.Status != 200 {
		t.Errorf("another /48: %d", resp.Status)
	}
}

// P10: an identity cannot either, from however many addresses and browsers.
func TestP10LimitPerSubject(t *testing.T) {
	var mu sync.Mutex
	var results []LoginResult
	c, _ := openDeviceCounter(t, func(o *Options) {
		o.Handshake.Limits.PerSubject = 2
		o.Handshake.Hooks.Login = func(r LoginResult) {
			mu.Lock()
			defer mu.Unlock()
			results = append(results, r)
		}
	})
	for _, want := range []int{200, 200, 429} {
		if page := c.signIn(c.browser("ada", "engine"), "ada", "engine"); page.Status != want {
			t.Errorf("sign in: %d, want %d", page.Status, want)
		}
	}
	many := c.browser("many", "groups")
	c.signIn(many, "many", "groups")
	for _, want := range []int{200, 429} { // it has seen the page once
		if page, err := many.Get(t.Context(), c.url+"/services"); err != nil || page.Status != want {
			t.Errorf("look: %+v %v, want %d", page, err, want)
		}
	}
	resp, said := c.bindMachine(c.token("ada", "klutch-machines", nil), "{}")
	if resp.Status != 429 || said.Code != "slow_down" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the same subject as a machine: %d %s", resp.Status, resp.Body)
	}
	mu.Lock()
	defer mu.Unlock()
	ok, limited := LoginSucceeded, LoginLimited
	if diff := cmp.Diff([]LoginResult{ok, ok, limited, ok, ok, limited}, results); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
}

// P10: the sessions of one identity are bounded in bytes, too: the groups that fit no
// cookie stay in the Control Plane Cluster for half an hour, and the backend reads them when it sweeps.
func TestP10SessionsOfOneIdentity(t *testing.T) {
	c, store := openDeviceCounter(t)
	groups := make([]string, 1800)
	for i := range groups {
		groups[i] = fmt.Sprintf("self-service-group-of-ada-%06d", i)
	}
	c.issuer.Misbehave(testissuer.Faults{Claims: map[string]any{"groups": groups}})
	statuses := map[int]int{}
	for range 20 {
		statuses[c.signIn(c.browser("ada", "engine"), "ada", "engine").Status]++
	}
	bytes := 0
	store.mu.Lock()
	for _, value := range store.values {
		bytes += len(value)
	}
	store.mu.Unlock()
	if statuses[200] == 0 || statuses[429] == 0 || statuses[200]+statuses[429] != 20 || bytes == 0 || bytes > 512<<10 {
		t.Errorf("%d bytes are kept after logins that were answered %v", bytes, statuses)
	}
	c.issuer.Misbehave(testissuer.Faults{})
	for range 5 {
		if page := c.signIn(c.browser("many", "groups"), "many", "groups"); page.Status != 200 {
			t.Fatalf("another one: %d", page.Status)
		}
	}
}

// P10: each look at what is on offer asks the API server about each service, whatever shows
// it: the page, a form without a choice, the wait for a terminal.
func TestP10LooksAreLimited(t *testing.T) {
	c, _ := openDeviceCounter(t, func(o *Options) { o.Handshake.Limits.PerSubject = 3 })
	b := c.browser("ada", "engine")
	page := c.signIn(b, "ada", "engine")
	i := slices.IndexFunc(page.Forms, func(f *testissuer.Form) bool { return strings.HasSuffix(f.Action, "/bind") })
	for _, want := range []int{422, 422, 429} { // to sign in counts too
		if got := must(b.Submit(t.Context(), page.Forms[i])); got.Status != want {
			t.Errorf("a form without a choice: %d, want %d", got.Status, want)
		}
	}
}

// asked is an Authorizer that counts.
type asked struct {
	Authorizer

	times atomic.Int64
}

func (a *asked) Authorize(ctx context.Context, id *auth.Identity, s Service) error {
	a.times.Add(1)
	return a.Authorizer.Authorize(ctx, id, s)
}

// P10: nor does a program have the backend look at the offer more often than its person may, by a code that was
// used.
func TestP10CodesAreLimited(t *testing.T) {
	looks := &asked{}
	c, _ := openDeviceCounter(t, func(o *Options) {
		looks.Authorizer, o.Authorizer = o.Authorizer, looks
		o.Handshake.Limits.PerSubject = 6
	})
	b := c.browser("ada", "engine")
	g, err := auth.Login(t.Context(), auth.LoginOptions{
		AuthorizeURL: c.url + "/authorize", Issuer: c.url, ClientID: handshake.ClientID, Scopes: []string{v1alpha1.ScopeOffer},
		Open: func(target string) error {
			_, err := b.Visit(t.Context(), target)
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	looks.times.Store(0)
	statuses := map[int]int{}
	var form string
	if _, err := g.Redeem(t.Context(), func(_ context.Context, asked url.Values) ([]byte, error) {
		form = asked.Encode()
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		statuses[c.do(http.MethodPost, "/token", form).Status]++
	}
	if n := looks.times.Load(); n > 6*4 || statuses[200] != 1 || statuses[400] != 5 || statuses[429] != 94 {
		t.Errorf("%d questions about four services, answers %v", n, statuses)
	}
}

// Routes and codes that hooks see come from a closed set, whatever is typed.
func TestHookRoutes(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	c := openCounter(t, func(o *Options) {
		o.Handshake.Hooks.Request = func(route string, code int, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			seen[fmt.Sprint(route, " ", code, " ", took > 0)] = true
		}
	})
	for _, path := range []string{"/", "/export?x=1", "/services", "/nowhere/" + strings.Repeat("x", 100), "/healthz"} {
		c.do(http.MethodGet, path, "")
	}
	c.do(http.MethodPost, "/token", "x")
	mu.Lock()
	defer mu.Unlock()
	var got []string
	for s := range seen {
		got = append(got, s)
	}
	slices.Sort(got)
	want := []string{"/ 200 true", "/export 200 true", "/healthz 200 true", "/services 401 true", "/token 400 true", "other 404 true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
