// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// IsReady takes a summary without observedGeneration as current: not every konnector
// writes it. Klutch's says Ready as soon as it has read the kubeconfig Secret; Connected, if
// ever, comes with the CRD.
func IsReady(b *v1alpha1.APIServiceBinding) bool {
	c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionTrue && (c.ObservedGeneration == 0 || c.ObservedGeneration >= b.Generation) &&
		v1alpha1.IsTrue(b.Status.Conditions, v1alpha1.ConditionConnected)
}

// IsGone reports whether the conditions of a binding say that the platform has removed the tenant:
// whatever else is wrong is so because of that.
func IsGone(conditions []v1alpha1.Condition) bool {
	c := v1alpha1.FindCondition(conditions, v1alpha1.ConditionConnected)
	return c != nil && c.Reason == v1alpha1.ReasonTenantGone
}

// notConnected says what a konnector lacks that has written Ready and never Connected.
const notConnected = ": a konnector has read the kubeconfig Secret and is not connected yet. " +
	"If that is Klutch's konnector, it waits until it may list Secrets in its tenant namespace: the platform team labels that namespace " + v1alpha1.KlutchKonnectorLabel + "=true, " +
	"or kubectl bind konnector upgrade --image IMAGE --force-conflicts puts this konnector in its place"

// WaitingFor says why a binding is not ready; it begins with a colon, or is empty.
func WaitingFor(b *v1alpha1.APIServiceBinding) string {
	if len(b.Status.Conditions) == 0 {
		return ": no konnector has taken it up yet"
	}
	if v1alpha1.IsTrue(b.Status.Conditions, v1alpha1.ConditionReady) && v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionConnected) == nil {
		return notConnected
	}
	return Because(b.Status.Conditions)
}

// Because says what the conditions say that do not hold, but for those on which Ready does not
// depend: in full, or that they merely wait for others.
func Because(conditions []v1alpha1.Condition) string {
	var parts, pending []string
	for _, c := range conditions {
		switch {
		case c.Status == metav1.ConditionTrue, c.Type == v1alpha1.ConditionReady, c.Type == v1alpha1.ConditionObjectsSynced, c.Type == v1alpha1.ConditionObjectsAdopted:
		case c.Reason == v1alpha1.ReasonPending:
			pending = append(pending, c.Type)
		default:
			words := slices.DeleteFunc([]string{c.Type + " is " + string(c.Status), c.Reason, c.Message}, func(s string) bool { return s == "" })
			parts = append(parts, strings.Join(words, ": "))
		}
	}
	if len(pending) > 0 {
		parts = append(parts, strings.Join(pending, ", ")+" pending")
	}
	if len(parts) == 0 {
		return ""
	}
	for i := range len(parts) - 1 {
		parts[i] = strings.TrimSuffix(parts[i], ".")
	}
	return ": " + strings.Join(parts, "; ")
}
