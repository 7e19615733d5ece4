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

// ForTest starts a cluster that is stopped when the test ends. If the test fails, the logs of the cluster are kept and the
// test says where. In short mode the test is skipped.
func ForTest(tb testing.TB, name string) *Cluster {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a real cluster")
	}
	c, err := Start(tb.Context(), Options{Name: name, Log: os.Stderr})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(c.keepLogs())
		}
		if err := c.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return c
}
