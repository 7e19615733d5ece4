// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// deletions says how many deletions are held because too many came at once, and
// lets them go when the owner of the binding says so.
func (p *pass) deletions(ctx context.Context, state klutchsync.Status) (err error) {
	if p.record.releases(p.binding.Annotations[klutchsync.ReleaseAnnotation]) {
		p.syncs.Release(p.key.String())
		state.Held, state.HeldCopies = 0, 0
		err = p.syncs.deletions.of(p.key, p.session.heartbeat.secret).Save(ctx, "")
	}
	p.mention(deletionsInSync(p.binding, state))
	return err
}

// sync has the objects kept in step, and says whether they are.
func (p *pass) sync(ctx context.Context) (bool, error) {
	name := p.key.String()
	selected, err := p.settleClaims(ctx)
	if err != nil {
		return false, err
	}
	if p.export.Spec.Scope == v1alpha1.ClusterScope && p.session.heartbeat.snapshot().tenant == "" {
		p.again = retryEvery
		p.verdict.set(pending(v1alpha1.ConditionInformersSynced, "Waits to read the tenant namespace."))
		return false, nil
	}
	r := recipe{export: p.export, related: selected, grant: p.grant, former: types.UID(p.binding.Annotations[v1alpha1.RecoverAnnotation])}
	if cmp.Or(p.binding.Spec.LostInstances, p.export.Spec.LostInstances) == v1alpha1.LostInstancesReport {
		r.lost = klutchsync.LostReport
	}
	if err = p.syncs.put(p.key, &p.record.sync, p.session, r); err != nil { //nolint:contextcheck // a Sync has the context of its Set
		return p.block(failed(v1alpha1.ConditionInformersSynced, v1alpha1.ReasonInvalidClaim, cluster.Explain(err)+"."))
	}
	state, ok := p.syncs.State(name)
	if ok && state.Err != nil {
		p.again = rightsEvery
	}
	p.verdict.set(informersSynced(state, p.verdict.providerFails()))
	if err := p.tellCopies(ctx, state, selected); err != nil {
		return false, err
	}
	if p.record.lacks != "" {
		p.verdict.set(failed(v1alpha1.ConditionInformersSynced, v1alpha1.ReasonMissingRights, p.record.lacks))
	}
	p.relatedWait(state.Unreadable)
	p.mention(p.session.namespaces.ready())
	return true, p.deletions(ctx, state)
}
