// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	objectstatus "github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	// awayEvery is the pace at which a control plane that is away is looked for.
	awayEvery = 3 * time.Second
	// probeEvery is the pace of the one request between two heartbeats, and findTimeout is how
	// long it may take: one that hangs is found within their sum.
	probeEvery  = 15 * time.Second
	findTimeout = 10 * time.Second
	// patience is the longest pause between attempts at what a working control plane refuses.
	patience = time.Minute
)

// found is what a look at the tenant namespace finds there.
type found struct {
	token   string    // that the look began with
	tenant  types.UID // of the namespace; empty if it may not be read
	binding *v1alpha1.ClusterBinding
	unkept  error // why a write to the kubeconfig Secret was refused, or has to wait; nil if neither
}

// A heartbeat is what a session does and learns at each look at its tenant namespace.
type heartbeat struct {
	*shared

	secret *kubeconfigSecret
	place  kubeconfig.Kubeconfig // without token
	token  *kubeconfig.Token
	calls  dynamic.Interface // of the Control Plane Cluster

	queue    *controller.Controller
	beaten   atomic.Pointer[time.Time] // when the last one was taken
	awaited  atomic.Bool               // the backend is about to make a credential
	leaving  atomic.Bool               // the platform removes the tenant
	wells    atomic.Int64              // looks that have found all well
	wanted   atomic.Bool               // a whole look, before its time
	alarms   pace                      // of looks because of a credential that was refused
	looks    pace                      // of all
	lines    pace                      // in the log
	logged   snapshot                  // what the log has; of beat alone
	due      time.Time                 // the next heartbeat; of beat alone
	failures int                       // of beats in a row that failed or found that they have to wait; of beat alone

	mu   sync.Mutex
	seen snapshot
}

func newHeartbeat(s *shared, secret *kubeconfigSecret, place kubeconfig.Kubeconfig, token *kubeconfig.Token, calls dynamic.Interface) *heartbeat {
	h := &heartbeat{shared: s, secret: secret, place: place, token: token, calls: calls, alarms: flowcontrol.NewTokenBucketPassiveRateLimiter(1, 2), looks: newPace(), lines: newRarePace()}
	h.seen.beating = pending(v1alpha1.ConditionHeartbeating, "Connecting to the Control Plane Cluster.")
	h.queue = controller.New("heartbeat", h.beat, controller.Options{})
	return h
}

// beat looks at the tenant namespace. It is at once the probe of the control plane,
// the heartbeat, and what fetches a rotated credential.
func (h *heartbeat) beat(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
	if !h.looks.TryAccept() {
		return pacePause, controller.ErrBusy
	}
	if !h.wanted.Swap(false) && h.isWell() && time.Now().Before(h.due) {
		return h.probe(ctx)
	}
	f, err := h.readTenant(ctx)
	if err == nil && h.refusal(f).Type == "" {
		f, err = h.report(ctx, f)
	}
	h.noteLook(ctx, f, err)
	if err != nil {
		return max(h.afterFailure(err), fates.Asked(err)), nil // conditions say it, once
	}
	if f.unkept != nil {
		h.wanted.Store(true)
		return max(probeEvery, h.afterFailure(f.unkept)), nil //nolint:nilerr // a condition says it
	}
	if h.awaited.Load() || h.snapshot().refused.Type != "" { // people wait for what ends it, and it may be never
		h.failures++
		return max(awayEvery, fates.Pause(h.failures, probeEvery)), nil
	}
	h.failures = 0
	h.due = time.Now().Add(h.opts.HeartbeatInterval / 2)
	return min(probeEvery, h.opts.HeartbeatInterval/2), nil
}

// afterFailure is when to look again. A control plane that does not permit the heartbeat, or has no
// such tenant, is asked ever more rarely, up to the pace of heartbeats.
func (h *heartbeat) afterFailure(err error) time.Duration {
	h.failures++
	return max(awayEvery, min(fates.Of(err).Pause(h.failures), h.opts.HeartbeatInterval/2))
}

