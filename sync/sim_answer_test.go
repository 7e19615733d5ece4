// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

var simAnswers = fakecluster.Answers()

// answers are what an API server says to a request although it could do as it is asked: to
// one request, or to all of a kind for an hour. One history in four has some.
func answers() []generator {
	return []generator{
		{"write answered", 3, func(s *sim, o op) { s.faults = append(s.faults, fault{kind: "answer", effect: "none", n: o.n}) }},
		{"read answered", 2, func(s *sim, o op) {
			s.faults = append(s.faults, fault{kind: "answer", effect: "none", n: o.n, reads: true})
		}},
		{"refused for an hour", 3, func(s *sim, o op) {
			s.refusal = &refusal{Answer: simAnswers[o.n%len(simAnswers)], side: o.n / 100 % 2, reads: o.n/200%3 == 0}
		}},
	}
}

// answer puts answers into a plan.
func (p *simPlan) answer(r *rand.Rand) {
	if r.IntN(4) > 0 {
		return
	}
	for range 1 + r.IntN(2) {
		at := 1 + r.IntN(len(p.ops))
		p.ops = slices.Insert(p.ops, at, generate(r, answers()))
	}
}

// A refusal is an hour in which an API server answers all requests for single objects, or all
// writes, with one error.
type refusal struct {
	fakecluster.Answer
	side  int
	reads bool
	begun bool
	asked map[cache.ObjectName]int // of late, by source
	lists int                      // of late
}

// refuses returns the error that c meets, if it meets the refusal.
func (r *refusal) refuses(s *sim, c *call) error {
	if r == nil || !r.begun || c.request.Resource != simThings || c.request.Verb == "watch" {
		return nil
	}
	if c.request.Verb == "list" {
		r.lists++ // the fakes send no bookmarks, so that there are many, after each of which all is asked again
		return nil
	}
	name := c.request.Object
	if c.side == sideTarget {
		name = s.source(name)
	}
	r.asked[name]++
	if c.side != r.side || !c.writes() && !r.reads {
		return nil
	}
	return r.Err(c.request)
}

// What a refusal may cost once it has lasted, and when it has to be told.
const (
	toldWithin   = time.Minute
	refusedFor   = time.Hour
	refusedLate  = 20 * time.Minute // the last ones of the hour
	mostRequests = 12               // for each object in these, by each konnector: reads and writes, of four kinds of asks
	mostAfter    = 8                // for each object after a list
)

// endure has an API server refuse for an hour, in a world in which all else is well and users
// change what they have. I18: what is not in step is told within a minute. I19: it is asked
// again ever more rarely.
func (s *sim) endure() *violation {
	r := s.refusal
	s.drain()
	s.note("%s: %v for an hour", sideName(r.side), r.Err(fakecluster.Request{}))
	r.begun, r.asked = true, map[cache.ObjectName]int{}
	for _, o := range sorted(s.model.now[sideSource]) {
		s.merge(sideSource, o, "user", fmt.Sprintf(`{"spec":{"size":"%d"}}`, s.token%4+10))
		doStatus(s, op{name: o})
	}
	pass := func(d time.Duration) {
		const rounds = 12
		for range rounds {
			s.drain()
			time.Sleep(d / rounds)
		}
		s.drain()
	}
	pass(toldWithin)
	if broken := s.told18(); broken != nil {
		return broken
	}
	pass(refusedFor - refusedLate - toldWithin)
	clear(r.asked)
	r.lists = 0
	pass(refusedLate)
	for _, name := range sorted(s.model.now[sideSource]) {
		if most := mostRequests*len(s.konnectors) + mostAfter*r.lists; r.asked[name] > most {
			return s.broke("I19", "%d requests for %s in the last %v of an hour of %v", r.asked[name], name, refusedLate, r.Err(fakecluster.Request{}))
		}
	}
	r.begun = false
	return s.model.broken
}

// told18 checks that each source that is not in step is told as such.
func (s *sim) told18() *violation {
	if s.model.broken != nil {
		return s.model.broken
	}
	for _, name := range sorted(s.model.now[sideSource]) {
		problem := s.model.finalSource(name, s.model.now[sideSource][name])
		s.mu.Lock()
		why := s.told[name]
		s.mu.Unlock()
		if s.refusal.side == sideSource && strings.HasPrefix(problem, "says ") {
			problem = "" // what it says cannot be changed
		}
		if problem != "" && why == "" {
			return s.broke("I18", "%s %s, and is not told after %v of %v", name, problem, toldWithin, s.refusal.Err(fakecluster.Request{}))
		}
	}
	return nil
}
