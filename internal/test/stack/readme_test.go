// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"slices"
	"testing"
)

// TestChanged: what vanishes at rest was written, as what is made and what is changed.
func TestChanged(t *testing.T) {
	before := map[string]string{"a": "1", "b": "1", "c": "1"}
	after := map[string]string{"a": "1", "b": "2", "d": "1"}
	want := []string{"b: 1, then 2", "c: 1, then none", "d: none, then 1"}
	if have := changed(before, after); !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
}
