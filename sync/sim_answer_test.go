// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	klutchsync "github.com/klutch-go/sdk/sync"
)

var simAnswers = fakecluster.Answers()

// A scope is a set of requests that an API server answers with one error.
type scope struct {
	name  string
	holds func(fakecluster.Request) bool
}

// scopes are the requests that are answered so at once: one scope for each verb.
var scopes = []scope{
	{"objects", func(r fakecluster.Request) bool { return r.Resource == simThings && !looks(r.Verb) }},
	{"writes", func(r fakecluster.Request) bool { return r.Resource == simThings && !reads(r.Verb) }},
	{"lists", func(r fakecluster.Request) bool { return r.Resource == simThings && looks(r.Verb) }},
	{"watches", func(r fakecluster.Request) bool { return r.Resource == simThings && r.Verb == "watch" }},
	{"reads", func(r fakecluster.Request) bool { return r.Resource == simThings && r.Verb == "get" }},
	{"applies", func(r fakecluster.Request) bool {
		return r.Resource == simThings && r.Verb == "apply" && r.Subresource == ""
	}},
	{"patches", func(r fakecluster.Request) bool { return r.Resource == simThings && r.Verb == "patch" }},
	{"deletions", func(r fakecluster.Request) bool { return r.Resource == simThings && r.Verb == "delete" }},
	{"statuses", func(r fakecluster.Request) bool { return r.Resource == simThings && r.Subresource == "status" }},
	{"copies", func(r fakecluster.Request) bool { return r.Resource == simSecrets }},
	{"all", func(fakecluster.Request) bool { return true }},
}

func looks(verb string) bool { return verb == "list" || verb == "watch" }
func reads(verb string) bool { return verb == "get" || looks(verb) }

// answers are what an API server says to a request although it could do as it is asked: to
// one request, or to all of a kind for an hour. One history in four has some.
func answers() []generator {
	return []generator{
		{"write answered", 3, func(s *sim, o op) { s.faults = append(s.faults, fault{kind: "answer", effect: "none", n: o.n}) }},
		{"read answered", 2, func(s *sim, o op) {
			s.faults = append(s.faults, fault{kind: "answer", effect: "none", n: o.n, reads: true})
		}},
		{"refused for an hour", 3, func(s *sim, o op) { s.refusal = refusing(scopes[min(o.n/200%3, 1)], o.n) }},
	}
}

