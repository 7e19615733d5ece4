// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/controller"
	objectstatus "github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// lookAgain is the pace at which a control plane that is away is looked for.
const lookAgain = 3 * time.Second

// found is what a look at the tenant namespace finds there.
type found struct {
	tenant  types.UID // of the namespace; empty if it may not be read
	binding *v1alpha1.ClusterBinding
}

// A heartbeat is what a session does and learns at each look at its tenant namespace.
type heartbeat struct {
	session *session
	queue   *controller.Controller
	beaten  atomic.Pointer[time.Time] // when the last one was taken
	awaited atomic.Bool               // the backend is about to make a credential
}

func newHeartbeat(s *session) *heartbeat {
	h := &heartbeat{session: s}
	h.queue = cluster.NewController("heartbeat", h.beat, 1)
	return h
}

// beat looks at the tenant namespace. It is at once the probe of the control plane,
// the heartbeat, and what fetches a rotated credential.
func (h *heartbeat) beat(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
	f, err := h.find(ctx)
	if err == nil && h.refusal(f).Type == "" {
		f.binding, err = h.report(ctx, f)
	}
	h.look(ctx, f, err)
	if err != nil {
		return lookAgain, nil //nolint:nilerr // conditions say it, once; the next look is not far
	}
	if h.awaited.Load() || h.session.snapshot().refused.Type != "" { // what ends a refusal, people wait for
		return lookAgain, nil
	}
	return h.session.agent.opts.HeartbeatInterval / 2, nil
}

// find reads who is there. What may not be read is no answer where one is expected.
func (h *heartbeat) find(ctx context.Context) (f found, err error) {
	if f.tenant, err = cluster.TenantUID(ctx, h.session.calls, h.session.place.Namespace); err != nil && (h.boundTenant() != "" || !cluster.IsHidden(err)) {
		return f, err
	}
	f.binding, err = h.clusterBinding(ctx)
	return f, err
}

// report does what is due in a tenant namespace that is this App Cluster's, and
// returns the ClusterBinding as it is then.
func (h *heartbeat) report(ctx context.Context, f found) (*v1alpha1.ClusterBinding, error) {
	rotated, err := h.rotate(ctx, f.binding.Spec.KubeconfigSecretRef.Name)
	if err == nil {
		err = h.write(ctx, f.binding, rotated)
	}
	if err == nil {
		now := time.Now()
		h.beaten.Store(&now)
		err = h.recordTenant(ctx, f.tenant)
	}
	if err != nil || f.binding.Status.ClusterUID != "" {
		return f.binding, err
	}
	return h.clusterBinding(ctx) // another one may have been first
}

func (h *heartbeat) clusterBinding(ctx context.Context) (*v1alpha1.ClusterBinding, error) {
	u, err := h.session.calls.Resource(cluster.ClusterBindings).Namespace(h.session.place.Namespace).Get(ctx, v1alpha1.ClusterBindingName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read ClusterBinding %s: %w", v1alpha1.ClusterBindingName, err)
	}
	return cluster.Decode[v1alpha1.ClusterBinding](u)
}

// heldElsewhere tells whether the tenant is that of another App Cluster, which has
// the same credential. A backend of another make keeps no record of it.
func (h *heartbeat) heldElsewhere(b *v1alpha1.ClusterBinding) bool {
	return b.Status.ClusterUID != "" && b.Status.ClusterUID != string(h.session.agent.app.uid)
}

// holding is fn for as long as the tenant is that of this App Cluster.
func (s *session) holding(fn controller.Func) controller.Func {
	return func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
		switch now := s.snapshot(); {
		case !now.looked:
			return lookAgain / 50, nil
		case !now.admitted || now.refused.Type != "":
			return lookAgain, nil
		}
		again, err := fn(ctx, key)
		if _, isAway := away("", err); isAway {
			logr.FromContextOrDiscard(ctx).V(4).Info("not now", "reason", cluster.Explain(err))
			s.lookNow() // a condition is to say it, once
			return lookAgain, nil
		}
		return again, err
	}
}

// look records what the look has shown, and tells the bindings if that is new.
func (h *heartbeat) look(ctx context.Context, f found, err error) {
	if ctx.Err() != nil {
		return
	}
	now := h.session.snapshot()
	now.looked = true
	now.away, _ = away(h.session.place.Server, err)
	now.beating = v1alpha1.True(v1alpha1.ConditionHeartbeating)
	if err != nil {
		now.beating = warned(v1alpha1.ConditionHeartbeating, v1alpha1.ReasonClusterBindingUpdateFailed, "The heartbeat failed: "+cluster.Explain(err)+".")
	}
	now.admitted = now.admitted || now.away.Type == "" && (f.tenant != "" || h.boundTenant() == "")
	now.tenant = cmp.Or(f.tenant, now.tenant)
	if c := h.refusal(f); c.Type != "" || err == nil {
		now.refused = c
	}
	if f.binding != nil {
		now.provider = f.binding.Spec.ProviderPrettyName
	}
	if now.refused.Type != "" {
		now.beating = failed(v1alpha1.ConditionHeartbeating, now.refused.Reason, "No heartbeat is written.")
	}
	h.session.record(ctx, now)
}

