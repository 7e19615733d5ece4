// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// shop is a catalogue and an authorizer in memory: the group of a service's
// template may bind it.
type shop []Service

func (s shop) Services(context.Context) ([]Service, error) { return s, nil }

func (s shop) Authorize(_ context.Context, id *auth.Identity, service Service) error {
	if slices.Contains(id.Groups, service.Template.Name) {
		return nil
	}
	return fmt.Errorf("%w: not in %s", ErrForbidden, service.Template.Name)
}

func sold(resource, group string) Service {
	return Service{
		Template: cache.NewObjectName("", group), Resource: schema.GroupResource{Group: "example.org", Resource: resource},
		Kind: strings.ToUpper(resource[:1]) + resource[1:], Scope: v1alpha1.NamespacedScope, Version: "v1", Versions: []string{"v1"},
		Title: "<script>alert(1)</script>" + resource, Description: `"><img src=x onerror=alert(1)>`,
		PermissionClaims: []v1alpha1.PermissionClaim{{
			GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1", Required: true,
			Selector: v1alpha1.ResourceSelector{References: []v1alpha1.Reference{{Path: "status.secret"}}},
		}},
	}
}

// A counter (page) is a backend without a cluster: what needs one fails.
type counter struct {
	t      *testing.T
	url    string
	issuer *testissuer.Issuer
	sealer *auth.Sealer
	writes *writeCounter
	log    *logs
}

func openCounter(t *testing.T, tune ...func(*Options)) *counter {
	t.Helper()
	many := []string{"developers"}
	for i := range 500 {
		many = append(many, fmt.Sprintf("4f0c1ab2-0000-4000-8000-%012d", i))
	}
	c := &counter{t: t, writes: &writeCounter{}, log: &logs{}, sealer: must(auth.NewSealer(bytes.Repeat([]byte("k"), 32)))}
	c.issuer = testissuer.Start(t, testissuer.Options{Users: map[string]testissuer.User{
		"ada":  {Password: "engine", Name: "Ada <b>", Groups: []string{"developers"}},
		"many": {Password: "groups", Name: "Many", Groups: many},
	}})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.url = "http://" + listener.Addr().String()
	services := shop{sold("widgets", "developers"), sold("gizmos", "operators"), {
		Template: cache.NewObjectName("", "developers"), Resource: schema.GroupResource{Group: "example.org", Resource: "ghosts"}, Title: "Ghosts",
	}, sold("continents", "developers")}
	services[3].Scope = v1alpha1.ClusterScope
	opts := Options{
		ExternalURL: c.url, Sealer: c.sealer, Catalog: services, Authorizer: services,
		Provider: must(auth.New(auth.Config{Issuer: c.issuer.URL(), ClientID: "klutch", RedirectURL: c.url + "/callback"})),
		Handshake: Handshake{
			Machines: auth.Providers{must(auth.New(auth.Config{Issuer: c.issuer.URL(), ClientID: "klutch", Audiences: []string{"klutch-machines"}}))},
		},
	}
	for _, f := range tune {
		f(&opts)
	}
	e := must(New(c.writes.wrap(&rest.Config{Host: "https://127.0.0.1:1"}), opts))
	server := httptest.NewUnstartedServer(e.Handler())
	server.Listener = listener
	server.Config.BaseContext = func(net.Listener) context.Context {
		return logr.NewContext(context.WithoutCancel(t.Context()), funcr.New(c.log.add, funcr.Options{}))
	}
	server.Start()
	t.Cleanup(server.Close)
	return c
}

const challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"

// authorizeURL is that of a good authorization request, after change.
func (c *counter) authorizeURL(change ...string) string {
	query := url.Values{
		"response_type": {"code"}, "client_id": {handshake.ClientID}, "redirect_uri": {"http://127.0.0.1:1/callback"}, "state": {"s"},
		"code_challenge": {challenge}, "code_challenge_method": {"S256"}, "c": {"cluster-1"},
	}
	for i := 0; i < len(change); i += 2 {
		query.Set(change[i], change[i+1])
	}
	return c.url + "/authorize?" + query.Encode()
}

