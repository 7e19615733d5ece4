// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"
)

// DeviceOptions describe the login of a command line program on a machine without
// a browser: the person uses one on any other device (RFC 8628).
type DeviceOptions struct {
	// DeviceURL is the backend's device authorization endpoint: https, or http to
	// a loopback address.
	DeviceURL string
	// ClientID is the name of this program at the backend.
	ClientID string
	// Params are further parameters of the request.
	Params url.Values
	// Prompt shows the person where to go (VerificationURI) and what to type
	// there (UserCode), or where to go without typing (VerificationURIComplete,
	// which may be empty). What it holds is printable ASCII. Nil shows nothing.
	Prompt func(*oauth2.DeviceAuthResponse)
	// HTTPClient reaches the backend, within the limits of [Bounded].
	HTTPClient *http.Client
}

// LoginDevice begins a login on another device and prompts the person. It returns
// at once: it is [Grant.Redeem] that waits for the person. A refusal is an
// [*Error]; a backend that does not know the device flow is one with the code
// invalid_response.
func LoginDevice(ctx context.Context, opts DeviceOptions) (Grant, error) {
	if _, err := parseSecure(opts.DeviceURL); err != nil {
		return Grant{}, fmt.Errorf("device URL: %w", err)
	}
	g := newGrant(opts.ClientID)
	form, err := deviceRequest(g, opts.Params)
	if err != nil {
		return Grant{}, err
	}
	body, err := postForm(ctx, opts.HTTPClient, opts.DeviceURL, form)
	if err != nil {
		return Grant{}, err
	}
	if g.Device, err = deviceAnswer(body, opts.DeviceURL); err != nil {
		return Grant{}, err
	}
	if opts.Prompt != nil {
		opts.Prompt(g.Device)
	}
	return g, nil
}

func deviceRequest(g Grant, params url.Values) (url.Values, error) {
	form := url.Values{
		"client_id": {g.ClientID}, "state": {g.State},
		"code_challenge": {oauth2.S256ChallengeFromVerifier(g.Verifier)}, "code_challenge_method": {"S256"},
	}
	for name, values := range params {
		if form.Has(name) {
			return nil, fmt.Errorf("device request: parameter %s is not free to choose", name)
		}
		form[name] = values
	}
	return form, nil
}

// deviceAnswer reads RFC 8628 section 3.2. Where the person is sent must be on the
// server that was asked, and what the person is shown can do nothing to a terminal.
func deviceAnswer(body []byte, deviceURL string) (*oauth2.DeviceAuthResponse, error) {
	d := &oauth2.DeviceAuthResponse{}
	if json.Unmarshal(body, d) != nil || d.DeviceCode == "" || d.UserCode == "" {
		return nil, newError("invalid_response", "not a device authorization response")
	}
	for _, shown := range []string{d.VerificationURI, d.VerificationURIComplete} {
		if shown != "" && !sameSite(shown, deviceURL) {
			return nil, newError("invalid_response", "the person is sent to another place")
		}
	}
	if d.UserCode != printable(d.UserCode) || d.VerificationURI == "" {
		return nil, newError("invalid_response", "nothing to show to the person")
	}
	if limit := time.Now().Add(time.Hour); d.Expiry.IsZero() || d.Expiry.After(limit) {
		d.Expiry = limit
	}
	d.Interval = min(max(d.Interval, 0), int64(pollAtMost/time.Second))
	return d, nil
}

func sameSite(raw, other string) bool {
	u, err := parseSecure(raw)
	o, err2 := url.Parse(other)
	return err == nil && err2 == nil && u.Scheme == o.Scheme && u.Host == o.Host && raw == printable(raw)
}
