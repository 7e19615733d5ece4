// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	// removalGrace is how long nothing happens after a ClusterBinding was deleted that
	// the breaker counts, so that many that go at once are seen as many.
	removalGrace = 5 * time.Second
	removalRetry = 2 * time.Second // at first
)

// removals take tenants away.
type removals struct {
	Clients

	rights   *Rights
	contents *contents
	breaker  *removalBreaker
	locks    *tenantLocks
	looks    sync.Map // of look: the last one, by UID of the ClusterBinding
}

// A look is a pass over a tenant that is being removed.
type look struct {
	at    time.Time
	fails time.Time // of the first look that failed in a row; zero if this look did not fail
	waits waiting   // what the last one that did not fail has waited for
	moved time.Time // of the first look that has waited for that
}

// remove takes a tenant away whose ClusterBinding is deleted: first its
// credential and rights, then its exports, its service namespaces as the
// deletion policy says (Delete: with all that is in them; Orphan: they stay), and last the
// tenant namespace. Without a policy it waits until the App Cluster has deleted all its objects.
func (r *removals) remove(ctx context.Context, binding *v1alpha1.ClusterBinding) (time.Duration, error) {
	if !slices.Contains(binding.Finalizers, v1alpha1.TenantFinalizer) {
		return 0, nil
	}
	if left := r.resting(binding); left > 0 {
		return left, nil
	}
	ns, err := r.Kube.CoreV1().Namespaces().Get(ctx, binding.Namespace, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read tenant namespace: %w", err)
	}
	if _, ok := holderOf(ns); ok {
		waits, err := r.drain(ctx, binding, ns)
		if refused := r.note(ctx, binding, waits, err); waits == nil {
			waits = refused
		}
		if waits != nil || err != nil {
			return r.pace(binding), errors.Join(err, r.explain(ctx, binding, waits))
		}
	}
	r.looks.Delete(binding.UID)
	return 0, removeFinalizer(ctx, r.Clients, ClusterBindingResource, binding, v1alpha1.TenantFinalizer)
}

// resting is how long a tenant is left alone that waits for its App Cluster: each look is a
// few requests for each of its namespaces, and what it writes must not have us look.
func (r *removals) resting(binding *v1alpha1.ClusterBinding) time.Duration {
	if removalBegan(binding) {
		return 0
	}
	last := r.last(binding)
	if left := endPace(binding.DeletionTimestamp, removalRetry) - time.Since(last.at); left > 0 {
		return left
	}
	last.at = time.Now()
	r.looks.Store(binding.UID, last)
	return 0
}

// last is the last look at a tenant; the zero look if there was none.
func (r *removals) last(binding *v1alpha1.ClusterBinding) look {
	last, _ := r.looks.Load(binding.UID)
	l, _ := last.(look)
	return l
}

// pace is how soon to look again. A removal that has begun takes step after step, and each of them has short
// pauses first: the tenant may have waited for its policy for days.
func (r *removals) pace(binding *v1alpha1.ClusterBinding) time.Duration {
	since := binding.DeletionTimestamp.Time
	if moved := r.last(binding).moved; removalBegan(binding) && moved.After(since) {
		since = moved
	}
	return endPace(&metav1.Time{Time: since}, removalRetry)
}

// note takes note of how a look has ended, and returns what an API server has against a step of the
// removal, once people are to be told. Package queue does not know of the looks that rest in between.
func (r *removals) note(ctx context.Context, binding *v1alpha1.ClusterBinding, waits *waiting, err error) *waiting {
	l := r.last(binding)
	if waits != nil && *waits != l.waits {
		l.waits, l.moved = *waits, time.Now()
	}
	switch {
	case err == nil:
		l.fails = time.Time{}
	case l.fails.IsZero():
		l.fails = time.Now()
	default:
		ctx = fates.FailingSince(ctx, l.fails)
	}
	r.looks.Store(binding.UID, l)
	if !fates.IsTold(ctx, err) {
		return nil
	}
	return &waiting{reasonRefused, Against("a step of it", err)}
}

// endPace is how soon to look again at the end of what was deleted then: seldom where nothing happens for
// long, since tenants themselves can have us wait.
func endPace(deleted *metav1.Time, soonest time.Duration) time.Duration {
	return min(max(soonest, time.Since(deleted.Time)/4), fates.Forbidden.Longest())
}