func (c *counter) browser(user, password string) *testissuer.Browser {
	return testissuer.NewBrowser(testissuer.BrowserOptions{Username: user, Password: password})
}

// Cookies as they are called on plain http to a loopback address.
var (
	sessionCookie = strings.TrimPrefix(handshake.SessionCookie, "__Host-")
	txnCookie     = strings.TrimPrefix(handshake.TxnCookie, "__Host-")
)

// signIn logs in as far as the service page.
func (c *counter) signIn(b *testissuer.Browser, user, password string, change ...string) *testissuer.Page {
	c.t.Helper()
	page, err := b.Get(c.t.Context(), c.authorizeURL(change...))
	if err != nil {
		c.t.Fatal(err)
	}
	page.Forms[0].Fields.Set("username", user)
	page.Forms[0].Fields.Set("password", password)
	if page, err = b.Submit(c.t.Context(), page.Forms[0]); err != nil {
		c.t.Fatal(err)
	}
	return page
}

// do sends one request.
func (c *counter) do(method, path, body string, header ...string) reply {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return send(c.t, req)
}

func TestP1RedirectTargets(t *testing.T) {
	c := openCounter(t)
	for _, target := range []string{
		"http://127.0.0.1.evil.example:1/callback", "http://127.0.0.1:1@evil.example/callback", `http://127.0.0.1:1\@evil.example/callback`,
		"http://evil.example/callback", "//evil", "javascript:alert(1)", "http://127.0.0.1:1/callback#x", "http://127.0.0.1:1/callback?x=1",
		"https://127.0.0.1:1/callback", "http://localhost:1/callback", "http://0.0.0.0:1/callback", "http://127.0.0.1/callback", "",
	} {
		resp := c.do(http.MethodGet, strings.TrimPrefix(c.authorizeURL("redirect_uri", target), c.url), "")
		if resp.Status != http.StatusBadRequest || resp.Header.Get("Location") != "" || resp.Header.Get("Refresh") != "" {
			t.Errorf("%q: %d %v", target, resp.Status, resp.Header)
		}
	}
	for name, change := range map[string][]string{
		"no PKCE": {"code_challenge", ""}, "plain PKCE": {"code_challenge_method", "plain"}, "no state": {"state", ""}, "no cluster": {"c", ""},
		"other client": {"client_id", "x"}, "token": {"response_type", "token"}, "service": {"service", "a b"}, "cluster": {"c", "../x"},
	} {
		if resp := c.do(http.MethodGet, strings.TrimPrefix(c.authorizeURL(change...), c.url), ""); resp.Status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, resp.Status)
		}
	}
	name := strings.Repeat("a", 200) + ".example.org"
	if resp := c.do(http.MethodGet, strings.TrimPrefix(c.authorizeURL("service", name), c.url)+strings.Repeat("&service="+name, 19), ""); resp.Status != http.StatusBadRequest {
		t.Errorf("more than fits a cookie: %d", resp.Status)
	}
	if resp := c.do(http.MethodGet, strings.TrimPrefix(c.authorizeURL(), c.url), ""); resp.Status != http.StatusSeeOther || !strings.HasPrefix(resp.Header.Get("Location"), c.issuer.URL()) {
		t.Errorf("good request: %d", resp.Status)
	}
}

func TestP3CallbackOfAnotherBrowser(t *testing.T) {
	c := openCounter(t)
	ada, eve := c.browser("ada", "engine"), c.browser("ada", "engine")
	page, err := ada.Get(t.Context(), c.authorizeURL())
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*testissuer.Browser{"without a login": eve, "with another state": ada} {
		page, err := b.Get(t.Context(), c.url+"/callback?code=x&state=forged")
		if err != nil || page.Status != http.StatusBadRequest {
			t.Errorf("%s: %+v %v", name, page, err)
		}
	}
	page.Forms[0].Fields.Set("username", "ada")
	page.Forms[0].Fields.Set("password", "engine")
	page, err = ada.Submit(t.Context(), page.Forms[0]) // what was forged has not ended it
	if err != nil || page.URL.Path != "/services" {
		t.Fatalf("%v %v", page.URL, err)
	}
	used := ada.URLs()
	i := slices.IndexFunc(used, func(u string) bool { return strings.HasPrefix(u, c.url+"/callback?") && !strings.Contains(u, "forged") })
	for name, b := range map[string]*testissuer.Browser{"replay": ada, "fixation": eve} {
		if page, err := b.Get(t.Context(), used[i]); err != nil || page.Status != http.StatusBadRequest {
			t.Errorf("%s: %v %v", name, page, err)
		}
	}
}

