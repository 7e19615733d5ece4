// SPDX-License-Identifier: Apache-2.0

// Package pace spaces out what is written for one object, and all that one Sync writes of
// statuses and copies.
//
// A source can have [Burst] statuses at once, and then one in each pause: of what comes
// faster only the latest travels. What users wait for, a turn of the phase or of a
// condition, has room for as many again. A large status counts as several, one for each
// part. So nothing that a target's cluster says makes the next status wait longer than for
// room and parts pauses.
//
// What is remembered is how many statuses were written, less one for each pause that has gone
// by. So when the pause grows, those already written count for longer, and no room opens.
package pace

import (
	"sync"
	"time"

	"github.com/klutch-go/sdk/internal/watchstore"
)

// Burst is how many writes of one object go at once.
const Burst = 5

const (
	room  = 10 // of statuses, with turns
	pause = 100 * time.Millisecond
	part  = 64 << 10 // bytes
	parts = 16       // that count
)

// A Pace counts what was done of late to one object.
type Pace struct {
	at      time.Time // when something was done last
	counted float32   // how much counted then
}

// pending is how much counts still, of which one is forgotten in each pause.
func (p *Pace) pending(pause time.Duration) float32 {
	return max(0, p.counted-float32(time.Since(p.at))/float32(pause))
}

// Wait is until there is room for one more.
func (p *Pace) Wait(room int, pause time.Duration) time.Duration {
	return time.Duration((p.pending(pause) - float32(room-1)) * float32(pause))
}

// Count notes that n were done.
func (p *Pace) Count(n int, pause time.Duration) {
	p.counted, p.at = p.pending(pause)+float32(n), time.Now()
}

// A Status is the pace of the statuses of one object.
type Status struct {
	pace   Pace
	digest uint32 // of what in the latest that users wait for
}

// Delay is how long a status has to wait for those that may follow it.
func (s *Status) Delay(give map[string]any, pause time.Duration) time.Duration {
	n := Burst
	if watchstore.Digest(give) != s.digest {
		n = room
	}
	return s.pace.Wait(n, pause)
}

// Gave notes that a status was written.
func (s *Status) Gave(status map[string]any, budget *Budget) {
	size := weigh(status)
	s.pace.Count(min(1+size/part, parts), budget.Pause())
	s.digest = watchstore.Digest(status)
	budget.spend(size)
}

// A Copy is the pace of the copies of one related object. On the source they count like
// statuses; on the target they do not wait.
type Copy struct {
	pace     Pace
	Budget   *Budget
	OnSource bool
}

// Wait is until the next copy may be written.
func (p *Copy) Wait() time.Duration {
	if !p.OnSource {
		return 0
	}
	return max(p.pace.Wait(Burst, p.Budget.Pause()), p.Budget.beyond())
}

// Count notes that a copy was begun.
func (p *Copy) Count() { p.pace.Count(1, p.Budget.Pause()) }

// Spend notes that it was written.
func (p *Copy) Spend(object map[string]any) { p.Budget.spend(weigh(object)) }

// Rest is until no copy counts any more.
func (p *Copy) Rest() time.Duration {
	pause := p.Budget.Pause()
	if p.pace.pending(pause) <= 0 {
		return 0
	}
	return max(p.pace.Wait(1, pause), time.Millisecond)
}

// A Budget bounds what the statuses of a Sync write in all, and its copies on the
// source, which wait as long as the rate is used up. Beyond it the pause
// of each object grows until they keep within it: those that change all the time become
// slower, and an object that was quiet for as long as its last statuses count does not
// wait. It is safe for concurrent use.
type Budget struct {
	mu   sync.Mutex
	paid time.Time // until when what was written uses up the rate
}

// Rate is the bytes a second of a Budget.
const Rate = 512 << 10

const (
	burst   = 64 * time.Second
	write   = 1 << 10         // bytes that each write counts beside those of the status
	step    = 4 * time.Second // beyond the burst, for each of which the pause doubles
	doubles = 9
)

// Pause is what lies between the statuses of one object.
func (b *Budget) Pause() time.Duration { return pause << min(b.beyond()/step, doubles) }

// beyond is how long it takes until the burst is not used up any more.
func (b *Budget) beyond() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	return max(0, latest(b.paid, now).Sub(now)-burst)
}

// spend notes that a status of so many bytes is written.
func (b *Budget) spend(size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.paid = latest(b.paid, now).Add(time.Duration(size+write) * time.Second / Rate)
	if most := now.Add(burst + (doubles+1)*step); b.paid.After(most) {
		b.paid = most
	}
}

// Turns space out what a Sync has to ask of many objects at once: a few in a row, then one in
// each pause. Each object takes one turn. They are safe for concurrent use.
type Turns struct {
	mu   sync.Mutex
	last time.Time // the turn of the latest object
}

// OneTurn is what lies between two Turns, and TurnsAtOnce how many need not wait.
const (
	OneTurn     = 20 * time.Millisecond
	TurnsAtOnce = 50
)

// Take is how long the object that asks waits for its turn.
func (t *Turns) Take() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = latest(t.last, time.Now().Add(-TurnsAtOnce*OneTurn)).Add(OneTurn)
	return max(0, time.Until(t.last))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// weigh is about how many bytes a JSON value takes.
func weigh(v any) int {
	size := 8
	switch v := v.(type) {
	case string:
		size += len(v)
	case []any:
		for _, item := range v {
			size += weigh(item)
		}
	case map[string]any:
		for key, item := range v {
			size += len(key) + weigh(item)
		}
	}
	return size
}
