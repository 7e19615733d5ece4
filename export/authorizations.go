// SPDX-License-Identifier: Apache-2.0

package export

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

// reviewSpread keeps reviews of many exports apart.
const reviewSpread = 0.2

// authorizations cache what was found out about tenants from one review to the next:
// events in between, such as those of a heartbeat or a status, cost no requests.
type authorizations struct {
	opts    *options
	records *records
	caches  *caches

	tenants expiring.Cache[*record]  // by tenant namespace
	answers expiring.Cache[*refusal] // by tenant namespace and service; nil if it may be bound
}

// due is in how long a tenant is reviewed, or zero if it is at the next occasion.
func (a *authorizations) due(tenant string) time.Duration {
	return max(0, time.Until(a.tenants.Until(tenant)))
}

// forget has a tenant reviewed at the next occasion.
func (a *authorizations) forget(tenant string) {
	a.tenants.Forget(tenant)
	a.answers.ForgetAll(func(key string) bool { return strings.HasPrefix(key, tenant+"/") })
}

// forgetService has the right of all tenants to a service reviewed at the next occasion.
func (a *authorizations) forgetService(service string) {
	a.answers.ForgetAll(func(key string) bool { return strings.HasSuffix(key, "/"+service) })
}

// check says whether a tenant may have a service: a *refusal is a no. It asks once a
// review, or after forgetService.
func (a *authorizations) check(ctx context.Context, tenant, service string, ask func(*record) error) error {
	known, err := a.known(ctx, tenant)
	if err != nil {
		return err
	}
	refused, err := a.answers.Get(tenant+"/"+service, a.tenants.Until(tenant), func() (*refusal, error) {
		err := ask(known)
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

// known is the record of a tenant, as of the last review.
func (a *authorizations) known(ctx context.Context, tenant string) (*record, error) {
	review := time.Now().Add(wait.Jitter(a.opts.ReviewInterval, reviewSpread))
	return a.tenants.Get(tenant, review, func() (*record, error) { return a.record(ctx, tenant) })
}

// record returns the record of a tenant, if it is that of the holder of the
// namespace.
func (a *authorizations) record(ctx context.Context, namespace string) (*record, error) {
	not := refuse(v1alpha1.ReasonNotAuthorized, fmt.Sprintf("namespace %s %s", namespace, errNoRecord))
	h, ok, err := a.caches.holderIn(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, not
	}
	r, _, err := a.records.read(ctx, namespace)
	if errors.Is(err, errNoRecord) {
		return nil, not
	}
	if err == nil && h != (holder{r.Identity.Issuer, r.Identity.Subject, r.Cluster}) {
		return nil, not
	}
	return r, err
}
