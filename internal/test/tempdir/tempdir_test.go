// SPDX-License-Identifier: Apache-2.0

//go:build unix

package tempdir

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const helper = "KLUTCH_TEMPDIR_HELPER"

// TestHelper is the process that TestKilled kills.
func TestHelper(*testing.T) {
	if os.Getenv(helper) == "" {
		return
	}
	dir, _, err := Make("helper")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "file"), []byte("much"), 0o600)
	}
	fmt.Println("made", dir, err)
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // until it is killed
}

func wantThere(t *testing.T, dir string, want bool) {
	t.Helper()
	if _, err := os.Lstat(dir); (err == nil) != want || err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v, want it there: %t", dir, err, want)
	}
}

// What a process has made stays while the process lives, and goes with the next call after it
// was killed.
func TestKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), helper+"=1")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 3 || words[0] != "made" || words[2] != "<nil>" {
		t.Fatalf("the process says %q, %v", line, err)
	}
	dir := words[1]
	mine := ForTest(t, "mine")
	wantThere(t, dir, true)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	wantThere(t, dir, true)
	ForTest(t, "next")
	wantThere(t, dir, false)
	wantThere(t, mine, true)
}

// The descriptor of a directory that was removed is soon another file's, which a second remove leaves alone.
func TestRemovedTwice(t *testing.T) {
	_, remove, err := Make("twice")
	if err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	var files []*os.File // one of them has the descriptor
	for range 20 {
		f, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Of many that make and remove directories at once, each has its own until it removes it.
func TestAtOnce(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				dir, remove, err := Make("one")
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
				}
				if err == nil {
					err = remove()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Logs stay for a day.
func TestLogs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var dirs [2]string
	for i, age := range []time.Duration{kept - time.Hour, kept + time.Hour} {
		dir, err := Logs("app")
		if err == nil {
			err = errors.Join(os.WriteFile(filepath.Join(dir, "log"), nil, 0o600), os.Chtimes(dir, time.Time{}, time.Now().Add(-age)))
		}
		if err != nil {
			t.Fatal(err)
		}
		dirs[i] = dir
	}
	if _, err := Logs("next"); err != nil {
		t.Fatal(err)
	}
	wantThere(t, dirs[0], true)
	wantThere(t, dirs[1], false)
}
