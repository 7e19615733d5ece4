// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// UnusedNamespaces finds the namespaces that have no object of a bound API or no claim,
// and the copies that are left there, in both clusters: a konnector ended before it could
// remove them, or mapped any namespace that a provider named, or claims are about fewer
// namespaces than they were. No Sync removes them, since it maps only namespaces with an
// object.
type UnusedNamespaces struct {
	Binding           string
	API               schema.GroupVersionResource // of the bound objects
	Grant             *Grant                      // of the rights of the claims
	InApp             func(namespace string) bool // tells which namespaces the App Cluster has
	App, ControlPlane Cluster

	// Mapped tells which namespaces have a service namespace, where the objects are
	// cluster-scoped, so that each of these namespaces has them all; nil where they are in one.
	Mapped func(namespace string) bool
}

// A Cluster is one of the two, and what its API server has answered.
type Cluster struct {
	cluster.Clients

	used map[string]bool // whether a namespace has an object of the API
}

// Among returns the namespaces of the App Cluster that have no object or no claim.
func (u *UnusedNamespaces) Among(ctx context.Context, namespaces []string) (unused []string, err error) {
	for _, namespace := range namespaces {
		used, err := u.isUsed(ctx, namespace)
		if err != nil {
			return nil, err
		}
		if !used {
			unused = append(unused, namespace)
		}
	}
	return unused, nil
}

// RemoveCopies removes the copies of what claims select: from the App Cluster wherever the
// konnector may list them, in the given namespaces and, if it may, in all; and from the
// service namespaces. The error says what an API server keeps.
func (u *UnusedNamespaces) RemoveCopies(ctx context.Context, selected []klutchsync.Related, namespaces, services []string) error {
	here := Copies{
		Meta: u.App.Meta, Binding: u.Binding, Owner: v1alpha1.OwnerProvider, Namespaces: append(slices.Clone(namespaces), metav1.NamespaceAll),
		Stays: func(ctx context.Context, o *metav1.PartialObjectMetadata) (bool, error) {
			return u.isUsed(ctx, o.Namespace)
		},
	}
	there := Copies{Meta: u.ControlPlane.Meta, Binding: u.Binding, Owner: v1alpha1.OwnerConsumer, Namespaces: services, Stays: u.isNeededThere}
	return errors.Join(here.removeUnused(ctx, selected, klutchsync.TargetSide), there.removeUnused(ctx, selected, klutchsync.SourceSide))
}

// removeUnused removes the copies of what claims select from one side.
func (from Copies) removeUnused(ctx context.Context, selected []klutchsync.Related, side klutchsync.Side) error {
	var refused fates.Refusals
	seen, removed := map[schema.GroupVersionResource]bool{}, 0
	for _, r := range selected {
		if r.From != side || seen[r.Resource] {
			continue
		}
		seen[r.Resource] = true
		n, _, err := from.Remove(ctx, r.Resource)
		removed += n
		if err := refused.Keep(err); err != nil {
			return err
		}
	}
	if removed > 0 {
		audit.Record(ctx, "copies in namespaces without an object removed", "copies", removed)
	}
	return refused.Err()
}

// isUsed tells whether a namespace of the App Cluster has an object and a claim.
func (u *UnusedNamespaces) isUsed(ctx context.Context, namespace string) (bool, error) {
	if !u.Grant.Covers(namespace) || u.Mapped != nil && !u.Mapped(namespace) {
		return false, nil
	}
	return u.App.hasObjects(ctx, u.API, u.scope(namespace))
}

// scope is where the objects are that a namespace has.
func (u *UnusedNamespaces) scope(namespace string) string {
	if u.Mapped != nil {
		return metav1.NamespaceAll
	}
	return namespace
}

// isNeededThere tells whether a copy in a service namespace is of a namespace that has a
// claim and an object of the API, on either side: while one is left there, its copies are
// needed. Of what the provider says about copies, only names of namespaces that the App
// Cluster has cost a request.
func (u *UnusedNamespaces) isNeededThere(ctx context.Context, o *metav1.PartialObjectMetadata) (bool, error) {
	from, ok := klutchsync.OriginOf(o)
	if !ok || !u.InApp(from.Namespace) {
		return true, nil
	}
	used, err := u.isUsed(ctx, from.Namespace)
	if used || err != nil || !u.Grant.Covers(from.Namespace) {
		return used, err
	}
	return u.ControlPlane.hasObjects(ctx, u.API, u.scope(o.Namespace))
}

// hasObjects asks the API server whether a namespace has an object of an API, once for
// each namespace.
func (c *Cluster) hasObjects(ctx context.Context, api schema.GroupVersionResource, namespace string) (bool, error) {
	if used, ok := c.used[namespace]; ok {
		return used, nil
	}
	list, err := c.Calls.Resource(api).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("look for objects in namespace %s: %w", namespace, err)
	}
	if c.used == nil {
		c.used = map[string]bool{}
	}
	c.used[namespace] = len(list.Items) > 0
	return c.used[namespace], nil
}
