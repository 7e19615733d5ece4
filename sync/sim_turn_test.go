// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// What can happen at one moment happens in any order, as the Go scheduler and the
// load of the machine have it. So nothing does: each step of a history has a moment
// of its own, and in it each worker that begins a pass, or goes on with it after it
// waited for what others wait for too, waits for a turn, which is a moment that
// follows from what it works on.
const (
	moment = time.Millisecond // between steps
	turns  = 99_991           // nanoseconds: less than a moment, for some turns one after another
)

// settled lets a moment pass, and returns when all that happens in it has.
func (s *sim) settled() {
	time.Sleep(moment)
	synctest.Wait()
}

// inTurn is a log that makes those who write to it wait for their turn.
type inTurn struct {
	ctx    context.Context //nolint:containedctx // that of a konnector: when it ends no one waits
	who    string
	begins func() // called when a Run begins again
}

func (w inTurn) wait() {
	h := fnv.New64a()
	_, _ = h.Write([]byte(w.who))
	select {
	case <-time.After(time.Duration(h.Sum64() % turns)): //nolint:gosec // it is small
	case <-w.ctx.Done():
	}
}

// WithValues implements logr.LogSink. A queue begins by naming itself, and each
// pass by naming its object.
func (w inTurn) WithValues(values ...any) logr.LogSink {
	w.who += fmt.Sprint(values...)
	if values[0] == "controller" || values[0] == "object" {
		w.wait()
	}
	return w
}

// Info implements logr.LogSink. Most of what is logged is logged while the others
// are locked out.
func (w inTurn) Info(_ int, message string, _ ...any) {
	switch message {
	case "a look at the clusters has ended":
		w.wait()
	case "sync begins again":
		w.begins()
	}
}

func (inTurn) Init(logr.RuntimeInfo)          {}
func (inTurn) Enabled(int) bool               { return true }
func (inTurn) Error(error, string, ...any)    {}
func (w inTurn) WithName(string) logr.LogSink { return w }
