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

// ForTest returns a cluster of the test's own until it ends: one that an earlier test of this process has left, taken back
// to what it was when it was new, or else a new one. A cluster that the test has stopped or restarted is not left to
// others. If the test fails, the logs of the cluster are kept and the test says where. In short mode the test is skipped.
func ForTest(tb testing.TB, name string) *Cluster {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a real cluster")
	}
	c := takeIdle(tb.Context(), name)
	if c == nil {
		c = start(tb, name)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(c.keepLogs())
		} else if c.leave() {
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
	if err := c.remember(tb.Context()); err != nil {
		tb.Logf("no other test will use cluster %s: %v", name, err)
	}
	return c
}
