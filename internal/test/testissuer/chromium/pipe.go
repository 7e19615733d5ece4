// SPDX-License-Identifier: Apache-2.0

package chromium

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// errEnded says that the browser is gone.
var errEnded = errors.New("the browser has ended")

// A message of the DevTools protocol: a command, its answer, or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// A pipe speaks with a browser that was started with --remote-debugging-pipe:
// messages in JSON, each ended by a NUL.
type pipe struct {
	to    io.Writer
	event func(message)
	ended chan struct{}

	mu      sync.Mutex
	last    int
	waiting map[int]chan message
}

func newPipe(to io.Writer, event func(message)) *pipe {
	return &pipe{to: to, event: event, ended: make(chan struct{}), waiting: map[int]chan message{}}
}

// read takes in what the browser says until it ends.
func (p *pipe) read(from io.Reader) {
	defer close(p.ended)
	for r := bufio.NewReader(from); ; {
		data, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(data[:len(data)-1], &m) != nil {
			return
		}
		if m.ID == 0 {
			p.event(m)
			continue
		}
		p.mu.Lock()
		answer := p.waiting[m.ID]
		delete(p.waiting, m.ID)
		p.mu.Unlock()
		answer <- m
	}
}

// call sends a command and decodes its result into result, if that is not nil.
func (p *pipe) call(ctx context.Context, session, method string, params, result any) error {
	answer, err := p.send(session, method, params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m := <-answer:
		switch {
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-p.ended:
		return fmt.Errorf("%s: %w", method, errEnded)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}

func (p *pipe) send(session, method string, params any) (<-chan message, error) {
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	data, err := json.Marshal(message{ID: p.last, Session: session, Method: method, Params: encoded})
	if err != nil {
		return nil, err
	}
	answer := make(chan message, 1)
	p.waiting[p.last] = answer
	_, err = p.to.Write(append(data, 0))
	return answer, err
}
