// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// warnLogin is how long before a login is too old its tenant is told, at the most.
const warnLogin = 7 * 24 * time.Hour

// loginLeft is how long the credential of a tenant is renewed, by its last login. Of
// tenants that were made before that was written down the token of the login tells.
func (e *Exporter) loginLeft(r *record) time.Duration {
	last := r.LoggedIn
	if last.IsZero() {
		last = r.Identity.Expiry
	}
	return time.Until(last.Add(e.opts.MaxLoginAge))
}

// renewable tells whether a tenant's credential may be renewed, from what is recorded now:
// who has just logged in need not wait for a review. Their groups are looked at again too.
func (c *control) renewable(ctx context.Context, tenant string) (bool, error) {
	c.standings.forget(tenant)
	if c.opts.MaxLoginAge == 0 {
		return true, nil
	}
	r, _, err := c.readRecord(ctx, tenant)
	if errors.Is(err, errNoRecord) {
		return false, nil
	}
	return err == nil && c.loginLeft(r) > 0, err
}

// known is the record of a tenant, as of the last review.
func (c *control) known(ctx context.Context, tenant string) (*record, error) {
	review := time.Now().Add(wait.Jitter(c.opts.ReviewInterval, reviewSpread))
	return c.standings.tenants.get(tenant, review, func() (*record, error) { return c.tenantRecord(ctx, tenant) })
}

// loginCurrent are the conditions that say how long the login of a tenant is good: none
// where that is for ever.
func (c *control) loginCurrent(ctx context.Context, tenant string) ([]v1alpha1.Condition, error) {
	if c.opts.MaxLoginAge == 0 {
		return nil, nil
	}
	r, err := c.known(ctx, tenant)
	if _, none := errors.AsType[*refusal](err); none {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	condition := judgeLogin(c.loginLeft(r), c.opts.MaxLoginAge)
	c.noteLogin(ctx, tenant, condition.Reason)
	return []v1alpha1.Condition{condition}, nil
}

func judgeLogin(left, most time.Duration) v1alpha1.Condition {
	good := v1alpha1.True(v1alpha1.ConditionLoginCurrent)
	switch {
	case left <= 0:
		return v1alpha1.False(v1alpha1.ConditionLoginCurrent, v1alpha1.SeverityError, v1alpha1.ReasonLoginTooOld,
			fmt.Sprintf("the last login is older than %s, and the credential is not renewed any more: log in again with kubectl bind rotate", most))
	case left <= min(warnLogin, most/10):
		good.Reason = v1alpha1.ReasonLoginEnding
		good.Message = "the last login is almost as old as it may be: log in again with kubectl bind rotate"
	}
	return good
}

// noteLogin leaves a record of a login that ends, or has ended, once in a run.
func (c *control) noteLogin(ctx context.Context, tenant, reason string) {
	if before, _ := c.logins.Swap(tenant, reason); before == reason {
		return
	}
	switch reason {
	case v1alpha1.ReasonLoginEnding:
		audit(ctx, "login about to end", "tenant", tenant)
	case v1alpha1.ReasonLoginTooOld:
		audit(ctx, "login too old", "tenant", tenant)
	}
}
