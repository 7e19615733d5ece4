// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// contents look at, and delete, what tenants have made in service namespaces.
type contents struct {
	Clients

	rights     *Rights
	resourceOf resourceOf
	unknown    func(crd string) time.Duration // to the garbage collector, for so long
}

// resourceOf finds the resource of a CRD in a version that is served.
type resourceOf func(ctx context.Context, crd string) (schema.GroupVersionResource, error)

// checkEmpty returns a *RefusalError if ns holds an object of an API that was ever
// exported to its tenant.
func (c *contents) checkEmpty(ctx context.Context, ns *corev1.Namespace) error {
	for _, name := range exported(ns) {
		count, err := c.count(ctx, name, ns)
		switch {
		case fates.Is(err, fates.Forbidden):
			unseen := Refuse(ReasonObjectsRemain, fmt.Sprintf("the backend may not see whether %s are left in %s", name, ns.Name))
			unseen.Err = err
			return unseen
		case err != nil:
			return err
		case count > 0:
			return Refuse(ReasonObjectsRemain, fmt.Sprintf("%s are left in %s", name, ns.Name))
		}
	}
	return nil
}

// count returns how many objects of a CRD are in a service namespace, one of them at most, or
// how many cluster-scoped ones a tenant has. Without the CRD there is none.
func (c *contents) count(ctx context.Context, crd string, ns *corev1.Namespace) (int, error) {
	gvr, err := c.resourceOf(ctx, crd)
	if fates.Is(err, fates.Absent) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if isTenant(ns) {
		own, err := c.own(ctx, gvr, ns)
		return len(own), err
	}
	list, err := c.Meta.Resource(gvr).Namespace(ns.Name).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list %s in %s: %w", crd, ns.Name, err)
	}
	return len(list.Items), nil
}

// deleteInstances deletes all objects of the APIs that were ever exported to the
// tenant of a service namespace, in that namespace.
func (c *contents) deleteInstances(ctx context.Context, ns *corev1.Namespace) error {
	if err := c.rights.take(ctx, ns.Name); err != nil {
		return err
	}
	return c.deleteExported(ctx, ns)
}

// deleteExported deletes what a tenant has of each API. One that an API server keeps keeps no other one.
func (c *contents) deleteExported(ctx context.Context, ns *corev1.Namespace) error {
	var refused fates.Refusals
	for _, name := range exported(ns) {
		gvr, err := c.resourceOf(ctx, name)
		if fates.Is(err, fates.Absent) {
			continue
		}
		n := 0
		if err == nil {
			n, err = c.deleteFrom(ctx, gvr, ns)
		}
		if n > 0 {
			audit.Record(ctx, "objects deleted", "tenant", ns.Labels[v1alpha1.TenantLabel], "namespace", ns.Name, "service", name, "count", n)
		}
		if err := refused.Keep(err); err != nil {
			return err
		}
	}
	return refused.Err()
}

// deleteFrom deletes what a tenant has of a resource: in a service namespace, or in the cluster.
func (c *contents) deleteFrom(ctx context.Context, gvr schema.GroupVersionResource, ns *corev1.Namespace) (deleted int, err error) {
	own, err := c.own(ctx, gvr, ns)
	if err != nil {
		return 0, err
	}
	return c.deleteEach(ctx, gvr, own)
}

// own are the objects of a resource in a service namespace, or those of a tenant among all of a cluster-scoped API.
func (c *contents) own(ctx context.Context, gvr schema.GroupVersionResource, ns *corev1.Namespace) ([]metav1.PartialObjectMetadata, error) {
	if isTenant(ns) {
		return identities(ctx, c.Clients, gvr, metav1.NamespaceAll, func(o metav1.Object) bool { return OwnsPrefixed(ns.Name, o) })
	}
	return identities(ctx, c.Clients, gvr, ns.Name, func(metav1.Object) bool { return true })
}

func exported(ns metav1.Object) []string {
	return slices.DeleteFunc(strings.Split(ns.GetAnnotations()[v1alpha1.ExportedAnnotation], ","), func(name string) bool { return name == "" })
}
