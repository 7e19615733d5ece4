// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	klutchsync "github.com/klutch-go/sdk/sync"
)

var simAnswers = fakecluster.Answers()

// So many answers are drawn by the numbers of ops. Later rows of the table are drawn apart, by
// numbers from laterFrom on, so that the others stay what they were.
const (
	drawnAnswers = 26
	laterFrom    = 2000
)

// A scope is a set of requests that an API server answers with one error.
type scope struct {
	name  string
	sides string // on which konnectors ask so
	holds func(fakecluster.Request) bool
}

// scopes are the requests that are answered so at once: one scope for each verb.
var scopes = []scope{
	{"objects", "source target", func(r fakecluster.Request) bool { return r.Resource == simThings && !looks(r.Verb) }},
	{"writes", "source target", func(r fakecluster.Request) bool { return r.Resource == simThings && !reads(r.Verb) }},
	{"lists", "source target", func(r fakecluster.Request) bool { return r.Resource == simThings && looks(r.Verb) }},
	{"watches", "source target", func(r fakecluster.Request) bool { return r.Resource == simThings && r.Verb == "watch" }},
	{"reads", "source target", func(r fakecluster.Request) bool { return r.Resource == simThings && r.Verb == "get" }},
	{"applies", "target", func(r fakecluster.Request) bool {
		return r.Resource == simThings && r.Verb == "apply" && r.Subresource == ""
	}},
	{"patches", "source target", func(r fakecluster.Request) bool { return r.Resource == simThings && r.Verb == "patch" }},
	{"deletions", "target", func(r fakecluster.Request) bool { return r.Resource == simThings && r.Verb == "delete" }},
	{"statuses", "source", func(r fakecluster.Request) bool { return r.Resource == simThings && r.Subresource == "status" }},
	{"copies", "source target", func(r fakecluster.Request) bool { return r.Resource == simSecrets && !looks(r.Verb) }},
	{"lists of copies", "source target", func(r fakecluster.Request) bool { return r.Resource == simSecrets && looks(r.Verb) }},
	{"watches of copies", "source target", func(r fakecluster.Request) bool { return r.Resource == simSecrets && r.Verb == "watch" }},
	{"schemas", "source target", func(r fakecluster.Request) bool { return r.Resource.Resource == "openapi" }},
	{"identities", "source target", func(r fakecluster.Request) bool {
		return r.Resource == simNamespaces || r.Resource.Resource == "customresourcedefinitions"
	}},
	{"all", "source target", func(fakecluster.Request) bool { return true }},
}

// copyWrites are the writes of copies alone: where a copy cannot be read either, none is written.
var copyWrites = scope{"writes of copies", "source target", func(r fakecluster.Request) bool { return r.Resource == simSecrets && !reads(r.Verb) }}

// offers are reads of whether a kind is on offer, which are asked before a lost target is made anew alone.
var offers = scope{"offers", "target", func(r fakecluster.Request) bool { return r.Resource.Resource == "apis" }}

// writes reports whether a scope has writes.
func (s scope) writes() bool {
	return slices.Contains([]string{"objects", "writes", "applies", "patches", "deletions", "statuses", "copies", copyWrites.name, "all"}, s.name)
}

func looks(verb string) bool { return verb == "list" || verb == "watch" }
func reads(verb string) bool { return verb == "get" || looks(verb) }

