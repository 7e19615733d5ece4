// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"

	"github.com/klutch-go/sdk/export/internal/tenant"
)

// A Tenant is one App Cluster of one identity.
type Tenant struct {
	Namespace       string // the tenant namespace
	Issuer, Subject string // of the identity
	Cluster         string // as the client named it
}

// ErrGateClosed is wrapped by the errors of a Gate that lets a tenant wait.
var ErrGateClosed = tenant.ErrGateClosed

// A Gate stands between "the tenant is made" and "its objects are synced": for quota,
// policies, a Secret that has to be there first. While one is closed the tenant can
// bind and gets schemas, but no service namespaces, and can make or change nothing in
// those that it has.
type Gate interface {
	// Open returns nil for a tenant that may go on. For a tenant that has to wait it returns an error
	// that wraps ErrGateClosed and tells people what is awaited. Any other error means that it
	// cannot tell: then everything stays as it is. Open is asked
	// every few seconds while it is closed, and now and then while it is open.
	Open(ctx context.Context, t Tenant) error
}

// A GateFunc is a Gate.
type GateFunc func(ctx context.Context, t Tenant) error

// Open calls f.
func (f GateFunc) Open(ctx context.Context, t Tenant) error { return f(ctx, t) }
