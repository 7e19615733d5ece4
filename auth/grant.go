// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

const (
	deviceGrantType = "urn:ietf:params:oauth:grant-type:device_code"

	codePending     = "authorization_pending"
	codeSlowDown    = "slow_down"
	codeExpired     = "expired_token"
	codeInvalid     = "invalid_grant"
	codeUnavailable = "temporarily_unavailable"

	pollInterval = 5 * time.Second  // RFC 8628 section 3.2
	pollAtMost   = 60 * time.Second // however often we are told to slow down
)

// A Grant is the outcome of [Login] or [LoginDevice]: a code that only the holder
// of Verifier can redeem at the backend's token endpoint, once.
type Grant struct {
	// Code is the one-time code of a login through this machine's browser.
	Code string
	// Verifier is the PKCE verifier of the login (RFC 7636).
	Verifier string
	// RedirectURL is where the browser has brought Code.
	RedirectURL string
	// State is the name of the login; the backend repeats it as the session ID.
	State string
	// ClientID is the name of this program at the backend.
	ClientID string
	// Device is what the backend said when a login on another device began. Nil
	// is a login through this machine's browser.
	Device *oauth2.DeviceAuthResponse
}

func newGrant(clientID string) Grant {
	return Grant{State: rand.Text(), Verifier: oauth2.GenerateVerifier(), ClientID: clientID}
}

// An Exchange sends one token request and returns the body of the answer, which at
// a Klutch backend is the binding response itself. A refusal is an [*Error]. See
// [TokenEndpoint].
type Exchange func(ctx context.Context, form url.Values) ([]byte, error)

// TokenEndpoint returns an Exchange with the token endpoint at tokenURL, within the
// limits of [Bounded]. It follows no redirect, since a form carries a code.
func TokenEndpoint(tokenURL string, client *http.Client) Exchange {
	return func(ctx context.Context, form url.Values) ([]byte, error) {
		return postForm(ctx, client, tokenURL, form)
	}
}

// Redeem trades the grant for what the backend has for its holder. The code of a
// browser is sent once. For a device the backend is asked again and again, at the
// pace that it sets and slower while it cannot be reached, until the person has
// decided, the code has expired or ctx ends. A refusal is an [*Error], with the
// code access_denied if the person refused and expired_token if the person did not
// answer.
func (g Grant) Redeem(ctx context.Context, exchange Exchange) ([]byte, error) {
	if g.Device != nil {
		return g.poll(ctx, exchange)
	}
	return exchange(ctx, url.Values{
		"grant_type": {"authorization_code"}, "client_id": {g.ClientID},
		"code": {g.Code}, "code_verifier": {g.Verifier}, "redirect_uri": {g.RedirectURL},
	})
}

// poll is RFC 8628 sections 3.4 and 3.5.
func (g Grant) poll(ctx context.Context, exchange Exchange) ([]byte, error) {
	form := url.Values{
		"grant_type": {deviceGrantType}, "client_id": {g.ClientID},
		"device_code": {g.Device.DeviceCode}, "code_verifier": {g.Verifier},
	}
	interval := cmp.Or(time.Duration(g.Device.Interval)*time.Second, pollInterval)
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the person: %w", context.Cause(ctx))
		case <-timer.C:
		}
		body, err := exchange(ctx, form)
		if err == nil || ctx.Err() == nil && !again(err) {
			return body, err
		}
		if g.expired() {
			return nil, newError(codeExpired, "no person has answered in time")
		}
		interval = slower(interval, err)
		timer.Reset(interval)
	}
}

// expired is for a backend that does not answer any more: one that does says so
// itself.
func (g Grant) expired() bool {
	return !g.Device.Expiry.IsZero() && time.Now().After(g.Device.Expiry)
}

// again reports whether err leaves the answer open.
func again(err error) bool {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Code == codePending || refused.Code == codeSlowDown || refused.Code == codeUnavailable
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, ErrUnavailable)
}

// slower is the pause after err: five seconds more when the backend asks for it,
// twice as much when it could not answer.
func slower(interval time.Duration, err error) time.Duration {
	refused, _ := errors.AsType[*Error](err)
	switch {
	case refused != nil && refused.Code == codePending:
		return interval
	case refused != nil && refused.Code == codeSlowDown:
		return min(interval+5*time.Second, max(interval, pollAtMost))
	default:
		return min(2*interval, max(interval, pollAtMost))
	}
}

// postForm returns the body of a good answer; one that says no is an [*Error], and
// one of a server in trouble is ErrUnavailable.
func postForm(ctx context.Context, client *http.Client, target string, form url.Values) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("not a URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	bounded := Bounded(client)
	bounded.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := bounded.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	}
	if resp.StatusCode == http.StatusOK {
		return body, nil
	}
	return nil, refusal(resp.StatusCode, body)
}

// refusal reads an error of RFC 6749 section 5.2.
func refusal(status int, body []byte) error {
	var e struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	switch {
	case json.Unmarshal(body, &e) == nil && e.Code != "":
		return newError(e.Code, e.Description)
	case status == http.StatusTooManyRequests:
		return newError(codeSlowDown, "")
	case status >= http.StatusInternalServerError:
		return fmt.Errorf("%w: HTTP status %d %s", ErrUnavailable, status, http.StatusText(status))
	default:
		return newError("invalid_response", fmt.Sprintf("HTTP status %d", status))
	}
}
