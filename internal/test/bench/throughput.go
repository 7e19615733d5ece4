// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
)

// throughput does the same to many objects at once, until it has arrived for all of
// them: in one namespace and spread over many.
func throughput(ctx context.Context, c contest) (figures []figure, err error) {
	for _, namespaces := range c.spreads() {
		b := c.batch(fmt.Sprintf("burst%d", namespaces), widgets)
		b.size, b.namespaces = c.objects, namespaces
		if err := b.warm(ctx); err != nil {
			return figures, err
		}
		before := cpuOf(c.process)
		for _, p := range []struct {
			phase
			goal goal
		}{
			{creating, ofIdeal("≥", 0.85).alone(0.95)},
			{stating, ofIdeal("≥", 0.8).alone(0.9)},
			{updating, ofIdeal("≥", 0.85).alone(0.95)},
			{deleting, ofIdeal("≥", 0.95).alone(0.95)},
		} {
			took, err := b.all(ctx, p.phase)
			if err != nil {
				return figures, err
			}
			name := fmt.Sprintf("%s/s, %s", p.name, plural(namespaces, "namespace"))
			figures = append(figures, figure{name, float64(b.size) / took.Seconds(), p.goal})
		}
		used := cpuOf(c.process) - before
		name := fmt.Sprintf("CPU ms/object, %s", plural(namespaces, "namespace"))
		figures = append(figures, figure{name, milliseconds(used) / float64(b.size), ofIdeal("≤", 1.4).alone(1.3)})
	}
	return figures, nil
}

// newNamespaces is how long the first objects of namespaces take that are new to everybody.
func newNamespaces(ctx context.Context, c contest) ([]figure, error) {
	b := c.batch("first", widgets)
	b.among, b.size = b.name, b.namespaces
	var names []string
	for i := range b.namespaces {
		names = append(names, b.namespace(i))
	}
	if err := c.makeNamespaces(ctx, names...); err != nil {
		return nil, err
	}
	took, err := b.all(ctx, creating)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("first objects of %s, s", plural(b.namespaces, "new namespace"))
	return []figure{{name, took.Seconds(), atMost(0.5)}}, b.clear(ctx)
}

// spreads are the numbers of namespaces to measure.
func (c contest) spreads() []int {
	if c.who == limited || c.namespaces == 1 {
		return []int{1}
	}
	return []int{1, c.namespaces}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
