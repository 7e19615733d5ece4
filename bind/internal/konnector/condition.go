// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// repair is the advice where a credential does not work.
const repair = "Run kubectl bind repair."

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
		return failed(v1alpha1.ConditionConnected, v1alpha1.ReasonTokenRevoked, "The Control Plane Cluster "+server+
			" does not accept the token any more: a later login, kubectl bind unbind or the platform has ended it. "+repair), true
	case !cluster.IsNoAnswer(err):
		return v1alpha1.Condition{}, false
	}
	next := "It is tried again by itself; kubectl bind doctor says what to look at."
	if fates.IsDistrusted(err) {
		next = "Run kubectl bind repair, which writes the right CA; if it stays so, another server answers there."
	}
	return failed(v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "The Control Plane Cluster "+server+" cannot be reached: "+cluster.Explain(err)+". "+next), true
}

// tenantGone is Connected where the platform has removed the tenant.
func tenantGone(server string) v1alpha1.Condition {
	return failed(v1alpha1.ConditionConnected, v1alpha1.ReasonTenantGone, "The platform at "+server+
		" has removed this cluster's tenant, or is about to. Ask its operators why. kubectl bind repair makes a new one; kubectl bind unbind ends the use of it here.")
}

// unlisted is Connected where a resource of the tenant cannot be listed or watched.
func unlisted(server string, resource schema.GroupVersionResource, err error) v1alpha1.Condition {
	c, isAway := away(server, err)
	if err == nil || isAway {
		return c
	}
	reason := v1alpha1.ReasonControlPlaneUnreachable
	if fates.IsRefused(err) {
		reason = v1alpha1.ReasonStepFailed
	}
	return failed(v1alpha1.ConditionConnected, reason, "The provider's "+resource.Resource+" cannot be listed: "+cluster.Explain(err)+".")
}

// tooLarge says what was too much, and who can do something about it.
func tooLarge(who string, err error) string {
	return who + " sends too much: " + cluster.Explain(err) + ". It is asked again every minute. If it does not end, its operators can say why, or kubectl bind unbind ends the use of it."
}
