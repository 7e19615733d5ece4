// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// A claim orders one instance, and not one after another. A target that has vanished is made anew after
// pauses that double from a second to an hour (I19), and counts as a deletion does (I15): data has
// gone, and an empty instance comes.

// An order is a target that an incarnation of a konnector knows to have been there.
type order struct {
	of   string    // UID of its source
	made time.Time // zero if that was before this incarnation
	anew int       // how often in a row
}

// longestReturn is the longest of the pauses; after twice as long without a loss they begin anew.
const longestReturn = time.Hour

// orders notes that a konnector makes a target, and checks that it may if there was one before. It does
// not know of one of which no answer came.
func (m *model) orders(target cache.ObjectName, source, made string) {
	if m.sim.late {
		return
	}
	m.call.made = true
	book := &m.call.konnector.ledger
	before, next := book.orders[target], order{of: source, made: time.Now()}
	if before.of == source {
		next.anew = before.anew + 1
		gap := time.Since(before.made)
		if gap > 2*longestReturn {
			next.anew = 1
		}
		if pause := min(time.Second<<(next.anew-1), longestReturn); gap < pause {
			m.breaks("I19", "%s is made anew for the %dth time in a row, %v after the last one", target, next.anew, gap)
		}
		m.counts(book, target, source, made)
	}
	if book.orders == nil {
		book.orders = map[cache.ObjectName]order{}
	}
	book.orders[target] = next
}

// counts checks that a target which is made anew is not one too many. One that was refused counted then.
func (m *model) counts(book *ledger, target cache.ObjectName, source, made string) {
	if o := m.now[sideSource][m.sim.source(target)]; o != nil && strings.Contains(annotation(o, klutchsync.MessageAnnotation), klutchsync.RefusedReturn) {
		return
	}
	if book.freed[source] {
		delete(book.freed, source) // the next one counts
		return
	}
	if recent := m.sim.recent(book.asked); recent >= m.sim.plausible() {
		m.breaks("I15", "%s is made anew, the %dth that goes within %v", target, recent+1, breakerWindow)
	}
	if book.asked == nil {
		book.asked = map[string]time.Time{}
	}
	book.asked[source+" "+made] = time.Now()
}

// remembers has an incarnation of k begin with the targets that the sources show to have been there, if
// it sees these as they are.
func (m *model) remembers(k *konnector) {
	k.orders = map[cache.ObjectName]order{}
	if !m.sim.strict() || k.second {
		return
	}
	for name, source := range m.now[sideSource] {
		said, _, _ := strings.Cut(annotation(source, klutchsync.MessageAnnotation), ":")
		_, _, served := tokenOf(source.Object["status"])
		if l := m.life(source); l.copied != "" && l.copied == annotation(source, klutchsync.MessageAnnotation) {
			continue // it speaks of another one's
		}
		if holds(source) && (said == string(klutchsync.ReasonVanished) || served && !strings.Contains(annotation(source, klutchsync.MessageAnnotation), " a target for this object: ")) {
			k.orders[op{name: name}.target()] = order{of: string(source.GetUID())}
		}
	}
}

// forgetMessage notes that a request of a process that has died may have taken the message off that a start
// goes on with.
func (m *model) forgetMessage(source cache.ObjectName) {
	target := op{name: source}.target()
	for _, k := range m.sim.konnectors {
		if k.orders[target].made.IsZero() {
			delete(k.orders, target)
		}
	}
}

// forgetOrders has no pause of before count any more: a target that was lost with its whole cluster, or
// with its kind, comes back once that does.
func (s *sim) forgetOrders() {
	for _, k := range s.konnectors {
		clear(k.orders)
	}
}
