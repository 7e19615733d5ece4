// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"net/netip"
	"net/url"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
)

// The pages to which others lead.
const (
	CallbackPath = "/callback"
	devicePage   = "/device"
)

// Options are what the handshake works with. External, Catalog, Authorizer, Tenants,
// Provider and Sealer have to be there.
type Options struct {
	Name, Version string
	External      *url.URL // where browsers and kubectl-bind reach the handshake
	Catalog       offer.Catalog
	Prefixed      offer.Prefixed
	Authorizer    offer.Authorizer
	Tenants       *tenant.Tenants
	Provider      *auth.Provider
	Issuers       []Issuer            // beside Provider
	Sealer        func() *auth.Sealer // seals and opens what travels with a browser or program

	Machines       auth.Providers
	MachineScopes  []string
	Devices        auth.DeviceStore // may be nil
	LegacyCLI      bool
	PerAddress     int // requests a minute
	PerSubject     int
	TrustedProxies []netip.Prefix
	Hooks          Hooks
}

// url returns the absolute URL of a path.
func (o *Options) url(path string) string { return o.External.JoinPath(path).String() }

// An Issuer is one more with which people may sign in.
type Issuer struct {
	Name, Title string
	Provider    *auth.Provider
}

// Hooks are told what happens; nil ones are not.
type Hooks struct {
	Request func(route string, code int, took time.Duration)
	Login   func(result Result)
}

func (h Hooks) login(result Result) {
	if h.Login != nil {
		h.Login(result)
	}
}

// A Result is how a login ended.
type Result string

// The results of logins.
const (
	LoginSucceeded   Result = "success"
	LoginRefused     Result = "refused"     // the issuer said no, or its token does not count
	LoginUnavailable Result = "unavailable" // the issuer could not be asked
	LoginLimited     Result = "limited"     // too often
)
