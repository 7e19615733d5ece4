// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/export/internal/expiring"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ReviewSpread keeps reviews of many exports apart.
const ReviewSpread = 0.2

// Authorizations cache what was found out about tenants from one review to the next:
// events in between, such as those of a heartbeat or a status, cost no requests.
type Authorizations struct {
	opts    *Options
	records *records
	caches  *Caches

	tenants expiring.Cache[*Record]       // by tenant namespace
	answers expiring.Cache[*RefusalError] // by tenant namespace and service; nil if it may be bound
}

// Due is in how long a tenant is reviewed, or zero if it is at the next occasion.
func (a *Authorizations) Due(tenant string) time.Duration {
	return max(0, time.Until(a.tenants.Until(tenant)))
}

// Forget has a tenant reviewed at the next occasion.
func (a *Authorizations) Forget(tenant string) {
	a.tenants.Forget(tenant)
	a.answers.ForgetAll(func(key string) bool { return strings.HasPrefix(key, tenant+"/") })
}

// ForgetService has the right of all tenants to a service reviewed at the next occasion.
func (a *Authorizations) ForgetService(service string) {
	a.answers.ForgetAll(func(key string) bool { return strings.HasSuffix(key, "/"+service) })
}

// Check says whether a tenant may have a service: a *RefusalError is a no. It asks once a
// review, or after ForgetService.
func (a *Authorizations) Check(ctx context.Context, tenant, service string, ask func(*Record) error) error {
	known, err := a.known(ctx, tenant)
	if err != nil {
		return err
	}
	refused, err := a.answers.Get(tenant+"/"+service, a.tenants.Until(tenant), func() (*RefusalError, error) {
		err := ask(known)
		if refused, ok := errors.AsType[*RefusalError](err); ok {
			return refused, nil
		}
		return nil, err
	})
	if refused != nil {
		return refused
	}
	return err
}

// known is the record of a tenant, as of the last review.
func (a *Authorizations) known(ctx context.Context, tenant string) (*Record, error) {
	review := time.Now().Add(wait.Jitter(a.opts.ReviewInterval, ReviewSpread))
	return a.tenants.Get(tenant, review, func() (*Record, error) { return a.Record(ctx, tenant) })
}

// Record returns the record of a tenant, if it is that of the holder of the
// namespace.
func (a *Authorizations) Record(ctx context.Context, namespace string) (*Record, error) {
	not := Refuse(v1alpha1.ReasonNotAuthorized, fmt.Sprintf("namespace %s %s", namespace, errNoRecord))
	h, ok, err := a.caches.HolderIn(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, not
	}
	r, _, err := a.records.Read(ctx, namespace)
	if errors.Is(err, errNoRecord) {
		return nil, not
	}
	if err == nil && h != r.holder() {
		return nil, not
	}
	return r, err
}
