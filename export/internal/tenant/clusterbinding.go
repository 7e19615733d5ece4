// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// maxDrift is how far the clock of a konnector may be ahead of ours.
const maxDrift = 10 * time.Second

// clusterBindings keep the ClusterBindings of tenants up to date, and have a tenant removed whose
// ClusterBinding is deleted.
type clusterBindings struct {
	Clients

	opts     *Options
	caches   *Caches
	gates    *gates
	logins   *Logins
	removals *removals
}

// Reconcile says on a ClusterBinding whether the konnector is alive, how long the login is good and
// whether the gate is open. Of one that is being deleted it removes the tenant.
func (h *clusterBindings) Reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	binding, ok := Lookup(h.caches.ClusterBindings, key)
	if !ok {
		return 0, nil
	}
	if binding.DeletionTimestamp != nil {
		return h.removals.remove(ctx, binding)
	}
	if _, ok, err := h.caches.HolderIn(ctx, key.Namespace); !ok {
		return 0, err
	}
	if !slices.Contains(binding.Finalizers, v1alpha1.TenantFinalizer) {
		return 0, h.setFinalizers(ctx, ClusterBindingResource, binding, append(slices.Clone(binding.Finalizers), v1alpha1.TenantFinalizer))
	}
	ns, err := h.caches.namespace(ctx, key.Namespace)
	if err != nil {
		return 0, err
	}
	terms, err := h.terms(ctx, ns, binding)
	if err != nil {
		return 0, err
	}
	_, due := Healthy(time.Now(), binding, terms)
	again := due
	conditions, untold := h.logins.Conditions(ctx, key.Namespace)
	if len(conditions) > 0 {
		again = sooner(again, h.opts.ReviewInterval)
	}
	admitted, err := admission(h.gates.whyClosed(ctx, key.Namespace))
	if err == nil {
		conditions = append(conditions, admitted)
	}
	switch {
	case err != nil:
		untold = errors.Join(untold, err)
	case admitted.Status != metav1.ConditionTrue:
		again = sooner(again, gateRetry)
	case h.opts.Gate != nil:
		again = sooner(again, h.opts.ReviewInterval)
	}
	// What cannot be told now does not keep us from telling who is alive.
	if err := writeClusterBinding(ctx, h.Dyn, binding, terms, conditions...); err != nil {
		return 0, errors.Join(untold, err)
	}
	if untold != nil {
		again = due
	}
	return again, untold
}

// Meanwhile is Reconcile at a time at which a konnector may be missed, while something else cannot be told.
func (h *clusterBindings) Meanwhile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if binding, ok := Lookup(h.caches.ClusterBindings, key); !ok || binding.DeletionTimestamp != nil {
		return 0, nil
	}
	return h.Reconcile(ctx, key)
}

// terms are those of a tenant now.
func (h *clusterBindings) terms(ctx context.Context, ns metav1.Object, binding *v1alpha1.ClusterBinding) (terms Terms, err error) {
	terms = h.opts.terms(ns)
	if !binding.Status.LastHeartbeatTime.IsZero() && terms.unheard(binding) {
		r, _, err := h.logins.authorizations.records.Read(ctx, ns.GetName())
		if err != nil && !errors.Is(err, errNoRecord) {
			return Terms{}, err
		}
		if err == nil {
			terms.Since = r.LoggedIn
		}
	}
	terms.Life, err = h.life(ctx, ns, binding)
	return terms, err
}

