// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// large is how much memory a byte of an object takes, of objects with long lists whose items are
// owned one by one. It takes some eight minutes on a busy machine: API servers need four seconds for an object.
func large(ctx context.Context, c contest) ([]figure, error) {
	b := c.batch("large", gadgets)
	b.size = c.larges
	if err := b.warm(ctx); err != nil {
		return nil, err
	}
	wait(ctx, 2*time.Second)
	empty := memoryOf(c.process)
	const length = 6_000 // of each list, in 0.8 MB; with the account of who owns it an object on the control plane is near etcd's limit
	items := make([]string, length)
	for i := range items {
		items[i] = fmt.Sprintf(`{"name":"item-%04d","value":"%0103d"}`, i, i)
	}
	tail := `"spec":{"size":"small","items":[` + strings.Join(items, ",") + `]}}`
	big := phase{"creates", func(b batch, ctx context.Context, i int) error {
		return b.app.create(ctx, path(b.resource, b.namespace(i)), fmt.Appendf(nil,
			`{"apiVersion":"%s/%s","kind":"%s","metadata":{"name":"%s"},%s`, group, version, kindFor(b.resource), b.object(i), tail))
	}, inControl, exists}
	for i := range b.size { // one at a time: API servers take seconds for many at once
		if _, err := b.one(ctx, big, i); err != nil {
			return nil, err
		}
	}
	if err := c.tidied(ctx); err != nil {
		return nil, err
	}
	rest := memoryOf(c.process).minus(empty)
	bytes := float64(len(tail)) * float64(b.size) / 1024
	return []figure{
		{"an object, MB", float64(len(tail)) / (1 << 20), goal{}},
		{"peak, resident bytes/byte", rest.peak / bytes, atMost(5)},
		{"at rest, resident bytes/byte", rest.resident / bytes, atMost(5)},
		{"at rest, live heap bytes/byte", rest.live / bytes, goal{}},
	}, nil
}

// tidied waits until the Go runtime has given back what the load took. That is after two collections, since a
// sync.Pool keeps what it has over one. At rest it would take them four minutes; small objects that come and go
// hasten them.
func (c contest) tidied(ctx context.Context) error {
	for before := collections(c.process); collections(c.process) < before+2; {
		if err := c.batch("small", widgets).warm(ctx); err != nil {
			return err
		}
	}
	wait(ctx, c.idle/8) // for pages to go back to the operating system
	return context.Cause(ctx)
}
