// SPDX-License-Identifier: Apache-2.0

package related

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// A verifier confirms live that a copy has lost its reason.
type verifier struct {
	filter            *filter
	owners            ownership
	Originals, Copies Side
}

// verify confirms live that the original has gone, or that its namespace has no source
// any more, or that the bound object that was recorded to refer to it does so no more;
// and in that case, whether another Sync wants the copy.
func (v verifier) verify(ctx context.Context, p *pair) (verified, shared bool, err error) {
	if v.owners.ofPredecessor(p, p.copy) {
		return v.unclaimed(ctx, p)
	}
	if ending, err := v.ending(ctx, p); err != nil || ending {
		return false, false, err
	}
	live, err := v.Originals.metadata(ctx, p.from.Name)
	from, _ := v.filter.Names.Origin(p.copy)
	if err != nil || live == nil || live.GetUID() != from.UID || !v.filter.mayTravel(live, p.name) {
		return err == nil, false, err
	}
	if v.filter.selects(live, p.name).selected {
		return false, false, nil // the original is there: the watch will show it
	}
	ours, others, err := v.madeBy(ctx, p)
	if err != nil || !ours {
		return false, false, err
	}
	if namespace := v.filter.sourceNamespace(p.from.Name, p.name); !v.filter.Sources.In(namespace) {
		deserted, err := v.filter.Sources.Deserted(ctx, namespace)
		return deserted, others, err
	}
	unreferred, err := v.unreferred(ctx, p, live)
	return unreferred, others, err
}

// ending confirms live that the namespace of the originals is being deleted, and its sources with
// it: these come after the originals, in whatever order the cluster chooses.
func (v verifier) ending(ctx context.Context, p *pair) (bool, error) {
	if v.filter.FromTarget || !v.filter.Sources.In(p.from.Name.Namespace) {
		return false, nil
	}
	return v.filter.Sources.Ending(ctx, p.from.Name.Namespace)
}

// read confirms live that a target needs the copy still: a watch may show later that its source is
// being deleted than that the original is gone.
func (v verifier) read(ctx context.Context, p *pair) (bool, error) {
	if v.filter.FromTarget || !v.filter.Sources.In(p.from.Name.Namespace) {
		return false, nil
	}
	claim, _ := v.owners.claim(p)
	return v.filter.Sources.Leaving(ctx, claim)
}

// madeBy is that of the owners, of the copy as it is live.
func (v verifier) madeBy(ctx context.Context, p *pair) (ours, others bool, err error) {
	live, err := v.Copies.metadata(ctx, p.name)
	if err != nil || live == nil {
		return false, false, err
	}
	ours, others = v.owners.madeBy(live)
	return ours, others, nil
}

// unreferred confirms live that the bound object that was recorded to refer to the
// original no longer selects it.
func (v verifier) unreferred(ctx context.Context, p *pair, original metav1.Object) (bool, error) {
	referrer := p.copy.GetAnnotations()[v.filter.Marks.Referrer]
	if referrer == "" {
		return true, nil // it was selected by name, and the selector has changed
	}
	u, err := v.filter.Bound.Live(ctx, cache.NewObjectName(p.from.Name.Namespace, referrer))
	if err != nil || u == nil {
		return err == nil, err
	}
	return !v.filter.selectedBy([]metav1.Object{u}, original, p.name).selected, nil
}

// unclaimed confirms live that a predecessor's copy is asked for no more; and in that case,
// whether another Sync wants it.
func (v verifier) unclaimed(ctx context.Context, p *pair) (verified, shared bool, err error) {
	key, ok := v.owners.claim(p)
	if !ok {
		if deserted, err := v.filter.Sources.Deserted(ctx, p.name.Namespace); err != nil || !deserted {
			return false, false, err
		}
		return v.madeBy(ctx, p)
	}
	asking, err := v.filter.Sources.Live(ctx, key)
	if err != nil || asking != nil {
		return false, false, err
	}
	return v.madeBy(ctx, p)
}
