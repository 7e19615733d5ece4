// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"sync"
	"time"
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

// fold is how long a status has to wait for those that may follow it.
func (r *record) fold(give map[string]any, pause time.Duration) time.Duration {
	room := statusBurst
	if flips(give) != r.flips {
		room = statusRoom
	}
	return time.Duration((r.crowd(pause) - float32(room-1)) * float32(pause))
}

// crowd is how many of the statuses that were given count still.
func (r *record) crowd(pause time.Duration) float32 {
	return max(0, r.counted-float32(time.Since(r.given))/float32(pause))
}

// gives notes that a status is given.
func (r *record) gives(status map[string]any, budget *statusBudget) {
	size := weigh(status)
	parts := min(1+size/statusPart, statusParts)
	r.counted = r.crowd(budget.pause()) + float32(parts)
	r.given, r.flips = time.Now(), flips(status)
	budget.spend(size)
}

// A statusBudget bounds what the statuses of a Sync write in all. Beyond it the pause
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
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	beyond := max(0, latest(b.paid, now).Sub(now)-budgetBurst)
	return statusPause << min(beyond/budgetStep, budgetDoubles)
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
