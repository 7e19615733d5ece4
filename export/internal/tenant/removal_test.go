// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP12StatusIsNoEvidence: a tenant that leaves with objects, and says in the status that
// nothing is left, is still one whose rights are looked after: those to what is not on
// offer any more are taken.
func TestP12StatusIsNoEvidence(t *testing.T) {
	binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}
	binding.Status.Conditions = []v1alpha1.Condition{v1alpha1.False(v1alpha1.ConditionRemoved, v1alpha1.SeverityInfo, v1alpha1.ReasonDraining, "")}
	if removalBegan(binding) {
		t.Error("the status of a tenant has its rights left alone")
	}
}

// TestP10LeavingIsNoLever: a tenant that leaves with objects has the backend look at what is
// left seldom, however often it writes.
func TestP10LeavingIsNoLever(t *testing.T) {
	r := &removals{}
	binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{UID: "x", DeletionTimestamp: new(metav1.Now())}}
	if left := r.resting(binding); left != 0 {
		t.Errorf("the first look is in %s", left)
	}
	if left := r.resting(binding); left <= 0 || left > removalRetry {
		t.Errorf("the next look is in %s", left)
	}
	binding.Annotations = map[string]string{v1alpha1.DrainingAnnotation: "true"}
	if left := r.resting(binding); left != 0 {
		t.Errorf("a step of a removal is in %s", left)
	}
}

// P13: ClusterBindings of namespaces that are no tenant's, and those of which the removal
// is over, hold up the removal of no tenant.
func TestP13BreakerCountsTenants(t *testing.T) {
	caches := &Caches{
		Owned:           cache.NewSharedIndexInformer(&cache.ListWatch{}, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{}),
		ClusterBindings: cache.NewTypedSharedIndexInformer[*v1alpha1.ClusterBinding](cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1alpha1.ClusterBinding{}, 0, cache.Indexers{})),
	}
	b := &removalBreaker{opts: &Options{RemovalsAtOnce: 1}, caches: caches}
	remove := func(h Holder, change func(*metav1.PartialObjectMetadata, *v1alpha1.ClusterBinding)) *v1alpha1.ClusterBinding {
		name := h.Namespace("cluster")
		ns := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: h.Annotations(), Labels: map[string]string{v1alpha1.TenantLabel: name}}}
		binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.ClusterBindingName, Namespace: name, Finalizers: []string{v1alpha1.TenantFinalizer},
			DeletionTimestamp: &metav1.Time{Time: time.Now().Add(-time.Minute)},
		}}
		binding.Spec.DeletionPolicy = v1alpha1.DeletionPolicyDelete
		change(ns, binding)
		if err := errors.Join(caches.Owned.GetStore().Add(ns), caches.ClusterBindings.GetStore().Add(binding)); err != nil {
			t.Fatal(err)
		}
		return binding
	}
	own := remove(Holder{Issuer: "i", Subject: "ada", Cluster: "1"}, func(*metav1.PartialObjectMetadata, *v1alpha1.ClusterBinding) {})
	remove(Holder{Issuer: "i", Subject: "ada", Cluster: "2"}, func(ns *metav1.PartialObjectMetadata, _ *v1alpha1.ClusterBinding) { ns.Labels = nil })
	remove(Holder{Issuer: "i", Subject: "ada", Cluster: "3"}, func(_ *metav1.PartialObjectMetadata, c *v1alpha1.ClusterBinding) {
		c.Finalizers = []string{"example.org/keep"}
	})
	remove(Holder{Issuer: "i", Subject: "ada", Cluster: "4"}, func(_ *metav1.PartialObjectMetadata, c *v1alpha1.ClusterBinding) { c.Namespace = "elsewhere" })
	if held := b.whyHeld(own); held != nil {
		t.Errorf("one tenant is removed: %s", held.Message)
	}
	remove(Holder{Issuer: "i", Subject: "ada", Cluster: "5"}, func(*metav1.PartialObjectMetadata, *v1alpha1.ClusterBinding) {})
	if held := b.whyHeld(own); held == nil || held.Reason != v1alpha1.ReasonRemovalHeld {
		t.Errorf("two tenants are removed: %+v", held)
	}
}

// P10: of tenants that come and go nothing stays in memory, and a tenant has one pass at a time.
func TestP10LocksGo(t *testing.T) {
	locks, running, passes := &tenantLocks{}, 0, sync.WaitGroup{}
	for range 100 {
		passes.Go(func() {
			defer locks.lock("t")()
			if running++; running != 1 {
				t.Errorf("%d passes at once", running)
			}
			running--
		})
	}
	passes.Wait()
	if n := len(locks.byTenant); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// TestOrphanWaits: a removal that leaves cluster-scoped objects waits while the garbage
// collector may not know their kind, of which it would leave none.
func TestOrphanWaits(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t", Labels: map[string]string{v1alpha1.TenantLabel: "t"}, Annotations: map[string]string{v1alpha1.ExportedAnnotation: "old.example.org,new.example.org"}}}
	young := time.Minute
	c := &contents{unknown: func(crd string) time.Duration { return map[string]time.Duration{"new.example.org": young}[crd] }}
	waits, err := c.drainPrefixed(t.Context(), ns, v1alpha1.DeletionPolicyOrphan)
	if err != nil || waits == nil || waits.Reason != v1alpha1.ReasonDraining || !strings.Contains(waits.Message, "new.example.org for 1m0s") {
		t.Errorf("with a new kind: %v, %v", waits, err)
	}
	young = 0
	if waits, err := c.drainPrefixed(t.Context(), ns, v1alpha1.DeletionPolicyOrphan); err != nil || waits != nil {
		t.Errorf("once it is known: %v, %v", waits, err)
	}
}

// TestUnknownPolicyTakesNothing: a deletion policy that this backend does not know, as where the
// CRD is a newer one, is none. The token and the rights of the tenant stay while objects are left.
func TestUnknownPolicyTakesNothing(t *testing.T) {
	for policy, known := range map[v1alpha1.DeletionPolicy]bool{"": false, "Archive": false, v1alpha1.DeletionPolicyDelete: true, v1alpha1.DeletionPolicyOrphan: true} {
		binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}
		binding.Spec.DeletionPolicy = policy
		if removalBegan(binding) != known || countsAsRemoval(binding) != known {
			t.Errorf("%q: removed at once: %t, counted: %t, want %t", policy, removalBegan(binding), countsAsRemoval(binding), known)
		}
		tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "t", Annotations: map[string]string{v1alpha1.ExportedAnnotation: "things.example.org"}}}
		looked := false
		r := &removals{contents: &contents{resourceOf: func(context.Context, string) (schema.GroupVersionResource, error) {
			looked = true
			return schema.GroupVersionResource{}, errors.New("look no further")
		}}}
		if _, err := r.unlessEmpty(t.Context(), binding, tenant); looked == known || (err == nil) != known {
			t.Errorf("%q: what is left was looked at: %t, %v", policy, looked, err)
		}
	}
}
