// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// latency sends objects through one at a time while nothing else happens.
func latency(ctx context.Context, c contest) ([]figure, error) {
	b := c.batch("single", widgets)
	b.size = c.singles
	if err := b.warm(ctx); err != nil {
		return nil, err
	}
	took, err := b.singles(ctx, time.Minute)
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, d := range []struct {
		name  string
		phase phase
	}{{"new object up", creating}, {"spec change up", updating}, {"status down", stating}} {
		times := took[d.phase.name]
		figures = append(figures,
			figure{d.name + ", p50 ms", percentile(times, 50), ofIdeal("≤", 1.2).alone(1.15)},
			figure{d.name + ", p99 ms", percentile(times, 99), ofIdeal("≤", 3)})
	}
	return figures, b.clear(ctx)
}

// singles takes one object after the other through its life, within a time limit, and
// returns how many milliseconds each phase has taken. The objects are left.
func (b batch) singles(ctx context.Context, limit time.Duration) (map[string][]float64, error) {
	times := map[string][]float64{}
	begin := time.Now()
	for i := 0; i < b.size && time.Since(begin) < limit; i++ {
		for _, p := range []phase{creating, updating, stating} {
			took, err := b.one(ctx, p, i)
			if err != nil {
				return nil, err
			}
			times[p.name] = append(times[p.name], milliseconds(took))
		}
	}
	return times, nil
}
