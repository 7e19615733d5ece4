// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"runtime/debug"
	"strings"
)

// Version returns the version of this module as it was built into the program, such
// as v1.2.0, or v0.0.0 for a build from a working copy.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "v0.0.0"
	}
	return version(info)
}

const module = "github.com/klutch-go/sdk"

func version(info *debug.BuildInfo) string {
	found := info.Main.Version
	for _, dep := range info.Deps {
		if dep.Path == module {
			found = dep.Version
		}
	}
	if !strings.HasPrefix(found, "v") || strings.HasPrefix(found, "v0.0.0-") {
		return "v0.0.0"
	}
	found, _, _ = strings.Cut(found, "+")
	return found
}