// isWell reports whether nothing was wrong at the last look.
func (h *heartbeat) isWell() bool {
	now := h.snapshot()
	return now.admitted != "" && now.away.Type == "" && now.refused.Type == "" && !h.awaited.Load() && now.beating.Status == metav1.ConditionTrue
}

// probe is the one request between two heartbeats.
func (h *heartbeat) probe(ctx context.Context) (time.Duration, error) {
	token := h.token.Get()
	limited, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	b, err := h.clusterBinding(limited)
	if err != nil {
		h.noteLook(ctx, found{token: token}, err)
		return max(h.afterFailure(err), fates.Asked(err)), nil
	}
	if h.ofAnotherCluster(b) {
		h.wanted.Store(true)
		return time.Millisecond, nil
	}
	return min(probeEvery, max(time.Until(h.due), time.Millisecond)), nil
}

// unauthorized is called for each answer that the credential is not valid. A look says so at
// once, whichever request was refused.
func (h *heartbeat) unauthorized() {
	if h.snapshot().away.Type == "" && h.alarms.TryAccept() {
		h.lookNow()
	}
}

// tenantChanged notes that the platform removes the tenant, and looks whether it is this App Cluster's
// again.
func (h *heartbeat) tenantChanged(obj any) {
	o, ok := obj.(metav1.Object)
	if !ok || o.GetName() != v1alpha1.ClusterBindingName {
		return
	}
	h.leaving.Store(o.GetDeletionTimestamp() != nil)
	if h.snapshot().refused.Type != "" {
		h.lookNow()
	}
}

// readTenant looks at who is there. What may not be read is no answer where one is expected.
func (h *heartbeat) readTenant(ctx context.Context) (f found, err error) {
	f.token = h.token.Get()
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	if f.tenant, err = cluster.TenantUID(ctx, h.calls, h.place.Namespace); err != nil && (h.secret.boundTenant() != "" || !cluster.IsHidden(err)) {
		return f, err
	}
	f.binding, err = h.clusterBinding(ctx)
	return f, err
}

// report does the due work in a tenant namespace that is this App Cluster's, and returns f with the
// ClusterBinding after it. If the App Cluster refuses a write to the kubeconfig Secret, the control
// plane gets its heartbeat all the same.
func (h *heartbeat) report(ctx context.Context, f found) (found, error) {
	offered, rotated, err := h.offered(ctx, f.binding.Spec.KubeconfigSecretRef.Name)
	if err == nil && offered != nil {
		f.unkept = h.secret.replaceKubeconfig(ctx, offered)
	}
	if err == nil {
		err = h.write(ctx, f.binding, rotated)
	}
	if err != nil {
		return f, err
	}
	now := time.Now()
	h.beaten.Store(&now)
	if f.unkept == nil {
		f.unkept = h.secret.recordTenant(ctx, f.tenant)
	}
	if f.binding.Status.ClusterUID == "" {
		f.binding, err = h.clusterBinding(ctx) // another one may have been first
	}
	return f, err
}

func (h *heartbeat) clusterBinding(ctx context.Context) (*v1alpha1.ClusterBinding, error) {
	u, err := h.calls.Resource(cluster.ClusterBindings).Namespace(h.place.Namespace).Get(ctx, v1alpha1.ClusterBindingName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read ClusterBinding %s: %w", v1alpha1.ClusterBindingName, err)
	}
	return cluster.Decode[v1alpha1.ClusterBinding](u)
}

// ofAnotherCluster tells whether the tenant is that of another App Cluster, which has
// the same credential. A backend of another make keeps no record of it.
func (h *heartbeat) ofAnotherCluster(b *v1alpha1.ClusterBinding) bool {
	return b.Status.ClusterUID != "" && b.Status.ClusterUID != string(h.app.uid)
}

