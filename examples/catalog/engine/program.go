// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// How long a program may take: any, and one that reads or writes all contents.
const (
	brief = time.Minute
	long  = 10 * time.Minute
)

// A program is one run of a command, as the servers' user.
type program struct {
	path  string
	args  []string
	stdin string
	env   []string
	limit time.Duration
	// strict takes complaints as a failure, of programs that end with 0 all the same.
	strict bool
}

// answerLimit bounds what is kept of a program's answer.
const answerLimit = 64 << 10

// run returns what the program said. The error has the end of what it said about its failure.
func (d *disk) run(ctx context.Context, p program) (string, error) {
	name := filepath.Base(p.path)
	reached("before " + name)
	defer reached("after " + name)
	if p.limit == 0 {
		p.limit = brief
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, fmt.Errorf("%s took longer than %s", name, p.limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, p.args...) //nolint:gosec // programs that Find found
	cmd.Dir, cmd.Stdin = d.dir, strings.NewReader(p.stdin)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + d.dir}, p.env...)
	cmd.SysProcAttr = d.user.attributes()
	cmd.WaitDelay = 5 * time.Second // a server may hold on to the pipes
	var said, complained tail
	cmd.Stdout, cmd.Stderr = &said, &complained
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("the servers' user may not enter %s, or a folder above it: %w", d.dir, err)
	}
	if err != nil || p.strict && complained.Len() > 0 {
		return "", fmt.Errorf("%s: %w", name, errors.Join(context.Cause(ctx), err, complained.error()))
	}
	return strings.TrimSpace(said.String()), nil
}

// A tail keeps the end of what is written to it.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if over := t.Len() + n - answerLimit; over > 0 {
		t.Next(over)
		p = p[max(0, n-answerLimit):]
	}
	_, err := t.Buffer.Write(p)
	return n, err
}

func (t *tail) error() error {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	text := strings.Join(lines[max(0, len(lines)-3):], "; ")
	if text == "" {
		return nil
	}
	return errors.New(text[max(0, len(text)-512):]) //nolint:err113 // a program's own words
}

// find returns the first of these programs that is on the PATH or in one of the folders.
func find(folders []string, names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		for _, folder := range folders {
			path := filepath.Join(folder, name)
			if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
				return path
			}
		}
	}
	return ""
}

// retry asks until there is no error, for a while.
func retry(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, brief)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
