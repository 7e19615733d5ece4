// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"

	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// loginDevice is the login of a machine without a browser (RFC 8628).
func (c *Client) loginDevice(ctx context.Context, p *v1alpha1.BindingProvider, opts LoginOptions) (*v1alpha1.BindingResponse, error) {
	grant := codeGrant(p)
	if grant.DeviceURL == "" || grant.TokenURL == "" {
		return nil, fmt.Errorf("%s: %w", c.url, ErrNoDevice)
	}
	if !c.sameOrigin(grant.DeviceURL) {
		return nil, fmt.Errorf("%s sends the login to another place, %q: %w", c.url, grant.DeviceURL, ErrNotBackend)
	}
	code, err := auth.LoginDevice(ctx, auth.DeviceOptions{
		DeviceURL:  grant.DeviceURL,
		ClientID:   ClientID,
		Params:     opts.params(),
		Prompt:     opts.promptDevice,
		HTTPClient: c.http,
	})
	if err != nil {
		return nil, fmt.Errorf("log in at %s: %w", c.url.Host, err)
	}
	return c.Redeem(ctx, p, code)
}

// promptDevice leaves the URL with the code in it aside: who types a code has it
// from their own terminal, and not from a stranger's link.
func (o LoginOptions) promptDevice(d *oauth2.DeviceAuthResponse) {
	if o.Prompt != nil {
		o.Prompt(d.VerificationURI, d.UserCode)
	}
}
