// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

func TestMemory(t *testing.T) {
	const status = "Name:\tkonnector\nVmPeak:\t 1278792 kB\nVmHWM:\t   70001 kB\nVmRSS:\t   59156 kB\nRssAnon:\t   22000 kB\n"
	const log = `{"level":"INFO","msg":"gc 9 @0.1s 9%: 0 ms clock, 4->4->99 MB, 5 MB goal"}
gc 1 @0.012s 2%: 0.026+0.87+0.003 ms clock, 0.052+0.31/0.19/0.22+0.006 ms cpu, 3->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P
gc 2 @120.1s 0%: 0.04+9.1+0.003 ms clock, 0.09+0/9.0/0+0.006 ms cpu, 55->56->41 MB, 110 MB goal, 0 MB stacks, 0 MB globals, 2 P (forced)
{"level":"INFO","msg":"done"}
`
	for name, tc := range map[string]struct{ got, want float64 }{
		"resident":          {lastNumber(resident, []byte(status)), 59156},
		"resident, unknown": {lastNumber(resident, nil), 0},
		"peak":              {lastNumber(highest, []byte(status)), 70001},
		"live":              {liveKB([]byte(log)), 41 * 1024},
		"live, unknown":     {liveKB(nil), 0},
		"difference":        {memory{resident: 300}.minus(memory{resident: 100}).over(50).resident, 4},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %v, want %v", name, tc.got, tc.want)
		}
	}
}

func TestCPUTime(t *testing.T) {
	const tail = " S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0"
	for name, tc := range map[string]struct {
		stat string
		want time.Duration
	}{
		"user and system":  {"42 (konnector)" + tail, 1750 * time.Millisecond},
		"a name of blanks": {"42 (a (b) c)" + tail, 1750 * time.Millisecond},
		"unknown":          {"", 0},
		"cut off":          {"42 (konnector) S 1", 0},
		"not numbers":      {"42 (konnector) S 1 2 3 4 5 6 7 8 9 10 a b", 0},
	} {
		if got := cpuTime([]byte(tc.stat)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestTurnsTrue(t *testing.T) {
	turned := turnsTrue("InformersSynced")
	for i, step := range []struct {
		status string
		want   bool
	}{{"True", false}, {"", false}, {"False", false}, {"", false}, {"True", true}, {"True", false}, {"Unknown", false}, {"True", true}} {
		var e event
		if step.status != "" {
			e.Object.Status.Conditions = []condition{{"Ready", "True"}, {"InformersSynced", step.status}}
		}
		if got := turned(e); got != step.want {
			t.Errorf("event %d: %v", i, got)
		}
	}
}
