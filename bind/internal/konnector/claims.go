// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/bind/internal/servicenamespace"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// checkRights finds out what the konnector may not do in its own cluster, before
// anything is installed there: that takes an administrator, who gives rights in the
// whole cluster. What runs already is left alone.
func (p *pass) checkRights(ctx context.Context) (bool, error) {
	state, running := p.syncs.State(p.key.String())
	running = running && state.Err == nil
	var err error
	if p.kept, err = p.keptClaims(ctx); err != nil {
		return false, err
	}
	if err := p.findGrant(ctx, running); err != nil {
		return false, err
	}
	if running {
		p.keepsRights(ctx)
		return true, nil
	}
	needed := permission.BoundRules(v1alpha1.GroupResource{Group: p.export.Spec.Group, Resource: p.export.Spec.Names.Plural})
	if p.grant != nil {
		needed = append(needed, permission.PassingRules(p.binding.Name)...)
	} else {
		p.kept = nil
	}
	missing, err := permission.MissingRights(ctx, p.app.Calls, needed)
	if err != nil {
		return false, err
	}
	if p.noteMissingRights(missing); len(missing) == 0 {
		return true, nil
	}
	p.verdict.set(failed(v1alpha1.ConditionInformersSynced, v1alpha1.ReasonMissingRights, p.record.missingRights))
	return false, nil
}

// noteMissingRights takes note of the rights that are missing. Once none is, what was refused for
// want of them is asked again at once.
func (p *pass) noteMissingRights(missing []string) {
	r, before := p.record, p.record.missingRights
	r.nextReview, r.unreviewed, r.missingRights = time.Now().Add(keptEvery), trouble{}, ""
	if len(missing) > 0 {
		r.missingRights = permission.MissingMessage(p.binding.Name, missing, permission.ClaimRules(p.kept))
	}
	if r.missingRights != before {
		r.unpermitted, r.unread = trouble{}, trouble{}
	}
	switch {
	case r.missingRights != "":
		p.lookAgain(r.unpermitted.again())
	case before != "":
		p.syncs.Retry(p.key.String())
	}
}

// keepsRights looks now and then whether the rights on the bound kind are still there,
// before they are used. What runs goes on: API servers refuse requests without a right.
func (p *pass) keepsRights(ctx context.Context) {
	if left := time.Until(p.record.nextReview); left > 0 && p.record.missingRights == "" {
		p.lookAgain(left)
		return
	}
	p.review(ctx)
}

// review looks whether the rights on the bound kind are still there. An answer that fails is no
// loss of rights: it is asked again after pauses that grow, and the log says so where it lasts.
func (p *pass) review(ctx context.Context) {
	if left := time.Until(p.record.nextReview); left > 0 && !p.record.unreviewed.since.IsZero() {
		p.lookAgain(left)
		return
	}
	rules := permission.BoundRules(v1alpha1.GroupResource{Group: p.export.Spec.Group, Resource: p.export.Spec.Names.Plural})
	missing, err := permission.Lacking(ctx, p.app.Calls, rules)
	if err != nil {
		pause := max(p.record.unreviewed.growing(keptEvery, carryOutRarely), fates.Asked(err))
		p.record.nextReview = time.Now().Add(pause)
		p.lookAgain(pause)
		if p.record.unreviewed.lasts() {
			logr.FromContextOrDiscard(ctx).Info("this cluster does not say which rights the konnector has on a bound kind", "reason", cluster.Explain(err), "pause", pause.String())
		}
		return
	}
	if p.noteMissingRights(missing); p.record.missingRights == "" {
		p.lookAgain(keptEvery)
	}
}

// keptEvery is the pace of looks at rights that were there.
const keptEvery = 10 * time.Second

// findGrant finds out whether the konnector has the rights of the claims in all
// namespaces, as a program that is an administrator has, and as bindings gave them
// once. A konnector without them has none to lose, so that it asks once.
func (p *pass) findGrant(ctx context.Context, running bool) error {
	p.grant = permission.NewGrant(p.app.Calls, p.binding.Name, p.kept)
	if p.grant == nil || running && !p.record.everywhere {
		return nil
	}
	missing, err := permission.MissingRights(ctx, p.app.Calls, p.grant.Rules)
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		p.grant = nil
		p.lookAgain(time.Minute) // until they are narrowed
	}
	p.record.everywhere = len(missing) == 0
	return nil
}

