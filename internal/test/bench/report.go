// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// The contestants.
const (
	klutch  = "klutch"
	engine  = "sync"
	rights  = "rights"
	ideal   = "ideal"
	limited = "limited"
)

// A figure is one number that a part has measured of a contestant.
type figure struct {
	name  string // with its unit: "creates/s, 1 namespace"
	value float64
	goal  goal
}

// A goal is what klutch is to reach. The zero value is none.
type goal struct {
	sign   string
	limit  float64
	times  bool    // the limit is a multiple of ideal
	engine float64 // what the engine alone is to reach, as a multiple of ideal; 0: nothing
}

func ofIdeal(sign string, times float64) goal { return goal{sign: sign, limit: times, times: true} }
func atMost(limit float64) goal               { return goal{sign: "≤", limit: limit} }
func exactly(limit float64) goal              { return goal{sign: "=", limit: limit} }

// alone is g with a goal for the engine alone.
func (g goal) alone(times float64) goal {
	g.engine = times
	return g
}

// ofEngine is the goal of the engine alone.
func (g goal) ofEngine() goal {
	if g.engine == 0 {
		return goal{}
	}
	return ofIdeal(g.sign, g.engine)
}

func (g goal) String() string {
	switch {
	case g.sign == "":
		return ""
	case g.times:
		return fmt.Sprintf("%s %g × ideal", g.sign, g.limit)
	}
	return fmt.Sprintf("%s %g", g.sign, g.limit)
}

// verdict is "met" or "missed", or empty if there is no telling.
func (g goal) verdict(ours, ideals float64) string {
	if g.times {
		ours /= ideals
	}
	if g.sign == "" || math.IsNaN(ours) {
		return ""
	}
	const hair = 1e-9
	if g.sign != "≤" && ours < g.limit-hair || g.sign != "≥" && ours > g.limit+hair {
		return "missed"
	}
	return "met"
}

// A report collects figures in the order in which they first come.
type report struct {
	conditions [][2]string
	rows       []*row
}

type row struct {
	part, name string
	goal       goal
	values     map[string][]float64 // by contestant, one for each round
}

func (r *report) condition(name, format string, args ...any) {
	r.conditions = append(r.conditions, [2]string{name, fmt.Sprintf(format, args...)})
}

func (r *report) add(part, contestant string, figures []figure) {
	for _, f := range figures {
		row := r.row(part, f)
		row.values[contestant] = append(row.values[contestant], f.value)
	}
}

func (r *report) row(part string, f figure) *row {
	for _, row := range r.rows {
		if row.part == part && row.name == f.name {
			return row
		}
	}
	r.rows = append(r.rows, &row{part, f.name, f.goal, map[string][]float64{}})
	return r.rows[len(r.rows)-1]
}

// table writes the medians, how klutch's compares with ideal's, whether that is
// what it should be, and what of it is work and what rights.
func (r *report) table(out io.Writer) error {
	for _, c := range r.conditions {
		if _, err := fmt.Fprintf(out, "%s: %s\n", c[0], c[1]); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	part := ""
	for _, row := range r.rows {
		if row.part != part {
			part = row.part
			_, _ = fmt.Fprintf(w, "\n%s\n", strings.Join([]string{
				strings.ToUpper(part), klutch, engine, rights, ideal, limited,
				"klutch ÷ ideal", "goal", "verdict", "sync ÷ ideal", "goal", "verdict", "klutch ÷ rights", "rights ÷ ideal",
			}, "\t"))
		}
		_, _ = fmt.Fprintln(w, strings.Join(row.cells(), "\t"))
	}
	return w.Flush()
}

// verdicts say of each goal that klutch has in a part whether it is met.
func (r *report) verdicts(part string) (lines []string) {
	for _, row := range r.rows {
		ours, ideals := median(row.values[klutch]), median(row.values[ideal])
		verdict := row.goal.verdict(ours, ideals)
		if row.part != part || verdict == "" {
			continue
		}
		beside := ""
		if row.goal.times {
			beside = fmt.Sprintf(" (ideal %s)", number(ideals))
		}
		lines = append(lines, fmt.Sprintf("%s, %s: %s%s, goal %s: %s", part, row.name, number(ours), beside, row.goal, verdict))
	}
	return lines
}

func (r *row) cells() []string {
	ours, alone, ruled, ideals := median(r.values[klutch]), median(r.values[engine]), median(r.values[rights]), median(r.values[ideal])
	return []string{
		r.name, number(ours), number(alone), number(ruled), number(ideals), number(median(r.values[limited])),
		number(ours / ideals), r.goal.String(), r.goal.verdict(ours, ideals),
		number(alone / ideals), r.goal.ofEngine().String(), r.goal.ofEngine().verdict(alone, ideals),
		number(ours / ruled), number(ruled / ideals),
	}
}

// number is short and keeps three digits that matter.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return ""
	case v == math.Trunc(v) || math.Abs(v) >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case math.Abs(v) >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// csv writes everything that was measured, one line each.
func (r *report) csv(out io.Writer) error {
	lines := [][]string{{"part", "figure", "goal", "contestant", "round", "value"}}
	for _, c := range r.conditions {
		lines = append(lines, []string{"conditions", c[0], "", "", "", c[1]})
	}
	for _, row := range r.rows {
		for _, contestant := range []string{klutch, engine, rights, ideal, limited} {
			for round, v := range row.values[contestant] {
				lines = append(lines, []string{row.part, row.name, row.goal.String(), contestant, strconv.Itoa(round + 1), strconv.FormatFloat(v, 'g', 6, 64)})
			}
		}
	}
	return csv.NewWriter(out).WriteAll(lines)
}
