// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// warnLogin is how long before a login is too old its tenant is told, at the most.
const warnLogin = 7 * 24 * time.Hour

// Logins says how long the credential of a tenant is renewed after its last login.
type Logins struct {
	opts           *Options
	authorizations *Authorizations
	noted          sync.Map // of strings: what was recorded last of the login of each tenant
}

// renewableFor is how long the credential of a tenant is renewed, by its last login. Of
// tenants that were made before that was written down the token of the login tells.
func (l *Logins) renewableFor(r *Record) time.Duration {
	last := r.LoggedIn
	if last.IsZero() {
		last = r.Identity.Expiry
	}
	return time.Until(last.Add(l.opts.MaxLoginAge))
}

// renewable tells whether a tenant's credential may be renewed, from what is recorded now:
// who has just logged in need not wait for a review. Their groups are looked at again too.
func (l *Logins) renewable(ctx context.Context, tenant string) (bool, error) {
	l.authorizations.Forget(tenant)
	if l.opts.MaxLoginAge == 0 {
		return true, nil
	}
	r, _, err := l.authorizations.records.Read(ctx, tenant)
	if errors.Is(err, errNoRecord) {
		return false, nil
	}
	return err == nil && l.renewableFor(r) > 0, err
}

// Conditions are those that say how long the login of a tenant is good: none
// where that is for ever.
func (l *Logins) Conditions(ctx context.Context, tenant string) ([]v1alpha1.Condition, error) {
	if l.opts.MaxLoginAge == 0 {
		return nil, nil
	}
	r, err := l.authorizations.known(ctx, tenant)
	if _, none := errors.AsType[*RefusalError](err); none {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	condition := judgeLogin(l.renewableFor(r), l.opts.MaxLoginAge)
	l.note(ctx, tenant, condition.Reason)
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

// note leaves a record of a login that ends, or has ended, once in a run.
func (l *Logins) note(ctx context.Context, tenant, reason string) {
	if before, _ := l.noted.Swap(tenant, reason); before == reason {
		return
	}
	switch reason {
	case v1alpha1.ReasonLoginEnding:
		audit.Record(ctx, "login about to end", "tenant", tenant)
	case v1alpha1.ReasonLoginTooOld:
		audit.Record(ctx, "login too old", "tenant", tenant)
	}
}
