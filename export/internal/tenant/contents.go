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
		left, err := c.has(ctx, name, ns)
		switch {
		case fates.Is(err, fates.Forbidden):
			unseen := Refuse(ReasonObjectsRemain, fmt.Sprintf("the backend may not see whether %s are left in %s", name, ns.Name))
			unseen.Err = err
			return unseen
		case err != nil:
			return err
		case left:
			return Refuse(ReasonObjectsRemain, fmt.Sprintf("%s are left in %s", name, ns.Name))
		}
	}
	return nil
}

// has tells whether a tenant has an object of a CRD: in a service namespace, or in the cluster. Without the CRD it has none.
func (c *contents) has(ctx context.Context, crd string, ns *corev1.Namespace) (bool, error) {
	gvr, err := c.resourceOf(ctx, crd)
	if fates.Is(err, fates.Absent) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	one, err := c.own(ctx, gvr, ns, 1)
	return len(one) > 0, err
}

// deleteInstances deletes all objects of the APIs that were ever exported to the
// tenant of a service namespace, in that namespace.
func (c *contents) deleteInstances(ctx context.Context, ns *corev1.Namespace) error {
	if err := c.rights.take(ctx, ns.Name); err != nil {
		return err
	}
	return c.deleteExported(ctx, ns)
}

// deleteExported deletes the objects of a tenant of each API. If an API server refuses to delete one, the rest is deleted
// all the same.
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
	own, err := c.own(ctx, gvr, ns, 0)
	if err != nil {
		return 0, err
	}
	return c.deleteEach(ctx, gvr, own)
}

// own are the objects of a resource in a service namespace, or those of a tenant among all of a cluster-scoped API, or
// so many of them if most is not 0.
func (c *contents) own(ctx context.Context, gvr schema.GroupVersionResource, ns *corev1.Namespace, most int) ([]metav1.PartialObjectMetadata, error) {
	namespace, place, wanted := ns.Name, ns.Name, func(metav1.Object) bool { return true }
	if isTenant(ns) {
		namespace, place, wanted = metav1.NamespaceAll, "the cluster", func(o metav1.Object) bool { return OwnsPrefixed(ns.Name, o) }
	}
	own, err := identities(ctx, c.Meta.Resource(gvr).Namespace(namespace), most, wanted)
	if err != nil {
		return nil, fmt.Errorf("list %s in %s: %w", gvr.Resource, place, err)
	}
	return own, nil
}

func exported(ns metav1.Object) []string {
	return slices.DeleteFunc(strings.Split(ns.GetAnnotations()[v1alpha1.ExportedAnnotation], ","), func(name string) bool { return name == "" })
}