// answers are what an API server says to a request although it could do as it is asked: to
// one request, or to all of a kind for an hour. One history in four has some.
func answers() []generator {
	return []generator{
		{"write answered", 3, func(s *sim, o op) {
			effect := "none"
			if lateAnswer(o.n % drawnAnswers) {
				effect = []string{"none", "done", "late"}[o.n/drawnAnswers%3]
			}
			s.faults = append(s.faults, fault{kind: "answer", effect: effect, n: o.n % drawnAnswers})
		}},
		{"read answered", 2, func(s *sim, o op) {
			s.faults = append(s.faults, fault{kind: "answer", effect: "none", n: o.n % drawnAnswers, reads: true})
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
	p.hour = generate(r, hours()[len(scopes):])
	if p.seed%4 > 0 { // the others have all refusals in turn
		p.hour = cells[(p.seed-p.seed/4)%uint64(len(cells))].hour(p.hour.name)
		p.enable()
	}
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
	answer int // its number
	scope
	side   int
	after  bool // writes are done all the same
	begun  bool
	spared cache.ObjectName // the source that all goes well with; none if the scope is not one of objects
	since  time.Time
	first  map[string]int    // what was asked, how often in the first 20 minutes
	lately map[string][2]int // what was asked, how often it met the refusal and how often in all
	lists  int               // of late, that went well
	moved  int               // how often all was changed of late
}

// refusing is a refusal by a number: the answer, and in its hundreds the side and whether writes
// are done.
func refusing(within scope, n int) *refusal {
	number := n % 100 % drawnAnswers
	if n >= laterFrom {
		number = drawnAnswers + n%100%(len(simAnswers)-drawnAnswers)
	}
	r := &refusal{Answer: simAnswers[number], answer: number, scope: within, side: n / 100 % 2}
	r.after = n/200%2 == 1 && lateAnswer(r.answer)
	return r
}

// lateAnswer reports whether API servers give an answer also after they have done what they were
// asked.
func lateAnswer(n int) bool {
	kind := simAnswers[n].Kind
	return kind == fates.Failing || n == 0 // the way was cut
}

// A cell is a refusal of one scope.
type cell struct {
	scope
	n int
}

// cells are all refusals that there can be.
var cells = func() (all []cell) {
	for _, within := range scopes {
		all = append(all, within.cells(0, drawnAnswers)...)
	}
	return all
}()

// cells are the refusals of a scope that there can be, with the answers of numbers from one on.
func (s scope) cells(from, answers int) (all []cell) {
	for n := from; n < from+400; n++ {
		r := refusing(s, n)
		if n%100 < answers && strings.Contains(s.sides, sideName(r.side)) && (n%400 < 200 || r.after && s.writes()) {
			all = append(all, cell{s, n})
		}
	}
	return all
}

// hour has the refusal as the last hour of a history.
func (c cell) hour(name cache.ObjectName) op {
	g := c.refused(0)
	return op{kind: g.kind, name: name, n: c.n, act: g.act}
}

// refused is an hour in which an API server refuses all of a scope.
func (s scope) refused(weight int) generator {
	return generator{s.name + " refused for an hour", weight, func(sim *sim, o op) {
		sim.refusal = refusing(s, o.n)
		_ = sim.endure() // it is in the model
	}}
}

// refuseCopies has one history in sixteen end with an hour in which no copy is written. They are drawn
// apart, so that the others stay what they were.
func (p *simPlan) refuseCopies(r *rand.Rand) {
	if p.seed%4 > 0 || r.IntN(4) > 0 {
		return
	}
	all := copyWrites.cells(0, drawnAnswers)
	p.hour = all[r.IntN(len(all))].hour(p.hour.name)
	p.enable()
}

// refuseOffers has one history in 32 end with an hour in which targets are lost and it cannot be read whether their kind
// is on offer, with all answers in turn.
func (p *simPlan) refuseOffers() {
	if p.seed%32 == 0 && p.Lost != klutchsync.LostReport {
		all := append(offers.cells(0, drawnAnswers), offers.cells(laterFrom, len(simAnswers)-drawnAnswers)...)
		p.hour = all[p.seed/32%uint64(len(all))].hour(p.hour.name)
		p.enable()
	}
}

// refuseLater has one history in four go on, after its last hour, with another one of an answer that came
// to the table later: a third of them of all requests and a third of writes of copies, since few ask for
// schemas and few write copies, and each history with Secrets that go up.
func (p *simPlan) refuseLater(r *rand.Rand) {
	if p.seed%4 == 0 || r.IntN(5) > 1 && !p.related(klutchsync.SourceSide) {
		return
	}
	answer, often := drawnAnswers+r.IntN(len(simAnswers)-drawnAnswers), []string{"all", copyWrites.name, ""}[r.IntN(3)]
	var all, some []cell
	for _, within := range append(slices.Clone(scopes), copyWrites) {
		for _, c := range within.cells(laterFrom, len(simAnswers)-drawnAnswers) {
			if refusing(c.scope, c.n).answer != answer || !p.meets(c) {
				continue
			}
			if all = append(all, c); c.name == often {
				some = append(some, c)
			}
		}
	}
	if len(some) > 0 {
		all = some
	}
	if len(all) > 0 {
		p.later = all[r.IntN(len(all))].hour(p.hour.name)
	}
}

// wishesMove is the trait of a history in whose last hour users and providers change all objects three times a minute, while
// an API server refuses requests about them.
const wishesMove = "all changes while it is refused"

// move gives one history in 128 the trait wishesMove, if its last hour is a refusal: such an hour takes seconds to
// simulate. The draw is apart from all others, so that the other histories stay as they were.
func (p *simPlan) move() {
	if p.seed%128 == 2 && strings.HasSuffix(p.hour.kind, " refused for an hour") && p.later.act == nil {
		p.traits = append(p.traits, wishesMove)
	}
}

// meets reports whether konnectors ask in p what c refuses, and may be told so: that a kind has no status
// subresource they believe where no schema tells otherwise.
func (p *simPlan) meets(c cell) bool {
	r := refusing(c.scope, c.n)
	switch schemas := p.schemas() && !p.has("schemas unreadable"); {
	case r.Kind == fates.Unserved:
		return c.name == "statuses" && schemas
	case c.name == copyWrites.name && r.side == sideTarget:
		return p.related(klutchsync.SourceSide)
	case strings.Contains(c.name, "copies"):
		return p.related(klutchsync.TargetSide)
	case c.name == "schemas":
		return schemas
	case c.name == "deletions":
		return p.Deletion == klutchsync.DeletionDelete
	}
	return true
}

// enable has a plan ask what its last hour refuses.
func (p *simPlan) enable() {
	var trait string
	begins := func(with string) bool { return strings.HasPrefix(p.hour.kind, with) }
	switch {
	case begins(copyWrites.name) && refusing(copyWrites, p.hour.n).side == sideTarget:
		trait = secretsOfSource
	case begins(copyWrites.name), strings.Contains(p.hour.kind, "copies") && len(p.Related) == 0:
		trait = "Secrets"
	case begins("deletions ") && p.Deletion == klutchsync.DeletionOrphan:
		p.Deletion = klutchsync.DeletionDelete
		p.traits = slices.DeleteFunc(p.traits, func(t string) bool { return t == "targets kept" })
		return
	case (begins("schemas ") || begins("a kind ") || begins(offers.name)) && !p.schemas(): // which the client for schemas reads, too
		trait = "schemas readable"
	default:
		return
	}
	p.gain(trait)
}

// provoke has konnectors ask what is refused.
func (s *sim) provoke(r *refusal) {
	s.cut(r)
	s.edits()
	for _, name := range sorted(s.model.now[sideSource]) {
		s.busy(op{name: name})
		if r.name == "patches" && name != r.spared {
			restores()[0].act(s, op{name: name})
		}
	}
	switch r.name {
	case "schemas":
		s.reshape(r.side, s.narrow[r.side], op{})
	case "identities":
		s.expireAll()
	case offers.name:
		for _, name := range sorted(s.model.now[sideTarget]) {
			_ = s.things(sideTarget, name.Namespace).Delete(s.ctx, name.Name, metav1.DeleteOptions{})
		}
	case "copies", copyWrites.name:
		_ = s.users[sideTarget].Resource(simSecrets).Namespace(s.at(sideTarget, oldThing.Namespace)).Delete(s.ctx, "creds-"+oldThing.Name, metav1.DeleteOptions{})
		s.forgetKey(oldThing)
	}
	doCreate(s, op{name: newThing})
	_ = s.things(sideSource, oldThing.Namespace).Delete(s.ctx, oldThing.Name, metav1.DeleteOptions{})
}

// Sources that are deleted, and made, while an API server refuses.
var oldThing, newThing = cache.NewObjectName("a", "old"), cache.NewObjectName("a", "new")

// meets reports whether c meets the refusal.
func (r *refusal) meets(c *call) bool {
	of := c.request.Object.Name
	return c.side == r.side && r.holds(c.request) && (r.spared.Name == "" || of != r.spared.Name && of != "creds-"+r.spared.Name && of != keyPrefix+r.spared.Name)
}

// answered is the answer of a number to c, which perhaps was done.
func (s *sim) answered(c *call, n int, done bool) error {
	if simAnswers[n].Gives(c.request) {
		s.met[meeting{c.side, asked(c.request), n, done}]++
	}
	return simAnswers[n].Err(c.request)
}

// refuse answers c.
func (s *sim) refuse(c *call, r *refusal) error {
	done := r.after && c.writes()
	if done {
		_ = s.carry(c)
	}
	return s.answered(c, r.answer, done)
}

// cut ends the watches that begin no more.
func (s *sim) cut(r *refusal) {
	for _, w := range s.watches() {
		switch resource := w.Resource(); {
		case w.side != r.side || !r.holds(fakecluster.Request{Verb: "watch", Resource: resource}):
		case r.holds(fakecluster.Request{Verb: "list", Resource: resource}):
			s.expire(w)
		default:
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
	n, meets := r.lately[c.String()], r.meets(c)
	if time.Since(r.since) < refusedLate {
		r.first[c.String()]++
	}
	if n[1]++; meets {
		n[0]++
	} else if c.request.Verb == "list" {
		r.lists++
	}
	r.lately[c.String()] = n
	if !meets {
		return nil
	}
	return s.refuse(c, r)
}

// What a refusal may cost once it has lasted, and when it has to be told.
const (
	toldWithin   = time.Minute
	refusedFor   = time.Hour
	refusedLate  = 20 * time.Minute // the last ones of the hour
	mostRefused  = 6                // of the same of an object in these, by each konnector: one in ten minutes, and message, finalizer, mark and adoption are patches each
	mostPatches  = 12               // and of patches of a target, of which a takeover has two, each asked again at once where another state was met
	mostBeside   = 6                // looks that these need, of the same
	mostReads    = 40               // live reads of an object that are refused, one in 30 seconds as of what waits for the end of an outage, or that others need
	mostLooks    = 60               // lists and watches of a view, one in 30 seconds, and half as many again for jitter
	mostSoon     = 600              // of one that meets no answer, or one of an API server that fails, one in 2.5 seconds, and a fourth for jitter
	mostFenced   = 160              // looks at who the clusters are: one in 20 seconds if they fail, and as many for objects that wait for the answer
	mostInAll    = 500              // for the whole binding, by each konnector: most of it is who the clusters are, or schemas whose reads fail
	mostAfter    = 4                // of the same after a list, after which all is asked again
	mostMoving   = 28               // of the same of an object that changes all the time: one a minute, and the first few
	mostChanging = 140              // of reads whether the kind is on offer, for all that are lost
	movesEvery   = 20 * time.Second // an object that changes all the time
	mostSchemas  = 410              // reads of a schema that may have changed: one in ten seconds, or one in three if they fail
)

// endure has an API server refuse for an hour, in a world in which all else is well, and users
// make, change and delete what they have. I18: what is not in step is told within a minute. I19:
// it is asked again ever more rarely.
func (s *sim) endure() *violation {
	r := s.refusal
	doCreate(s, op{name: oldThing})
	s.pass(5 * time.Second)
	s.busy(op{name: oldThing})
	s.pass(5 * time.Second)
	if slices.Contains([]string{"objects", "writes", "applies", "patches", "statuses", "reads"}, r.name) {
		r.spared = s.healthy()
	}
	s.note("%s: %v to %s for an hour", sideName(r.side), r.Err(fakecluster.Request{}), r.name)
	r.begun, r.since, r.first, r.lately = true, time.Now(), map[string]int{}, map[string][2]int{}
	s.provoke(r)
	s.pass(toldWithin)
	if broken := s.told18(); broken != nil {
		return broken
	}
	s.moves(r, refusedFor-refusedLate-toldWithin)
	clear(r.lately)
	r.lists, r.moved = 0, 0
	s.moves(r, refusedLate)
	s.costs(r)
	if r.moved == 0 {
		s.dwindles(r)
		s.spares(r)
	}
	if r.begun = false; r.Kind == fates.Contested {
		s.letGo()
	}
	return s.model.broken
}

// moves lets time pass. With the trait wishesMove users and providers change all objects meanwhile, unless the answer is
// one after which the same is asked every few seconds at any rate, as where there is no API server.
func (s *sim) moves(r *refusal, d time.Duration) {
	if !s.plan.has(wishesMove) || r.Kind.Longest() < 10*time.Second {
		s.pass(d)
		return
	}
	for end := time.Now().Add(d); time.Now().Before(end) && s.model.broken == nil; r.moved++ {
		s.token++
		s.edits()
		s.pass(min(movesEvery, time.Until(end)))
	}
}

// busy has a provider write a credential, a status that refers to it, and what its own, and a user a Secret.
func (s *sim) busy(o op) {
	if s.plan.related(klutchsync.TargetSide) {
		doSecret(s, op{name: o.name, n: s.token})
	}
	if s.plan.related(klutchsync.SourceSide) {
		doKey(s, op{name: o.name, n: s.token})
	}
	doStatus(s, op{name: o.name, n: len(s.plan.Related)})
}

// healthy is a source that is in step, if there are others.
func (s *sim) healthy() cache.ObjectName {
	for _, name := range sorted(s.model.now[sideSource]) {
		if name != oldThing && s.model.finalSource(name, s.model.now[sideSource][name]) == "" {
			return name
		}
	}
	return cache.ObjectName{}
}

// views are at most so many watches of Secrets of one side and namespace that ask alike: originals, copies,
// and each in two namespaces where access is given by those.
func (p simPlan) views() int {
	n := max(len(p.Related), 1)
	if p.has(accessByNamespace) {
		n *= 2
	}
	return n
}

// dwindles checks that a request of the last 20 minutes of an hour comes less often than in the first ones,
// half as often where no pause is at its longest by then, by object and in all: I19.
func (s *sim) dwindles(r *refusal) {
	first, last := map[string]int{}, map[string]int{}
	slack := mostAfter * (1 + r.lists)
	identifies := func(asks string) bool { // at a pace of its own, and for others that ask for something else
		return strings.Contains(asks, " get namespaces ") || strings.Contains(asks, " get customresourcedefinitions ")
	}
	for asks, n := range r.first {
		if !identifies(asks) {
			first[asks[:2]] += n
		}
	}
	for _, asks := range slices.Sorted(maps.Keys(r.lately)) {
		if identifies(asks) {
			continue
		}
		n, words := r.lately[asks][1], strings.Fields(asks)
		last[asks[:2]] += n
		most := r.first[asks] / 2
		switch level := r.first[asks] + r.first[asks]/16; {
		case looks(words[2]), words[3] == "openapi":
			most = level
		case words[2] == "get":
			most = max(most, mostReads)
		}
		if n > most+slack {
			s.model.breaks("I19", "%d times %s in the last %v of an hour of %v to %s, and %d times in the first", n, asks, refusedLate, r.Err(fakecluster.Request{}), r.name, r.first[asks])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(last)) {
		if most := first[k] + first[k]/16 + 10*slack; last[k] > most {
			s.model.breaks("I19", "%d requests of %s in the last %v of an hour of %v to %s, and %d in the first", last[k], k, refusedLate, r.Err(fakecluster.Request{}), r.name, first[k])
		}
	}
}

// costs checks I19.
func (s *sim) costs(r *refusal) {
	sums := map[string]int{}
	for _, asks := range slices.Sorted(maps.Keys(r.lately)) {
		n := r.lately[asks]
		words := strings.Fields(asks)
		most, beside := mostRefused, mostBeside
		if r.moved > 0 { // requests that succeed come with each change
			if most, n[1] = mostMoving, n[0]; words[3] == "apis" { // which is asked for each that is lost
				most = mostChanging
			}
		}
		if views := s.plan.views(); words[3] == "secrets" && looks(words[2]) {
			n[0], n[1] = n[0]/views, n[1]/views
		}
		switch {
		case looks(words[2]) && r.Kind.Longest() < 10*time.Second:
			most, beside = mostSoon, mostSoon
		case looks(words[2]):
			most, beside = mostLooks, mostLooks
		case words[3] == "openapi":
			most, beside = mostSchemas, mostSchemas
		case words[3] == "namespaces" || words[3] == "customresourcedefinitions":
			most, beside = mostFenced, mostFenced
			sums[words[0]] += n[1]
		case r.moved > 0 && (words[2] == "patch" || words[2] == "apply" && r.Kind == fates.Contested):
			most *= 2 // message, finalizer and mark; a takeover has two, and so has an apply that is asked by force
			sums[words[0]] += n[1]
		case words[2] == "patch" && r.side == sideTarget:
			most = mostPatches
			sums[words[0]] += n[1]
		case words[2] == "get":
			most, beside = max(most, mostReads), mostReads
			sums[words[0]] += n[1]
		default:
			sums[words[0]] += n[1]
		}
		if n[0] > most+mostAfter*r.lists || n[1]-n[0] > beside+mostAfter*r.lists {
			s.model.breaks("I19", "%d times %s, %d of them refused, in the last %v of an hour of %v to %s", n[1], asks, n[0], refusedLate, r.Err(fakecluster.Request{}), r.name)
		}
	}
	for k, n := range sums {
		if n > mostInAll+10*mostAfter*r.lists+8*r.moved {
			s.model.breaks("I19", "%d requests of %s in the last %v of an hour of %v to %s", n, k, refusedLate, r.Err(fakecluster.Request{}), r.name)
		}
	}
}

// spares checks that what an API server refuses for others does not slow a neighbour down.
func (s *sim) spares(r *refusal) {
	name := r.spared
	if s.model.now[sideSource][name] == nil {
		return
	}
	s.merge(sideSource, name, "user", `{"spec":{"size":"42"}}`)
	s.pass(time.Second)
	s.busy(op{name: name})
	s.pass(time.Second)
	if problem := s.model.finalSource(name, s.model.now[sideSource][name]); problem != "" {
		s.model.breaks("I13", "%s %s after a second, in an hour of %v to others", name, problem, r.Err(fakecluster.Request{}))
	}
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
		switch {
		case o.skip:
			return false
		case strings.Contains(o.kind, "answered"):
			return simAnswers[o.n%drawnAnswers].Kind == fates.Contested
		default:
			return strings.Contains(o.kind, "refused for") && refusing(scope{}, o.n).Kind == fates.Contested
		}
	})
}

// unread reports whether each konnector tells that it cannot read a side, or who the clusters are:
// which objects have changed there is not known.
func (s *sim) unread() bool {
	if s.refusal == nil {
		return false
	}
	holds := func(of schema.GroupVersionResource) bool {
		return s.refusal.holds(fakecluster.Request{Verb: "watch", Resource: of})
	}
	return (holds(simThings) || holds(simSecrets) || s.refusal.name == "identities") && !slices.ContainsFunc(s.konnectors, func(k *konnector) bool { return k.alive() && !k.unread() })
}

// unread reports whether a konnector tells so.
func (k *konnector) unread() bool {
	var object *klutchsync.ObjectError
	return k.sync.Status().Err != nil && !errors.As(k.sync.Status().Err, &object)
}

// asItIs lets a minute pass in which all lasts that goes wrong, and each request and event that gets
// through does so. I18: a source that is not in step then is told. Left out is what answers nothing at all, what
// is fought over for the whole minute, and an empty list, which cannot be told from a true one.
func (s *sim) asItIs() {
	if s.silence != [2]bool{} || s.plan.has("old konnector beside new", "empty list") {
		return
	}
	s.note("a minute as it is")
	s.lagging, s.hidden = map[string]int{}, nil
	s.program.lasts(s.step)
	for i := range s.windows {
		if s.windows[i].until >= s.step {
			s.windows[i].until = math.MaxInt
		}
	}
	s.expireAll()
	if s.missed { // a watch that had just ended goes on behind the event, and lists nothing
		s.pass(time.Second)
		s.expireAll()
	}
	s.pass(toldWithin)
	for i := range s.windows {
		s.windows[i].until = 0
	}
	for _, name := range sorted(s.model.now[sideSource]) {
		source := s.model.now[sideSource][name]
		problem := s.model.finalSource(name, source)
		if problem == "" || source.GetDeletionTimestamp() != nil && !holds(source) || annotation(source, klutchsync.MessageAnnotation) != "" {
			continue
		}
		why := s.why(name)
		if why == "" && !slices.ContainsFunc(s.konnectors, func(k *konnector) bool { return k.alive() && k.unread() }) {
			s.model.breaks("I18", "%s %s, and is not told after %v", name, problem, toldWithin)
		}
	}
}

// told18 checks that each source that is not in step is told as such.
func (s *sim) told18() *violation {
	if s.model.broken != nil {
		return s.model.broken
	}
	for _, name := range sorted(s.model.now[sideSource]) {
		problem := s.model.finalSource(name, s.model.now[sideSource][name])
		why := s.why(name)
		if s.refusal.side == sideSource && s.refusal.holds(fakecluster.Request{Verb: "patch", Resource: simThings}) && strings.HasPrefix(problem, "says ") {
			problem = "" // what it says cannot be changed
		}
		if s.unread() && (s.refusal.name == "identities" || s.refusal.side == sideSource || strings.HasPrefix(problem, "status.")) {
			problem = "" // what has changed there cannot be known
		}
		if problem != "" && why == "" {
			return s.broke("I18", "%s %s, and is not told after %v of %v", name, problem, toldWithin, s.refusal.Err(fakecluster.Request{}))
		}
	}
	s.goesOn()
	return s.toldOfCopies()
}

// goesOn checks that where a source takes no message, its spec and its status travel all the same: I18.
func (s *sim) goesOn() {
	if s.refusal.side != sideSource || s.refusal.name != "patches" {
		return
	}
	for _, name := range sorted(s.model.now[sideSource]) {
		source := s.model.now[sideSource][name]
		target := s.model.now[sideTarget][op{name: name}.target()]
		if source.GetDeletionTimestamp() != nil || !holds(source) || target == nil || sourceUID(target) != string(source.GetUID()) || s.model.reason(source, target) != "" || secondWrites(source) {
			continue
		}
		why, problem := s.why(name), differs(source, target, s)
		switch {
		case why == klutchsync.ReasonDenied && s.plan.Drift == klutchsync.DriftReport:
			continue // others may have changed the target before that was told
		case !slices.Contains([]klutchsync.Reason{"", klutchsync.ReasonDenied, klutchsync.ReasonRelated, klutchsync.ReasonStatus, klutchsync.ReasonContested, klutchsync.ReasonFields}, why):
			continue // it says what keeps the spec here
		case problem == "" && why != klutchsync.ReasonStatus: // maps of it that have become empty go by a patch
			problem = statusDiffers(source, target, s.narrow[sideSource])
		}
		if problem != "" {
			s.model.breaks("I18", "%s is to say %q, which its API server refuses, and so %s", name, why, problem)
		}
	}
}

// toldOfCopies checks that each source is told as such whose credential has not come.
func (s *sim) toldOfCopies() *violation {
	if s.toldOfKeys(); !s.plan.related(klutchsync.TargetSide) {
		return s.model.broken
	}
	copies, originals := s.model.secrets(sideSource, credsPrefix), s.model.secrets(sideTarget, credsPrefix)
	for _, name := range sorted(originals) {
		s.mu.Lock()
		source := s.ofSecret(originals[name])
		s.mu.Unlock()
		why := s.why(source)
		if s.model.now[sideSource][source] == nil {
			continue // there is nothing to tell it on
		}
		if problem := s.model.finalCopy(originals[name], copies); problem != "" && why == "" && !s.unread() && !s.unreadable(source.Namespace) && !s.untold(s.source(name)) {
			return s.broke("I18", "secret %s %s, and is not told after %v", name, problem, toldWithin)
		}
	}
	return s.model.broken
}

// untold reports whether a konnector tells of a copy to whose original no source refers.
func (s *sim) untold(copied cache.ObjectName) bool {
	return slices.ContainsFunc(s.konnectors, func(k *konnector) bool {
		return k.alive() && slices.ContainsFunc(k.sync.Status().Untold, func(said string) bool { return strings.Contains(said, copied.String()) })
	})
}
