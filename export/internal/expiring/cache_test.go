// SPDX-License-Identifier: Apache-2.0

package expiring

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Cache[int64]
		var found atomic.Int64
		meanwhile := func() {}
		ask := func() int64 {
			return must(m.Get("a", time.Now().Add(time.Minute), func() (int64, error) { meanwhile(); return found.Add(1), nil }))
		}
		var many sync.WaitGroup
		for range 10 {
			many.Go(func() { ask() })
		}
		many.Wait()
		if got := ask(); got != 1 {
			t.Errorf("found out %d times by many at once", got)
		}
		time.Sleep(time.Minute)
		meanwhile = func() { m.ForgetAll(func(key string) bool { return key == "a" }) }
		if got := ask(); got != 2 {
			t.Errorf("answer %d, want the second, since the first is too old", got)
		}
		meanwhile = func() {}
		if got := ask(); got != 3 {
			t.Errorf("answer %d was forgotten while it was found out", got)
		}
		if _, err := m.Get("b", time.Now().Add(time.Hour), func() (int64, error) { return 0, errors.New("down") }); err == nil || !m.Until("b").IsZero() {
			t.Errorf("error %v is good until %s", err, m.Until("b"))
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