func TestP4IssuerMisbehaves(t *testing.T) {
	c := openCounter(t)
	for name, faults := range map[string]testissuer.Faults{
		"nonce": {Claims: map[string]any{"nonce": "other"}}, "audience": {Claims: map[string]any{"aud": "other"}},
		"signature": {WrongKey: true}, "none": {Algorithm: "none"}, "iss": {Iss: "https://evil.example"},
	} {
		c.issuer.Misbehave(faults)
		back := make(chan url.Values, 1)
		loopback := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { back <- r.URL.Query() }))
		b := c.browser("ada", "engine")
		c.signIn(b, "ada", "engine", "redirect_uri", loopback.URL+"/callback")
		loopback.Close()
		if got := <-back; got.Get("error") != "access_denied" || got.Has("code") {
			t.Errorf("%s: %v", name, got)
		}
		if cookies := b.Cookies(c.url); len(cookies) != 0 {
			t.Errorf("%s: cookies %v", name, cookies)
		}
	}
}

func TestP5Cookies(t *testing.T) {
	c, store := openDeviceCounter(t)
	for user, password := range map[string]string{"ada": "engine", "many": "groups"} {
		b := c.browser(user, password)
		page := c.signIn(b, user, password)
		if !strings.Contains(page.Body, `value="widgets.example.org"`) {
			t.Errorf("%s: %s", user, page.Body)
		}
		cookies := b.Cookies(c.url)
		if len(cookies) != 1 || cookies[0].Name != sessionCookie || len(cookies[0].Value) > handshake.MaxCookie {
			t.Fatalf("%s: cookies %v", user, cookies)
		}
		if content := must(base64.RawURLEncoding.DecodeString(cookies[0].Value)); bytes.Contains(content, []byte(`"`+user+`"`)) {
			t.Errorf("%s: not sealed: %s", user, content)
		}
	}
	resp := c.do(http.MethodGet, strings.TrimPrefix(c.authorizeURL(), c.url), "")
	got := resp.Cookies[0]
	if got.Name != txnCookie || got.Secure || !got.HttpOnly || got.SameSite != http.SameSiteLaxMode || got.Path != "/" || got.Domain != "" || got.MaxAge != 600 {
		t.Errorf("cookie: %+v", got)
	}
	other := openCounter(t, func(o *Options) { o.Handshake.Devices = store }) // a replica: it has the same keys
	for user, password := range map[string]string{"ada": "engine", "many": "groups"} {
		b := c.browser(user, password)
		page := c.signIn(b, user, password)
		copied := "" // as a thief might have it
		for _, cookie := range b.Cookies(c.url) {
			copied += cookie.Name + "=" + cookie.Value
		}
		if got := other.do(http.MethodGet, "/done", "", "Cookie", copied); got.Header.Get("Location") != "/services" {
			t.Errorf("%s is not done: %d %s", user, got.Status, got.Body)
		}
		if got := other.do(http.MethodGet, "/services", "", "Cookie", copied); got.Status != http.StatusOK || !strings.Contains(got.Body, `value="widgets.example.org"`) {
			t.Errorf("%s at another replica: %d %s", user, got.Status, got.Body)
		}
		page, err := b.Submit(t.Context(), page.Forms[len(page.Forms)-1])
		if err != nil || page.URL.Path != "/logout" || len(b.Cookies(c.url)) != 0 {
			t.Errorf("after logout: %v %v %v", page.URL, b.Cookies(c.url), err)
		}
		if got := other.do(http.MethodGet, "/services", "", "Cookie", copied); got.Status != http.StatusUnauthorized {
			t.Errorf("%s: a cookie that was copied before the logout: %d", user, got.Status)
		}
	}
	if resp := c.do(http.MethodGet, "/services", "", "Cookie", sessionCookie+"="+must(c.sealer.Seal(handshake.SessionCookie, []byte(`{}`)))); resp.Status != http.StatusUnauthorized {
		t.Errorf("a session without a beginning: %d", resp.Status)
	}
}

