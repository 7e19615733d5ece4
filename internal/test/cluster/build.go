// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

const (
	module    = "github.com/klutch-go/sdk"
	sourceDir = "internal/test/kube"
	packages  = 2700 // that the program is made of, those of Go included
)

// Build returns the path of the Kubernetes program and compiles it first if that has not been done on this machine. Of
// several processes that call it at once, one compiles and the others wait. What takes long is told to log, which may be
// nil.
func Build(ctx context.Context, log io.Writer) (bin string, err error) {
	sources, err := findSources(ctx)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("a place for the Kubernetes program: %w", err)
	}
	return build(ctx, sources, filepath.Join(cache, "klutch"), orDiscard(log))
}

// Kubectl puts a program kubectl, of the version of the clusters, into a folder.
func Kubectl(ctx context.Context, dir string) error {
	bin, err := Build(ctx, nil)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\nexec '"+bin+"' kubectl \"$@\"\n"), 0o700) //nolint:gosec // it is a program
}

func build(ctx context.Context, sources, cache string, log io.Writer) (string, error) {
	sum, err := hashSources(sources)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "kube-"+sum)
	bin := filepath.Join(dir, "kube")
	if isFile(bin) {
		return bin, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("a place for the Kubernetes program: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if isFile(bin) {
		return bin, nil
	}
	return bin, compile(ctx, sources, bin, log)
}

func compile(ctx context.Context, sources, bin string, log io.Writer) error {
	version, err := kubernetesVersion(sources)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(log, announcement(packages, runtime.NumCPU()))
	unfinished := bin + ".unfinished"
	flags := append([]string{"-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=" + version}, thrift...)
	stale, err := tool(ctx, sources, append([]string{"list", "-deps", "-f", "{{if .Stale}}stale{{end}}"}, flags...)...).Output()
	if err != nil {
		return fmt.Errorf("packages of %s: %w", sources, err)
	}
	begun := time.Now()
	told := &progress{to: log, terminal: isTerminal(log), total: bytes.Count(stale, []byte("stale")), elapsed: func() time.Duration { return time.Since(begun) }}
	cmd := tool(ctx, sources, append(append([]string{"build", "-v"}, flags...), "-o", unfinished, ".")...)
	cmd.Stdout, cmd.Stderr = told, told
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", sources, err, &told.other)
	}
	return os.Rename(unfinished, bin)
}

// thrift leaves out of the build what the servers do not need: debug information costs a sixth of the time. Go's own
// packages are compiled as for other programs, so that they are not compiled twice.
var thrift = []string{"-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-gcflags=std="}

// tool is the go command for a program that runs on this machine and needs nothing of it. A compiler with four times the
// garbage takes a fifth less time and a quarter more memory.
func tool(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOGC=400", "CGO_ENABLED=0", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	cmd.WaitDelay = time.Second
	return cmd
}

// findSources looks beside this file, and where the module is if its path was trimmed from this program.
func findSources(ctx context.Context) (string, error) {
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(file), "..", "kube")
	if isFile(filepath.Join(dir, "go.mod")) {
		return dir, nil
	}
	return listedSources(ctx)
}

func listedSources(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of module %s: %w", module, err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), filepath.FromSlash(sourceDir))
	if !isFile(filepath.Join(dir, "go.mod")) {
		return "", fmt.Errorf("no %s in module %s: clusters can only be built in a clone of its repository", sourceDir, module)
	}
	return dir, nil
}

// hashSources names what the program is made of: its sources, the toolchain and the platform.
func hashSources(dir string) (string, error) {
	h := sha256.New()
	_, _ = fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return "", fmt.Errorf("sources of the Kubernetes program: %w", err)
	}
	for _, e := range entries {
		if !isSource(e) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", fmt.Errorf("sources of the Kubernetes program: %w", err)
		}
		_, _ = fmt.Fprintf(h, "%s %x\n", e.Name(), sha256.Sum256(data))
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

func isSource(e fs.DirEntry) bool {
	name := e.Name()
	if strings.HasSuffix(name, ".go") {
		return !strings.HasSuffix(name, "_test.go")
	}
	return name == "go.mod" || name == "go.sum"
}

// kubernetesVersion returns the version that the program must report, which its build does not know by itself.
func kubernetesVersion(sources string) (string, error) {
	data, err := os.ReadFile(filepath.Join(sources, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("version of Kubernetes: %w", err)
	}
	match := regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v\S+)`).FindSubmatch(data)
	if match == nil {
		return "", errors.New("version of Kubernetes: not required by " + sourceDir + "/go.mod")
	}
	return string(match[1]), nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