// spells are times in which an API server answers all requests of a scope with one error, or
// nothing at all, while all else goes on. One history in eight has one.
func spells() (all []generator) {
	for _, scope := range scopes {
		all = append(all, generator{scope.name + " refused for a while", 1, func(s *sim, o op) {
			r := refusing(scope, o.n)
			s.windows = append(s.windows, window{"refused", r.side, s.step + 5 + o.n%40, r})
			s.cut(r)
		}})
	}
	return append(all, generator{"a side falls silent", 2, func(s *sim, o op) { s.silence[o.n%2] = true }})
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

// refuse gives a plan its last hour, and perhaps a spell before, and a log.
func (p *simPlan) refuse(r *rand.Rand) {
	p.hour = generate(r, hours())
	if r.IntN(8) == 0 {
		p.ops = slices.Insert(p.ops, 1+r.IntN(len(p.ops)), generate(r, spells()))
	}
	in := 12
	if p.has("few deletions") {
		in = 2
	}
	if r.IntN(in) == 0 {
		p.traits = append(p.traits, "deletion log")
	}
}

// A refusal is a time in which an API server answers all requests of a scope with one error.
type refusal struct {
	fakecluster.Answer
	scope
	side          int
	begun         bool
	asked, copied map[cache.ObjectName]int // of late, by source and copy
	looks         map[string]int           // of late, all else by its place
	lists         int                      // of late
}

func refusing(within scope, n int) *refusal {
	return &refusal{Answer: simAnswers[n%len(simAnswers)], scope: within, side: n / 100 % 2}
}

// meets returns the error that c meets, if it meets the refusal.
func (r *refusal) meets(c *call) error {
	if r == nil || c.side != r.side || !r.holds(c.request) {
		return nil
	}
	return r.Err(c.request)
}

// cut ends the watches that begin no more.
func (s *sim) cut(r *refusal) {
	for _, w := range s.watches() {
		if w.side == r.side && r.holds(fakecluster.Request{Verb: "watch", Resource: w.Resource()}) {
			w.Stop()
			s.settled()
		}
	}
}

// lasts returns the error that c meets in the hour that everything else is well in, and counts
// what it costs.
func (r *refusal) lasts(s *sim, c *call) error {
	if r == nil || !r.begun {
		return nil
	}
	switch name := c.request.Object; {
	case looks(c.request.Verb):
		r.looks[c.String()]++
		if c.request.Verb == "list" {
			r.lists++ // the fakes send no bookmarks, so that there are many, after each of which all is asked again
		}
	case c.request.Resource == simThings && c.side == sideTarget:
		r.asked[s.source(name)]++
	case c.request.Resource == simThings:
		r.asked[name]++
	case c.request.Resource == simSecrets && c.side == sideTarget:
		r.copied[s.source(name)]++
	case c.request.Resource == simSecrets:
		r.copied[name]++
	default:
		r.looks[c.String()]++
	}
	return r.meets(c)
}

// What a refusal may cost once it has lasted, and when it has to be told.
const (
	toldWithin   = time.Minute
	refusedFor   = time.Hour
	refusedLate  = 20 * time.Minute               // the last ones of the hour
	mostRequests = 12                             // for each object in these, by each konnector: reads and writes, of four kinds of asks
	mostAfter    = 8                              // for each object after a list
	mostLooks    = int(refusedLate / time.Second) // lists, and watches, of each kind
)

// endure has an API server refuse for an hour, in a world in which all else is well and users
// change what they have. I18: what is not in step is told within a minute. I19: it is asked
// again ever more rarely.
func (s *sim) endure() *violation {
	r := s.refusal
	s.drain()
	s.note("%s: %v to %s for an hour", sideName(r.side), r.Err(fakecluster.Request{}), r.name)
	r.begun, r.asked, r.copied, r.looks = true, map[cache.ObjectName]int{}, map[cache.ObjectName]int{}, map[string]int{}
	s.cut(r)
	s.edits()
	if len(s.plan.Related) > 0 {
		for _, o := range sorted(s.model.now[sideSource]) {
			doSecret(s, op{name: o, n: s.token})
		}
	}
	s.pass(toldWithin)
	if broken := s.told18(); broken != nil {
		return broken
	}
	s.pass(refusedFor - refusedLate - toldWithin)
	clear(r.asked)
	clear(r.copied)
	clear(r.looks)
	r.lists = 0
	s.pass(refusedLate)
	most := mostRequests*len(s.konnectors) + mostAfter*r.lists
	for _, asked := range []map[cache.ObjectName]int{r.asked, r.copied} {
		for name, n := range asked {
			if n > most {
				return s.broke("I19", "%d requests for %s in the last %v of an hour of %v", n, name, refusedLate, r.Err(fakecluster.Request{}))
			}
		}
	}
	for place, n := range r.looks {
		if n > mostLooks {
			return s.broke("I19", "%d times %s in the last %v of an hour of %v", n, place, refusedLate, r.Err(fakecluster.Request{}))
		}
	}
	if r.begun = false; r.Kind == fates.Contested {
		s.letGo()
	}
	return s.model.broken
}

// letGo has the targets be written by those who held their fields, as answers said: who gives a
// field up changes the object.
func (s *sim) letGo() {
	for _, t := range sorted(s.model.now[sideTarget]) {
		s.token++
		s.merge(sideTarget, t, "provider", fmt.Sprintf(`{"metadata":{"annotations":{"provider/y":"%d"}}}`, s.token))
	}
}

// contests reports whether an answer says that others hold fields, before the last hour.
func (p simPlan) contests() bool {
	return slices.ContainsFunc(p.ops, func(o op) bool {
		answered := strings.Contains(o.kind, "answered") || strings.Contains(o.kind, "refused for")
		return !o.skip && answered && simAnswers[o.n%len(simAnswers)].Kind == fates.Contested
	})
}

// unread reports whether a side is told as a whole: what cannot be listed or watched says
// nothing of single objects, and which of them have changed there is not known.
func (s *sim) unread() bool {
	holds := func(of schema.GroupVersionResource) bool {
		return s.refusal.holds(fakecluster.Request{Verb: "watch", Resource: of})
	}
	return (holds(simThings) || holds(simSecrets)) && !slices.ContainsFunc(s.konnectors, func(k *konnector) bool {
		var unread *klutchsync.ReadError
		return k.alive() && !errors.As(k.sync.Status().Err, &unread)
	})
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
		if s.unread() && (s.refusal.side == sideSource || strings.HasPrefix(problem, "status.")) {
			problem = "" // what has changed there cannot be known
		}
		if problem != "" && why == "" {
			return s.broke("I18", "%s %s, and is not told after %v of %v", name, problem, toldWithin, s.refusal.Err(fakecluster.Request{}))
		}
	}
	return s.toldOfCopies()
}

// toldOfCopies checks that each source is told as such whose credential has not come.
func (s *sim) toldOfCopies() *violation {
	if len(s.plan.Related) == 0 {
		return nil
	}
	copies, originals := s.model.secrets(sideSource), s.model.secrets(sideTarget)
	for _, name := range sorted(originals) {
		s.mu.Lock()
		why := s.told[s.ofSecret(originals[name])]
		s.mu.Unlock()
		if problem := s.model.finalCopy(originals[name], copies); problem != "" && why == "" && !s.unread() {
			return s.broke("I18", "secret %s %s, and is not told after %v of %v", name, problem, toldWithin, s.refusal.Err(fakecluster.Request{}))
		}
	}
	return nil
}
