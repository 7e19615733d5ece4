// SPDX-License-Identifier: Apache-2.0

package breaker

import (
	"context"
	"encoding/json"
	"time"
)

// A Journal keeps over restarts what breakers count, and why they are open. It is written before each
// deletion and each return, and when something is held that has no message; callers that wait at the
// same time share one write. A write that fails is tried again ever more rarely, however many wait for it.
type Journal struct {
	save  func(ctx context.Context, text string) error
	of    []*Breaker
	slot  chan struct{} // has one while no write goes on
	saved string

	failed error // by the latest write; nil once one has succeeded
	pause  time.Duration
	next   time.Time // the next write after one that failed
}

// Pauses after a write that failed.
const (
	shortest = time.Second // doubled each time
	longest  = time.Minute
)

// NewJournal has breakers begin with what text says of the time before; what cannot be
// read of it says nothing. Save may be nil: then nothing is kept.
func NewJournal(text string, save func(ctx context.Context, text string) error, of ...*Breaker) *Journal {
	j := &Journal{save: save, of: of, slot: make(chan struct{}, 1), saved: text}
	j.slot <- struct{}{}
	var before []memory
	if json.Unmarshal([]byte(text), &before) == nil {
		for i, m := range before[:min(len(before), len(of))] {
			of[i].recall(m, time.Now())
		}
	}
	return j
}

// Write returns once everything that was counted before the call is stored. Within the pause after a failed write it
// returns the error of that.
func (j *Journal) Write(ctx context.Context) error {
	if j.save == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-j.slot:
	}
	defer func() { j.slot <- struct{}{} }()
	text := j.text()
	if text == j.saved {
		return nil
	}
	if time.Now().Before(j.next) {
		return j.failed
	}
	if j.failed = j.save(ctx, text); j.failed != nil {
		j.pause = min(max(2*j.pause, shortest), longest)
		j.next = time.Now().Add(j.pause)
		return j.failed
	}
	j.saved, j.pause, j.next = text, 0, time.Time{}
	return nil
}

func (j *Journal) text() string {
	all := make([]memory, len(j.of))
	for i, b := range j.of {
		all[i] = b.memory()
	}
	data, err := json.Marshal(all)
	if err != nil {
		return "" // numbers and strings can be encoded
	}
	return string(data)
}

// A memory is what is kept of a Breaker: why it is open, whether it is Doubted, and how many deletions
// it has admitted in which spans of time.
type memory struct {
	Cause string     `json:"cause,omitempty"`
	Doubt bool       `json:"doubt,omitempty"`
	Spans [][2]int64 `json:"spans,omitempty"` // begin, in seconds since 1970, and number
}

const (
	span     = 10 * time.Second
	mostKept = 10_000 // deletions; more come from nowhere
)

func (b *Breaker) memory() memory {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := memory{Cause: b.cause, Doubt: b.doubted}
	for _, t := range b.times {
		begin := t.Truncate(span).Unix()
		if last := len(m.Spans) - 1; last >= 0 && m.Spans[last][0] == begin {
			m.Spans[last][1]++
			continue
		}
		m.Spans = append(m.Spans, [2]int64{begin, 1})
	}
	return m
}

// recall begins with what was kept. A clock that was ahead makes no deletion later than now.
func (b *Breaker) recall(m memory, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause, b.doubted = m.Cause, m.Doubt
	for _, s := range m.Spans {
		at := time.Unix(s[0], 0).Add(span)
		if at.After(now) {
			at = now
		}
		for range min(max(s[1], 0), mostKept-int64(len(b.times))) {
			b.times = append(b.times, at)
		}
	}
}