// whileOurs is fn for as long as the tenant is that of this App Cluster. Where fn does not meet a
// working API server, a look says so, once for all, and fn waits. If the control plane works but for
// what fn asks for, the error is one that package queue paces.
func (h *heartbeat) whileOurs(fn controller.Func) controller.Func {
	// By key: how many looks had found all well when its calls began to fail. The queue repeats a call
	// until one meets a working API server, also where what the key names has gone: then the entry goes.
	var failing sync.Map
	return func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
		switch now, token := h.snapshot(), h.token.Get(); {
		case now.looked != token: // another credential may lead to another tenant
			return awayEvery / 50, controller.ErrBusy
		case now.admitted != token || now.refused.Type != "":
			return awayEvery, controller.ErrBusy
		}
		again, err := fn(ctx, key)
		if errors.Is(err, controller.ErrBusy) {
			return again, err
		}
		if _, isAway := away("", err); !isAway {
			failing.Delete(key)
			return again, err
		}
		wells, known := failing.LoadOrStore(key, h.wells.Load())
		if !known {
			h.lookNow()
		}
		if wells == h.wells.Load() || h.snapshot().away.Type != "" {
			logr.FromContextOrDiscard(ctx).V(4).Info("not now", "reason", cluster.Explain(err))
			return awayEvery, controller.ErrBusy // the condition of the connection says it
		}
		return again, err
	}
}

// noteLook records what a look has shown, and tells the bindings if that is new.
func (h *heartbeat) noteLook(ctx context.Context, f found, err error) {
	if ctx.Err() != nil {
		return
	}
	now := h.snapshot()
	now.looked = f.token
	now.away = h.away(err)
	now.beating = v1alpha1.True(v1alpha1.ConditionHeartbeating)
	if err == nil {
		defer h.wells.Add(1) // once it is recorded
	}
	switch {
	case err != nil:
		now.beating = warned(v1alpha1.ConditionHeartbeating, v1alpha1.ReasonClusterBindingUpdateFailed, "The heartbeat failed: "+cluster.Explain(err)+".")
	case f.unkept != nil && (fates.IsRefused(f.unkept) || errors.Is(f.unkept, errManyRotations) || h.failures > 0): // else it may be a moment's
		now.beating = h.secret.unkept(f.unkept)
	}
	if now.away.Type == "" && (f.tenant != "" || h.secret.boundTenant() == "") {
		now.admitted = f.token
	}
	now.tenant = cmp.Or(f.tenant, now.tenant)
	if c := h.refusal(f); c.Type != "" || err == nil {
		now.refused = c
		now.refused.Message = cluster.Clip(c.Message)
	}
	if f.binding != nil {
		now.provider = text.Clip(f.binding.Spec.ProviderPrettyName, cluster.MaxMessage/2)
	}
	if now.refused.Type != "" {
		now.beating = failed(v1alpha1.ConditionHeartbeating, now.refused.Reason, "No heartbeat is written.")
	}
	h.record(ctx, now)
}

// away is Connected where the control plane cannot be worked with, else empty.
func (h *heartbeat) away(err error) v1alpha1.Condition {
	c, is := away(h.place.Server, err)
	ends := cluster.ReadToken(h.token.Get()).Ends()
	switch {
	case fates.Is(err, fates.Absent), fates.Is(err, fates.Unauthorized, fates.Forbidden) && h.leaving.Load():
		return tenantGone(h.place.Server)
	case is && c.Reason == v1alpha1.ReasonTokenRevoked && !ends.IsZero() && time.Now().After(ends):
		return failed(c.Type, v1alpha1.ReasonControlPlaneUnauthorized, "The token for the Control Plane Cluster "+h.place.Server+" has ended, and the konnector could not fetch the next one in time, or not write it to Secret "+h.secret.name.String()+". "+repair)
	}
	return c
}

func (h *heartbeat) record(ctx context.Context, now snapshot) {
	h.mu.Lock()
	before := h.seen
	now.unreadable, now.unmapped = before.unreadable, before.unmapped
	h.seen = now
	h.mu.Unlock()
	if before != now {
		h.touch(h.secret.name)
	}
	h.log(ctx, now)
}

