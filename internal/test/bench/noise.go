// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	noiseNamespace = "noise"
	noisyWriters   = 8
	noisyObjects   = 500
	noiseTime      = 8 * time.Second // at most, for each kind
)

// noises are what goes on beside the quiet tenant, whose objects are gadgets. What an
// API does that is not bound is what the machine and the API servers lose by
// themselves.
var noises = []struct{ name, resource string }{
	{"an unbound API", gizmos}, {"another namespace", gadgets}, {"another binding", widgets},
}

// noise is the latency of a quiet tenant alone, and while a noisy one creates and
// changes objects as fast as it can.
func noise(ctx context.Context, c contest) (figures []figure, err error) {
	quiet := c.batch("quiet", gadgets)
	quiet.size = c.singles
	if err := quiet.warm(ctx); err != nil {
		return nil, err
	}
	alone, err := quiet.p99(ctx)
	if err != nil {
		return nil, err
	}
	figures = append(figures, figure{"up alone, p99 ms", alone.up, goal{}}, figure{"down alone, p99 ms", alone.down, goal{}})
	for _, n := range noises {
		noisy := c.batch("noise", n.resource)
		noisy.size, noisy.namespaces, noisy.in = min(c.objects, noisyObjects), 1, noiseNamespace
		p99, rate, err := c.beside(ctx, quiet, noisy)
		if err != nil {
			return figures, fmt.Errorf("beside %s: %w", n.name, err)
		}
		figures = append(figures,
			figure{"up beside " + n.name + ", p99 × alone", p99.up / alone.up, atMost(1.2)},
			figure{"down beside " + n.name + ", p99 × alone", p99.down / alone.down, atMost(1.2)},
			figure{"the noise of " + n.name + ", writes/s", rate, goal{}})
	}
	return figures, nil
}

// ways are milliseconds, by direction.
type ways struct{ up, down float64 }

// p99 sends the quiet tenant's objects through and removes them.
func (b batch) p99(ctx context.Context) (ways, error) {
	took, err := b.singles(ctx, noiseTime)
	if err != nil {
		return ways{}, err
	}
	return ways{percentile(took[creating.name], 99), percentile(took[stating.name], 99)}, b.clear(ctx)
}

// beside measures quiet while noisy goes on, and returns how many writes a second the
// noise was.
func (c contest) beside(ctx context.Context, quiet, noisy batch) (p99 ways, rate float64, err error) {
	loud, hush := context.WithCancel(ctx)
	defer hush()
	begin := time.Now()
	var wg sync.WaitGroup
	var written int64
	var failed error
	wg.Go(func() { written, failed = noisy.shout(loud) })
	wait(ctx, time.Second) // until the noise is at its loudest
	p99, err = quiet.p99(ctx)
	hush()
	wg.Wait()
	rate = float64(written) / time.Since(begin).Seconds()
	return p99, rate, errors.Join(err, failed, noisy.clear(ctx))
}

// shout writes as fast as it can until ctx is done: it creates the objects of b and
// then changes one after the other, round and round. What it has begun it ends.
func (b batch) shout(ctx context.Context) (written int64, err error) {
	loud, hush := context.WithCancelCause(ctx)
	defer hush(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range noisyWriters {
		wg.Go(func() {
			for loud.Err() == nil {
				if err := b.word(context.WithoutCancel(ctx), int(next.Add(1))-1); err != nil {
					hush(err)
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return next.Load(), nil
	}
	return next.Load(), context.Cause(loud)
}

func (b batch) word(ctx context.Context, n int) error {
	round, i := n/b.size, n%b.size
	if round == 0 {
		return b.create(ctx, i)
	}
	return b.resize(ctx, i, []string{"small", "big"}[round%2])
}
