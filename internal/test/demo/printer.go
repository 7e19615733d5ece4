// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// The places of the story.
const (
	appCluster   = "App Cluster"
	controlPlane = "Control Plane Cluster"
)

// A printer tells the story. Its lines carry the time since it began.
type printer struct {
	out io.Writer

	mu    sync.Mutex
	begun time.Time
}

func (p *printer) title(text string) { p.text("\n%s\n", text) }

// step begins a part of the story.
func (p *printer) step(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun.IsZero() {
		p.begun = time.Now()
	}
	_, _ = fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.begun).Seconds(), what)
}

// line says what was seen where.
func (p *printer) line(where, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, "           %-22s %s\n", where, fmt.Sprintf(format, args...))
}

func (p *printer) text(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, format+"\n", args...)
}

// quote shows what a program printed.
func (p *printer) quote(text string) {
	for l := range strings.Lines(strings.TrimSpace(text)) {
		p.text("           | %s", strings.TrimRight(l, "\n"))
	}
}

// waiting says every few seconds what is being waited for, until done is called.
func (p *printer) waiting(where, what string) (done func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(2 * time.Second); ; {
			select {
			case <-tick.C:
				p.line(where, "… waiting: %s", what)
			case <-stop:
				tick.Stop()
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