// A browser that takes no secure cookie without TLS, as Safari does not, logs in on localhost,
// where people try things out.
func TestP5CookiesOfEachBrowser(t *testing.T) {
	c := openCounter(t)
	b := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Password: "engine", Safari: true})
	if page := c.signIn(b, "ada", "engine"); !strings.Contains(page.Body, `value="widgets.example.org"`) {
		t.Errorf("%d %s", page.Status, page.Body)
	}
}

// P6: no GET changes anything, and no other site can post. P7: without a login there
// is nothing to see but health, discovery and the login.
func TestP6P7Routes(t *testing.T) {
	c := openCounter(t)
	for _, r := range (&handshake.Server{}).Routes() {
		method, path, _ := strings.Cut(r.Pattern, " ")
		path = strings.TrimSuffix(path, "{$}")
		resp := c.do(method, path, "")
		if r.Login && resp.Status != http.StatusUnauthorized {
			t.Errorf("%s without a login: %d", r.Pattern, resp.Status)
		}
		if strings.Contains(resp.Body, "example.org") {
			t.Errorf("%s shows a service: %s", r.Pattern, resp.Body)
		}
		if method == http.MethodPost && path != "/token" {
			resp := c.do(method, path, "x=y", "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example")
			if resp.Status != http.StatusForbidden {
				t.Errorf("%s from another site: %d", r.Pattern, resp.Status)
			}
		}
		other := map[string]string{http.MethodGet: http.MethodPost, http.MethodPost: http.MethodGet}[method]
		if resp := c.do(other, path, ""); resp.Status != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %d", other, path, resp.Status)
		}
	}
	b := c.browser("ada", "engine")
	c.signIn(b, "ada", "engine")
	for _, path := range []string{"/", "/services", "/resources", "/bind?service=widgets.example.org", "/done"} {
		if _, err := b.Get(t.Context(), c.url+path); err != nil {
			t.Error(err)
		}
	}
	if got := c.writes.seen(); len(got) != 0 {
		t.Errorf("writes: %q", got)
	}
}

func TestP8LargeBody(t *testing.T) {
	c := openCounter(t)
	resp := c.do(http.MethodPost, "/token", "code="+strings.Repeat("x", handshake.MaxBody))
	if resp.Status != http.StatusBadRequest || !strings.Contains(resp.Body, "invalid_request") {
		t.Errorf("large body: %d", resp.Status)
	}
}

func TestP11InertPages(t *testing.T) {
	c := openCounter(t)
	b := c.browser("ada", "engine")
	page := c.signIn(b, "ada", "engine")
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
	} {
		if got := page.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, bad := range []string{"<script", "<img", "Ada <b>", " style="} {
		if strings.Contains(page.Body, bad) {
			t.Errorf("%s in the page:\n%s", bad, page.Body)
		}
	}
	for _, want := range []string{
		"<h1>", "cluster-1", auth.DisplayCode(challenge), "Ada &lt;b&gt;", "lives in namespaces",
		"Writes secrets into your namespaces: only those that your own objects of this service name in status.secret.",
	} {
		if !strings.Contains(page.Body, want) {
			t.Errorf("%s is not in the page:\n%s", want, page.Body)
		}
	}
	if strings.Contains(page.Body, "gizmos") || strings.Contains(page.Body, `value="ghosts`) || strings.Contains(page.Body, `value="continents`) {
		t.Error("the page shows what cannot be bound")
	}
	// What a person may bind and cannot have is told, with the reason.
	if !strings.Contains(page.Body, "ghosts.example.org is not there at the moment") || !strings.Contains(page.Body, "continents.example.org is not fit for App Clusters") {
		t.Errorf("the page says nothing of what is withheld: %s", page.Body)
	}
}