// keptClaims are the accepted claims that are carried out.
func (p *pass) keptClaims(ctx context.Context) ([]v1alpha1.AcceptablePermissionClaim, error) {
	judge, err := p.judge(ctx)
	return slices.DeleteFunc(slices.Clone(p.binding.Spec.PermissionClaims), func(c v1alpha1.AcceptablePermissionClaim) bool { return !judge.Keeps(c) }), err
}

// namespacesReady says whether objects have service namespaces. That an API server does not let the
// konnector list namespaces is heard of nowhere else.
func namespacesReady(unlisted trouble, namespaces *servicenamespace.Keeper) v1alpha1.Condition {
	if unlisted.lasts() {
		return warned(v1alpha1.ConditionNamespacesReady, v1alpha1.ReasonInformerSyncTimeout,
			"The namespaces of this cluster, or the APIServiceNamespaces of the tenant, cannot be listed; answers to claims are carried out once they can. The konnector's log says why.")
	}
	return namespaces.Ready()
}

// judge looks up what it takes to judge the binding's claims.
func (p *pass) judge(ctx context.Context) (permission.Judge, error) {
	return permission.NewJudge(ctx, p.app.discovery, &p.export.Spec, p.binding.Spec.PermissionClaims)
}

// relatedWait says in which namespaces related objects cannot be read, and why.
func (p *pass) relatedWait(unreadable map[string]string) {
	if len(unreadable) == 0 {
		return
	}
	before, reason := p.verdict.found[v1alpha1.ConditionClaimsInSync], v1alpha1.ReasonMissingRights
	if copiesRemain(&before) {
		reason = before.Reason
	}
	message := "Related objects cannot be read in " + cluster.Some(cluster.Reasons(unreadable)) + ". All else is kept in step. " + before.Message
	p.verdict.set(warned(v1alpha1.ConditionClaimsInSync, reason, strings.TrimSpace(message)))
}

// settleClaims returns what the accepted claims select, and has nothing left of what
// other claims once selected, unless it is too early to settle that.
func (p *pass) settleClaims(ctx context.Context) (selected []klutchsync.Related, settled bool, err error) {
	claims := p.binding.Spec.PermissionClaims
	judge, err := p.judge(ctx)
	if err != nil {
		return nil, false, err
	}
	selected, problems, refused := judge.Select(claims)
	w := &consentEnd{pass: p, selected: selected, judge: judge}
	why, err := w.run(ctx)
	if err != nil || w.waits {
		return selected, false, err
	}
	reason := v1alpha1.ReasonUnsupportedClaim
	if refused {
		reason = v1alpha1.ReasonRefusedClaim
	}
	c := claimsInSync(reason, problems, permission.Unanswered(p.export.Spec.PermissionClaims, claims))
	if why.words != "" {
		c = warned(c.Type, why.reason, strings.TrimSpace(why.words+" "+c.Message))
	}
	if len(claims) > 0 {
		p.verdict.set(c)
	}
	p.mention(c)
	return selected, true, nil
}

// claimsInSync sums up problems with claims, of which reason is what they have in
// common, and claims that are not answered yet: nothing is done for them until they
// are, and that matters if they are required.
func claimsInSync(reason string, problems []string, asked []v1alpha1.PermissionClaim) v1alpha1.Condition {
	required := len(problems) > 0
	if len(asked) > 0 {
		if reason != v1alpha1.ReasonRefusedClaim {
			reason = v1alpha1.ReasonNewClaims
		}
		names := make([]string, 0, len(asked))
		for _, c := range asked {
			names = append(names, c.String())
			required = required || c.Required
		}
		problems = append(problems, "The provider makes claims that were not answered: "+strings.Join(names, ", ")+". kubectl bind claims answers them; what was agreed to goes on.")
	}
	c := v1alpha1.True(v1alpha1.ConditionClaimsInSync)
	if required {
		c = warned(v1alpha1.ConditionClaimsInSync, reason, "")
	}
	if len(problems) > 0 {
		c.Reason, c.Message = reason, strings.Join(problems, " ")
	}
	return c
}
