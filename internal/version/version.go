// SPDX-License-Identifier: Apache-2.0

// Package version tells which version of this module a program was built from.
package version

import (
	"runtime/debug"
	"strings"
)

const (
	module = "github.com/klutch-go/sdk"
	none   = "v0.0.0" // of a build from a working copy
)

// Get returns the version of this module, such as v1.2.0, or v0.0.0 for a build from
// a working copy.
func Get() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return none
	}
	return of(info)
}

// Commit returns the revision that the program was built from; empty if unknown.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return commitOf(info)
}

func commitOf(info *debug.BuildInfo) string {
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// Text is the version for people, with the commit of a build from a working copy.
func Text() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return none
	}
	return textOf(info)
}

func textOf(info *debug.BuildInfo) string {
	version, commit := of(info), commitOf(info)
	if commit == "" || version != none {
		return version
	}
	return none + " (commit " + commit[:min(len(commit), 12)] + ")"
}

func of(info *debug.BuildInfo) string {
	found := info.Main.Version
	for _, dep := range info.Deps {
		if dep.Path == module {
			found = dep.Version
		}
	}
	if !strings.HasPrefix(found, "v") || strings.HasPrefix(found, "v0.0.0-") {
		return none
	}
	found, _, _ = strings.Cut(found, "+")
	return found
}