// A person who is asked to bind an API that is switched on reads that its tenants see each other's
// objects; one who can bind nothing reads whether the right or the service is missing.
func TestPagesSayWhatIsShared(t *testing.T) {
	continents := sold("continents", "developers")
	continents.Scope, continents.Isolation = v1alpha1.ClusterScope, v1alpha1.IsolationPrefixed
	const (
		shared  = "All who bind this service can read each other's Continents objects: put nothing in them that others may not see."
		broken  = "Nothing that you may bind can be bound now."
		refused = "There is nothing on offer for you. Ask the platform team for the right to bind a service"
	)
	for name, test := range map[string]struct {
		services shop
		on       []string
		says     string
	}{
		"switched on":  {shop{continents, sold("widgets", "developers")}, []string{"continents.example.org"}, shared},
		"namespaced":   {shop{sold("widgets", "developers")}, nil, ""},
		"not for them": {shop{sold("gizmos", "operators")}, nil, refused},
		"switched off": {shop{continents}, nil, broken},
	} {
		t.Run(name, func(t *testing.T) {
			c := openCounter(t, func(o *Options) { o.Catalog, o.Authorizer, o.PrefixedAPIs = test.services, test.services, test.on })
			page := c.signIn(c.browser("ada", "engine"), "ada", "engine")
			for _, words := range []string{shared, broken, refused} {
				if n := strings.Count(page.Body, words); n > 1 || (n == 1) != (words == test.says) {
					t.Errorf("%q %d times in the page:\n%s", words, n, page.Body)
				}
			}
		})
	}
}

func TestServicesThatCannotBeHad(t *testing.T) {
	c := openCounter(t)
	for asked, want := range map[string]struct{ code, says string }{
		"gizmos.example.org":     {"access_denied", "The platform team has not allowed you to bind gizmos.example.org; on offer: widgets.example.org"},
		"nothing.example.org":    {"invalid_scope", "This platform does not offer nothing.example.org; on offer: widgets.example.org"},
		"ghosts.example.org":     {"invalid_scope", "On offer, but not there at the moment ghosts.example.org; on offer: widgets.example.org"},
		"continents.example.org": {"invalid_scope", "As it is offered here, App Clusters cannot have continents.example.org; on offer: widgets.example.org"},
	} {
		back := make(chan url.Values, 1)
		loopback := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { back <- r.URL.Query() }))
		b := c.browser("ada", "engine")
		c.signIn(b, "ada", "engine", "service", asked, "redirect_uri", loopback.URL+"/callback")
		loopback.Close()
		want := url.Values{"error": {want.code}, "error_description": {want.says}, "state": {"s"}, "iss": {c.url}}
		if diff := cmp.Diff(want, <-back); diff != "" {
			t.Errorf("%s (-want +got):\n%s", asked, diff)
		}
		page := c.signIn(b, "ada", "engine")
		page.Forms[0].Fields.Set("service", asked)
		page, err := b.Submit(t.Context(), page.Forms[0])
		if err != nil || page.Status < 403 || page.Status > 409 || !strings.Contains(page.Body, asked) || !strings.Contains(page.Body, "widgets.example.org") {
			t.Errorf("%s: %+v %v", asked, page, err)
		}
	}
	b := c.browser("ada", "engine")
	page := c.signIn(b, "ada", "engine")
	page, err := b.Submit(t.Context(), page.Forms[0])
	if err != nil || page.Status != http.StatusUnprocessableEntity || !strings.Contains(page.Body, "Choose at least one") {
		t.Errorf("nothing chosen: %+v %v", page, err)
	}
	for i := range 40 {
		page.Forms[0].Fields.Add("service", fmt.Sprintf("widgets-with-a-long-name-%d.example.org", i))
	}
	page, err = b.Submit(t.Context(), page.Forms[0])
	if err != nil || page.Status != http.StatusUnprocessableEntity || !strings.Contains(page.Body, "Choose fewer") {
		t.Errorf("more chosen than a code fits: %+v %v", page, err)
	}
}

