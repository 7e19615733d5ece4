// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// unrecorded tells whether a tenant namespace has no record yet, and deletes it if it
// will never have one: a bind did not come to its end there, so that nobody has got a
// credential. Again says when that can be told.
func (r *reconciler) unrecorded(ctx context.Context, name string) (yes bool, again time.Duration, err error) {
	binding, ok := lookup(r.caches.clusterBindings, cache.NewObjectName(name, v1alpha1.ClusterBindingName))
	if ok && !binding.Status.LastHeartbeatTime.IsZero() {
		return false, 0, nil
	}
	if _, _, err = r.tenants.records.read(ctx, name); !errors.Is(err, errNoRecord) {
		return false, 0, err
	}
	ns, err := r.caches.namespace(ctx, name)
	if err != nil {
		return true, 0, ignoreNotFound(err)
	}
	if left := r.opts.Pauses.Bind - time.Since(ns.GetCreationTimestamp().Time); left > 0 {
		return true, left, nil
	}
	return true, 0, r.deleteUnused(ctx, ns)
}

// deleteUnused deletes a tenant namespace, unless anything was ever asked for or
// granted there.
func (r *reconciler) deleteUnused(ctx context.Context, ns metav1.Object) error {
	for _, gvr := range []schema.GroupVersionResource{exportResource, namespaceResource} {
		list, err := r.dyn.Resource(gvr).Namespace(ns.GetName()).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return fmt.Errorf("list %s of %s: %w", gvr.Resource, ns.GetName(), err)
		}
		if len(list.Items) > 0 {
			return nil
		}
	}
	err := r.deleteNamespace(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.GetName(), UID: ns.GetUID()}})
	if err == nil {
		audit.Record(ctx, "tenant without a record deleted", "tenant", ns.GetName())
	}
	return err
}
