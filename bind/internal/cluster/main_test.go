// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestMain takes away what client-go does after an error that it only logs: it sleeps
// until a millisecond after the last one, by a clock that all bubbles of
// testing/synctest share, and so for years.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}
