// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func seen(kind, name, phase string) event {
	var e event
	e.Type, e.Object.Metadata.Name, e.Object.Metadata.Namespace, e.Object.Status.Phase = kind, name, "here", phase
	return e
}

func TestTally(t *testing.T) {
	for name, tc := range map[string]struct {
		events []event
		want   []string
	}{
		"nothing":           {nil, nil},
		"each object once":  {[]event{seen("ADDED", "a-0", "Running"), seen("MODIFIED", "a-0", "Running")}, []string{"a-0"}},
		"the name itself":   {[]event{seen("ADDED", "a", "Running")}, []string{"a"}},
		"other names":       {[]event{seen("ADDED", "ab-0", "Running"), seen("ADDED", "b-0", "Running")}, nil},
		"not yet":           {[]event{seen("ADDED", "a-0", ""), seen("DELETED", "a-1", "Running")}, nil},
		"none after enough": {[]event{seen("ADDED", "a-0", "Running"), seen("ADDED", "a-1", "Running"), seen("ADDED", "a-2", "Running")}, []string{"a-0", "a-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObserver()
			tally := o.expect("a", 2, running)
			for _, e := range tc.events {
				o.see(e)
			}
			var got []string
			for _, name := range []string{"a", "a-0", "a-1", "a-2", "ab-0", "b-0"} {
				if _, ok := tally.seen[name]; ok {
					got = append(got, name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if enough := len(tc.want) == 2; enough != (len(o.tallies) == 0) {
				t.Errorf("%d tallies go on, with %d of 2 arrived", len(o.tallies), len(tc.want))
			}
		})
	}
}

func TestAwait(t *testing.T) {
	enough := errors.New("enough")
	for name, tc := range map[string]struct {
		want    int
		arrive  []time.Duration // between events
		cancel  time.Duration
		ok      bool
		seconds float64
	}{
		"nothing expected":    {want: 0, ok: true},
		"all arrive":          {want: 2, arrive: []time.Duration{time.Second, time.Second}, ok: true, seconds: 2},
		"slowly":              {want: 2, arrive: []time.Duration{50 * time.Second, 50 * time.Second}, ok: true, seconds: 100},
		"none":                {want: 1, seconds: 120},
		"one is missing":      {want: 2, arrive: []time.Duration{time.Second}, seconds: 120},
		"no one waits longer": {want: 1, cancel: time.Second, seconds: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tc.cancel > 0 {
					time.AfterFunc(tc.cancel, func() { cancel(enough) })
				}
				o, begin := newObserver(), time.Now()
				tally := o.expect("a", tc.want, exists)
				go func() {
					for i, pause := range tc.arrive {
						time.Sleep(pause)
						o.see(seen("ADDED", []string{"a-0", "a-1"}[i], ""))
					}
				}()
				if err := tally.await(ctx); (err == nil) != tc.ok {
					t.Errorf("error %v", err)
				}
				if got := time.Since(begin).Seconds(); got != tc.seconds {
					t.Errorf("after %v s, want %v", got, tc.seconds)
				}
				synctest.Wait()
			})
		})
	}
}
