// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// repair is the advice where a credential does not work.
const repair = "Rerun kubectl bind for repair."

// order is that in which the conditions of a binding come true.
var order = [...]string{
	v1alpha1.ConditionSecretValid, v1alpha1.ConditionConnected, v1alpha1.ConditionLoginCurrent, v1alpha1.ConditionOffered, v1alpha1.ConditionProviderInSync, v1alpha1.ConditionSchemaInSync,
	v1alpha1.ConditionInformersSynced, v1alpha1.ConditionHeartbeating, v1alpha1.ConditionClaimsInSync, v1alpha1.ConditionNamespacesReady,
	v1alpha1.ConditionDeletionsInSync,
}

// optional conditions are not there where there is nothing to say.
func optional(conditionType string) bool {
	switch conditionType {
	case v1alpha1.ConditionLoginCurrent, v1alpha1.ConditionOffered, v1alpha1.ConditionProviderInSync, v1alpha1.ConditionClaimsInSync,
		v1alpha1.ConditionNamespacesReady, v1alpha1.ConditionDeletionsInSync:
		return true
	}
	return false
}

// A verdict is what one pass found out about a binding.
type verdict struct {
	found    map[string]v1alpha1.Condition // by type
	provider string                        // pretty name, if known
	overdue  bool                          // what it waits for should have been known by now
}

func newVerdict() *verdict { return &verdict{found: map[string]v1alpha1.Condition{}} }

func (v *verdict) set(c v1alpha1.Condition) { v.found[c.Type] = c }

// blocker returns the first condition that is known not to be True.
func (v *verdict) blocker() string {
	for _, t := range order {
		if c, ok := v.found[t]; ok && c.Status != metav1.ConditionTrue && !isPending(c) {
			return t
		}
	}
	return ""
}

// waits reports whether a condition waits for an answer.
func (v *verdict) waits() bool {
	for _, c := range v.found {
		if isPending(c) {
			return v.blocker() == ""
		}
	}
	return false
}

// apply puts the verdict into status. What the pass did not get to waits for what
// it stumbled on. What is not known yet, just after a start, stays as it was, unless it is
// overdue.
func (v *verdict) apply(status *v1alpha1.APIServiceBindingStatus, generation int64) {
	blocker := v.blocker()
	for _, t := range order {
		c, ok := v.found[t]
		if !ok && optional(t) {
			continue
		}
		if !ok {
			c = pending(t, "Waits for what comes before it.")
		}
		if isPending(c) {
			before := v1alpha1.FindCondition(status.Conditions, t)
			if blocker == "" && !v.overdue && before != nil && before.ObservedGeneration == generation {
				continue
			}
			if blocker != "" {
				c.Message = "Waits for " + blocker + "."
			}
		}
		c.Message = cluster.Clip(c.Message)
		c.ObservedGeneration = generation
		status.Conditions = v1alpha1.SetCondition(status.Conditions, c)
	}
	status.Conditions = v1alpha1.Summarize(status.Conditions, generation)
	if v.provider != "" {
		status.ProviderPrettyName = text.Clip(v.provider, cluster.MaxMessage/2)
	}
}

// pending is a condition of which nothing is known yet.
func pending(conditionType, message string) v1alpha1.Condition {
	return v1alpha1.False(conditionType, v1alpha1.SeverityInfo, v1alpha1.ReasonPending, message)
}

func isPending(c v1alpha1.Condition) bool { return c.Reason == v1alpha1.ReasonPending }

func failed(conditionType, reason, message string) v1alpha1.Condition {
	return v1alpha1.False(conditionType, v1alpha1.SeverityError, reason, message)
}

func warned(conditionType, reason, message string) v1alpha1.Condition {
	return v1alpha1.False(conditionType, v1alpha1.SeverityWarning, reason, message)
}

// away tells whether err means that the Control Plane Cluster cannot be worked
// with at all, and returns the condition that says so.
func away(server string, err error) (c v1alpha1.Condition, is bool) {
	switch {
	case err == nil:
		return v1alpha1.Condition{}, false
	case cluster.IsExcess(err):
		return failed(v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneAnswerTooLarge, tooLarge("The Control Plane Cluster "+server, err)), true
	case fates.Is(err, fates.Unauthorized):
		return failed(v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnauthorized, "The Control Plane Cluster "+server+" does not accept the token. "+repair), true
	case !cluster.IsNoAnswer(err):
		return v1alpha1.Condition{}, false
	}
	return failed(v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "The Control Plane Cluster "+server+" cannot be reached: "+cluster.Explain(err)+". Retrying."), true
}

// unlisted is Connected where a resource of the tenant cannot be listed.
func unlisted(server string, resource schema.GroupVersionResource, err error) v1alpha1.Condition {
	c, isAway := away(server, err)
	if err != nil && !isAway {
		c = failed(v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "The provider's "+resource.Resource+" cannot be listed: "+cluster.Explain(err)+".")
	}
	return c
}

// connected is what the last look says of the connection. What is too much of what is
// listed counts even if the control plane answers otherwise.
func (s snapshot) connected() v1alpha1.Condition {
	for _, c := range []v1alpha1.Condition{s.away, s.unreadable, s.unmapped} {
		if c.Type != "" && (c == s.away || c.Reason == v1alpha1.ReasonControlPlaneAnswerTooLarge) {
			return c
		}
	}
	return v1alpha1.True(v1alpha1.ConditionConnected)
}

// tooLarge says what was too much, and who can do something about it.
func tooLarge(who string, err error) string {
	return who + " sends too much: " + cluster.Explain(err) + ". It is asked again every minute. If it does not end, its operators can say why, or kubectl bind unbind ends the use of it."
}