// explain says on a ClusterBinding what its removal waits for.
func (r *removals) explain(ctx context.Context, binding *v1alpha1.ClusterBinding, waits *waiting) error {
	if waits == nil {
		return nil
	}
	severity := v1alpha1.SeverityInfo
	if waits.Reason == v1alpha1.ReasonRemovalHeld || waits.Reason == reasonRefused {
		severity = v1alpha1.SeverityWarning
	}
	return writeClusterBinding(ctx, r.Dyn, binding, Terms{Legacy: true}, v1alpha1.False(v1alpha1.ConditionRemoved, severity, waits.Reason, waits.Message))
}

// drain does the next steps of a removal, and returns what it waits for until ns is
// deleted. Each step can be done again.
func (r *removals) drain(ctx context.Context, binding *v1alpha1.ClusterBinding, ns *corev1.Namespace) (*waiting, error) {
	if waits := r.breaker.whyHeld(binding); waits != nil {
		return waits, nil
	}
	if waits, err := r.unlessEmpty(ctx, binding, ns); waits != nil || err != nil {
		return waits, err
	}
	if !removalBegan(binding) { // the tenant reconcile must not give back the rights that removal takes
		err := r.Patch(ctx, ClusterBindingResource, binding, map[string]any{"annotations": map[string]any{v1alpha1.DrainingAnnotation: "true"}}, nil)
		return &waiting{v1alpha1.ReasonDraining, "nothing is left of it"}, IgnoreNotFound(err)
	}
	if err := r.revoke(ctx, ns); err != nil {
		return nil, err
	}
	waits, refused := r.contents.drainPrefixed(ctx, ns, binding.Spec.DeletionPolicy)
	if waits != nil || refused != nil && !fates.IsRefused(refused) {
		return waits, refused
	}
	for _, gvr := range []schema.GroupVersionResource{ExportResource, NamespaceResource} {
		left, err := r.deleteAll(ctx, gvr, ns.Name)
		if err != nil || left > 0 && refused != nil {
			return nil, errors.Join(err, refused)
		}
		if left > 0 {
			return &waiting{v1alpha1.ReasonDraining, fmt.Sprintf("%d %s are left", left, gvr.Resource)}, nil
		}
	}
	if refused != nil { // what is protected in the cluster keeps nothing in a namespace, and its tenant namespace
		return nil, refused
	}
	if ns.DeletionTimestamp != nil {
		return nil, nil //nolint:nilnil // nothing is waited for
	}
	if err := r.deleteNamespace(ctx, ns, deleteOptions(ns, binding.Spec.DeletionPolicy)); err != nil {
		return nil, err
	}
	audit.Record(ctx, "tenant removed", "tenant", ns.Name, "policy", binding.Spec.DeletionPolicy)
	return nil, nil //nolint:nilnil // nothing is waited for
}

// unlessEmpty returns what is left of a tenant for which there is no policy. It asks
// the API server: that a cache knows of nothing is no evidence.
func (r *removals) unlessEmpty(ctx context.Context, binding *v1alpha1.ClusterBinding, tenant *corev1.Namespace) (*waiting, error) {
	if hasPolicy(binding) {
		return nil, nil //nolint:nilnil // the policy decides about the objects that are left
	}
	if left, err := remaining(r.contents.checkEmpty(ctx, tenant)); left != nil || err != nil {
		return left, err
	}
	list, err := r.Meta.Resource(NamespaceResource).Namespace(binding.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list service namespaces of %s: %w", binding.Namespace, err)
	}
	for _, asked := range list.Items {
		ns, err := r.Kube.CoreV1().Namespaces().Get(ctx, serviceNamespaceName(asked.Namespace, asked.Name), metav1.GetOptions{})
		if fates.Is(err, fates.Absent) || err == nil && errors.Is(checkOwned(ns, asked.Namespace, serviceAnnotations(&asked)), ErrForeign) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read service namespace: %w", err)
		}
		if ns.DeletionTimestamp == nil {
			err = r.rights.Enter(ctx, ns.Name, v1alpha1.BackendOfferRole)
		}
		if err == nil {
			err = r.contents.checkEmpty(ctx, ns)
		}
		if left, err := remaining(err); left != nil || err != nil {
			return left, err
		}
	}
	return nil, nil //nolint:nilnil // nothing is left
}

