// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// A simPlan is what happens in a history besides what the konnectors do. It
// follows from its seed; when each thing happens does too.
type simPlan struct {
	seed       uint64
	traits     []string // names of those that it has
	konnectors int
	klutchsync.Options
	ops   []op
	hour  op // of errors, with which the history ends; of no kind for none
	later op // another one after that
}

// An op is one thing that happens.
type op struct {
	kind string
	name cache.ObjectName // of a source
	n    int
	act  func(*sim, op)
	skip bool // taken out while a failing plan is shrunk
}

func (o op) String() string { return fmt.Sprintf("%s %s %d", o.kind, o.name, o.n) }
func (o op) do(s *sim)      { o.act(s, o) }

func (o op) target() cache.ObjectName {
	return cache.NewObjectName("svc-"+o.name.Namespace, o.name.Name)
}

// A generator is a kind of op and how often it comes.
type generator struct {
	kind   string
	weight int
	act    func(*sim, op)
}

// A trait is what a whole history has, one in so many.
type trait struct {
	kind string
	in   int
	set  func(*simPlan)
}

func traits() []trait {
	return []trait{
		{"two konnectors", 6, func(p *simPlan) { p.konnectors = 2 }},
		{"normalising webhook", 6, func(*simPlan) {}},
		{"Secrets", 5, func(p *simPlan) {
			p.Related = []klutchsync.Related{{Resource: simSecrets, From: klutchsync.TargetSide, References: []string{"status.secret"}}}
			if p.seed%3 == 0 {
				p.Related[0].References = nil // all
			}
		}},
		{"mapped", 8, func(p *simPlan) { p.TargetScope = klutchsync.ScopeMapped }},
		{"adopt", 4, func(p *simPlan) { p.Conflict = klutchsync.ConflictAdopt }},
		{"drift reported", 4, func(p *simPlan) { p.Drift = klutchsync.DriftReport }},
		{"loss reported", 6, func(p *simPlan) { p.Lost = klutchsync.LostReport }},
		{"targets kept", 6, func(p *simPlan) { p.Deletion = klutchsync.DeletionOrphan }},
		{"orphans deleted", 6, func(p *simPlan) {
			if p.Deletion == klutchsync.DeletionDelete {
				p.Orphans = klutchsync.OrphanDelete
			}
		}},
		{"old konnector beside new", 12, func(*simPlan) {}},
		{"few deletions", 10, func(p *simPlan) { p.DeletionLimit = 1 }},
		{"schemas unreadable", 0, func(*simPlan) {}}, // drawn by reshape
		{"deletion log", 0, func(*simPlan) {}},       // drawn by refuse
		{"schemas readable", 0, func(*simPlan) {}},   // drawn by enable
		{accessByNamespace, 0, func(*simPlan) {}},    // drawn by embed
		{secretsOfSource, 0, func(p *simPlan) { // drawn by embed
			keys := klutchsync.Related{Resource: simSecrets, From: klutchsync.SourceSide, References: []string{"spec.key"}}
			if p.seed%5 < 2 {
				keys.References = nil // all
			}
			p.Related = append(p.Related, keys)
		}},
		{"no bookmarks", 0, func(*simPlan) {}},      // drawn by unmark
		{"a minute as it is", 0, func(*simPlan) {}}, // all but those in testdata
	}
}

func blankPlan(seed uint64, kinds ...string) simPlan {
	p := simPlan{seed: seed, konnectors: 1, traits: kinds, Options: klutchsync.Options{
		Binding: "sim", Workers: 8, Conflict: klutchsync.ConflictFail, Drift: klutchsync.DriftCorrect,
		Lost: klutchsync.LostRecreate, Deletion: klutchsync.DeletionDelete,
	}}
	for _, t := range traits() {
		if slices.Contains(kinds, t.kind) {
			t.set(&p)
		}
	}
	return p
}