func TestTwoLoginsInOneBrowser(t *testing.T) {
	c := openCounter(t)
	b := c.browser("ada", "engine")
	first := c.signIn(b, "ada", "engine")
	c.signIn(b, "ada", "engine", "code_challenge", strings.Repeat("x", 43), "c", "cluster-2")
	first.Forms[0].Fields.Set("service", "widgets.example.org")
	page, err := b.Submit(t.Context(), first.Forms[0])
	if err != nil || page.Status != http.StatusConflict {
		t.Errorf("the first page binds for the second login: %+v %v", page, err)
	}
}

func TestIssuerIsDown(t *testing.T) {
	c := openCounter(t)
	c.issuer.Misbehave(testissuer.Faults{Down: true})
	path := strings.TrimPrefix(c.authorizeURL(), c.url)
	resp := c.do(http.MethodGet, path, "", "Accept", "text/html")
	if resp.Status != http.StatusServiceUnavailable || !strings.Contains(resp.Body, "does not answer") {
		t.Errorf("page: %d %s", resp.Status, resp.Body)
	}
	checkPage(t, "issuer is down", resp.Body)
	if refresh := resp.Header.Get("Refresh"); !strings.Contains(refresh, "http://127.0.0.1:1/callback?error=temporarily_unavailable&") {
		t.Errorf("refresh: %s", refresh)
	}
	resp = c.do(http.MethodGet, path, "", "Accept", "application/json")
	var said handshake.OAuthError
	if err := json.Unmarshal([]byte(resp.Body), &said); err != nil || resp.Status != http.StatusServiceUnavailable || said.Description == "" {
		t.Errorf("json: %d %+v %v", resp.Status, said, err)
	}
	var provider v1alpha1.BindingProvider
	resp = c.do(http.MethodGet, "/export", "")
	if err := json.Unmarshal([]byte(resp.Body), &provider); err != nil {
		t.Fatal(err)
	}
	grant := provider.AuthenticationMethods[0].OAuth2CodeGrant
	want := &v1alpha1.OAuth2CodeGrant{AuthenticatedURL: c.url + "/authorize", TokenURL: c.url + "/token", Issuer: c.url}
	if diff := cmp.Diff(want, grant); diff != "" || provider.APIVersion != "v1alpha1" || provider.Version != "v0.0.0" {
		t.Errorf("discovery: %+v %s", provider, diff)
	}
}

func TestClusterIsDown(t *testing.T) {
	c := openCounter(t)
	b := c.browser("ada", "engine")
	page := c.signIn(b, "ada", "engine", "service", "widgets.example.org")
	if !strings.Contains(page.Body, "checked") {
		t.Errorf("what was asked for is not checked: %s", page.Body)
	}
	page, err := b.Submit(t.Context(), page.Forms[0])
	if err != nil || page.Status != http.StatusServiceUnavailable || strings.Contains(page.Body, "127.0.0.1:1:") {
		t.Errorf("bind without a cluster: %+v %v", page, err)
	}
}

// undecided is an authorizer whose API server does not answer.
type undecided struct{}

func (undecided) Authorize(context.Context, *auth.Identity, Service) error {
	return errors.New("the control plane does not answer")
}

// TestClusterIsDownAtTheLogin: a login that the control plane cannot go on with ends for the terminal, too.
func TestClusterIsDownAtTheLogin(t *testing.T) {
	c := openCounter(t, func(o *Options) { o.Authorizer = undecided{} })
	told := make(chan url.Values, 1)
	terminal := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told <- r.URL.Query() }))
	defer terminal.Close()
	c.signIn(c.browser("ada", "engine"), "ada", "engine", "service", "widgets.example.org", "redirect_uri", terminal.URL+"/callback")
	select {
	case said := <-told:
		if said.Get("error") != handshake.CodeUnavailable || said.Get("error_description") == "" || said.Get("code") != "" {
			t.Errorf("the terminal hears %v", said)
		}
	default:
		t.Error("the terminal hears nothing")
	}
}
