// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/sync/internal/fence"
)

// One look serves all who asked before it began, and no one who asked later.
func TestConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		looks := 0
		fail := errors.New("unreachable")
		look := func(context.Context) (bool, error) {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if looks++; looks == 2 {
				return false, fail
			}
			return false, nil
		}
		f := fence.New(fence.Cluster{}, fence.Cluster{}, look, func() string { return "7" })
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, _ = f.Confirm(t.Context(), f.Now(), "")
			})
			synctest.Wait()
		}
		time.Sleep(500 * time.Millisecond)
		wg.Go(func() { _, _ = f.Confirm(t.Context(), f.Now(), "") }) // shares the second with the nine
		wg.Wait()
		for _, version := range []string{"7", "6", "8", "8"} {
			_, _ = f.Confirm(t.Context(), f.Now(), "7") // the second one failed, so that there is a third
			_, _ = f.Confirm(t.Context(), f.Now(), version)
		}
		if diff := cmp.Diff(5, looks); diff != "" {
			t.Errorf("looks (-want +got):\n%s", diff)
		}
	})
}

func is(uid types.UID) func(context.Context) (types.UID, error) {
	return func(context.Context) (types.UID, error) { return uid, nil }
}

// Another cluster is told apart, unless it could not be read before; that the resource is
// on its way out is told with it.
func TestReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		source, target fence.Cluster
		other          string
	}{
		"the same":       {fence.Cluster{Name: "source", UID: "a", Read: is("a")}, fence.Cluster{Name: "target", UID: "b", Read: is("b")}, ""},
		"another source": {fence.Cluster{Name: "source", UID: "a", Read: is("c")}, fence.Cluster{Name: "target", UID: "b", Read: is("b")}, "source"},
		"another target": {fence.Cluster{Name: "source", UID: "a", Read: is("a")}, fence.Cluster{Name: "target", UID: "b", Read: is("c")}, "target"},
		"not readable":   {fence.Cluster{Name: "source", Read: is("a")}, fence.Cluster{Name: "target", Read: is("b")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := fence.New(test.source, test.target, func(context.Context) (bool, error) { return true, nil }, func() string { return "" })
			vanishing, err := f.Confirm(t.Context(), f.Now(), "")
			var replaced *fence.ReplacedError
			if got := errors.As(err, &replaced); got != (test.other != "") || got && replaced.Cluster != test.other || !vanishing {
				t.Errorf("Confirm = %t, %v", vanishing, err)
			}
		})
	}
}

// A store that goes back is noticed, each by itself, for as long as it is behind.
func TestRead(t *testing.T) {
	f := fence.New(fence.Cluster{}, fence.Cluster{}, nil, nil)
	for i, c := range []struct {
		store, version string
		behind         bool
	}{
		{"one", "7", false}, {"two", "5", false}, {"one", "", false}, {"one", "10", false}, {"one", "9", true}, {"one", "9", true}, {"two", "6", false}, {"one", "10", false},
	} {
		if got := f.Read(c.store, func() string { return c.version }); got != c.behind {
			t.Errorf("%d: %s at %q is behind: %t", i, c.store, c.version, got)
		}
	}
}
