// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// removeStrays removes from the App Cluster what the provider has handed out in
// namespaces that have no object of the API: what a konnector left that ended before
// it could, or that mapped whatever namespace a provider named. No Sync would, since
// those namespaces are not mapped. Of the namespaces in which the rights of claims were
// taken it returns those that are without an object.
func (p *pass) removeStrays(ctx context.Context, selected []klutchsync.Related, taken []string) (idle []string, err error) {
	used := p.namespacesInUse()
	for _, namespace := range taken {
		has, err := used(ctx, namespace)
		if err != nil {
			return nil, err
		}
		if !has {
			idle = append(idle, namespace)
		}
	}
	from := place{
		meta: p.app.meta, owner: v1alpha1.OwnerProvider, namespaces: append(slices.Clone(idle), metav1.NamespaceAll),
		stays: func(ctx context.Context, o *metav1.PartialObjectMetadata) (bool, error) {
			return used(ctx, o.Namespace)
		},
	}
	seen, removed := map[schema.GroupVersionResource]bool{}, 0
	for _, r := range selected {
		if r.From != klutchsync.TargetSide || seen[r.Resource] {
			continue
		}
		seen[r.Resource] = true
		n, err := p.removeCopies(ctx, from, r.Resource)
		removed += n
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
	}
	if removed > 0 {
		audit(ctx, "copies in namespaces without an object removed", "copies", removed)
	}
	return idle, nil
}

// namespacesInUse asks the API server whether a namespace has an object of the API,
// once for each namespace.
func (p *pass) namespacesInUse() func(ctx context.Context, namespace string) (bool, error) {
	known, version := map[string]bool{}, syncVersion(&p.export.Spec, "")
	return func(ctx context.Context, namespace string) (bool, error) {
		if has, ok := known[namespace]; ok {
			return has, nil
		}
		list, err := p.app.calls.Resource(version).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, fmt.Errorf("look for objects in namespace %s: %w", namespace, err)
		}
		known[namespace] = len(list.Items) > 0
		return known[namespace], nil
	}
}
