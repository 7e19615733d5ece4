// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
)

// inherits reports whether the target was made from this very source by a legacy
// konnector. It takes a live read to see, since what that holds is not cached.
func (e *engine) inherits(p *pair) bool {
	a := p.target.GetAnnotations()
	return e.opts.Finalizer == DefaultFinalizer && a[SourceAnnotation] == "" && a[OrphanedAnnotation] == "" &&
		legacy.MadeFrom(p.source, p.target) && fields.By(p.target, legacy.Wrote) != nil
}

// byPredecessor tells the entries of earlier sources of the name of p's.
func (e *engine) byPredecessor(p *pair) func(fields.Entry) bool {
	return func(entry fields.Entry) bool {
		return strings.HasPrefix(entry.Manager, e.fieldManager+"/") && entry.Manager != e.manager(p.from.uid) && entry.Subresource == ""
	}
}

// migrate takes over what a legacy konnector or a predecessor applied to the target.
func (e *engine) migrate(ctx context.Context, p *pair) (*unstructured.Unstructured, error) {
	others := legacy.Wrote
	if t := p.state.target.relation; t == relationPredecessor || t == relationOrphan {
		others = e.byPredecessor(p)
	}
	return e.merge(ctx, e.targets(p.name.Namespace), p.name.Name, map[string]any{
		"uid": string(p.target.GetUID()), "resourceVersion": p.target.GetResourceVersion(),
		"managedFields": legacy.TakeOver(p.target, e.manager(p.from.uid), SourceAnnotation, others),
	})
}
