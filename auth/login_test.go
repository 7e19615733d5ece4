// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

// A backend answers every authorization request at once.
type backend struct {
	*httptest.Server
	answer url.Values // beside the state

	mu      sync.Mutex
	request url.Values // the last one
}

func newBackend(t *testing.T, answer url.Values) *backend {
	t.Helper()
	b := &backend{answer: answer}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.request = r.URL.Query()
		b.mu.Unlock()
		query := url.Values{"state": {r.FormValue("state")}}
		maps.Copy(query, b.answer)
		http.Redirect(w, r, r.FormValue("redirect_uri")+"?"+query.Encode(), http.StatusSeeOther)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) options(t *testing.T, pages chan<- *testissuer.Page) auth.LoginOptions {
	t.Helper()
	return auth.LoginOptions{
		AuthorizeURL: b.URL + "/authorize",
		Issuer:       b.URL,
		ClientID:     "kubectl-bind",
		Open: func(target string) error {
			page, err := testissuer.NewBrowser(testissuer.BrowserOptions{}).Visit(t.Context(), target)
			if err == nil && pages != nil {
				pages <- page
			}
			return err
		},
	}
}

func TestLoginGrant(t *testing.T) {
	b := newBackend(t, url.Values{"code": {"one-time"}})
	b.answer.Set("iss", b.URL)
	opts := b.options(t, nil)
	opts.Params = url.Values{"c": {"cluster"}, "service": {"a.example.com", "b.example.com"}}
	var shownURL, shownCode string
	opts.Prompt = func(target, code string) { shownURL, shownCode = target, code }

	grant, err := auth.Login(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	challenge := oauth2.S256ChallengeFromVerifier(grant.Verifier)
	want := url.Values{
		"response_type":         {"code"},
		"client_id":             {"kubectl-bind"},
		"redirect_uri":          {grant.RedirectURL},
		"state":                 {grant.State},
		"code_challenge":        {challenge},
		"code_challenge_method": {"S256"},
		"c":                     {"cluster"},
		"service":               {"a.example.com", "b.example.com"},
	}
	if diff := cmp.Diff(want, b.request); diff != "" {
		t.Errorf("authorization request (-want +got):\n%s", diff)
	}
	if grant.Code != "one-time" || len(grant.Verifier) < 43 || len(grant.State) < 22 {
		t.Errorf("grant = %+v", grant)
	}
	if !strings.HasPrefix(shownURL, b.URL+"/authorize?") || shownCode != auth.DisplayCode(challenge) {
		t.Errorf("prompt = %q, %q", shownURL, shownCode)
	}
	if strings.Contains(shownURL, grant.Verifier) {
		t.Error("the verifier is in the URL")
	}
	closed(t, grant.RedirectURL)
}

func TestLoginRefused(t *testing.T) {
	tests := map[string]struct {
		answer url.Values
		want   error
		oauth  *auth.Error
		page   string
	}{
		"access denied": {
			answer: url.Values{"error": {"access_denied"}, "error_description": {"postgresqls.example.com is not for you"}},
			oauth:  &auth.Error{Code: "access_denied", Description: "postgresqls.example.com is not for you"},
			page:   "did not succeed",
		},
		"neither code nor error": {answer: url.Values{}, oauth: &auth.Error{Code: "invalid_response", Description: "neither a code nor an error"}, page: "did not succeed"},
		"another issuer":         {answer: url.Values{"code": {"x"}, "iss": {"https://evil.example"}}, want: auth.ErrIssuer, page: "did not succeed"},
		"no issuer":              {answer: url.Values{"code": {"x"}, "iss": {""}}, want: auth.ErrIssuer, page: "did not succeed"},
		"success":                {answer: url.Values{"code": {"x"}}, page: "is complete"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, tt.answer)
			if !tt.answer.Has("iss") {
				tt.answer.Set("iss", b.URL)
			}
			pages := make(chan *testissuer.Page, 1)
			_, err := auth.Login(t.Context(), b.options(t, pages))
			var got *auth.Error
			if errors.As(err, &got); !cmp.Equal(got, tt.oauth) || tt.oauth == nil && !errors.Is(err, tt.want) {
				t.Errorf("Login = %v, want %v or %v", err, tt.oauth, tt.want)
			}
			if page := <-pages; !strings.Contains(page.Body, tt.page) || strings.Contains(page.Body, "not for you") {
				t.Errorf("the browser shows %d %s", page.Status, page.Body)
			}
		})
	}
}

