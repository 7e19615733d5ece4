// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A Claim is a permission claim of a service.
type Claim struct {
	Service v1alpha1.GroupResource
	v1alpha1.PermissionClaim
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

func (e *ConsentError) note(c Claim, answer v1alpha1.ClaimState) {
	switch {
	case answer == "":
		e.Unanswered = append(e.Unanswered, c)
	case answer == v1alpha1.ClaimRejected && c.Required:
		e.Refused = append(e.Refused, c)
	}
}

// consent has every claim answered, those of existing bindings as before.
func (i *installer) consent(ctx context.Context, claims map[string][]v1alpha1.PermissionClaim) error {
	missing := &ConsentError{}
	for _, service := range i.services {
		name := service.String()
		for _, c := range claims[name] {
			state, err := i.answer(ctx, Claim{service, c})
			if err != nil {
				return err
			}
			missing.note(Claim{service, c}, state)
			i.answers[name] = append(i.answers[name], v1alpha1.AcceptablePermissionClaim{PermissionClaim: c, State: state})
		}
	}
	if len(missing.Unanswered)+len(missing.Refused) > 0 {
		return missing
	}
	return nil
}

func (i *installer) answer(ctx context.Context, c Claim) (v1alpha1.ClaimState, error) {
	if err := checkClaim(c); err != nil {
		return "", err
	}
	if b := i.existing[c.Service.String()]; b != nil {
		for _, before := range b.Spec.PermissionClaims {
			if equality.Semantic.DeepEqual(before.PermissionClaim, c.PermissionClaim) {
				return before.State, nil
			}
		}
	}
	if i.opts.Answer == nil {
		return "", nil
	}
	return i.opts.Answer(ctx, c)
}
