// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"
)

// until looks at an object, soon again and then every second, until done returns true
// or an error, or ctx ends. A nil object is one that is not there.
func until[T any](ctx context.Context, r dynamic.ResourceInterface, name string, done func(*T) (bool, error)) error {
	for d := 50 * time.Millisecond; ; d = min(2*d, time.Second) {
		o, err := get[T](ctx, r, name)
		if err == nil {
			var end bool
			if end, err = done(o); end || err != nil {
				return err
			}
		} else if ctx.Err() == nil && !isNoAnswer(err) {
			return err
		}
		if end := pause(ctx, d); end != nil {
			return fmt.Errorf("wait for %s: %w", name, end)
		}
	}
}

// retry calls fn for some ten seconds while again says so.
func retry(ctx context.Context, again func(error) bool, fn func() error) error {
	for range 20 {
		err := fn()
		if err == nil || !again(err) {
			return err
		}
		if end := pause(ctx, 500*time.Millisecond); end != nil {
			return fmt.Errorf("%w: %w", err, end)
		}
	}
	return fn()
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A progress is told, a line each, what has been done and what is waited for. Nil is
// nobody.
type progress func(string)

func (p progress) say(format string, args ...any) {
	if p != nil {
		p(fmt.Sprintf(format, args...))
	}
}

// changes returns what says a line only if it is not the one before.
func (p progress) changes() func(line string) {
	said := ""
	return func(line string) {
		if line != said {
			said = line
			p.say("%s", line)
		}
	}
}
