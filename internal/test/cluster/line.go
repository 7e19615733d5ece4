// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
)

// A Line is a TCP proxy to an API server, which can fall silent: it accepts connections
// and requests, and passes no answers on. It ends with its context.
type Line struct {
	host     string // of the API server
	listener net.Listener

	mu     sync.Mutex
	left   int           // bytes of answers until it is silent; negative if it is not to be
	speaks chan struct{} // closed unless it is to be silent
}

// NewLine returns a Line to the API server at a URL.
func NewLine(ctx context.Context, server string) (*Line, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("line: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("line: %w", err)
	}
	l := &Line{host: u.Host, listener: listener, left: -1, speaks: make(chan struct{})}
	close(l.speaks)
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go l.accept(ctx)
	return l, nil
}

// URL is where the line begins.
func (l *Line) URL() string { return "https://" + l.listener.Addr().String() }

// Hush makes the line silent after so many bytes more.
func (l *Line) Hush(after int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left < 0 {
		l.speaks = make(chan struct{})
	}
	l.left = after
}

// Speak ends a silence, with all that was held back.
func (l *Line) Speak() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left >= 0 {
		close(l.speaks)
	}
	l.left = -1
}

func (l *Line) accept(ctx context.Context) {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.serve(ctx, client)
	}
}

func (l *Line) serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.host)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, answers{ctx, l, server})
	_ = server.Close()
}

// Answers are what an API server sends through a line.
type answers struct {
	ctx context.Context //nolint:containedctx // that of the connection
	*Line
	from io.Reader
}

// Read implements io.Reader.
func (a answers) Read(p []byte) (int, error) {
	n := a.await(len(p))
	if n == 0 {
		return 0, io.EOF
	}
	n, err := a.from.Read(p[:n])
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left > 0 {
		a.left = max(0, a.left-n)
	}
	return n, err
}

// await returns how many of n bytes may be passed on, once some may; 0 at the end.
func (a answers) await(n int) int {
	for {
		a.mu.Lock()
		left, speaks := a.left, a.speaks
		a.mu.Unlock()
		switch {
		case left < 0:
			return n
		case left > 0:
			return min(n, left)
		}
		select {
		case <-speaks:
		case <-a.ctx.Done():
			return 0
		}
	}
}