// life is for how long a token can live that the konnector had when it was heard last: longer
// than those of today if the platform team let the tenant use the legacy konnector until then.
func (h *clusterBindings) life(ctx context.Context, ns metav1.Object, binding *v1alpha1.ClusterBinding) (time.Duration, error) {
	terms := h.opts.terms(ns)
	life := terms.Life
	if health, _ := Healthy(time.Now(), binding, terms); health.Reason != v1alpha1.ReasonCredentialEnded {
		return life, nil
	}
	secret, err := h.Kube.CoreV1().Secrets(ns.GetName()).Get(ctx, v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
	if fates.Is(err, fates.Absent) {
		return life, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read credential of %s: %w", ns.GetName(), err)
	}
	end, err := time.Parse(time.RFC3339, secret.Annotations[v1alpha1.LongTokensEndAnnotation])
	if err != nil { // there was none
		return life, nil //nolint:nilerr // as it says
	}
	return max(life, min(end.Sub(binding.Status.LastHeartbeatTime.Time), legacyKonnectorTTL)), nil
}

// sooner returns the shorter of two times to wait, where zero means for ever.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// writeClusterBinding writes conditions beside that of the last heartbeat.
func writeClusterBinding(ctx context.Context, dyn dynamic.Interface, binding *v1alpha1.ClusterBinding, terms Terms, conditions ...v1alpha1.Condition) error {
	return status.Write(ctx, dyn.Resource(ClusterBindingResource).Namespace(binding.Namespace), binding, func(o *v1alpha1.ClusterBinding) {
		health, _ := Healthy(time.Now(), o, terms)
		for _, condition := range slices.Concat(conditions, []v1alpha1.Condition{health}) {
			condition.ObservedGeneration = o.Generation
			o.Status.Conditions = v1alpha1.SetCondition(o.Status.Conditions, condition)
		}
		o.Status.Conditions = v1alpha1.Summarize(o.Status.Conditions, o.Generation)
	})
}

// Terms are those on which the konnector of a tenant works.
type Terms struct {
	Life   time.Duration // of its tokens; zero is for ever
	Legacy bool          // it may be a legacy one
	Since  time.Time     // the last login, where an adopted tenant waits for its first heartbeat
}

func (o *Options) terms(tenant metav1.Object) Terms {
	return Terms{Life: o.tokenLife(tenant), Legacy: o.usesLegacyKonnector(tenant)}
}

// unheard tells that no konnector has reported that works here: Klutch's does not say in which
// cluster it is, and is deaf where it may not list Secrets.
func (t Terms) unheard(b *v1alpha1.ClusterBinding) bool {
	return b.Status.LastHeartbeatTime.IsZero() || b.Status.ClusterUID == "" && !t.Legacy
}

// firstHeartbeat is how long after a bind a konnector should have reported.
const firstHeartbeat = 45 * time.Second

// Healthy judges a heartbeat, and says after which time the judgement changes if
// none follows. A konnector that was off for as long as its tokens live holds none that could
// fetch the next one.
func Healthy(now time.Time, b *v1alpha1.ClusterBinding, terms Terms) (c v1alpha1.Condition, again time.Duration) {
	s, life := b.Status, terms.Life
	not := func(severity v1alpha1.Severity, reason, message string) v1alpha1.Condition {
		return v1alpha1.False(v1alpha1.ConditionHealthy, severity, reason, message)
	}
	switch {
	case terms.unheard(b):
		return terms.awaiting(now, b)
	case s.HeartbeatInterval == nil || s.HeartbeatInterval.Duration <= 0:
		return not(v1alpha1.SeverityInfo, v1alpha1.ReasonHeartbeatIntervalMissing, "the konnector does not say how often it reports"), 0
	}
	interval, last := s.HeartbeatInterval.Duration, s.LastHeartbeatTime.Time
	if ahead := last.Sub(now); ahead > maxDrift {
		return not(v1alpha1.SeverityWarning, v1alpha1.ReasonHeartbeatTimeDrift, "the clock of the konnector is ahead of ours"), ahead - maxDrift + time.Second
	}
	if left := last.Add(2 * interval).Sub(now); left > 0 {
		return v1alpha1.True(v1alpha1.ConditionHealthy), left + time.Second
	}
	message := fmt.Sprintf("no heartbeat of the konnector since %s, though it reports every %s", last.UTC().Format(time.RFC3339), interval)
	left := last.Add(life).Sub(now)
	if life > 0 && left <= 0 {
		return not(v1alpha1.SeverityError, v1alpha1.ReasonCredentialEnded,
			message+fmt.Sprintf("; each credential that it can have had then ended after %s, so it does not come back by itself: the tenant's person runs kubectl bind again", life)), 0
	}
	if life > 0 {
		left += time.Second
	}
	return not(v1alpha1.SeverityError, v1alpha1.ReasonHeartbeatTimeout, message+": it is off, or does not reach this API server"+terms.orLegacy(b)), max(left, 0)
}

// awaiting is Healthy before the first heartbeat of a konnector that works here.
func (t Terms) awaiting(now time.Time, b *v1alpha1.ClusterBinding) (c v1alpha1.Condition, again time.Duration) {
	since, last := b.CreationTimestamp.Time, b.Status.LastHeartbeatTime
	if t.Since.After(since) {
		since = t.Since
	}
	severity, message := v1alpha1.SeverityInfo, "waiting for the first heartbeat of the konnector"
	if again = since.Add(firstHeartbeat).Sub(now); again > 0 {
		return v1alpha1.False(v1alpha1.ConditionHealthy, severity, v1alpha1.ReasonFirstHeartbeatPending, message), again + time.Second
	}
	severity, message = v1alpha1.SeverityWarning, "no konnector has reported since the bind: none runs in the App Cluster, or it does not reach this API server"+t.orLegacy(b)
	switch {
	case last.IsZero():
	case t.Since.IsZero(): // it was bound here, and by us
		message = "the konnector of the last heartbeat, of " + last.UTC().Format(time.RFC3339) + ", does not say in which cluster it is: the platform has taken that away, or it is Klutch's; ours says it again when it reports"
	default:
		message = "the last heartbeat, of " + last.UTC().Format(time.RFC3339) + ", is of Klutch's konnector, " + lacking(b)
	}
	return v1alpha1.False(v1alpha1.ConditionHealthy, severity, v1alpha1.ReasonFirstHeartbeatPending, message), 0
}

// orLegacy says of a konnector that is silent that it may be a legacy one, where that may not be used.
func (t Terms) orLegacy(b *v1alpha1.ClusterBinding) string {
	if t.Legacy {
		return ""
	}
	return ", or it is Klutch's, " + lacking(b)
}

// lacking says what the legacy konnector waits for, which never says it itself.
func lacking(b *v1alpha1.ClusterBinding) string {
	return fmt.Sprintf("which waits until it may list Secrets in the tenant namespace: kubectl label namespace %s %s=true lets it, --klutch-konnectors=all lets those of all tenants, "+
		"and kubectl bind konnector upgrade --image IMAGE --force-conflicts puts ours in its place", b.Namespace, v1alpha1.KlutchKonnectorLabel)
}
