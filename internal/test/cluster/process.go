// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// A process is one of the servers of a cluster. It ends when this process does, because its standard input then ends.
type process struct {
	name  string
	log   string // path
	since int64  // where its part of the log begins
	cmd   *exec.Cmd
	done  chan struct{} // closed when it has ended
}

// run starts the program bin as the server that args[0] names, in dir, with its output in logs/<server>.log. The server
// outlives ctx.
func run(ctx context.Context, bin, dir string, args []string) (*process, error) {
	p := &process{name: args[0], log: filepath.Join(dir, logsDir, args[0]+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", p.name, err)
	}
	defer func() { _ = log.Close() }()
	if p.since, err = log.Seek(0, io.SeekEnd); err != nil {
		return nil, fmt.Errorf("log of %s: %w", p.name, err)
	}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), bin, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Env = append(os.Environ(), "GOGC=200")            // a seventh less work at the start, for some memory
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal is for us
	if _, err := p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// kill ends the process at once, as a crash would, and returns when it is gone. A nil process is gone already.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// ended describes the end of the process. It is nil while the process runs.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %s\n%s", p.name, p.cmd.ProcessState, p.lastWords())
	default:
		return nil
	}
}

func (p *process) said(text string) bool { return bytes.Contains(p.output(), []byte(text)) }

// lastWords returns the end of what the process wrote.
func (p *process) lastWords() string {
	lines := strings.Split(strings.TrimSpace(string(p.output())), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

func (p *process) output() []byte {
	data, err := os.ReadFile(p.log)
	if err != nil || int64(len(data)) < p.since {
		return nil
	}
	return data[p.since:]
}
