// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/html"
)

const (
	maxSteps        = 30              // end a journey that goes round in circles
	exchangeTimeout = 3 * time.Minute // of a server that does not answer
)

// BrowserOptions describe the person at a browser.
type BrowserOptions struct {
	Username, Password string            // what they type into a login form
	Check              []string          // values of the boxes that they check, beside those that are
	Decide             func(form *Form)  // what else they do to a form before they submit it; may be nil
	Transport          http.RoundTripper // nil means http.DefaultTransport
	Safari             bool              // the browser takes a Secure cookie over TLS alone
	Patient            bool              // they wait before a refresh as long as the page says
}

// A Browser does what a person with a browser does, without scripts. It may be
// used for one journey at a time.
type Browser struct {
	opts BrowserOptions
	jar  http.CookieJar

	mu   sync.Mutex
	urls []string
}

// A Page is where a journey has led to.
type Page struct {
	URL    *url.URL
	Status int
	Header http.Header
	Body   string
	Forms  []*Form

	refresh string
	after   time.Duration // of the refresh
}

// A Form of a page. Its first button is the one that is pressed.
type Form struct {
	Method, Action string
	Fields         url.Values // what a submit would send now
	Boxes          url.Values // values of the check boxes, by name

	page   *Page
	button bool // the first button is found
}

// NewBrowser returns a browser with no cookies.
func NewBrowser(opts BrowserOptions) *Browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		panic(err) // it never is
	}
	if opts.Transport == nil {
		opts.Transport = http.DefaultTransport
	}
	return &Browser{opts: opts, jar: trustworthy{jar, opts.Safari}}
}

// URLs are all the URLs that the browser has asked for, in order, with those of
// redirects.
func (b *Browser) URLs() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.urls)
}

// Cookies are those that the browser would send to rawURL.
func (b *Browser) Cookies(rawURL string) []*http.Cookie {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil
	}
	return b.jar.Cookies(u)
}

// Visit goes to rawURL and from there as far as redirects, refreshes and forms
// lead: it fills in and submits the first form of every page. It returns the last
// page, whatever its status.
func (b *Browser) Visit(ctx context.Context, rawURL string) (*Page, error) {
	page, err := b.Get(ctx, rawURL)
	for last := ""; err == nil && len(page.Forms) > 0; {
		form := page.Forms[0]
		b.fill(form)
		now := withQuery(form.Action, form.Fields)
		if now == last {
			break // it is shown again: what was filled in is not liked
		}
		last = now
		page, err = b.Submit(ctx, form)
	}
	return page, err
}

// Get goes to rawURL and follows redirects and refreshes.
func (b *Browser) Get(ctx context.Context, rawURL string) (*Page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Sec-Fetch-Site", "none")
	return b.follow(req)
}

// Submit sends a form as it is filled in, and follows redirects and refreshes.
func (b *Browser) Submit(ctx context.Context, form *Form) (*Page, error) {
	target, body := form.Action, io.Reader(strings.NewReader(form.Fields.Encode()))
	if form.Method == http.MethodGet {
		target, body = withQuery(target, form.Fields), nil
	}
	req, err := http.NewRequestWithContext(ctx, form.Method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Sec-Fetch-Site", form.page.site(req.URL))
	if form.Method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", form.page.origin())
	}
	return b.follow(req)
}

// fill types, checks and decides.
func (b *Browser) fill(form *Form) {
	for name, value := range map[string]string{"username": b.opts.Username, "password": b.opts.Password} {
		if form.Fields.Has(name) && value != "" {
			form.Fields.Set(name, value)
		}
	}
	for name, values := range form.Boxes {
		for _, value := range values {
			if slices.Contains(b.opts.Check, value) && !slices.Contains(form.Fields[name], value) {
				form.Fields.Add(name, value)
			}
		}
	}
	if b.opts.Decide != nil {
		b.opts.Decide(form)
	}
}

func (b *Browser) follow(req *http.Request) (*Page, error) {
	for range maxSteps {
		page, err := b.load(req)
		if err != nil {
			return nil, err
		}
		next := cmp.Or(page.Header.Get("Location"), page.refresh)
		if next == "" {
			return page, nil
		}
		target, err := page.URL.Parse(next)
		if err != nil {
			return nil, fmt.Errorf("%s leads nowhere: %w", page.URL.Redacted(), err)
		}
		if err := b.wait(req.Context(), page.after); err != nil {
			return nil, err
		}
		if req, err = http.NewRequestWithContext(req.Context(), http.MethodGet, target.String(), nil); err != nil {
			return nil, err
		}
		req.Header.Set("Sec-Fetch-Site", page.site(target))
	}
	return nil, errors.New("too many redirects and refreshes")
}

