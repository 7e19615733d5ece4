// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/klutch-go/sdk/internal/redirect"
)

const (
	maxBody      = 1 << 20
	maxRedirects = 3
	httpTimeout  = 15 * time.Second
)

// Bounded returns a copy of client that no peer can hold or flood: it speaks
// https except to a loopback address, ends an exchange after 15 seconds unless
// client has a timeout of its own, refuses answers over 1 MB, and follows at
// most three redirects, all within one origin. A nil client means the zero one.
func Bounded(client *http.Client) *http.Client {
	var c http.Client
	if client != nil {
		c = *client
	}
	c.Timeout = cmp.Or(c.Timeout, httpTimeout)
	c.CheckRedirect = sameOrigin
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	c.Transport = boundedTransport{c.Transport}
	return &c
}

func sameOrigin(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > maxRedirects {
		return errors.New("too many redirects")
	}
	if req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		return fmt.Errorf("redirect from %s to another origin", first.Host)
	}
	return nil
}

// secure checks that requests to u cannot be read or changed on the way.
func secure(u *url.URL) error {
	switch {
	case u.Host == "" || u.User != nil:
		return errors.New("must be an absolute URL without user information")
	case u.Scheme == "https", u.Scheme == "http" && redirect.IsLoopback(u.Hostname()):
		return nil
	default:
		return errors.New("must be https, or http to a loopback address")
	}
}

func parseSecure(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("not a URL")
	}
	return u, secure(u)
}

type boundedTransport struct{ base http.RoundTripper }

func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := secure(req.URL); err != nil {
		return nil, err
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxBody}
	return resp, nil
}

// boundedBody fails where a body goes on after left bytes; io.LimitReader would
// make it look complete.
type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errors.New("answer is larger than 1 MB")
	}
	return n, err
}
