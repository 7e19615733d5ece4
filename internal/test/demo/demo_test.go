// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klutch-go/sdk/examples/catalog/engine"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/tempdir"
)

// folder is the temporary directory of this test's demo, which PostgreSQL's user may enter.
func folder(t *testing.T) string {
	t.Helper()
	dir := tempdir.ForTest(t, "demo")
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as the system's own
		t.Fatal(err)
	}
	return dir
}

// engines skips the test where there is no PostgreSQL.
func engines(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs real clusters")
	}
	found, err := engine.Find(folder(t))
	if err != nil {
		t.Fatal(err)
	}
	if found["postgresql"] == nil {
		t.Skip("PostgreSQL is not installed")
	}
}

// processes are those that work in the folder: by their arguments, or by their working directory.
func processes(dir string) (all []string) {
	found, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, process := range found {
		args, err := os.ReadFile(filepath.Join(process, "cmdline"))
		in, _ := os.Readlink(filepath.Join(process, "cwd"))
		if err == nil && (bytes.Contains(args, []byte(dir)) || strings.HasPrefix(in, dir)) {
			all = append(all, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return all
}

// told is what the demo tells, in a temporary directory of its own, of which nothing is left.
func told(t *testing.T, find func(string) (map[string]engine.Engine, error)) string {
	t.Helper()
	dir := folder(t)
	t.Setenv("TMPDIR", dir)
	var out bytes.Buffer
	if err := (demo{io.MultiWriter(&out, t.Output()), true, find}).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := processes(dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return out.String()
}

// inOrder fails the test unless the texts are in the story one after the other.
func inOrder(t *testing.T, story string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, rest, found := strings.Cut(story, text)
		if !found {
			t.Fatalf("no %q after the one before", text)
		}
		story = rest
	}
}

// TestShow: with PostgreSQL, rows are written, lost and restored by psql with the credentials
// of the App Cluster's Secret, and these log in no longer once the binding is deleted.
func TestShow(t *testing.T) {
	engines(t)
	if err := stack.Build(t.Context(), tempdir.ForTest(t, "programs")); err != nil { // the show takes 90 s where all has been compiled before
		t.Fatal(err)
	}
	began := now(t)
	story := told(t, engine.Find)
	began.within(t, 90*time.Second)
	const ask = `psql "$URI" -c "SELECT * FROM orders ORDER BY id"`
	inOrder(t, story, "a PostgreSQL database for an App Cluster",
		"INSERT INTO orders VALUES (1, 'tea'), (2, 'milk'), (3, 'biscuits')", ask, "biscuits", "(3 rows)", "orders-before-migration says Completed",
		"DELETE FROM orders", ask, "(0 rows)", "orders-undo-migration says Completed", ask, "tea", "milk", "biscuits", "(3 rows)",
		"SHOW max_connections", "400", "kubectl delete servicebinding orders-api", "its Secret is gone, too", `psql "$URI" -c "SELECT 1"`, "password authentication failed",
		"orders is gone, too", "That was the whole journey.")
	if text := "not installed"; strings.Contains(story, text) {
		t.Errorf("it says %q", text)
	}
}

// TestShowWithout: without PostgreSQL the demo says what is not real and how to install it, and
// calls nothing that it shows a database.
func TestShowWithout(t *testing.T) {
	cluster.Long(t)
	story := told(t, func(string) (map[string]engine.Engine, error) { return map[string]engine.Engine{}, nil })
	inOrder(t, story, "PostgreSQL is not installed, so that instances are pages of text in ConfigMaps; for databases: apt-get install postgresql",
		"orders 1 to 3", "garbage", `the page says "orders 1 to 3" again`, "That was the whole journey.")
	claim := regexp.MustCompile(`(?i)psql|\bdatabase\b|\brows?\b`)
	for line := range strings.Lines(story) {
		if claim.MatchString(line) && !strings.Contains(line, "its keys: ") { // of the Secret, as for a database
			t.Errorf("it claims to be a database: %s", line)
		}
	}
}

// TestBrokenOff: the servers of data services end with the demo, whatever ends it.
func TestBrokenOff(t *testing.T) {
	cluster.Long(t)
	engines(t)
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("processes are told of the death of their parent on Linux alone")
	}
	program := filepath.Join(tempdir.ForTest(t, "program"), "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := folder(t)
			end := begun(t, program, dir)
			isServer := func(process string) bool { return strings.Contains(process, "postgres -D") }
			if !slices.ContainsFunc(processes(dir), isServer) {
				t.Errorf("no server runs: %q", processes(dir))
			}
			end(signal)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for tick := time.NewTicker(100 * time.Millisecond); len(processes(dir)) > 0; {
				select {
				case <-tick.C:
				case <-ctx.Done():
					t.Fatalf("left behind: %q", processes(dir))
				}
			}
		})
	}
}

// begun runs a demo until an instance does. The function that it returns ends it by a signal.
func begun(t *testing.T, program, dir string) (end func(os.Signal)) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "-once")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	story := &watched{text: "orders says Running", seen: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = story, t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-story.seen:
	case err := <-ended:
		t.Fatalf("the demo ends before an instance runs: %v\n%s", err, &story.said)
	case <-time.After(5 * time.Minute):
		t.Error("no instance runs")
	}
	return func(signal os.Signal) {
		if err := cmd.Process.Signal(signal); err != nil {
			t.Error(err)
		}
		if err := <-ended; err == nil {
			t.Error("the demo ended by itself")
		}
	}
}

// A watched is a story in which a text is waited for.
type watched struct {
	said bytes.Buffer
	text string
	seen chan struct{}
	done bool
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.said.Write(p)
	if !w.done && strings.Contains(w.said.String(), w.text) {
		w.done = true
		close(w.seen)
	}
	return n, err
}
