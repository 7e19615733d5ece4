// SPDX-License-Identifier: Apache-2.0

package export

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests run at once than there are cores: those on real clusters mostly wait for
// these. -parallel says otherwise.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4")
	os.Exit(m.Run())
}