func TestLoginWithoutIssuer(t *testing.T) {
	b := newBackend(t, url.Values{"code": {"x"}, "iss": {"https://another.example"}})
	opts := b.options(t, nil)
	opts.Issuer = ""
	if _, err := auth.Login(t.Context(), opts); err != nil {
		t.Errorf("Login = %v, want any issuer taken where none is expected", err)
	}
}

func TestLoginBadEndpoint(t *testing.T) {
	for _, endpoint := range []string{
		"", "/authorize", "http://backend.example.com/authorize", "javascript:alert(1)", "file:///etc/passwd",
		"https://a:b@backend.example.com/authorize", "https://backend.example.com/authorize?state=fixed",
		"https://backend.example.com/authorize?redirect_uri=x", "https://backend.example.com/authorize?code_challenge=x",
	} {
		opts := auth.LoginOptions{AuthorizeURL: endpoint, Open: func(target string) error {
			t.Errorf("opened %s", target)
			return nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := auth.Login(ctx, opts)
		if cancel(); err == nil || !strings.HasPrefix(err.Error(), "authorize URL: ") {
			t.Errorf("Login at %q = %v, want it refused before anything happens", endpoint, err)
		}
	}
}

func TestLoginIsAbandoned(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	bored := errors.New("bored")
	var redirectURL string
	_, err := auth.Login(ctx, auth.LoginOptions{
		AuthorizeURL: "https://backend.example.com/authorize",
		Open: func(target string) error {
			u, err := url.Parse(target)
			redirectURL = u.Query().Get("redirect_uri")
			cancel(bored)
			return err
		},
	})
	if !errors.Is(err, bored) {
		t.Errorf("Login = %v, want the cause of the end", err)
	}
	closed(t, redirectURL)
}

func TestLoginGoesOnWithoutABrowser(t *testing.T) {
	b := newBackend(t, url.Values{"code": {"x"}})
	b.answer.Set("iss", b.URL)
	opts := b.options(t, nil)
	visit := opts.Open
	var person sync.WaitGroup
	opts.Prompt = func(target, _ string) {
		person.Go(func() {
			if err := visit(target); err != nil {
				t.Error(err)
			}
		})
	}
	opts.Open = func(string) error { return errors.New("no browser here") }
	if _, err := auth.Login(t.Context(), opts); err != nil {
		t.Errorf("Login = %v", err)
	}
	person.Wait()
}

// closed checks that no server listens at rawURL any more.
func closed(t *testing.T, rawURL string) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", u.Host)
	if err == nil {
		_ = conn.Close()
		t.Errorf("%s is still open", u.Host)
	}
}

// A loopback is one that is being waited for.
type loopback struct {
	*auth.Loopback
	outcome chan string
}

func listen(t *testing.T, state, issuer string) loopback {
	t.Helper()
	l, err := auth.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiting := loopback{l, make(chan string, 1)}
	var wait sync.WaitGroup
	wait.Go(func() {
		code, err := l.Wait(t.Context(), state, issuer)
		waiting.outcome <- fmt.Sprint(code, " ", err)
	})
	t.Cleanup(wait.Wait)
	t.Cleanup(l.Close)
	return waiting
}

func TestP17OnlyTheRightCallbackEndsALogin(t *testing.T) {
	const state, issuer = "the-state-of-this-login", "https://klutch.example.com"
	good := url.Values{"state": {state}, "iss": {issuer}, "code": {"one-time"}}
	with := func(name string, values ...string) string {
		changed := maps.Clone(good)
		changed[name] = values
		return "/callback?" + changed.Encode()
	}
	junk := map[string]struct {
		method, target, host string
		status               int
	}{
		"no parameters":            {target: "/callback", status: http.StatusBadRequest},
		"another state":            {target: with("state", "guess"), status: http.StatusBadRequest},
		"no state":                 {target: with("state"), status: http.StatusBadRequest},
		"empty state":              {target: with("state", ""), status: http.StatusBadRequest},
		"two states":               {target: with("state", "guess", state), status: http.StatusBadRequest},
		"error with another state": {target: "/callback?error=access_denied&state=guess", status: http.StatusBadRequest},
		"error without a state":    {target: "/callback?error=access_denied", status: http.StatusBadRequest},
		"unreadable query":         {target: "/callback?" + good.Encode() + "&x=%zz", status: http.StatusBadRequest},
		"POST":                     {method: http.MethodPost, target: "/callback?" + good.Encode(), status: http.StatusMethodNotAllowed},
		"HEAD":                     {method: http.MethodHead, target: "/callback?" + good.Encode(), status: http.StatusMethodNotAllowed},
		"OPTIONS":                  {method: http.MethodOptions, target: "/callback?" + good.Encode(), status: http.StatusMethodNotAllowed},
		"another path":             {target: "/?" + good.Encode(), status: http.StatusNotFound},
		"a longer path":            {target: "/callback/?" + good.Encode(), status: http.StatusNotFound},
		"another Host":             {target: "/callback?" + good.Encode(), host: "evil.example", status: http.StatusForbidden},
		"localhost as Host":        {target: "/callback?" + good.Encode(), host: "localhost", status: http.StatusForbidden},
		"Host without port":        {target: "/callback?" + good.Encode(), host: "127.0.0.1", status: http.StatusForbidden},
	}
	l := listen(t, state, issuer)
	base := strings.TrimSuffix(l.RedirectURL(), "/callback")
	calls := 0
	for calls < 1000 {
		for name, j := range junk {
			req, err := http.NewRequestWithContext(t.Context(), j.method, base+j.target, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = j.host
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatalf("call %d, %s: %v", calls, name, err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != j.status {
				t.Fatalf("call %d, %s: status %d, want %d", calls, name, resp.StatusCode, j.status)
			}
			calls++
		}
	}
	halfOpen(t, base)
	select {
	case outcome := <-l.outcome:
		t.Fatalf("junk has ended the login: %s", outcome)
	default:
	}
	if err := get(t, http.DefaultClient, l.RedirectURL()+"?"+good.Encode()); err != nil {
		t.Error(err)
	}
	if outcome := <-l.outcome; outcome != "one-time <nil>" {
		t.Errorf("outcome = %s", outcome)
	}
}

// halfOpen leaves connections behind on which nothing is ever said.
func halfOpen(t *testing.T, base string) {
	t.Helper()
	for range 20 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

func TestP11LoopbackPageIsInert(t *testing.T) {
	l := listen(t, "state", "")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.RedirectURL()+"?state=state&error=%3Cscript%3E", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || strings.Contains(string(page), "script>") || !strings.Contains(string(page), "<title>The login did not succeed</title>") || !strings.Contains(string(page), `name="viewport"`) {
		t.Errorf("page: %v\n%s", err, page)
	}
	resp.Header.Del("Date")
	want := http.Header{
		"Allow":                   {"GET"},
		"Cache-Control":           {"no-store"},
		"Content-Length":          resp.Header["Content-Length"],
		"Content-Security-Policy": {"default-src 'none'; style-src '" + styleHash(t, string(page)) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
		"Content-Type":            {"text/html; charset=utf-8"},
		"Referrer-Policy":         {"no-referrer"},
		"X-Content-Type-Options":  {"nosniff"},
	}
	if diff := cmp.Diff(want, resp.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if outcome := <-l.outcome; outcome != " <script>" {
		t.Errorf("outcome = %s", outcome)
	}
}

// styleHash is what a policy must say for a browser to take the one style of a page.
func styleHash(t *testing.T, page string) string {
	t.Helper()
	_, style, _ := strings.Cut(page, "<style>")
	style, _, found := strings.Cut(style, "</style>")
	if !found || strings.Contains(style, "url(") {
		t.Errorf("style: %s", style)
	}
	sum := sha256.Sum256([]byte(style))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func TestLoopbackListensOnOneAddress(t *testing.T) {
	l := listen(t, "state", "")
	if !strings.HasPrefix(l.RedirectURL(), "http://127.0.0.1:") {
		t.Errorf("redirect URL = %s", l.RedirectURL())
	}
	l.Close()
	if outcome := <-l.outcome; !strings.Contains(outcome, "wait for the browser") {
		t.Errorf("outcome of a closed listener = %s", outcome)
	}
}

func TestWaitNeedsAState(t *testing.T) {
	l := listen(t, "", "")
	if outcome := <-l.outcome; outcome != " "+auth.ErrState.Error() {
		t.Errorf("outcome = %s", outcome)
	}
}
