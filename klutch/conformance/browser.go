// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/klutch-go/sdk/auth"
)

// A browser sends single requests, without cookies, and follows no redirects.
type browser struct{ client *http.Client }

func newBrowser(ca []byte) (*browser, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("conformance: CAData holds no PEM certificate")
		}
	}
	client := auth.Bounded(&http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}})
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &browser{client}, nil
}

// An answer is a response that has been read.
type answer struct {
	status int
	header http.Header
	body   string
}

func (b *browser) get(ctx context.Context, target string) (answer, error) {
	return b.send(ctx, http.MethodGet, target, nil, nil)
}

func (b *browser) post(ctx context.Context, target string, form url.Values, header map[string]string) (answer, error) {
	return b.send(ctx, http.MethodPost, target, strings.NewReader(form.Encode()), header)
}

func (b *browser) send(ctx context.Context, method, target string, body io.Reader, header map[string]string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", "text/html, application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := b.client.Transport.RoundTrip(req) // which does not even read where it would be led
	if err != nil {
		return answer{}, err
	}
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, errors.Join(err, resp.Body.Close())
}
