// SPDX-License-Identifier: Apache-2.0

package main

import "context"

// writes counts, at the API servers, what each change costs. What is written beside
// the objects, such as leases and heartbeats, does not depend on their number and is
// not counted. The part settled counts those of idleness and of a restart.
func writes(ctx context.Context, c contest) (figures []figure, err error) {
	b := c.batch("counted", widgets)
	b.size = min(c.objects, 200)
	if err := b.warm(ctx); err != nil {
		return nil, err
	}
	for _, d := range []struct {
		name  string
		phase phase
		goal  goal
	}{
		{"for a first sync", creating, exactly(2)},
		{"for a status change", stating, exactly(1)},
		{"for a spec change", updating, exactly(1)},
		{"for a deletion", deleting, goal{}},
	} {
		n, err := c.writesOf(ctx, func() error { _, err := b.all(ctx, d.phase); return err })
		if err != nil {
			return figures, err
		}
		figures = append(figures, figure{d.name, float64(n) / float64(b.size), d.goal})
	}
	return figures, nil
}

// writesOf is how many writes of the contestant something has brought about.
func (c contest) writesOf(ctx context.Context, do func() error) (int, error) {
	before, err := c.others(ctx)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := c.others(ctx)
	return after - before, err
}
