// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/cluster"
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

// consents are the answers to the permission claims of services.
type consents struct {
	progress
	did       func(format string, args ...any) // of the installer
	services  []v1alpha1.GroupResource
	answer    func(context.Context, []Claim) error
	discovery discovery.ServerResourcesInterfaceWithContext
	existing  map[string]*v1alpha1.APIServiceBinding
	exports   map[string]*v1alpha1.APIServiceExport // nil in a dry run where there is none
	answers   map[string][]v1alpha1.AcceptablePermissionClaim
}

// ask has every claim answered, for existing bindings with their answers in hand.
func (a *consents) ask(ctx context.Context, claims map[string][]v1alpha1.PermissionClaim) error {
	var all []Claim
	for _, service := range a.services {
		for _, c := range claims[service.String()] {
			claim, err := a.claim(ctx, service, c)
			if err != nil {
				return err
			}
			all = append(all, claim)
		}
	}
	if a.answer != nil && len(all) > 0 {
		if err := a.answer(ctx, all); err != nil {
			return err
		}
	}
	return a.note(all)
}

// claim judges a claim of a service. One that no provider gets is rejected, and a
// service that requires it is not bound.
func (a *consents) claim(ctx context.Context, service v1alpha1.GroupResource, c v1alpha1.PermissionClaim) (Claim, error) {
	claim := Claim{Service: service, AcceptablePermissionClaim: v1alpha1.AcceptablePermissionClaim{PermissionClaim: c, State: a.before(service, c)}}
	if err := checkClaim(claim); err != nil {
		claim.State, claim.Standing, claim.Why = v1alpha1.ClaimRejected, StandingNever, err.Error()
		return claim, err
	}
	wide := false
	if permission.DependsOnScope(c.GroupResource) {
		var err error
		if wide, err = permission.ClusterScoped(ctx, a.discovery, c); err != nil {
			return claim, err
		}
	}
	policy, why := permission.PolicyOf(c.GroupResource, wide)
	claim.Standing, claim.Why = Standing(policy), why
	if spec := a.spec(service); spec.Scope == v1alpha1.ClusterScope && claim.Standing != StandingNever {
		claim.Standing, claim.Why = StandingByName, service.String()+" is cluster-scoped, so that the claim is about each namespace that has a service namespace, whatever is in it"
		claim.Wide = true
		if !permission.IsWide(&spec) {
			claim.Standing, claim.Why = StandingNever, service.String()+" is cluster-scoped here alone, so that no namespace has what the claim is about"
		}
	}
	if claim.Standing != StandingNever {
		return claim, nil
	}
	claim.State = v1alpha1.ClaimRejected
	if c.Required {
		return claim, fmt.Errorf("service %s requires %s, which no provider gets, since %s: %w", service, c.String(), claim.Why, ErrPolicy)
	}
	return claim, nil
}

// before is the answer that a claim has in the App Cluster; empty for none.
func (a *consents) before(service v1alpha1.GroupResource, claim v1alpha1.PermissionClaim) v1alpha1.ClaimState {
	if b := a.existing[service.String()]; b != nil {
		for _, c := range b.Spec.PermissionClaims {
			if equality.Semantic.DeepEqual(c.PermissionClaim, claim) {
				return c.State
			}
		}
	}
	return ""
}

// note takes the answers if there is one to each claim, and none that rules the
// service out.
func (a *consents) note(claims []Claim) error {
	missing := &ConsentError{}
	for _, c := range claims {
		if c.Standing == StandingNever {
			c.State = v1alpha1.ClaimRejected
			a.say("Rejected the claim of %s on %s, which no provider gets: %s", c.Service, c.String(), c.Why)
		}
		switch {
		case c.State == "":
			missing.Unanswered = append(missing.Unanswered, c)
		case c.State == v1alpha1.ClaimRejected && c.Required:
			missing.Refused = append(missing.Refused, c)
		}
		name := c.Service.String()
		a.answers[name] = append(a.answers[name], c.AcceptablePermissionClaim)
	}
	if len(missing.Unanswered)+len(missing.Refused) > 0 {
		return missing
	}
	return nil
}

