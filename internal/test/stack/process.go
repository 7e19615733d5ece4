// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A Process is one of the programs, run as in production: by its flags, with a
// service account's credential. It can be stopped, killed and started again.
type Process struct {
	Name string   // also of its log file
	Path string   // of the program
	Args []string // without the program's name
	Env  []string // besides the environment of this process
	Dir  string   // for the log
	// Ready is polled until it answers 200. Empty: the process is ready at once.
	Ready string
	// Orphaned is what it gets, on Linux, when this process dies; zero means SIGKILL.
	Orphaned syscall.Signal

	cmd  *exec.Cmd
	done chan struct{}
}

// Log is the path of the file with everything that the process said.
func (p *Process) Log() string { return filepath.Join(p.Dir, p.Name+".log") }

// Start returns when the process is ready, or says with its last words why it is not.
func (p *Process) Start(ctx context.Context) error {
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log of %s: %w", p.Name, err)
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), p.Path, p.Args...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, append(os.Environ(), p.Env...)
	p.cmd.SysProcAttr = attributes(cmp.Or(p.Orphaned, syscall.SIGKILL))
	started := make(chan error, 1)
	p.done = make(chan struct{})
	go p.own(started)
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	return p.waitReady(ctx)
}

// own keeps one thread for the life of the process: where the process is told of
// its parent's death, that is the death of the thread that started it.
func (p *Process) own(started chan<- error) {
	runtime.LockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait()
	}
}

func (p *Process) waitReady(ctx context.Context) error {
	if p.Ready == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if answers(ctx, p.Ready) {
			tick.Stop()
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("%s ended before it was ready (%s):\n%s", p.Name, p.cmd.ProcessState, p.LastWords())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; it said:\n%s", p.Name, context.Cause(ctx), p.LastWords())
		}
	}
}

func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// PID is 0 while the process does not run.
func (p *Process) PID() int {
	if p.cmd == nil || p.cmd.Process == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Running tells whether the process was started and has not ended.
func (p *Process) Running() bool {
	if p.PID() == 0 {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ExitCode is that of a process that has ended, or -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Stop asks the process to end, as Kubernetes does, and returns when it has. The automation
// ends its servers before that, which may take 20 s each.
func (p *Process) Stop() error { return p.end(syscall.SIGTERM, time.Minute) }

// Kill ends the process as a crash would.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL, 20*time.Second) }

func (p *Process) end(signal os.Signal, patience time.Duration) error {
	if p.PID() == 0 {
		return nil
	}
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.Name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %s of %s", p.Name, patience, signal)
	}
}

// LastWords returns the end of the log.
func (p *Process) LastWords() string {
	data, err := os.ReadFile(p.Log())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}
