// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// removeStrays removes from the App Cluster what the provider has handed out in
// namespaces that have no object of the API: what a konnector left that ended before
// it could, or that mapped whatever namespace a provider named. No Sync would, since
// those namespaces are not mapped. In the same way it removes from service namespaces
// what the App Cluster has handed out there, and on both sides what is of namespaces that
// claims are not about any more. Of the namespaces in which the rights of claims were taken
// it returns those without an object or a claim.
func (p *pass) removeStrays(ctx context.Context, selected []klutchsync.Related, taken, services []string) (idle []string, err error) {
	used := p.claimed(p.namespacesInUse(p.app.calls))
	for _, namespace := range taken {
		has, err := used(ctx, namespace)
		if err != nil {
			return nil, err
		}
		if !has {
			idle = append(idle, namespace)
		}
	}
	here := place{
		meta: p.app.meta, owner: v1alpha1.OwnerProvider, namespaces: append(slices.Clone(idle), metav1.NamespaceAll),
		stays: func(ctx context.Context, o *metav1.PartialObjectMetadata) (bool, error) {
			return used(ctx, o.Namespace)
		},
	}
	there := place{meta: p.session.meta, owner: v1alpha1.OwnerConsumer, namespaces: services, stays: p.usedFrom(used)}
	return idle, errors.Join(p.removeUnused(ctx, here, klutchsync.TargetSide, selected), p.removeUnused(ctx, there, klutchsync.SourceSide, selected))
}

// claimed leaves out namespaces that no claim is about. With rights in all namespaces the
// Sync sees to that.
func (p *pass) claimed(used inUse) inUse {
	return func(ctx context.Context, namespace string) (bool, error) {
		if p.grant != nil && !p.grant.reach.covers(namespace) {
			return false, nil
		}
		return used(ctx, namespace)
	}
}

// usedFrom tells whether a copy in a service namespace is of a namespace that has an
// object of the API, on either side: while one is left there, its copies are needed. Of
// what the provider says about copies, only names of namespaces that are here cost a look.
func (p *pass) usedFrom(used inUse) func(context.Context, *metav1.PartialObjectMetadata) (bool, error) {
	there := p.namespacesInUse(p.session.calls)
	return func(ctx context.Context, o *metav1.PartialObjectMetadata) (bool, error) {
		from, ok := klutchsync.OriginOf(o)
		if !ok || !p.session.inApp(from.Namespace) {
			return true, nil
		}
		has, err := used(ctx, from.Namespace)
		if has || err != nil || p.grant != nil && !p.grant.reach.covers(from.Namespace) {
			return has, err
		}
		return there(ctx, o.Namespace)
	}
}

// removeUnused removes the copies in a place of what claims select from one side.
func (p *pass) removeUnused(ctx context.Context, from place, side klutchsync.Side, selected []klutchsync.Related) error {
	seen, removed := map[schema.GroupVersionResource]bool{}, 0
	for _, r := range selected {
		if r.From != side || seen[r.Resource] {
			continue
		}
		seen[r.Resource] = true
		n, err := p.removeCopies(ctx, from, r.Resource)
		removed += n
		if err != nil && !apierrors.IsForbidden(err) {
			return err
		}
	}
	if removed > 0 {
		audit(ctx, "copies in namespaces without an object removed", "copies", removed)
	}
	return nil
}

// inUse tells whether a namespace has an object of the API.
type inUse func(ctx context.Context, namespace string) (bool, error)

// namespacesInUse asks an API server, once for each namespace.
func (p *pass) namespacesInUse(calls dynamic.Interface) inUse {
	known, version := map[string]bool{}, syncVersion(&p.export.Spec, "")
	return func(ctx context.Context, namespace string) (bool, error) {
		if has, ok := known[namespace]; ok {
			return has, nil
		}
		list, err := calls.Resource(version).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, fmt.Errorf("look for objects in namespace %s: %w", namespace, err)
		}
		known[namespace] = len(list.Items) > 0
		return known[namespace], nil
	}
}
