// SPDX-License-Identifier: Apache-2.0

package klutch

import "github.com/klutch-go/sdk/internal/version"

// Version returns the version of this module as it was built into the program, such
// as v1.2.0, or v0.0.0 for a build from a working copy.
func Version() string { return version.Get() }
