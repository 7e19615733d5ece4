// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klutch-go/sdk/internal/fates"
)

// Pauses between retries: they come soon, since users wait for the end of an outage. What an API
// server refuses has more time, as package fates says; but nothing tells of each right that is
// given back and each kind that is served again, so that it is asked once a minute. If an API
// server refuses more than a few stores, such as one for each of many namespaces, they share a budget of
// requests, as package fates says, and each store that is answered has two others ask.
const (
	First   = 100 * time.Millisecond
	Last    = 2500 * time.Millisecond
	Longest = fates.Few * fates.Share
)

// PauseAfter is how long to wait after so many errors in a row, from 1.
func PauseAfter(err error, attempt int) time.Duration {
	return fates.Pause(attempt+1, min(longest(err), Longest))
}

// longest is the longest pause after err. That of a program may be of the way to the API server.
func longest(err error) time.Duration {
	if fates.Is(err, fates.Unknown) {
		return Last
	}
	return fates.Of(err).Longest()
}

// A Jitter spreads in time what fails everywhere at once: it is given a pause, what is tried
// again, and how often it was tried.
type Jitter func(pause time.Duration, what any, attempt int) time.Duration

func (j Jitter) of(pause time.Duration, what any, attempt int) time.Duration {
	if j == nil {
		return Random(pause)
	}
	return j(pause, what, attempt)
}

// Random is between half and one and a half of pause.
func Random(pause time.Duration) time.Duration {
	return pause/2 + rand.N(pause) //nolint:gosec // jitter is no secret
}

// Pauses are those of Retry. The zero value spreads them in time, and nothing ends them.
type Pauses struct {
	Jitter Jitter
	What   any           // is tried again, for Jitter
	Crowd  *atomic.Int64 // how many stores the API server refuses, this store included; nil for a store without others

	refused atomic.Bool  // is one of the Crowd
	astray  atomic.Int64 // answers since the last watch that told a reflector to ask for something else

	mu  sync.Mutex
	end chan struct{} // closed to end a pause; nil before there was one
}

// count follows whether an API server refuses the request.
func (p *Pauses) count(refused bool) {
	switch {
	case p.refused.Swap(refused) == refused:
	case refused:
		p.Crowd.Add(1)
	default:
		p.Crowd.Add(-1)
	}
}

// after is how long to wait after so many errors in a row, from 1.
func (p *Pauses) after(err error, attempt int) time.Duration {
	pause := PauseAfter(err, attempt)
	if p.Crowd != nil && isRefusal(err) {
		pause = fates.Pause(attempt+1, max(min(longest(err), Longest), min(time.Duration(p.Crowd.Load())*fates.Share, fates.Forbidden.Longest())))
	}
	return p.Jitter.of(pause, p.What, attempt)
}

// isRefusal reports whether err is the answer of an API server that will be the same for a while.
func isRefusal(err error) bool { return longest(err) > Last }

// Wake ends the pause there may be: what was refused may be permitted now.
func (p *Pauses) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		close(p.end)
		p.end = nil
	}
}

func (p *Pauses) woken() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = make(chan struct{})
	}
	return p.end
}

// ways is how many ways a reflector has to ask: it watches on, asks for a watch that begins
// with all objects, for a list as of a version, and for any.
const ways = 4

// stray counts answers by which an API server tells a reflector to ask for something else.
// After more in a row than there are ways to ask they are errors as any other, each with a
// longer pause than the one before.
func (p *Pauses) stray(ctx context.Context, failed func(error), err error) {
	n := p.astray.Add(1) - ways
	if n <= 0 {
		return
	}
	woken := p.woken()
	failed(err)
	select {
	case <-ctx.Done():
	case <-woken:
	case <-time.After(p.after(err, int(n))):
	}
}

// Lost reports whether no way to ask has led to a watch, so that none follows a list.
func (p *Pauses) Lost() bool { return p.astray.Load() > ways }

// Found notes that a watch has begun.
func (p *Pauses) Found() { p.astray.Store(0) }

// Retry lists or watches for a reflector until there is an answer that it has to see, or ctx
// is done: a reflector itself would wait ever longer, up to a minute, and so notice the end
// of an outage as late. Failed is called with each error in between, and with an answer that the
// reflector has to see if the ones before it have led nowhere.
func Retry[T any](ctx context.Context, p *Pauses, failed func(error), try func() (T, error)) (T, error) {
	for attempt := 1; ; attempt++ {
		woken := p.woken()
		out, err := try()
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		if isAnswer(err) {
			p.stray(ctx, failed, err)
			return out, err
		}
		failed(err)
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-woken:
			attempt = 0
		case <-time.After(p.after(err, attempt)):
		}
	}
}

// isAnswer reports whether err tells a reflector to ask for something else.
func isAnswer(err error) bool {
	return fates.Is(err, fates.Expired, fates.Ahead, fates.Invalid, fates.Replaced, fates.Malformed, fates.NotAllowed, fates.NotAcceptable)
}
