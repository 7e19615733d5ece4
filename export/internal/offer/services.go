// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/expiring"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// MaxAsked is how many services can be asked for at once.
const MaxAsked = 20

// offersFor is how long the catalogue is taken for what it was when no event tells
// that it changed: catalogues of other makes have none.
const offersFor = time.Minute

// A Catalog says what is offered.
type Catalog interface {
	Services(ctx context.Context) ([]Service, error)
}

// An Authorizer decides who may bind what.
type Authorizer interface {
	Authorize(ctx context.Context, id *auth.Identity, s Service) error
}

// Services are the services on offer, and who may bind each.
type Services struct {
	Catalog    Catalog
	Authorizer Authorizer
	Prefixed   Prefixed
	Offers     expiring.Cache[[]Service] // one, which many exports are held against
}

// named returns the service of that name, if it is on offer.
func (s *Services) named(ctx context.Context, name string) (Service, bool, error) {
	services, err := s.Offers.Get("", time.Now().Add(offersFor), func() ([]Service, error) { return s.Catalog.Services(ctx) })
	found, ok := Find(services, name)
	return found, ok, err
}

// authorize says whether the holder of a tenant may bind a service, at this moment.
func (s *Services) authorize(ctx context.Context, holder *tenant.Record, wanted Service) error {
	err := s.Authorizer.Authorize(ctx, &holder.Identity, wanted)
	if errors.Is(err, ErrForbidden) {
		return tenant.Refuse(v1alpha1.ReasonNotAuthorized, fmt.Sprintf("%s may not be bound by the holder of this tenant any more", wanted.Name()))
	}
	return err
}
