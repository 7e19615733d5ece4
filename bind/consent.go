// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A Claim is a permission claim of a service, with the answer that it has.
type Claim struct {
	Service v1alpha1.GroupResource
	v1alpha1.AcceptablePermissionClaim
}

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
			claim := Claim{service, v1alpha1.AcceptablePermissionClaim{PermissionClaim: c, State: i.before(service, c)}}
			if err := checkClaim(claim); err != nil {
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
		if c.State == v1alpha1.ClaimRejected && i.before(service, c.PermissionClaim) == v1alpha1.ClaimAccepted {
			claims[n].State = v1alpha1.ClaimAccepted
			i.did("Left the konnector its right on %s, to remove its copies; the next bind takes it away", c.GroupResource)
		}
	}
	return claims
}
