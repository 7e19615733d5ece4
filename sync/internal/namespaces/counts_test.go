// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/view"
)

// A namespace turns with its first source and its last one, whatever comes between.
func TestSourceCounts(t *testing.T) {
	turned := 0
	s := NewCounts(nil, func(_ string, initial bool) {
		if !initial {
			turned++
		}
	})
	o := &metav1.PartialObjectMetadata{}
	name := cache.NewObjectName("team", "a")
	came, went, changed := view.Change{Name: name, After: o}, view.Change{Name: name, Before: o}, view.Change{Name: name, Before: o, After: o}
	for i, tc := range []struct {
		change view.Change
		has    bool
		turned int
	}{
		{came, true, 1},
		{changed, true, 1},
		{came, true, 1},
		{went, true, 1},
		{went, false, 2},
		{view.Change{Name: name, After: o, Initial: true}, true, 2}, // all is looked at anyway
		{view.Change{Name: name}, true, 2},
		{went, false, 3},
	} {
		s.Follow(tc.change)
		if s.In("team") != tc.has || turned != tc.turned {
			t.Errorf("%d: has %t after %d turns, want %t after %d", i, s.In("team"), turned, tc.has, tc.turned)
		}
	}
	if len(s.counts) != 0 {
		t.Errorf("counts of namespaces without sources: %v", s.counts)
	}
}
