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
		for _, p := range []phase{creating, stating, updating, deleting} {
			took, err := b.all(ctx, p)
			if err != nil {
				return figures, err
			}
			name := fmt.Sprintf("%s/s, %s", p.name, plural(namespaces, "namespace"))
			figures = append(figures, figure{name, float64(b.size) / took.Seconds(), ofIdeal("≥", 0.8)})
		}
	}
	return figures, nil
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
