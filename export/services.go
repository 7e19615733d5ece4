// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/expiring"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// maxAsked is how many services can be asked for at once.
const maxAsked = 20

// offersFor is how long the catalogue is taken for what it was when no event tells
// that it changed: catalogues of other makes have none.
const offersFor = time.Minute

// A catalog says what is offered.
type catalog interface {
	Services(ctx context.Context) ([]Service, error)
}

// An authorizer decides who may bind what.
type authorizer interface {
	Authorize(ctx context.Context, id *auth.Identity, s Service) error
}

// services are what is on offer, and who may bind it.
type services struct {
	catalog    catalog
	authorizer authorizer
	offers     expiring.Cache[[]Service] // one, which many exports are held against
}

// named returns the service of that name, if it is on offer.
func (s *services) named(ctx context.Context, name string) (Service, bool, error) {
	services, err := s.offers.Get("", time.Now().Add(offersFor), func() ([]Service, error) { return s.catalog.Services(ctx) })
	found, ok := find(services, name)
	return found, ok, err
}

// authorize says whether the holder of a tenant may bind a service, at this moment.
func (s *services) authorize(ctx context.Context, tenant *record, wanted Service) error {
	err := s.authorizer.Authorize(ctx, &tenant.Identity, wanted)
	if errors.Is(err, ErrForbidden) {
		return refuse(v1alpha1.ReasonNotAuthorized, fmt.Sprintf("%s may not be bound by the holder of this tenant any more", wanted.Name()))
	}
	return err
}
