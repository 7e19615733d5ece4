// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"strconv"
	"strings"
	"testing"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestRefusedFor(t *testing.T) {
	ready := func(c v1alpha1.Condition) []v1alpha1.Condition { return []v1alpha1.Condition{c} }
	for name, tc := range map[string]struct {
		conditions []v1alpha1.Condition
		want       string
	}{
		"nothing said, as by peers": {nil, ""},
		"ready":                     {ready(v1alpha1.True(v1alpha1.ConditionReady)), ""},
		"not yet":                   {ready(v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityInfo, "Pending", "Waits.")), ""},
		"refused":                   {ready(v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, "NameTaken", "it belongs to another tenant")), "it belongs to another tenant"},
		"refused with few words":    {ready(v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, "NameTaken", "")), "NameTaken"},
	} {
		asked := &v1alpha1.APIServiceNamespace{Status: v1alpha1.APIServiceNamespaceStatus{Conditions: tc.conditions}}
		if got := refusedFor(asked); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestP25NamespacesReady: however much a provider has to say, the condition stays small.
func TestP25NamespacesReady(t *testing.T) {
	n := &serviceNamespaces{refused: map[string]string{}, unrequested: newUnrequested(0, nil, nil)}
	if c := n.ready(); c.Status != "True" {
		t.Errorf("%+v", c)
	}
	for _, name := range []string{"d", "b", "a", "e", "c"} {
		n.refused[name] = strings.Repeat("no ", 1000)
	}
	c := n.ready()
	if c.Status != "False" || c.Severity != v1alpha1.SeverityWarning || c.Reason != v1alpha1.ReasonServiceNamespaceRefused {
		t.Errorf("%+v", c)
	}
	if len(c.Message) > cluster.MaxMessage || !strings.Contains(c.Message, "in a (no no") || !strings.Contains(c.Message, "and 2 more") {
		t.Errorf("message of %d bytes: %s", len(c.Message), c.Message)
	}
	for i := range 1000 {
		n.unrequested.seen["u"+strconv.Itoa(i)] = sighting{told: i%2 == 0}
	}
	if c = n.ready(); c.Reason != v1alpha1.ReasonServiceNamespaceRefused || len(c.Message) > cluster.MaxMessage || !strings.Contains(c.Message, "u0, u10, u100, and 497 more") {
		t.Errorf("message of %d bytes, for %s: %s", len(c.Message), c.Reason, c.Message)
	}
	clear(n.refused)
	if c = n.ready(); c.Reason != v1alpha1.ReasonUninvitedNamespace || c.Severity != v1alpha1.SeverityWarning || !strings.Contains(c.Message, "and 497 more") {
		t.Errorf("message for %s: %s", c.Reason, c.Message)
	}
}
