// SPDX-License-Identifier: Apache-2.0

// Command arrows draws the inside of the packages: their files in the order in which they are best read, the
// arrows between these, and the types with most methods. It ends with exit code 1 if a package is larger
// than the budgets below.
//
// An arrow leads from a file to another one of its package in which something is declared that the first
// uses: a function, a type, a method, a field, a constant or a variable. There is one for each pair of files,
// however often it is used. A reader wants to go through a package from above to below, so the files are put
// in an order in which few arrows point up (graph.go: the heuristic of Eades, Lin and Smyth, then moves of
// single files as long as they help, from some beginnings; a least number is hard to find, and this one is the
// same at each run).
// Strongly connected files were tried as a measure: one arrow back makes all of a package one component,
// which tells nothing about how much there is to do.
//
// The methods of a type are those that it has declared in its package, by itself or by what it embeds.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// Budgets of a package.
const (
	mostFiles   = 20
	mostMethods = 25
	mostUp      = 0.1 // of its arrows
)

func main() {
	all := flag.Bool("v", false, "draw all packages, not only those that are over a budget")
	flag.Parse()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	over, err := draw(os.Stdout, patterns, *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, "arrows:", err)
		os.Exit(2)
	}
	if over > 0 {
		fmt.Printf("%d budgets are missed.\n", over)
		os.Exit(1)
	}
}

func draw(to io.Writer, patterns []string, all bool) (over int, err error) {
	packages, err := load(patterns)
	if err != nil {
		return 0, err
	}
	_, _ = fmt.Fprintf(to, "%-40s %6s %6s %8s %6s\n", "package", "files", "lines", "arrows", "up")
	for _, p := range packages {
		over += len(p.missed())
		_, _ = fmt.Fprintf(to, "%-40s %6d %6d %8d %6d\n", p.path, len(p.files), p.lines, p.graph.arrows(), len(p.up()))
	}
	for _, p := range packages {
		if missed := p.missed(); all || len(missed) > 0 {
			_, _ = fmt.Fprintf(to, "\n%s\n%s", p.path, p.detail(missed))
		}
	}
	return over, nil
}

// missed says which budgets are missed.
func (p *pkg) missed() (lines []string) {
	if n := len(p.files); n > mostFiles {
		lines = append(lines, fmt.Sprintf("%d files, at most %d", n, mostFiles))
	}
	for _, t := range p.types {
		if t.methods > mostMethods {
			lines = append(lines, fmt.Sprintf("type %s has %d methods, at most %d", t.name, t.methods, mostMethods))
		}
	}
	if up, n := len(p.up()), p.graph.arrows(); float64(up) > mostUp*float64(n) {
		lines = append(lines, fmt.Sprintf("%d of %d arrows point up, at most one in ten", up, n))
	}
	return lines
}

func (p *pkg) up() [][2]int { return p.graph.up(p.order) }

func (p *pkg) detail(missed []string) string {
	var b strings.Builder
	for _, line := range missed {
		fmt.Fprintln(&b, "  MISSED:", line)
	}
	fmt.Fprintf(&b, "  from above: %s\n", strings.Join(p.names(p.order), " "))
	for _, a := range p.up() {
		fmt.Fprintf(&b, "  up: %s → %s for %s\n", p.files[a[0]], p.files[a[1]], strings.Join(p.uses[a], ", "))
	}
	for i, t := range p.types {
		if t.methods > 0 && i < 8 {
			fmt.Fprintf(&b, "  type %s: %d methods\n", t.name, t.methods)
		}
	}
	return b.String()
}

func (p *pkg) names(order []int) (names []string) {
	for _, i := range order {
		names = append(names, strings.TrimSuffix(p.files[i], ".go"))
	}
	return names
}
