// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"slices"
)

// A graph has the arrows between the files of a package: graph[a][b] if file a uses what file b declares.
type graph [][]bool

func newGraph(files int) graph {
	g := make(graph, files)
	for i := range g {
		g[i] = make([]bool, files)
	}
	return g
}

// arrows is how many there are.
func (g graph) arrows() (n int) {
	for _, row := range g {
		for _, is := range row {
			if is {
				n++
			}
		}
	}
	return n
}

// up lists the arrows that point to an earlier file of an order.
func (g graph) up(order []int) (arrows [][2]int) {
	for i, later := range order {
		for _, earlier := range order[:i] {
			if g[later][earlier] {
				arrows = append(arrows, [2]int{later, earlier})
			}
		}
	}
	return arrows
}

// order puts files one below the other so that few arrows point up: files that no other uses come first,
// files that use no other last, and of the others the one that uses most and is used least; then each file
// goes where it does best until none can be moved to advantage. The best of some other beginnings, the same
// at each run, is taken where it is better.
func (g graph) order() []int {
	best := g.settled(g.peeled())
	for seed := range uint64(40) {
		if other := g.settled(rand.New(rand.NewPCG(seed, 0)).Perm(len(g))); len(g.up(other)) < len(g.up(best)) {
			best = other
		}
	}
	return best
}

func (g graph) settled(order []int) []int {
	for g.improve(order) {
	}
	return order
}

// peeled takes the files away one by one, from above and from below (Eades, Lin and Smyth).
func (g graph) peeled() []int {
	var left, above, below []int
	for i := range g {
		left = append(left, i)
	}
	for len(left) > 0 {
		best, out, in := left[0], 0, 0
		for k, i := range left {
			o, n := g.degrees(i, left)
			if k == 0 || rank(o, n) > rank(out, in) {
				best, out, in = i, o, n
			}
		}
		if left = slices.DeleteFunc(left, func(i int) bool { return i == best }); out == 0 && in > 0 {
			below = append(below, best)
		} else {
			above = append(above, best)
		}
	}
	slices.Reverse(below)
	return append(above, below...)
}

// degrees counts the arrows from and to a file among some.
func (g graph) degrees(i int, among []int) (out, in int) {
	for _, j := range among {
		if g[i][j] {
			out++
		}
		if g[j][i] {
			in++
		}
	}
	return out, in
}

const first = 1 << 20 // in rank

// rank prefers a file that no other uses, then one that uses no other, then the one with most arrows out and fewest in.
func rank(out, in int) int {
	switch {
	case in == 0:
		return 2 * first
	case out == 0:
		return first
	default:
		return out - in
	}
}

// improve moves the first file that has a better place to its best one.
func (g graph) improve(order []int) bool {
	for from := range order {
		if to, gain := g.bestPlace(order, from); gain > 0 {
			file := order[from]
			rest := slices.Delete(slices.Clone(order), from, from+1)
			copy(order, slices.Insert(rest, to, file))
			return true
		}
	}
	return false
}

// bestPlace finds where a file should stand in an order, and how many arrows fewer point up then.
func (g graph) bestPlace(order []int, from int) (to, gain int) {
	for _, step := range []int{-1, 1} {
		sum := 0
		for at := from + step; at >= 0 && at < len(order); at += step {
			if sum += g.passed(order[from], order[at], step); sum > gain {
				to, gain = at, sum
			}
		}
	}
	return to, gain
}

// passed is how many arrows fewer point up when a file passes its neighbour upwards (-1) or downwards (1).
func (g graph) passed(file, neighbour, step int) int {
	gain := 0
	if g[neighbour][file] {
		gain++
	}
	if g[file][neighbour] {
		gain--
	}
	return gain * step
}
