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
	const here, gone, release = "in their annotation klutch.anynines.com/sync-message: kubectl bind status widgets.example.org lists them", "gone from here, and the konnector's log has their names", "run: kubectl -n klutch-bind annotate --overwrite apiservicebinding widgets.example.org klutch.anynines.com/release-deletion="
	for name, test := range map[string]struct {
		state  klutchsync.Status
		reason string
		says   []string
		not    string
	}{
		"in step":       {klutchsync.Status{Objects: 3}, "", nil, "objects"},
		"held":          {klutchsync.Status{Held: 2}, v1alpha1.ReasonDeletionsHeld, []string{"2 deleted objects", "kept in the Control Plane Cluster", "not made anew", here, release}, gone},
		"held copies":   {klutchsync.Status{HeldCopies: 2}, v1alpha1.ReasonDeletionsHeld, []string{"2 copies", release}, gone},
		"orphans":       {klutchsync.Status{Orphans: 4}, "TargetOrphaned", []string{"4 objects", "log has their names"}, release},
		"held, orphans": {klutchsync.Status{Held: 6, Orphans: 4}, v1alpha1.ReasonDeletionsHeld, []string{"6 deleted objects", here, "; 4 have " + gone, release}, "hand"},
	} {
		t.Run(name, func(t *testing.T) {
			c := deletionsInSync(b, test.state)
			if c.Type != v1alpha1.ConditionDeletionsInSync || c.Reason != test.reason || strings.Contains(c.Message, test.not) || (c.Message == "") != (test.says == nil) {
				t.Errorf("condition = %+v", c)
			}
			for _, words := range test.says {
				if !strings.Contains(c.Message, words) {
					t.Errorf("%q does not say %q", c.Message, words)
				}
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
