// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tinySources are those of a program that builds in a moment.
func tinySources() map[string]string {
	return map[string]string{
		"go.mod":       "module tiny\n\ngo 1.26.0\n\nreplace (\n\tk8s.io/kubernetes v1.2.3 => ./none\n)\n",
		"main.go":      "package main\n\nfunc main() { println(\"tiny\") }\n",
		"main_test.go": "package main\n",
		"README.md":    "Tiny.\n",
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBuildIsDoneOnce(t *testing.T) {
	t.Parallel()
	sources, cache := t.TempDir(), t.TempDir()
	write(t, sources, tinySources())

	const callers = 6
	var logs [callers]bytes.Buffer
	var bins [callers]string
	var errs [callers]error
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { bins[i], errs[i] = build(t.Context(), sources, cache, &logs[i]) })
	}
	wg.Wait()

	builds := 0
	for i := range callers {
		builds += strings.Count(logs[i].String(), "Compiling")
		if errs[i] != nil || bins[i] != bins[0] {
			t.Errorf("caller %d got %q, %v; caller 0 got %q", i, bins[i], errs[i], bins[0])
		}
	}
	if builds != 1 {
		t.Errorf("%d builds for %d callers, want 1", builds, callers)
	}
	if !isFile(bins[0]) {
		t.Errorf("no program at %s", bins[0])
	}
}

func TestBuildFails(t *testing.T) {
	t.Parallel()
	sources, cache := t.TempDir(), t.TempDir()
	write(t, sources, tinySources())
	write(t, sources, map[string]string{"main.go": "package main\n\nfunc main() { missing() }\n"})
	var log bytes.Buffer
	_, err := build(t.Context(), sources, cache, &log)
	if err == nil || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("error does not say what the compiler said: %v", err)
	}
	write(t, sources, tinySources())
	if bin, err := build(t.Context(), sources, cache, &log); err != nil || !isFile(bin) {
		t.Errorf("build of corrected sources: %q, %v", bin, err)
	}
}

func TestLockWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("caller is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := lock(ctx, path); !errors.Is(err, gone) {
		t.Errorf("second lock: %v, want %v", err, gone)
	}
	unlock()
	unlock, err = lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestHashSources(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change map[string]string
		same   bool
	}{
		"nothing":      {same: true},
		"test":         {map[string]string{"main_test.go": "package main // tests\n"}, true},
		"text":         {map[string]string{"README.md": "Small.\n"}, true},
		"code":         {map[string]string{"main.go": "package main\n\nfunc main() {}\n"}, false},
		"new code":     {map[string]string{"more.go": "package main\n"}, false},
		"requirements": {map[string]string{"go.mod": "module tiny\n"}, false},
		"checksums":    {map[string]string{"go.sum": "tiny v1.0.0 h1:\n"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, tinySources())
			before, err := hashSources(dir)
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, tc.change)
			after, err := hashSources(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := before == after; got != tc.same {
				t.Errorf("hashes %s and %s: same is %t, want %t", before, after, got, tc.same)
			}
		})
	}
}

func TestSources(t *testing.T) {
	t.Parallel()
	dir, err := findSources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := hashSources(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := hashSources(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("hash of the same sources differs:\n%s", diff)
	}
	version, err := kubernetesVersion(dir)
	if err != nil || !strings.HasPrefix(version, "v1.") {
		t.Errorf("version of Kubernetes: %q, %v", version, err)
	}
}

func TestModuleListFindsSources(t *testing.T) {
	t.Parallel()
	dir, err := listedSources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !isFile(filepath.Join(dir, "main.go")) {
		t.Errorf("no program in %s", dir)
	}
}
