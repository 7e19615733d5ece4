// SPDX-License-Identifier: Apache-2.0

package text

import "testing"

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "…"},
		{"abcdefghi", 8, "abcd…i"},
		{"aéaéa", 6, "a…a"},
		{"é", 0, "…"},
		{"éééé", 7, "é…"},
		{"quota: used 3 of 3", 15, "quota: u…of 3"},
		{"a\x1b[31m\r\nb\t\u202ec\u200bd\x00\u0085", 99, "a[31m  b cd "},
		{"\xff", 9, "\ufffd"},
		{"\x1b\x1b\x1babc", 3, "abc"},
	} {
		if got := Clip(c.text, c.most); got != c.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