// log tells the log what is new. A platform may fail and be there again all the time: then the next look tells it.
func (h *heartbeat) log(ctx context.Context, now snapshot) {
	before, log := h.logged, logr.FromContextOrDiscard(ctx)
	if before.looked != "" && before.refused == now.refused && before.away == now.away || !h.lines.TryAccept() {
		return
	}
	h.logged = now
	switch {
	case before.refused != now.refused && now.refused.Type != "":
		log.Info("nothing is changed on either side", "reason", now.refused.Reason, "message", now.refused.Message)
	case before.away != now.away && now.away.Type != "":
		log.Info("control plane is away", "reason", now.away.Reason, "message", now.away.Message)
	case before.away != now.away || before.looked == "":
		log.Info("control plane is there", "provider", now.provider)
	}
}

// offered is the credential that the backend keeps for this tenant; nil if it is the one in use, or
// none to be taken over. The condition is about the backend's Secret.
func (h *heartbeat) offered(ctx context.Context, name string) (*unstructured.Unstructured, v1alpha1.Condition, error) {
	u, err := h.calls.Resource(cluster.Secrets).Namespace(h.place.Namespace).Get(ctx, name, metav1.GetOptions{})
	if cluster.IsHidden(err) {
		return nil, warned(v1alpha1.ConditionSecretValid, v1alpha1.ReasonProviderSecretNotFound, "The konnector reads no Secret "+name+": "+cluster.Explain(err)+"."), nil
	}
	if err != nil {
		return nil, v1alpha1.Condition{}, fmt.Errorf("read Secret %s of the tenant: %w", name, err)
	}
	// A login has ended the credentials before it, and the next one is not made yet.
	data, _, _ := unstructured.NestedMap(u.Object, "data")
	if h.awaited.Store(len(data) == 0); len(data) == 0 {
		return nil, v1alpha1.True(v1alpha1.ConditionSecretValid), nil
	}
	offered, err := cluster.ReadSecret(u)
	if err != nil {
		return nil, warned(v1alpha1.ConditionSecretValid, v1alpha1.ReasonProviderSecretInvalid, "The konnector refuses Secret "+name+": "+err.Error()+"."), nil //nolint:nilerr // the condition says it
	}
	current, _ := h.secret.read()
	if current == nil || h.token.Get() == offered.Token && samePlace(&h.place, offered) {
		return nil, v1alpha1.True(v1alpha1.ConditionSecretValid), nil
	}
	return u, v1alpha1.True(v1alpha1.ConditionSecretValid), nil
}

// write writes when the last heartbeat is half an interval old, and when
// something else in the status is to change.
func (h *heartbeat) write(ctx context.Context, seen *v1alpha1.ClusterBinding, secretValid v1alpha1.Condition) error {
	client := h.calls.Resource(cluster.ClusterBindings).Namespace(h.place.Namespace)
	interval := h.opts.HeartbeatInterval
	return objectstatus.Write(ctx, client, seen, func(b *v1alpha1.ClusterBinding) {
		if due(b.Status.LastHeartbeatTime, interval/2) {
			now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
			b.Status.LastHeartbeatTime = &now
		}
		if b.Status.ClusterUID == "" {
			b.Status.ClusterUID = string(h.app.uid)
		}
		b.Status.HeartbeatInterval = &metav1.Duration{Duration: interval}
		b.Status.KonnectorVersion = h.opts.Version
		for _, c := range []v1alpha1.Condition{secretValid, validVersion(h.opts.Version)} {
			c.Message = cluster.Clip(c.Message)
			c.ObservedGeneration = b.Generation
			b.Status.Conditions = v1alpha1.SetCondition(b.Status.Conditions, c)
		}
		b.Status.Conditions = v1alpha1.Summarize(b.Status.Conditions, b.Generation)
	})
}

// due allows for the second that times on the wire are rounded to.
func due(last *metav1.Time, every time.Duration) bool {
	return last == nil || time.Since(last.Time)+time.Second >= every
}

func validVersion(v string) v1alpha1.Condition {
	if _, err := version.ParseSemantic(v); err != nil {
		return warned(v1alpha1.ConditionValidVersion, v1alpha1.ReasonParseError, fmt.Sprintf("The konnector's version %q is not a semantic version.", v))
	}
	return v1alpha1.True(v1alpha1.ConditionValidVersion)
}