func (s *session) record(ctx context.Context, now snapshot) {
	s.mu.Lock()
	before := s.seen
	now.unreadable, now.unmapped = before.unreadable, before.unmapped
	s.seen = now
	s.mu.Unlock()
	if before == now {
		return
	}
	s.agent.touch(s.connection.name)
	log := logr.FromContextOrDiscard(ctx)
	switch {
	case before.refused != now.refused && now.refused.Type != "":
		log.Info("nothing is changed on either side", "reason", now.refused.Reason, "message", now.refused.Message)
	case before.away != now.away && now.away.Type != "":
		log.Info("control plane is away", "reason", now.away.Reason, "message", now.away.Message)
	case before.away != now.away || !before.looked:
		log.Info("control plane is there", "provider", now.provider)
	}
}

// rotate takes over the credential that the backend keeps for this tenant, if it is
// not the one in use. The condition is about the backend's Secret.
func (h *heartbeat) rotate(ctx context.Context, name string) (v1alpha1.Condition, error) {
	u, err := h.session.calls.Resource(cluster.Secrets).Namespace(h.session.place.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return warned(v1alpha1.ConditionSecretValid, v1alpha1.ReasonProviderSecretNotFound, "The konnector reads no Secret "+name+": "+cluster.Explain(err)+"."), nil
	}
	if err != nil {
		return v1alpha1.Condition{}, fmt.Errorf("read Secret %s of the tenant: %w", name, err)
	}
	// A login has ended the credentials before it, and the next one is not made yet.
	data, _, _ := unstructured.NestedMap(u.Object, "data")
	if h.awaited.Store(len(data) == 0); len(data) == 0 {
		return v1alpha1.True(v1alpha1.ConditionSecretValid), nil
	}
	offered, err := cluster.ReadSecret(u)
	if err != nil {
		return warned(v1alpha1.ConditionSecretValid, v1alpha1.ReasonProviderSecretInvalid, "The konnector refuses Secret "+name+": "+err.Error()+"."), nil //nolint:nilerr // the condition says it
	}
	current, _ := h.session.connection.read()
	if current == nil || h.session.token.Get() == offered.Token && h.session.leadsTo(offered) {
		return v1alpha1.True(v1alpha1.ConditionSecretValid), nil
	}
	return v1alpha1.True(v1alpha1.ConditionSecretValid), h.adopt(ctx, u)
}

// adopt copies the offered kubeconfig to the App Cluster's Secret, from where it is
// taken up like any other change of it.
func (h *heartbeat) adopt(ctx context.Context, offered *unstructured.Unstructured) error {
	held := h.session.connection.secret()
	if held == nil {
		return nil // a person has just deleted it, and that is a decision
	}
	encoded, _, _ := unstructured.NestedString(offered.Object, "data", v1alpha1.KubeconfigKey)
	err := h.patchSecret(ctx, map[string]any{
		"metadata": map[string]any{"uid": held.GetUID(), "resourceVersion": held.GetResourceVersion()},
		"data":     map[string]any{v1alpha1.KubeconfigKey: encoded},
	})
	if err != nil {
		return fmt.Errorf("write the rotated credential to Secret %s of the App Cluster: %w", h.session.connection.name, err)
	}
	audit.Record(ctx, "credential rotated")
	return nil
}

// patchSecret merges into the kubeconfig Secret of the App Cluster.
func (h *heartbeat) patchSecret(ctx context.Context, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	name := h.session.connection.name
	_, err = h.session.agent.app.calls.Resource(cluster.Secrets).Namespace(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	return err
}

// write writes when the last heartbeat is half an interval old, and when
// something else in the status is to change.
func (h *heartbeat) write(ctx context.Context, seen *v1alpha1.ClusterBinding, secretValid v1alpha1.Condition) error {
	client := h.session.calls.Resource(cluster.ClusterBindings).Namespace(h.session.place.Namespace)
	interval := h.session.agent.opts.HeartbeatInterval
	return objectstatus.Write(ctx, client, seen, func(b *v1alpha1.ClusterBinding) {
		if due(b.Status.LastHeartbeatTime, interval/2) {
			now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
			b.Status.LastHeartbeatTime = &now
		}
		if b.Status.ClusterUID == "" {
			b.Status.ClusterUID = string(h.session.agent.app.uid)
		}
		b.Status.HeartbeatInterval = &metav1.Duration{Duration: interval}
		b.Status.KonnectorVersion = h.session.agent.opts.Version
		for _, c := range []v1alpha1.Condition{secretValid, validVersion(h.session.agent.opts.Version)} {
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
