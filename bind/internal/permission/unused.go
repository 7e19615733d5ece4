// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// UnusedNamespaces finds the namespaces of an App Cluster that have no object of a
// bound API, and the copies that are left there: a konnector ended before it could remove
// them, or mapped any namespace that a provider named. No Sync removes them, since it maps
// only namespaces with an object.
type UnusedNamespaces struct {
	App     dynamic.Interface
	Meta    metadata.Interface
	Binding string
	API     schema.GroupVersionResource // of the bound objects
	used    map[string]bool             // the answers of the API server, by namespace
}

// Among returns those of the namespaces that have no object.
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

// RemoveCopies removes the copies of what claims select, wherever the konnector may list
// them: in the given namespaces and, if it may, in all.
func (u *UnusedNamespaces) RemoveCopies(ctx context.Context, selected []klutchsync.Related, namespaces []string) error {
	from := Copies{
		Meta: u.Meta, Binding: u.Binding, Owner: v1alpha1.OwnerProvider, Namespaces: append(slices.Clone(namespaces), metav1.NamespaceAll),
		stays: func(ctx context.Context, o *metav1.PartialObjectMetadata) (bool, error) {
			return u.isUsed(ctx, o.Namespace)
		},
	}
	seen, removed := map[schema.GroupVersionResource]bool{}, 0
	for _, r := range selected {
		if r.From != klutchsync.TargetSide || seen[r.Resource] {
			continue
		}
		seen[r.Resource] = true
		n, err := from.Remove(ctx, r.Resource)
		removed += n
		if err != nil && !apierrors.IsForbidden(err) {
			return err
		}
	}
	if removed > 0 {
		cluster.Audit(ctx, "copies in namespaces without an object removed", "copies", removed)
	}
	return nil
}

// isUsed asks the API server whether a namespace has an object of the API, once for each
// namespace.
func (u *UnusedNamespaces) isUsed(ctx context.Context, namespace string) (bool, error) {
	if used, ok := u.used[namespace]; ok {
		return used, nil
	}
	list, err := u.App.Resource(u.API).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("look for objects in namespace %s: %w", namespace, err)
	}
	if u.used == nil {
		u.used = map[string]bool{}
	}
	u.used[namespace] = len(list.Items) > 0
	return u.used[namespace], nil
}