// refusal returns Connected=False, with the reason, if nothing may be changed on either side:
// another control plane answers, or another App Cluster holds the tenant. Otherwise it returns
// the zero Condition.
func (h *heartbeat) refusal(f found) v1alpha1.Condition {
	switch bound := h.secret.boundTenant(); {
	case bound != "" && f.tenant != "" && bound != f.tenant:
		return failed(v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneReplaced, fmt.Sprintf(
			"%s is not the Control Plane Cluster that Secret %s was bound to: its tenant namespace %s has the UID %s, not %s. Nothing is changed on either side. "+
				"If it has been replaced for good, run kubectl bind again: claims are then carried out anew there or, under lostInstances Report, told as lost. Or remove the annotation %s of the Secret.",
			h.place.Server, h.secret.name, h.place.Namespace, f.tenant, bound, v1alpha1.TenantUIDAnnotation))
	case f.binding != nil && h.ofAnotherCluster(f.binding):
		return failed(v1alpha1.ConditionConnected, v1alpha1.ReasonTenantHeldByAnotherCluster, fmt.Sprintf(
			"The tenant %[1]s is held by another App Cluster (its namespace kube-system has the UID %[2]s) that uses the same credential; nothing is changed on either side. "+
				"Run kubectl bind for a tenant of this cluster's own. If the other cluster is gone for good, the platform says so by: "+
				`kubectl -n %[1]s patch clusterbinding %[3]s --subresource=status --type=merge -p '{"status":{"clusterUID":""}}'`+
				", and then kubectl bind recover takes up here what it had ordered.",
			h.place.Namespace, f.binding.Status.ClusterUID, v1alpha1.ClusterBindingName))
	}
	return v1alpha1.Condition{}
}

// A snapshot is what the last look at the tenant namespace has shown.
type snapshot struct {
	looked     string             // the token that the last look was made with; empty before the first
	away       v1alpha1.Condition // Connected=False if the control plane cannot be worked with
	beating    v1alpha1.Condition // Heartbeating
	unreadable v1alpha1.Condition // Connected=False if exports cannot be listed
	unmapped   v1alpha1.Condition // Connected=False if APIServiceNamespaces cannot be listed
	provider   string
	tenant     types.UID          // of the tenant namespace, once known
	admitted   string             // the token that read whose tenant it is; empty before
	refused    v1alpha1.Condition // Connected=False if nothing may be changed on either side
}

// snapshot returns what the last look has shown.
func (h *heartbeat) snapshot() snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

// connected is the condition of the connection at the last look. A list that is too long, or refused,
// counts even if the control plane answers otherwise.
func (s snapshot) connected() v1alpha1.Condition {
	for _, c := range []v1alpha1.Condition{s.away, s.unreadable, s.unmapped} {
		switch {
		case c.Type == "":
		case c == s.away, c.Reason == v1alpha1.ReasonControlPlaneAnswerTooLarge, c.Reason == v1alpha1.ReasonStepFailed:
			return c
		}
	}
	return v1alpha1.True(v1alpha1.ConditionConnected)
}

// lookNow asks for a look at the control plane now.
func (h *heartbeat) lookNow() {
	h.wanted.Store(true)
	h.queue.Add(cache.NewObjectName(h.place.Namespace, v1alpha1.ClusterBindingName))
}

// readable takes note of when exports, or namespaces, can be read and when not. Both
// are reasons to look at the control plane.
func (h *heartbeat) readable(exports bool) func(context.Context, error) {
	return func(ctx context.Context, err error) {
		h.mu.Lock()
		if exports {
			h.seen.unreadable = unlisted(h.place.Server, cluster.APIServiceExports, err)
		} else {
			h.seen.unmapped = unlisted(h.place.Server, cluster.APIServiceNamespaces, err)
		}
		h.mu.Unlock()
		logr.FromContextOrDiscard(ctx).V(4).Info("reading the tenant namespace", "trouble", cluster.Trouble(err))
		h.touch(h.secret.name)
		h.lookNow()
	}
}
