// SPDX-License-Identifier: Apache-2.0

package group

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRun(t *testing.T) {
	broken, late := errors.New("broken"), errors.New("late")
	ends := func(after time.Duration, err error) func(context.Context) error {
		return func(context.Context) error { time.Sleep(after); return err }
	}
	cancelled := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, tc := range map[string]struct {
		parts []func(context.Context) error
		want  []error
		after time.Duration
	}{
		"until the first one ends": {[]func(context.Context) error{Idle, cancelled, ends(time.Second, nil)}, nil, time.Second},
		"one fails":                {[]func(context.Context) error{cancelled, ends(time.Second, broken)}, []error{broken}, time.Second},
		"others end late":          {[]func(context.Context) error{ends(time.Second, broken), ends(time.Minute, late)}, []error{broken, late}, time.Minute},
		"it is to end":             {[]func(context.Context) error{Idle, cancelled}, nil, time.Hour},
		"it fails to end":          {[]func(context.Context) error{Idle, ends(2*time.Hour, late)}, []error{late}, 2 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			begin := time.Now()
			err := Run(ctx, tc.parts...)
			if took := time.Since(begin); took != tc.after || (err == nil) != (tc.want == nil) {
				t.Errorf("%s: %v after %s, want %v after %s", name, err, took, tc.want, tc.after)
			}
			for _, want := range tc.want {
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			}
		})
	}
}
