// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A ConsentError says that a binding needs answers which it did not get. Nothing
// has been changed in the App Cluster.
type ConsentError struct {
	Unanswered []Claim
	Refused    []Claim // required ones that were answered with Rejected
}

// Error implements error.
func (e *ConsentError) Error() string {
	var parts []string
	for _, c := range e.Unanswered {
		parts = append(parts, fmt.Sprintf("%s claims %s, which is not answered", c.Service, c.GroupResource))
	}
	for _, c := range e.Refused {
		parts = append(parts, fmt.Sprintf("%s cannot be bound without %s, which is rejected", c.Service, c.GroupResource))
	}
	return strings.Join(parts, "; ")
}

// consent has every claim answered, for existing bindings with their answers in hand.
func (i *installer) consent(ctx context.Context, claims map[string][]v1alpha1.PermissionClaim) error {
	var all []Claim
	for _, service := range i.services {
		for _, c := range claims[service.String()] {
			claim, err := i.claim(service, c)
			if err != nil {
				return err
			}
			all = append(all, claim)
		}
	}
	if i.opts.Answer != nil && len(all) > 0 {
		if err := i.opts.Answer(ctx, all); err != nil {
			return err
		}
	}
	return i.noteAnswers(all)
}

// claim judges a claim of a service. One that no provider gets is rejected, and a
// service that requires it is not bound.
func (i *installer) claim(service v1alpha1.GroupResource, c v1alpha1.PermissionClaim) (Claim, error) {
	claim := Claim{Service: service, AcceptablePermissionClaim: v1alpha1.AcceptablePermissionClaim{PermissionClaim: c, State: i.before(service, c)}}
	if err := checkClaim(claim); err != nil {
		return claim, err
	}
	wide := false
	if permission.DependsOnScope(c.GroupResource) {
		var err error
		if wide, err = permission.ClusterScoped(i.app.Discovery, c); err != nil {
			return claim, err
		}
	}
	policy, why := permission.PolicyOf(c.GroupResource, wide)
	claim.Standing, claim.Why = Standing(policy), why
	if i.spec(service).Scope == v1alpha1.ClusterScope {
		claim.Standing, claim.Why = StandingNever, service.String()+" is cluster-scoped, so that the claim would be about all namespaces"
	}
	if claim.Standing == StandingNever && c.Required {
		return claim, fmt.Errorf("service %s requires %s, which no provider gets, since %s: %w", service, c.String(), claim.Why, ErrPolicy)
	}
	if claim.Standing == StandingNever {
		claim.State = v1alpha1.ClaimRejected
	}
	return claim, nil
}

// before is the answer that a claim has in the App Cluster; empty for none.
func (i *installer) before(service v1alpha1.GroupResource, claim v1alpha1.PermissionClaim) v1alpha1.ClaimState {
	if b := i.existing[service.String()]; b != nil {
		for _, c := range b.Spec.PermissionClaims {
			if equality.Semantic.DeepEqual(c.PermissionClaim, claim) {
				return c.State
			}
		}
	}
	return ""
}

// noteAnswers takes the answers if there is one to each claim, and none that rules the
// service out.
func (i *installer) noteAnswers(claims []Claim) error {
	missing := &ConsentError{}
	for _, c := range claims {
		if c.Standing == StandingNever {
			c.State = v1alpha1.ClaimRejected
			i.say("Rejected the claim of %s on %s, which no provider gets: %s", c.Service, c.String(), c.Why)
		}
		switch {
		case c.State == "":
			missing.Unanswered = append(missing.Unanswered, c)
		case c.State == v1alpha1.ClaimRejected && c.Required:
			missing.Refused = append(missing.Refused, c)
		}
		name := c.Service.String()
		i.answers[name] = append(i.answers[name], c.AcceptablePermissionClaim)
	}
	if len(missing.Unanswered)+len(missing.Refused) > 0 {
		return missing
	}
	return nil
}

// needed are the claims that the konnector needs rights for: those that are accepted
// and, since it has copies to remove, those that were until now.
func (i *installer) needed(service v1alpha1.GroupResource) []v1alpha1.AcceptablePermissionClaim {
	claims := slices.Clone(i.answers[service.String()])
	for n, c := range claims {
		if p, _ := permission.PolicyOf(c.GroupResource, false); p != permission.Never && c.State == v1alpha1.ClaimRejected && i.before(service, c.PermissionClaim) == v1alpha1.ClaimAccepted {
			claims[n].State = v1alpha1.ClaimAccepted
			i.did("Left the konnector its right on %s, to remove its copies; the next bind takes it away", c.GroupResource)
		}
	}
	return claims
}
