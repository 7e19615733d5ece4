// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Condition types.
const (
	Ready  = "Ready"  // the service can be used
	Synced = "Synced" // the spec as it stands was accepted and is carried out
)

// statusOf returns the status of c, of which m is known and which h holds up, nil
// if nothing does.
func statusOf(c claim, m managed, h *hold, now time.Time) map[string]any {
	if m == nil {
		m = managed{"state": string(h.state)}
	}
	ready := condition{kind: Ready, status: metav1.ConditionTrue, reason: "Available"}
	synced := condition{kind: Synced, status: metav1.ConditionTrue, reason: "ReconcileSuccess"}
	if h != nil && h.state == Failed {
		synced = condition{Synced, metav1.ConditionFalse, h.reason, h.message}
	}
	if h != nil && !State(fmt.Sprint(m["state"])).ready() {
		ready = condition{Ready, metav1.ConditionFalse, h.reason, h.message}
	}
	return map[string]any{
		"managed":    map[string]any(m),
		"conditions": []any{ready.of(c, now), synced.of(c, now)},
	}
}

type condition struct {
	kind            string
	status          metav1.ConditionStatus
	reason, message string
}

// Of returns the condition as c should have it: the time of the last transition
// stays while the status does.
func (n condition) of(c claim, now time.Time) map[string]any {
	since := now.UTC().Format(time.RFC3339)
	if old := c.condition(n.kind); old["status"] == string(n.status) {
		since = fmt.Sprint(old["lastTransitionTime"])
	}
	out := map[string]any{
		"type": n.kind, "status": string(n.status), "reason": n.reason,
		"lastTransitionTime": since, "observedGeneration": c.GetGeneration(),
	}
	if n.message != "" {
		out["message"] = n.message
	}
	return out
}

// Condition returns c's condition of a type, nil if it has none.
func (c claim) condition(kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(c.Object, "status", "conditions")
	for _, one := range all {
		if m, ok := one.(map[string]any); ok && m["type"] == kind {
			return m
		}
	}
	return nil
}

// Report writes the status of c if it is not what c has. Why is the error of
// carrying c out: a hold is reported, anything else is returned, and a refusal by an engine or
// by the API server both.
func (w *world) report(ctx context.Context, c claim, m managed, why error) (err error) {
	if apierrors.IsForbidden(why) || apierrors.IsInvalid(why) {
		why = refuse(Refused, "%v", why)
		m, _, _ = unstructured.NestedMap(c.Object, "status", "managed") // it runs on as it did
	}
	h, held := errors.AsType[*hold](why)
	if why != nil && !held {
		return why
	}
	status := statusOf(c, m, h, time.Now())
	if held && (h.reason == EngineFailed || h.reason == Refused) {
		defer func() { err = cmp.Or(err, error(h)) }()
	}
	if equality.Semantic.DeepEqual(status, c.Object["status"]) {
		return nil
	}
	intent := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	intent.SetGroupVersionKind(c.gvk())
	intent.SetName(c.GetName())
	intent.SetUID(c.GetUID())
	_, err = w.dyn.Resource(c.gvr()).Namespace(c.GetNamespace()).
		ApplyStatus(ctx, c.GetName(), intent, metav1.ApplyOptions{FieldManager: Manager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
