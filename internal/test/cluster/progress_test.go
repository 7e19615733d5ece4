// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestState(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		done, total int
		elapsed     time.Duration
		want        string
	}{
		{1, 1967, 100 * time.Millisecond, "1 of 1 967 packages, about 3 minutes left"},
		{812, 1967, 127 * time.Second, "812 of 1 967 packages, about 3 minutes left"},
		{1500, 1967, 200 * time.Second, "1 500 of 1 967 packages, about a minute left"},
		{1900, 1967, 300 * time.Second, "1 900 of 1 967 packages, less than a minute left"},
		{1967, 1967, 310 * time.Second, "1 967 of 1 967 packages, linking"},
		{0, 0, 0, "0 of 0 packages, linking"},
	} {
		if got := state(tc.done, tc.total, tc.elapsed); got != tc.want {
			t.Errorf("state of %d after %s: %q, want %q", tc.done, tc.elapsed, got, tc.want)
		}
	}
}

func TestAnnouncement(t *testing.T) {
	t.Parallel()
	for cores, want := range map[int]string{
		1:  "Compiling Kubernetes' servers, once for this machine: 2 400 packages, about 10 minutes on 1 core.",
		2:  "Compiling Kubernetes' servers, once for this machine: 2 400 packages, about 5 minutes on 2 cores.",
		16: "Compiling Kubernetes' servers, once for this machine: 2 400 packages, less than a minute on 16 cores.",
	} {
		if got := announcement(2400, cores); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestProgress: the output of a build, in pieces that end in the midst of a line, as a file and as a
// terminal show it.
func TestProgress(t *testing.T) {
	t.Parallel()
	const build = "internal/cpu\nk8s.io/api/core/v1\n# k8s.io/broken\n./a.go:1:2: undefined: b\nk8s.io/client-go\ntiny\n"
	for terminal, want := range map[bool]string{
		false: "1 of 4 packages, about 6 minutes left\n2 of 4 packages, about 2 minutes left\n3 of 4 packages, less than a minute left\n4 of 4 packages, linking\n",
		true: "\r1 of 4 packages, about 6 minutes left\x1b[K\r2 of 4 packages, about 2 minutes left\x1b[K" +
			"\r3 of 4 packages, less than a minute left\x1b[K\r4 of 4 packages, linking\x1b[K\n",
	} {
		var log bytes.Buffer
		p := &progress{to: &log, terminal: terminal, total: 4, elapsed: func() time.Duration { return 2 * time.Minute }}
		for text := build; text != ""; {
			n := min(7, len(text))
			if _, err := p.Write([]byte(text[:n])); err != nil {
				t.Fatal(err)
			}
			text = text[n:]
		}
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Errorf("terminal %t (-want +got):\n%s", terminal, diff)
		}
		if got, want := p.other.String(), "# k8s.io/broken\n./a.go:1:2: undefined: b\n"; got != want {
			t.Errorf("messages of the compiler are %q, want %q", got, want)
		}
	}
}

// TestProgressIsSparse: a build of thousands of packages fills no log.
func TestProgressIsSparse(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := &progress{to: &log, total: 1967, elapsed: func() time.Duration { return time.Minute }}
	for range p.total {
		_, _ = p.Write([]byte("k8s.io/api\n"))
	}
	if lines := strings.Count(log.String(), "\n"); lines != 20 {
		t.Errorf("%d lines, want 20", lines)
	}
}
