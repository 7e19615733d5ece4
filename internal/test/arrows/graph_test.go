// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"testing"
)

func graphOf(files int, arrows ...[2]int) graph {
	g := newGraph(files)
	for _, a := range arrows {
		g[a[0]][a[1]] = true
	}
	return g
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		g  graph
		up int
	}{
		"no file":       {graphOf(0), 0},
		"one file":      {graphOf(1), 0},
		"a chain":       {graphOf(4, [2]int{3, 1}, [2]int{1, 0}, [2]int{0, 2}), 0},
		"a diamond":     {graphOf(4, [2]int{3, 1}, [2]int{3, 2}, [2]int{1, 0}, [2]int{2, 0}), 0},
		"a pair":        {graphOf(2, [2]int{0, 1}, [2]int{1, 0}), 1},
		"a ring":        {graphOf(4, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3}, [2]int{3, 0}), 1},
		"two rings":     {graphOf(4, [2]int{0, 1}, [2]int{1, 0}, [2]int{2, 3}, [2]int{3, 2}, [2]int{0, 2}), 2},
		"all use all":   {graphOf(3, [2]int{0, 1}, [2]int{1, 0}, [2]int{0, 2}, [2]int{2, 0}, [2]int{1, 2}, [2]int{2, 1}), 3},
		"one goes back": {graphOf(4, [2]int{0, 1}, [2]int{0, 2}, [2]int{0, 3}, [2]int{1, 2}, [2]int{2, 3}, [2]int{3, 0}), 1},
	} {
		if got := tc.g.up(tc.g.order()); len(got) != tc.up {
			t.Errorf("%s: arrows %v point up, want %d", name, got, tc.up)
		}
	}
}

// TestOrderOfLayers: whatever the files are called, layers are found, and few arrows that were added against
// them cost no more than themselves.
func TestOrderOfLayers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		const files, against = 20, 3
		names, g := r.Perm(files), newGraph(files)
		for i := range files {
			for j := i + 1; j < files; j++ {
				g[names[i]][names[j]] = r.IntN(3) == 0
			}
		}
		if got := g.up(g.order()); len(got) > 0 {
			t.Errorf("seed %d: arrows %v of layers point up", seed, got)
		}
		for range against {
			j := r.IntN(files-1) + 1
			g[names[j]][names[r.IntN(j)]] = true
		}
		order := g.order()
		if got := g.up(order); len(got) > against {
			t.Errorf("seed %d: arrows %v point up, want at most %d", seed, got, against)
		}
		seen := map[int]bool{}
		for _, i := range order {
			seen[i] = true
		}
		if len(seen) != files || len(order) != files {
			t.Errorf("seed %d: order %v is not one of %d files", seed, order, files)
		}
	}
}
