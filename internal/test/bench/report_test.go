// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func example() *report {
	r := &report{}
	r.condition("machine", "%d cores", 2)
	for range 2 {
		r.add("throughput", klutch, []figure{{"creates/s", 160, ofIdeal("≥", 0.8).alone(0.95)}, {"deletes/s", 50, ofIdeal("≥", 0.8)}})
		r.add("throughput", engine, []figure{{"creates/s", 180, ofIdeal("≥", 0.8)}})
		r.add("throughput", rights, []figure{{"creates/s", 170, ofIdeal("≥", 0.8)}})
		r.add("throughput", ideal, []figure{{"creates/s", 200, ofIdeal("≥", 0.8)}, {"deletes/s", 100, ofIdeal("≥", 0.8)}})
	}
	r.add("throughput", limited, []figure{{"creates/s", 4.5, ofIdeal("≥", 0.8)}})
	r.add("settled", klutch, []figure{{"restart s", 3.25, atMost(10)}, {"MB", 80.44, goal{}}})
	return r
}

func TestTable(t *testing.T) {
	var got strings.Builder
	if err := example().table(&got); err != nil {
		t.Fatal(err)
	}
	want := `machine: 2 cores

THROUGHPUT  klutch  sync  rights  ideal  limited  klutch ÷ ideal  goal           verdict  sync ÷ ideal  goal            verdict  klutch ÷ rights  rights ÷ ideal
creates/s   160     180   170     200    4.50     0.80            ≥ 0.8 × ideal  met      0.90          ≥ 0.95 × ideal  missed   0.94             0.85
deletes/s   50                    100             0.50            ≥ 0.8 × ideal  missed

SETTLED    klutch  sync  rights  ideal  limited  klutch ÷ ideal  goal  verdict  sync ÷ ideal  goal  verdict  klutch ÷ rights  rights ÷ ideal
restart s  3.25                                                  ≤ 10  met
MB         80.4
`
	if diff := cmp.Diff(want, trimmed(got.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func TestVerdicts(t *testing.T) {
	want := []string{
		"throughput, creates/s: 160 (ideal 200), goal ≥ 0.8 × ideal: met",
		"throughput, deletes/s: 50 (ideal 100), goal ≥ 0.8 × ideal: missed",
		"settled, restart s: 3.25, goal ≤ 10: met",
	}
	r := example()
	if diff := cmp.Diff(want, append(r.verdicts("throughput"), r.verdicts("settled")...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCSV(t *testing.T) {
	var got strings.Builder
	if err := example().csv(&got); err != nil {
		t.Fatal(err)
	}
	want := `part,figure,goal,contestant,round,value
conditions,machine,,,,2 cores
throughput,creates/s,≥ 0.8 × ideal,klutch,1,160
throughput,creates/s,≥ 0.8 × ideal,klutch,2,160
throughput,creates/s,≥ 0.8 × ideal,sync,1,180
throughput,creates/s,≥ 0.8 × ideal,sync,2,180
throughput,creates/s,≥ 0.8 × ideal,rights,1,170
throughput,creates/s,≥ 0.8 × ideal,rights,2,170
throughput,creates/s,≥ 0.8 × ideal,ideal,1,200
throughput,creates/s,≥ 0.8 × ideal,ideal,2,200
throughput,creates/s,≥ 0.8 × ideal,limited,1,4.5
throughput,deletes/s,≥ 0.8 × ideal,klutch,1,50
throughput,deletes/s,≥ 0.8 × ideal,klutch,2,50
throughput,deletes/s,≥ 0.8 × ideal,ideal,1,100
throughput,deletes/s,≥ 0.8 × ideal,ideal,2,100
settled,restart s,≤ 10,klutch,1,3.25
settled,MB,,klutch,1,80.44
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVerdict(t *testing.T) {
	nan := math.NaN()
	for name, tc := range map[string]struct {
		goal         goal
		ours, ideals float64
		text, want   string
	}{
		"no goal":             {goal{}, 1, 1, "", ""},
		"fast enough":         {ofIdeal("≥", 0.8), 80, 100, "≥ 0.8 × ideal", "met"},
		"too slow":            {ofIdeal("≥", 0.8), 79, 100, "≥ 0.8 × ideal", "missed"},
		"nothing beside it":   {ofIdeal("≥", 0.8), 79, nan, "≥ 0.8 × ideal", ""},
		"quick enough":        {ofIdeal("≤", 1.5), 15, 10, "≤ 1.5 × ideal", "met"},
		"too late":            {ofIdeal("≤", 1.5), 15.1, 10, "≤ 1.5 × ideal", "missed"},
		"small enough":        {atMost(4), 4, nan, "≤ 4", "met"},
		"too big":             {atMost(4), 4.1, nan, "≤ 4", "missed"},
		"not measured":        {atMost(4), nan, nan, "≤ 4", ""},
		"as many":             {exactly(2), 2, 3, "= 2", "met"},
		"more":                {exactly(2), 2.01, 3, "= 2", "missed"},
		"fewer":               {exactly(2), 1.99, 3, "= 2", "missed"},
		"none where none may": {exactly(0), 0, nan, "= 0", "met"},
	} {
		t.Run(name, func(t *testing.T) {
			got := [2]string{tc.goal.String(), tc.goal.verdict(tc.ours, tc.ideals)}
			if diff := cmp.Diff([2]string{tc.text, tc.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 2: "2", 0.834: "0.83", 9.996: "10.00", 12.34: "12.3", 123.4: "123", 2000: "2000", -1.5: "-1.50", math.Inf(1): "",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}
