// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// unmark has the API servers of one history in eight send no bookmarks, so that all is listed
// anew every few minutes.
func (p *simPlan) unmark(r *rand.Rand) {
	if r.IntN(8) == 0 {
		p.traits = append(p.traits, "no bookmarks")
	}
}

// pass lets time pass, and everything happen that does meanwhile, as soon as it does.
func (s *sim) pass(d time.Duration) {
	end := time.Now().Add(d)
	for s.drain(); time.Now().Before(end) && s.model.broken == nil; s.drain() {
		s.wake(time.Until(end))
	}
}

// nap lets time pass, whatever happens meanwhile.
func (s *sim) nap(d time.Duration) {
	s.bookmarks()
	time.Sleep(d)
}

// markEvery is how often API servers send bookmarks.
const markEvery = 2 * time.Minute

// wake lets time pass until a request comes, or bookmarks.
func (s *sim) wake(d time.Duration) {
	s.bookmarks()
	select {
	case <-s.came:
	case <-time.After(min(d, markEvery-time.Since(s.marked))):
	}
}

// bookmarks has the API servers say that a watch has shown all that there is, if it is time.
func (s *sim) bookmarks() {
	if time.Since(s.marked) < markEvery {
		return
	}
	s.marked = time.Now()
	if s.plan.has("no bookmarks") {
		return
	}
	for _, w := range s.watches() {
		if w.Waiting() == 0 {
			w.Bookmark(fmt.Sprint(s.clusters[w.side].Version()))
		}
	}
}