// remaining parts what is left of a tenant, which is to be told, from another error.
func remaining(err error) (*waiting, error) {
	left, ok := errors.AsType[*RefusalError](err)
	if !ok {
		return nil, err
	}
	return &waiting{left.Reason, left.Message + ": the removal waits until the App Cluster has deleted them; spec.deletionPolicy of this object says to delete (Delete) or to keep (Orphan) them"}, nil
}

// revoke takes the credential of a tenant and its rights in its tenant namespace, all
// of which Kubernetes deletes from a namespace that is being deleted.
func (r *removals) revoke(ctx context.Context, ns *corev1.Namespace) error {
	if ns.DeletionTimestamp != nil {
		return nil
	}
	defer r.locks.lock(ns.Name)()
	if err := r.rights.Enter(ctx, ns.Name, v1alpha1.BackendTenantRole); err != nil {
		return err
	}
	tenant := ns.Name
	secrets, revoked := r.Kube.CoreV1().Secrets(tenant), false
	for _, name := range []string{v1alpha1.TokenAnchorSecret, v1alpha1.KubeconfigSecretName} {
		err := secrets.Delete(ctx, name, metav1.DeleteOptions{})
		if revoked = revoked || err == nil; IgnoreNotFound(err) != nil {
			return fmt.Errorf("revoke the credential of %s: %w", tenant, err)
		}
	}
	if revoked {
		audit.Record(ctx, "credential revoked", "tenant", tenant)
	}
	return errors.Join(r.rights.take(ctx, tenant), r.rights.takeClusterWide(ctx, ns))
}

// A removalBreaker holds the removals of tenants when too many come at once; the breakers of
// package sync hold deletions of objects.
type removalBreaker struct {
	opts   *Options
	caches *Caches
}

// whyHeld returns why the removal of a tenant has to wait, or nil. A removal with a policy waits
// for removalGrace, so that many that come together are seen as many; while more than
// RemovalsAtOnce are under way, each waits until its ClusterBinding has the release annotation.
func (b *removalBreaker) whyHeld(binding *v1alpha1.ClusterBinding) *waiting {
	most := b.opts.RemovalsAtOnce
	if most < 0 || !countsAsRemoval(binding) {
		return nil
	}
	if time.Since(binding.DeletionTimestamp.Time) < removalGrace {
		return &waiting{v1alpha1.ReasonRemovalPending, "the removal begins in a few seconds"}
	}
	n := 0
	for _, obj := range b.caches.ClusterBindings.GetStore().List() {
		other, ok := obj.(*v1alpha1.ClusterBinding)
		n += One(ok && other.DeletionTimestamp != nil && countsAsRemoval(other) && b.ofTenant(other))
	}
	if n <= most {
		return nil
	}
	return &waiting{v1alpha1.ReasonRemovalHeld, fmt.Sprintf(
		"%d tenants are being removed at once, more than %d: if it is meant, annotate this object with %s=true", n, most, v1alpha1.ReleaseAnnotation)}
}

// ofTenant tells whether the removal of a ClusterBinding is that of a tenant, and not over.
func (b *removalBreaker) ofTenant(binding *v1alpha1.ClusterBinding) bool {
	ns, ok := stored(b.caches.Owned, binding.Namespace)
	if !ok || !slices.Contains(binding.Finalizers, v1alpha1.TenantFinalizer) {
		return false
	}
	_, ok = holderOf(ns)
	return ok
}

// countsAsRemoval tells whether the removal of a tenant takes something from it that was not
// released.
func countsAsRemoval(binding *v1alpha1.ClusterBinding) bool {
	return hasPolicy(binding) && !metav1.HasAnnotation(binding.ObjectMeta, v1alpha1.ReleaseAnnotation)
}

// removing returns the ClusterBinding of a tenant that is being removed at this moment.
func (b *removalBreaker) removing(tenant string) (*v1alpha1.ClusterBinding, bool) {
	binding, ok := Lookup(b.caches.ClusterBindings, cache.NewObjectName(tenant, v1alpha1.ClusterBindingName))
	return binding, ok && removalBegan(binding) && b.whyHeld(binding) == nil
}
