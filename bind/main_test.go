// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"flag"
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestMain takes away what client-go does after an error that it only logs: it sleeps
// until a millisecond after the last one, by a clock that all bubbles of
// testing/synctest share, and so for years. Tests on real clusters mostly wait for these, so that
// more of them run at once than there are cores; -parallel says otherwise.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	_ = flag.Set("test.parallel", "4")
	os.Exit(m.Run())
}