func (b *Browser) wait(ctx context.Context, d time.Duration) error {
	if !b.opts.Patient || d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// load makes one exchange.
func (b *Browser) load(req *http.Request) (*Page, error) {
	ctx, cancel := context.WithTimeoutCause(req.Context(), exchangeTimeout, fmt.Errorf("no answer within %s from %s", exchangeTimeout, req.URL.Redacted()))
	defer cancel()
	req = req.WithContext(ctx)
	b.mu.Lock()
	b.urls = append(b.urls, req.URL.String())
	b.mu.Unlock()
	for _, cookie := range b.jar.Cookies(req.URL) {
		req.AddCookie(cookie)
	}
	resp, err := b.opts.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	b.jar.SetCookies(req.URL, resp.Cookies())
	page := &Page{URL: req.URL, Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
	page.setRefresh(resp.Header.Get("Refresh"))
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		err = page.parse(body)
	}
	return page, err
}

// parse finds the forms and the refresh of an HTML page.
func (p *Page) parse(body []byte) error {
	root, err := html.Parse(bytes.NewReader(body))
	if err != nil {
		return err
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "meta":
			if strings.EqualFold(attribute(n, "http-equiv"), "refresh") {
				p.setRefresh(attribute(n, "content"))
			}
		case "form":
			form, err := p.form(n)
			if err != nil {
				return err
			}
			p.Forms = append(p.Forms, form)
		}
	}
	return nil
}

func (p *Page) form(n *html.Node) (*Form, error) {
	action, err := p.URL.Parse(attribute(n, "action"))
	if err != nil {
		return nil, err
	}
	form := &Form{
		Method: strings.ToUpper(cmp.Or(attribute(n, "method"), http.MethodGet)),
		Action: action.String(),
		Fields: url.Values{},
		Boxes:  url.Values{},
		page:   p,
	}
	for field := range n.Descendants() {
		if field.Type == html.ElementNode && (field.Data == "input" || field.Data == "button") && !has(field, "disabled") {
			form.add(field)
		}
	}
	return form, nil
}

func (f *Form) add(field *html.Node) {
	name, value, kind := attribute(field, "name"), attribute(field, "value"), attribute(field, "type")
	if field.Data == "button" {
		kind = cmp.Or(kind, "submit")
	}
	send := true
	switch kind {
	case "button", "image", "reset":
		send = false
	case "submit":
		send, f.button = !f.button, true
	case "checkbox", "radio":
		value = cmp.Or(value, "on")
		f.Boxes.Add(name, value)
		send = has(field, "checked")
	}
	if send && name != "" {
		f.Fields.Add(name, value)
	}
}

// setRefresh reads "3; url=/next", as in the header and in the meta element.
func (p *Page) setRefresh(content string) {
	seconds, target, _ := strings.Cut(content, ";")
	target = strings.TrimSpace(target)
	if len(target) < 4 || !strings.EqualFold(target[:4], "url=") {
		p.refresh = ""
		return
	}
	p.refresh = strings.Trim(target[4:], `"'`)
	n, _ := strconv.Atoi(strings.TrimSpace(seconds))
	p.after = time.Duration(n) * time.Second
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

// site is Sec-Fetch-Site of a request for target that this page caused.
func (p *Page) site(target *url.URL) string {
	switch {
	case p.URL.Scheme == target.Scheme && p.URL.Host == target.Host:
		return "same-origin"
	case p.URL.Scheme == target.Scheme && p.URL.Hostname() == target.Hostname():
		return "same-site"
	default:
		return "cross-site"
	}
}

// origin is Origin of a form that this page posts: browsers hide it where the
// page says no-referrer.
func (p *Page) origin() string {
	if p.Header.Get("Referrer-Policy") == "no-referrer" {
		return "null"
	}
	return p.URL.Scheme + "://" + p.URL.Host
}

func withQuery(target string, query url.Values) string {
	before, _, _ := strings.Cut(target, "?")
	return before + "?" + query.Encode()
}

// trustworthy keeps cookies as browsers do and net/http does not: Secure ones go
// to loopback addresses also without TLS, and the prefix __Host- is enforced.
type trustworthy struct {
	http.CookieJar

	safari bool
}

// Cookies implements [http.CookieJar].
func (t trustworthy) Cookies(u *url.URL) []*http.Cookie {
	return t.CookieJar.Cookies(asTrustworthy(u))
}

// SetCookies implements [http.CookieJar].
func (t trustworthy) SetCookies(u *url.URL, cookies []*http.Cookie) {
	if t.safari && u.Scheme != "https" {
		cookies = slices.DeleteFunc(cookies, func(c *http.Cookie) bool { return c.Secure })
	}
	u = asTrustworthy(u)
	t.CookieJar.SetCookies(u, slices.DeleteFunc(cookies, func(c *http.Cookie) bool {
		bound := c.Secure && c.Domain == "" && c.Path == "/"
		return strings.HasPrefix(c.Name, "__Host-") && !bound || c.Secure && u.Scheme != "https"
	}))
}

func asTrustworthy(u *url.URL) *url.URL {
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return u
	}
	as := *u
	as.Scheme = "https"
	return &as
}
