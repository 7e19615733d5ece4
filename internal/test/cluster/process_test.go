// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/internal/test/tempdir"
)

const helperEnv = "KLUTCH_TEST_CLUSTER_DIR"

// TestHelper is the parent that TestServersEndWithTheirParent kills.
func TestHelper(t *testing.T) {
	dir := os.Getenv(helperEnv)
	if dir == "" {
		t.Skip("not a test")
	}
	c, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*process{c.servers.etcd, c.servers.apiServer, c.servers.controllerManager} {
		t.Log("pid", p.cmd.Process.Pid)
	}
	t.Log("ready")
	<-t.Context().Done()
}

func TestServersEndWithTheirParent(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real cluster")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), helperEnv+"="+tempdir.ForTest(t, "cluster"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []string
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasSuffix(lines.Text(), "ready") {
		if _, pid, found := strings.Cut(lines.Text(), "pid "); found {
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids {
		if !runs(t.Context(), pid) {
			t.Errorf("process %s does not run", pid)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if len(pids) != 3 {
		t.Fatalf("servers are %q, want three", pids)
	}
	for _, pid := range pids {
		awaitEnd(t, pid)
	}
}

func awaitEnd(t *testing.T, pid string) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return !runs(ctx, pid), nil
	}); err != nil {
		t.Errorf("process %s outlives its parent", pid)
	}
}

// runs tells processes from those that have ended and wait to be reaped.
func runs(ctx context.Context, pid string) bool {
	state, err := exec.CommandContext(ctx, "ps", "-o", "stat=", "-p", pid).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	c := ForTest(t, "first")
	second, err := prepare(c.servers.bin, Options{Name: "second", Dir: tempdir.ForTest(t, "cluster")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.servers.stop)
	if err := second.choosePort(t.Context()); err != nil {
		t.Fatal(err)
	}
	second.servers.port = c.servers.port
	if err := second.start(t.Context()); !errors.Is(err, errPortTaken) {
		t.Errorf("start on a port in use: %v, want %v", err, errPortTaken)
	}
	if err := second.startAnywhere(t.Context()); err != nil {
		t.Errorf("start on another port: %v", err)
	}
}

func TestServerThatEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := writeFiles(dir); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "server")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho out of luck\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &servers{bin: script, dir: dir}
	p, err := run(t.Context(), s.bin, s.dir, []string{"etcd"})
	if err != nil {
		t.Fatal(err)
	}
	s.etcd = p
	err = s.await(t.Context(), func(context.Context) error { return errors.New("not ready") })
	for _, part := range []string{"etcd ended", "exit status 3", "out of luck"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error does not say %q: %v", part, err)
		}
	}
}

// A server that ends before it is ready is started again, and told.
func TestServerThatEndsAtItsStart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real cluster")
	}
	bin, err := Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	c, err := prepare(bin, Options{Dir: tempdir.ForTest(t, "cluster"), NoControllers: true, Log: &told})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.servers.stop)
	c.servers.bin = filepath.Join(c.servers.dir, "server")
	script := "#!/bin/sh\nif [ $1 = kube-apiserver ] && mkdir unlucky 2>/dev/null; then echo out of luck; exit 3; fi\nexec " + bin + ` "$@"` + "\n"
	if err := os.WriteFile(c.servers.bin, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.startAnywhere(t.Context()); err != nil {
		t.Error(err)
	}
	for _, part := range []string{"start 1 of 5", "kube-apiserver ended", "exit status 3", "out of luck"} {
		if !strings.Contains(told.String(), part) {
			t.Errorf("the log does not say %q: %s", part, &told)
		}
	}
}
