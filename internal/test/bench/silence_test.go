// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestUnlike(t *testing.T) {
	for name, test := range map[string]struct {
		before, after ways
		want          string
	}{
		"alike":          {ways{10, 20}, ways{12.5, 16}, ""},
		"slower before":  {ways{13, 20}, ways{10, 20}, "p99 alone was 13 ms up and 20 ms down before, 10 and 20 after: other work of the machine is in all ratios"},
		"slower after":   {ways{10, 20}, ways{10, 25.5}, "p99 alone was 10 ms up and 20 ms down before, 10 and 25.5 after: other work of the machine is in all ratios"},
		"one direction":  {ways{10, 20}, ways{10, 15.9}, "p99 alone was 10 ms up and 20 ms down before, 10 and 15.9 after: other work of the machine is in all ratios"},
		"just a quarter": {ways{10, 20}, ways{8, 25}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unlike(test.before, test.after); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
