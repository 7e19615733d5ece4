// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"strings"
	"time"
)

// standings are what is known of tenants from one review to the next: events in
// between, such as those of a heartbeat or a status, cost no requests.
type standings struct {
	tenants memo[*record]  // by tenant namespace
	answers memo[*refusal] // by tenant namespace and service; nil if it may be bound
}

// left is in how long a tenant is reviewed, or zero if it is at the next occasion.
func (s *standings) left(tenant string) time.Duration {
	return max(0, time.Until(s.tenants.until(tenant)))
}

// forget has a tenant reviewed at the next occasion.
func (s *standings) forget(tenant string) {
	s.tenants.forget(tenant)
	s.answers.forgetAll(func(key string) bool { return strings.HasPrefix(key, tenant+"/") })
}

// reopen has the right to a service reviewed at the next occasion.
func (s *standings) reopen(service string) {
	s.answers.forgetAll(func(key string) bool { return strings.HasSuffix(key, "/"+service) })
}

// stillMay says whether the holder of a tenant may bind a service. It asks once a
// review, or when the offer of the service changes.
func (c *control) stillMay(ctx context.Context, tenant string, s Service) error {
	known, err := c.known(ctx, tenant)
	if err != nil {
		return err
	}
	refused, err := c.standings.answers.get(tenant+"/"+s.Name(), c.standings.tenants.until(tenant), func() (*refusal, error) {
		err := c.authorize(ctx, known, s)
		if refused, ok := errors.AsType[*refusal](err); ok {
			return refused, nil
		}
		return nil, err
	})
	if refused != nil {
		return refused
	}
	return err
}
