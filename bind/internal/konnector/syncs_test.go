// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"strings"
	"testing"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// What stays in the Control Plane Cluster although its object has gone is told on
// the binding; what can be done about it comes first.
func TestDeletionsInSync(t *testing.T) {
	b := &v1alpha1.APIServiceBinding{}
	b.Name = "widgets.example.org"
	for name, test := range map[string]struct {
		state          klutchsync.Status
		reason, within string
	}{
		"in step":       {klutchsync.Status{Objects: 3}, "", ""},
		"held":          {klutchsync.Status{Held: 2}, v1alpha1.ReasonDeletionsHeld, "annotate --overwrite apiservicebinding widgets.example.org"},
		"orphans":       {klutchsync.Status{Orphans: 4}, "TargetOrphaned", "4 objects"},
		"held, orphans": {klutchsync.Status{Held: 2, Orphans: 4}, v1alpha1.ReasonDeletionsHeld, "2 deleted objects"},
	} {
		t.Run(name, func(t *testing.T) {
			c := deletionsInSync(b, test.state)
			if c.Type != v1alpha1.ConditionDeletionsInSync || c.Reason != test.reason || !strings.Contains(c.Message, test.within) || (c.Message == "") != (test.within == "") {
				t.Errorf("condition = %+v", c)
			}
		})
	}
}

// TestLostPolicy: what is not known makes nothing anew, which would be empty.
func TestLostPolicy(t *testing.T) {
	for lost, want := range map[v1alpha1.LostInstances]klutchsync.LostPolicy{
		"": klutchsync.LostRecreate, "Recreate": klutchsync.LostRecreate, "Report": klutchsync.LostReport, "Restore": klutchsync.LostReport,
	} {
		if got := lostPolicy(lost); got != want {
			t.Errorf("%q: %s, want %s", lost, got, want)
		}
	}
}
