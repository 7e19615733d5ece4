// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// standings are what is known of tenants from one review to the next: events in
// between, such as those of a heartbeat or a status, cost no requests.
type standings struct {
	mu     sync.Mutex
	known  map[string]*standing // by tenant
	epochs map[string]int       // by service: grows when it may be offered to others
}

// A standing is the holder of a tenant, and which services they may bind.
type standing struct {
	tenant  func() (*record, error) // read once
	until   time.Time               // when it is reviewed
	answers map[string]verdict      // by service
}

type verdict struct {
	epoch   int
	refused *refusal // nil if it may be bound
}

// of returns the standing of a tenant, which read begins anew where it is to be
// reviewed. Of many that ask at once one reads.
func (s *standings) of(tenant string, interval time.Duration, read func() (*record, error)) (*standing, error) {
	s.mu.Lock()
	if s.known == nil {
		s.known = map[string]*standing{}
	}
	found := s.known[tenant]
	if found == nil || !time.Now().Before(found.until) {
		found = &standing{
			until: time.Now().Add(wait.Jitter(interval, reviewSpread)), answers: map[string]verdict{}, tenant: sync.OnceValues(read),
		}
		s.known[tenant] = found
	}
	s.mu.Unlock()
	if _, err := found.tenant(); err != nil {
		s.forget(tenant)
		return nil, err
	}
	return found, nil
}

// left is in how long a tenant is reviewed, or zero if it is at the next occasion.
func (s *standings) left(tenant string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.known[tenant]; found != nil {
		return max(0, time.Until(found.until))
	}
	return 0
}

// forget has a tenant reviewed at the next occasion.
func (s *standings) forget(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, tenant)
}

// reopen has the right to a service reviewed at the next occasion.
func (s *standings) reopen(service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epochs == nil {
		s.epochs = map[string]int{}
	}
	s.epochs[service]++
}

// answer returns what is known of a service, and the epoch in which to ask otherwise.
func (s *standings) answer(of *standing, service string) (known verdict, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok = of.answers[service]
	if epoch := s.epochs[service]; !ok || known.epoch != epoch {
		return verdict{epoch: epoch}, false
	}
	return known, true
}

func (s *standings) note(of *standing, service string, v verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.answers[service] = v
}

// stillMay says whether the holder of a tenant may bind a service. It asks once a
// review, or when the offer of the service changes.
func (c *control) stillMay(ctx context.Context, tenant string, s Service) error {
	of, err := c.standings.of(tenant, c.opts.ReviewInterval, func() (*record, error) { return c.tenantRecord(ctx, tenant) })
	if err != nil {
		return err
	}
	v, ok := c.standings.answer(of, s.Name())
	if !ok {
		holder, _ := of.tenant()
		err := c.authorize(ctx, holder, s)
		if v.refused, ok = errors.AsType[*refusal](err); !ok && err != nil {
			return err
		}
		c.standings.note(of, s.Name(), v)
	}
	if v.refused != nil {
		return v.refused
	}
	return nil
}
