// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"sync"
	"time"

	"github.com/klutch-go/sdk/internal/watchstore"
)

// A source can have statusBurst statuses at once, and then one in each pause: of what
// comes faster only the latest travels. What users wait for, a turn of the phase or of
// a condition, has room for as many again. A large status counts as several, one for
// each part. So nothing that a target's cluster says makes the next status wait longer
// than for statusRoom and statusParts pauses.
const (
	statusBurst = 5
	statusRoom  = 10 // with turns
	statusPause = 100 * time.Millisecond
	statusPart  = 64 << 10 // bytes
	statusParts = 16       // that count
)

// A pace counts what was done of late to one object.
type pace struct {
	at      time.Time // when something was done last
	counted float32   // how much counted then
}

// pending is how much counts still, of which one is forgotten in each pause.
func (p *pace) pending(pause time.Duration) float32 {
	return max(0, p.counted-float32(time.Since(p.at))/float32(pause))
}

// wait is until there is room for one more.
func (p *pace) wait(room int, pause time.Duration) time.Duration {
	return time.Duration((p.pending(pause) - float32(room-1)) * float32(pause))
}

func (p *pace) count(n int, pause time.Duration) {
	p.counted, p.at = p.pending(pause)+float32(n), time.Now()
}

// messagePause lies between the messages on one object, after the first few.
const messagePause = time.Minute

// delay is how long a status has to wait for those that may follow it.
func (s *sourceStatus) delay(give map[string]any, pause time.Duration) time.Duration {
	room := statusBurst
	if watchstore.Digest(give) != s.digest {
		room = statusRoom
	}
	return s.pace.wait(room, pause)
}

// gave notes that a status was written.
func (s *sourceStatus) gave(status map[string]any, budget *statusBudget) {
	size := weigh(status)
	s.pace.count(min(1+size/statusPart, statusParts), budget.pause())
	s.digest = watchstore.Digest(status)
	budget.spend(size)
}

// A statusBudget bounds what the statuses of a Sync write in all, and its copies on the
// source, which wait as long as the rate is used up. Beyond it the pause
// of each object grows until they keep within it: those that change all the time become
// slower, and an object that was quiet for as long as its last statuses count does not
// wait.
type statusBudget struct {
	mu   sync.Mutex
	paid time.Time // until when what was written uses up the rate
}

const (
	budgetRate    = 512 << 10 // bytes a second
	budgetBurst   = 64 * time.Second
	budgetWrite   = 1 << 10         // bytes that each write counts beside those of the status
	budgetStep    = 4 * time.Second // beyond the burst, for each of which the pause doubles
	budgetDoubles = 9
)

// pause is what lies between the statuses of one object.
func (b *statusBudget) pause() time.Duration {
	return statusPause << min(b.beyond()/budgetStep, budgetDoubles)
}

// beyond is how long it takes until the burst is not used up any more.
func (b *statusBudget) beyond() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	return max(0, latest(b.paid, now).Sub(now)-budgetBurst)
}

// spend notes that a status of so many bytes is written.
func (b *statusBudget) spend(size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.paid = latest(b.paid, now).Add(time.Duration(size+budgetWrite) * time.Second / budgetRate)
	if most := now.Add(budgetBurst + (budgetDoubles+1)*budgetStep); b.paid.After(most) {
		b.paid = most
	}
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
