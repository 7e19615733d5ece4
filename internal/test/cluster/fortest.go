// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"os"
	"testing"
)

// Long skips a test that takes minutes unless KLUTCH_TEST_LONG is set, as make ci and
// make test LONG=1 set it.
func Long(tb testing.TB) {
	tb.Helper()
	if testing.Short() || os.Getenv("KLUTCH_TEST_LONG") == "" {
		tb.Skip("takes minutes: make test LONG=1 runs it")
	}
}

// ForTest returns a new cluster that is the test's own until it ends. If the test fails, the logs of the
// cluster are kept and the test says where. In short mode the test is skipped.
func ForTest(tb testing.TB, name string) *Cluster {
	tb.Helper()
	return forTest(tb, func() *Cluster { return start(tb, name) }, func(*Cluster) bool { return false })
}

// Reused is ForTest for tests that ask little of Kubernetes' controllers, which keep in memory what they have seen:
// it may return a cluster that an earlier test of this process has left, taken back to what it was when it was new. A
// cluster that the test has stopped or restarted is not left to others.
func Reused(tb testing.TB, name string) *Cluster {
	tb.Helper()
	return forTest(tb, func() *Cluster {
		if c := takeIdle(tb.Context(), name); c != nil {
			return c
		}
		c := start(tb, name)
		if err := c.remember(tb.Context()); err != nil {
			tb.Logf("no other test will use cluster %s: %v", name, err)
		}
		return c
	}, (*Cluster).leave)
}

func forTest(tb testing.TB, take func() *Cluster, leave func(*Cluster) bool) *Cluster {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a real cluster")
	}
	c := take()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(c.keepLogs())
		} else if leave(c) {
			return
		}
		if err := c.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func start(tb testing.TB, name string) *Cluster {
	tb.Helper()
	c, err := Start(tb.Context(), Options{Name: name, Log: os.Stderr})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
