// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"strings"
	"testing"
)

// TestP14HoldersWithAnyBytes: where one field ends and the next begins is not for the
// one to say who chooses them.
func TestP14HoldersWithAnyBytes(t *testing.T) {
	for _, sep := range []string{"", "\x00", strings.Repeat("\x00", 8), strings.Repeat("\x00", 7) + "\x01", "/", "-", "\n"} {
		seen := map[string]Holder{}
		for _, h := range []Holder{
			{"x", "y", "z"},
			{"x", "y", "z" + sep},
			{"x", "y" + sep, "z"},
			{"x", sep + "y", "z"},
			{"x" + sep, "y", "z"},
			{"x" + sep + "y", "z", ""},
			{"x", "y" + sep + "z", ""},
			{"x" + sep + "y" + sep + "z", "", ""},
			{"", "x" + sep + "y", "z"},
			{"", "x", "y" + sep + "z"},
			{"", "", "x" + sep + "y" + sep + "z"},
		} {
			name := h.Namespace("cluster")
			if other, taken := seen[name]; taken && other != h {
				t.Errorf("%q and %q share %s", other, h, name)
			}
			seen[name] = h
		}
	}
}