func newPlan(seed uint64) simPlan {
	r := rand.New(rand.NewPCG(seed, 1))
	var kinds []string
	for _, t := range traits() {
		if t.in > 0 && r.IntN(t.in) == 0 {
			kinds = append(kinds, t.kind)
		}
	}
	p := blankPlan(seed, kinds...)
	p.ops = append(p.ops, op{"create", cache.NewObjectName("a", "x"), r.IntN(1000), doCreate, false})
	for range 3 + r.IntN(7) {
		p.ops = append(p.ops, generate(r, workload()))
	}
	for range r.IntN(5) {
		at := 1 + r.IntN(len(p.ops))
		p.ops = slices.Insert(p.ops, at, generate(r, perturbations()))
	}
	p.reshape(rand.New(rand.NewPCG(seed, 3)))
	p.lose(rand.New(rand.NewPCG(seed, 5)))
	p.answer(rand.New(rand.NewPCG(seed, 7)))
	p.restoreBy(rand.New(rand.NewPCG(seed, 9)))
	p.refuse(rand.New(rand.NewPCG(seed, 11)))
	p.meddle(rand.New(rand.NewPCG(seed, 13)))
	p.recount(rand.New(rand.NewPCG(seed, 15)))
	p.embed(rand.New(rand.NewPCG(seed, 21)))
	p.unmark(rand.New(rand.NewPCG(seed, 17)))
	p.estrange(rand.New(rand.NewPCG(seed, 19)))
	p.shape(rand.New(rand.NewPCG(seed, 33)))
	p.refuseCopies(rand.New(rand.NewPCG(seed, 23)))
	p.loseOverRestarts(rand.New(rand.NewPCG(seed, 29)))
	p.refuseOffers()
	p.refuseLater(rand.New(rand.NewPCG(seed, 31)))
	p.move()
	p.traits = append(p.traits, "a minute as it is")
	return p
}

func generate(r *rand.Rand, from []generator) op {
	total := 0
	for _, g := range from {
		total += g.weight
	}
	n := r.IntN(total)
	i := slices.IndexFunc(from, func(g generator) bool { n -= g.weight; return n < 0 })
	slots := []cache.ObjectName{{Namespace: "a", Name: "x"}, {Namespace: "a", Name: "x"}, {Namespace: "a", Name: "y"}, {Namespace: "b", Name: "x"}}
	return op{from[i].kind, slots[r.IntN(len(slots))], r.IntN(1000), from[i].act, false}
}

// has reports whether something of these kinds happens.
func (p simPlan) has(kinds ...string) bool {
	return slices.ContainsFunc(kinds, func(kind string) bool {
		return slices.Contains(p.traits, kind) || slices.ContainsFunc(p.ops, func(o op) bool { return !o.skip && o.kind == kind })
	})
}

// String is p as parsePlan reads it: its seed, traits and ops, and its last hour if it has
// one. An op that was taken out is a dash, so that all others happen when they did.
func (p simPlan) String() string {
	var ops []string
	for _, o := range p.ops {
		if o.skip {
			ops = append(ops, "-")
		} else {
			ops = append(ops, o.String())
		}
	}
	out := fmt.Sprintf("%d: %s: %s", p.seed, strings.Join(p.traits, ", "), strings.Join(ops, ", "))
	if p.hour.act == nil {
		return out
	}
	if out += ": " + p.hour.String(); p.later.act == nil {
		return out
	}
	return out + ", " + p.later.String()
}

func parsePlan(t *testing.T, text string) simPlan {
	t.Helper()
	parts := strings.SplitN(text, ":", 4)
	seed, err := strconv.ParseUint(parts[0], 10, 64)
	if err != nil || len(parts) < 3 {
		t.Fatalf("no plan: %q: %v", text, err)
	}
	p := blankPlan(seed, split(parts[1])...)
	known := slices.Concat(workload(), perturbations(), schemaChanges(), losses(), answers(), spells(), restores(), meddling(), embedded(), strangers(), shapes())
	for _, kind := range p.traits {
		if !slices.ContainsFunc(traits(), func(t trait) bool { return t.kind == kind }) {
			t.Fatalf("no history is called %q", kind)
		}
	}
	for _, item := range split(parts[2]) {
		p.ops = append(p.ops, parseOp(t, item, known))
	}
	if len(parts) > 3 {
		ends := split(parts[3])
		if p.hour = parseOp(t, ends[0], hours()); len(ends) > 1 {
			p.later = parseOp(t, ends[1], hours())
		}
	}
	return p
}

func split(list string) (out []string) {
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// parseOp reads a kind, the name of a source if it is not a/x, and a number if it
// is not 0.
func parseOp(t *testing.T, text string, known []generator) op {
	t.Helper()
	o := op{name: cache.NewObjectName("a", "x"), skip: text == "-", act: func(*sim, op) {}}
	words := strings.Fields(text)
	if n, err := strconv.Atoi(words[len(words)-1]); err == nil && len(words) > 1 {
		o.n, words = n, words[:len(words)-1]
	}
	if ns, name, ok := strings.Cut(words[len(words)-1], "/"); ok {
		o.name, words = cache.NewObjectName(ns, name), words[:len(words)-1]
	}
	o.kind = strings.Join(words, " ")
	if at := slices.IndexFunc(known, func(g generator) bool { return g.kind == o.kind }); at >= 0 {
		o.act = known[at].act
	} else if !o.skip {
		t.Fatalf("nothing is called %q", o.kind)
	}
	return o
}
