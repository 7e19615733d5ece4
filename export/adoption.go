// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/export/internal/adoption"
)

// An AdoptionPlan is what is to be done with one tenant, step by step. One with a Problem has
// no steps.
type AdoptionPlan = adoption.Plan

// AdoptionOptions say which tenants of Klutch's own backend are adopted, and how.
type AdoptionOptions = adoption.Options

// Adopt returns what it takes to take over tenants that Klutch's own backend made: in place,
// with their exports, service namespaces and objects. Config is an administrator's. It changes
// nothing itself: that is for the Do of each step, in order, while a backend runs.
func Adopt(ctx context.Context, config *rest.Config, opts AdoptionOptions) ([]AdoptionPlan, error) {
	c, err := connect(config)
	if err != nil {
		return nil, err
	}
	return adoption.Adopt(ctx, c, opts)
}

// Release returns what it takes to leave tenants to Klutch's own backend: all that this one
// has put on them comes off. No names stand for all tenants.
func Release(ctx context.Context, config *rest.Config, tenants ...string) ([]AdoptionPlan, error) {
	c, err := connect(config)
	if err != nil {
		return nil, err
	}
	return adoption.Release(ctx, c, tenants)
}
