// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		name, want string
		info       debug.BuildInfo
	}{
		{"a dependency", "v1.2.0", debug.BuildInfo{Main: debug.Module{Path: "example.org/x", Version: "v9.0.0"}, Deps: []*debug.Module{{Path: module, Version: "v1.2.0"}}}},
		{"with changes", "v1.3.0", debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.3.0+dirty"}}},
		{"a working copy", "v0.0.0", debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}},
		{"between versions", "v0.0.0", debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.0.0-20260101000000-abcdefabcdef"}}},
	} {
		if got := of(&c.info); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A test is built from a working copy, or from a version that has been released.
func TestGet(t *testing.T) {
	if got := Get(); !strings.HasPrefix(got, "v") {
		t.Errorf("Get() = %q", got)
	}
}

// A build from a checkout names its commit; that of a version needs none.
func TestTextOf(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	vcs := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: commit}}
	for _, c := range []struct {
		name, want, commit string
		info               debug.BuildInfo
	}{
		{"a checkout", "v0.0.0 (commit 0123456789ab)", commit, debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.0.0-20260101000000-0123456789ab"}, Settings: vcs}},
		{"a checkout of a version", "v1.3.0", commit, debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.3.0"}, Settings: vcs}},
		{"a short commit", "v0.0.0 (commit 0123)", "0123", debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123"}}}},
		{"no checkout", "v0.0.0", "", debug.BuildInfo{}},
	} {
		if text, got := textOf(&c.info), commitOf(&c.info); text != c.want || got != c.commit {
			t.Errorf("%s: %q, %q, want %q, %q", c.name, text, got, c.want, c.commit)
		}
	}
}
