// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Severity says how bad a condition that is False is.
//
// +kubebuilder:validation:Enum=Error;Warning;Info
type Severity string

// The severities, the worst first.
const (
	SeverityError   Severity = "Error"
	SeverityWarning Severity = "Warning"
	SeverityInfo    Severity = "Info"
)

// Bounds of a condition, in bytes; the schemas have them in characters.
const (
	maxReason  = 1024
	maxMessage = 32768
)

// ConditionReady sums up all other conditions, see [Summarize].
const ConditionReady = "Ready"

// Condition is one observation about an object. It is metav1.Condition with a
// severity and with optional reason and message.
type Condition struct {
	// type names the condition, in CamelCase.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// status is True, False or Unknown.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status metav1.ConditionStatus `json:"status"`
	// severity is given when status is False.
	Severity Severity `json:"severity,omitempty"`
	// observedGeneration is the metadata.generation that the condition speaks about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// lastTransitionTime is when status, severity, reason or message last changed.
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// reason is a word in CamelCase for programs.
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// message is a sentence for people.
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
}

// True returns a condition that holds.
func True(conditionType string) Condition {
	return Condition{Type: conditionType, Status: metav1.ConditionTrue}
}

// False returns a condition that does not hold.
func False(conditionType string, severity Severity, reason, message string) Condition {
	return Condition{Type: conditionType, Status: metav1.ConditionFalse, Severity: severity, Reason: reason, Message: message}
}

// Unknown returns a condition of which it is not known whether it holds.
func Unknown(conditionType, reason, message string) Condition {
	return Condition{Type: conditionType, Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

// SetCondition puts c into conditions, in place of the one of its type. The time
// of an equal condition is kept; otherwise it is now in whole seconds. The result
// is sorted as all programs expect it: Ready first, the rest by type. A message that
// is longer than the schema allows, since it quotes another cluster, is cut.
func SetCondition(conditions []Condition, c Condition) []Condition {
	c.Reason, c.Message = cut(c.Reason, maxReason), cut(c.Message, maxMessage)
	c.LastTransitionTime = metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	i := slices.IndexFunc(conditions, func(o Condition) bool { return o.Type == c.Type })
	switch {
	case i < 0:
		conditions = append(slices.Clone(conditions), c)
	case sameState(conditions[i], c):
		c.LastTransitionTime = conditions[i].LastTransitionTime
		fallthrough
	default:
		conditions = slices.Clone(conditions)
		conditions[i] = c
	}
	slices.SortStableFunc(conditions, readyFirst)
	return conditions
}

// FindCondition returns the condition of the given type, or nil.
func FindCondition(conditions []Condition, conditionType string) *Condition {
	for i := range conditions {
		if conditions[i].Type == conditionType {
			return &conditions[i]
		}
	}
	return nil
}

// IsTrue reports whether the condition of the given type is there and holds.
func IsTrue(conditions []Condition, conditionType string) bool {
	c := FindCondition(conditions, conditionType)
	return c != nil && c.Status == metav1.ConditionTrue
}

// Summarize sets Ready from all other conditions: the worst of them decide, in
// the order False with Error, with Warning, with Info, True, Unknown. If those that
// decide are not True, Ready takes reason and message of the first by type.
// Without other conditions Ready is left alone, and ObjectsAdopted counts for nothing. ObjectsSynced is about single objects: it
// gives a Ready that is True its reason and message, and decides nothing.
func Summarize(conditions []Condition, observedGeneration int64) []Condition {
	var worst *Condition
	var later Condition // a change of the API that is not taken over yet
	for i, c := range conditions {
		if c.Type == ConditionReady || c.Type == ConditionObjectsSynced || c.Type == ConditionObjectsAdopted {
			continue
		}
		if holdsBack(c) {
			later = c
			continue
		}
		if worst == nil || cmp.Or(cmp.Compare(weight(c), weight(*worst)), cmp.Compare(c.Type, worst.Type)) < 0 {
			worst = &conditions[i]
		}
	}
	if worst == nil && later.Type == "" {
		return conditions
	}
	ready := True(ConditionReady)
	ready.Reason, ready.Message = later.Reason, later.Message
	if worst != nil && worst.Status != metav1.ConditionTrue {
		ready = *worst
		ready.Type = ConditionReady
	} else if c := FindCondition(conditions, ConditionObjectsSynced); c != nil && c.Status == metav1.ConditionFalse {
		ready.Reason, ready.Message = c.Reason, c.Message
	}
	ready.ObservedGeneration = observedGeneration
	return SetCondition(conditions, ready)
}

// holdsBack reports whether all that c says is that a change of the API is not taken over,
// or not yet: objects are served under the schema that is there.
func holdsBack(c Condition) bool {
	return c.Status == metav1.ConditionFalse &&
		(c.Reason == ReasonSchemaChangeHeld || c.Reason == ReasonSchemaChangeWaits || c.Reason == ReasonBreakingChangeHeld)
}

func cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

func sameState(a, b Condition) bool {
	return a.Status == b.Status && a.Severity == b.Severity && a.Reason == b.Reason && a.Message == b.Message
}

func readyFirst(a, b Condition) int {
	switch {
	case a.Type == b.Type:
		return 0
	case a.Type == ConditionReady:
		return -1
	case b.Type == ConditionReady:
		return 1
	}
	return cmp.Compare(a.Type, b.Type)
}

// weight orders conditions for a summary; the least decides.
func weight(c Condition) int {
	switch c.Status {
	case metav1.ConditionFalse:
		return slices.Index([]Severity{SeverityError, SeverityWarning, SeverityInfo, ""}, c.Severity)
	case metav1.ConditionTrue:
		return 4
	default:
		return 5
	}
}