// needed are the claims that the konnector needs rights for: the accepted ones and, since it has
// copies to remove, the ones that were accepted until now, or whose copies remain. What rights it
// has stay until it has looked.
func (a *consents) needed(service v1alpha1.GroupResource, has []rbacv1.PolicyRule) []v1alpha1.AcceptablePermissionClaim {
	ended := func(c v1alpha1.AcceptablePermissionClaim) bool { return c.State != v1alpha1.ClaimAccepted }
	claims, b := slices.DeleteFunc(slices.Clone(a.answers[service.String()]), ended), a.existing[service.String()]
	if b == nil {
		return claims
	}
	said := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionClaimsInSync)
	for _, c := range b.Spec.PermissionClaims {
		policy, _ := permission.PolicyOf(c.GroupResource, false)
		goesOn := func(now v1alpha1.AcceptablePermissionClaim) bool {
			return now.GroupResource == c.GroupResource && now.Selector.Owner == c.Selector.Owner
		}
		switch {
		case policy == permission.Never, slices.ContainsFunc(claims, goesOn):
			continue
		case c.State == v1alpha1.ClaimAccepted, lags(b) && slices.ContainsFunc(has, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, c.Group) && slices.Contains(r.Resources, c.Resource)
		}):
			a.did("Left the konnector its right on %s, to remove its copies; the next bind takes it away once it has", c.GroupResource)
		case said != nil && said.Reason == v1alpha1.ReasonRevokedCopiesRemain:
			a.did("Gave the konnector a right on %s, to remove the copies that remain; the next bind takes it away once they are gone", c.GroupResource)
		default:
			continue
		}
		c.State = v1alpha1.ClaimAccepted
		claims = append(claims, c)
	}
	return claims
}

// lags reports whether a konnector that has carried out answers of a binding has yet to carry out the last ones.
func lags(b *v1alpha1.APIServiceBinding) bool {
	said := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionClaimsInSync)
	return said != nil && said.ObservedGeneration != b.Generation
}

// spec says what a service is. In a dry run the kind may not be known.
func (a *consents) spec(service v1alpha1.GroupResource) (spec v1alpha1.APIServiceExportSpec) {
	if e := a.exports[service.String()]; e != nil {
		spec = e.Spec
	}
	spec.Group, spec.Names.Plural = service.Group, service.Resource
	return spec
}

// Claims returns the permission claims of the named bindings, or of all, with the answers that
// they have. Nothing is written. Where a platform cannot be asked what it claims now, the claims
// are those that were answered, and the error says why, beside all that could be read.
func Claims(ctx context.Context, config *rest.Config, names ...string) (all []Claim, err error) {
	app, bindings, err := openBound(ctx, config)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(bindings, func(b v1alpha1.APIServiceBinding) bool { return b.Name == name }) {
			return nil, fmt.Errorf("%s: %w", name, ErrNotFound)
		}
	}
	var errs []error
	for n := range bindings {
		b := &bindings[n]
		if len(names) > 0 && !slices.Contains(names, b.Name) {
			continue
		}
		claims, err := claimsOf(ctx, app, b)
		all, errs = append(all, claims...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// claimsOf judges the claims of one binding. One that no provider may get is listed, too.
func claimsOf(ctx context.Context, app *cluster.App, b *v1alpha1.APIServiceBinding) ([]Claim, error) {
	resource, group, _ := strings.Cut(b.Name, ".")
	service := v1alpha1.GroupResource{Group: group, Resource: resource}
	a := &consents{discovery: app.Discovery, existing: map[string]*v1alpha1.APIServiceBinding{b.Name: b}}
	var claims []v1alpha1.PermissionClaim
	export, err := exportOf(ctx, app, b)
	if err != nil {
		err = fmt.Errorf("what %s claims now is not known: %w", b.Name, err)
		for _, c := range b.Spec.PermissionClaims {
			claims = append(claims, c.PermissionClaim)
		}
	} else {
		claims = export.Spec.PermissionClaims
		a.exports = map[string]*v1alpha1.APIServiceExport{b.Name: export}
	}
	var all []Claim
	for _, c := range claims {
		claim, wrong := a.claim(ctx, service, c)
		if wrong != nil && !errors.Is(wrong, ErrPolicy) {
			return all, errors.Join(err, wrong)
		}
		all = append(all, claim)
	}
	return all, err
}

// exportOf reads the export of a binding with the credential of its tenant.
func exportOf(ctx context.Context, app *cluster.App, b *v1alpha1.APIServiceBinding) (*v1alpha1.APIServiceExport, error) {
	k, tenant, err := cluster.OpenTenant(ctx, app, b)
	if err != nil {
		return nil, err
	}
	export, err := cluster.Get[v1alpha1.APIServiceExport](ctx, tenant.Resource(cluster.APIServiceExports).Namespace(k.Namespace), b.Name)
	if err == nil && export == nil {
		err = errors.New("the platform publishes it no more")
	}
	return export, err
}
