// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// What an embedding program answers to konnectors, by the names of the options.
const (
	asksOffer  = "Offered"
	asksAccess = "RelatedAccess"
	asksLog    = "DeletionLog"
)

var programAsks = []string{asksOffer, asksAccess, asksLog}

// Traits of histories.
const (
	accessByNamespace = "access by namespace"
	secretsOfSource   = "Secrets of the source"
)

// A lapse is an error of the table of fates with which the embedding program answers one call of
// an option, or all until a step, or for an hour.
type lapse struct {
	of     string
	answer int
	once   bool
	until  int
	hour   bool
}

// A program is what embeds the konnectors.
type program struct {
	lapses []lapse
	since  time.Time // of the hour in which it fails; zero outside of it
	asked  [2]int    // how often in its first and last 20 minutes
}

// embedded are what users do with Secrets of their own, and how the embedding program fails. One
// history in sixteen has some: they are drawn apart, so that the others stay what they were.
func embedded() []generator {
	all := []generator{
		{"key", 6, doKey},
		{"forget-key", 2, func(s *sim, o op) { s.forgetKey(o.name) }},
	}
	for _, of := range programAsks {
		all = append(all,
			generator{of + " fails once", 1, func(s *sim, o op) { s.lapses(lapse{of: of, answer: o.n, once: true}) }},
			generator{of + " fails for a while", 1, func(s *sim, o op) {
				s.lapses(lapse{of: of, answer: o.n, until: s.step + 5 + o.n%60})
			}})
	}
	return all
}

// programHours are drawn by embed.
func programHours() (all []generator) {
	for _, of := range programAsks {
		all = append(all, generator{of + " fails for an hour", 0, func(s *sim, o op) { s.programFails(of, o) }})
	}
	return all
}

// embed gives a plan a program that fails, and Secrets of the source.
func (p *simPlan) embed(r *rand.Rand) {
	if r.IntN(16) > 0 {
		return
	}
	for _, trait := range []string{accessByNamespace, "deletion log", "Secrets"} {
		if r.IntN(3) == 0 {
			p.gain(trait)
		}
	}
	if len(p.Related) == 0 || r.IntN(3) > 0 {
		p.gain(secretsOfSource)
	}
	for range 2 + r.IntN(4) {
		p.ops = slices.Insert(p.ops, 1+r.IntN(len(p.ops)), generate(r, embedded()))
	}
	if p.seed%4 > 0 {
		return // it has a refusal
	}
	hour := programHours()[r.IntN(len(programAsks))]
	p.hour = op{kind: hour.kind, name: p.hour.name, n: r.IntN(1000), act: hour.act}
	switch hour.kind {
	case asksAccess + " fails for an hour":
		p.gain(accessByNamespace)
	case asksLog + " fails for an hour":
		p.gain("deletion log")
	}
}

// gain gives p a trait.
func (p *simPlan) gain(trait string) {
	if slices.Contains(p.traits, trait) {
		return
	}
	p.traits = append(p.traits, trait)
	for _, t := range traits() {
		if t.kind == trait {
			t.set(p)
		}
	}
}

// lapses has the program fail.
func (s *sim) lapses(l lapse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.program.lapses = append(s.program.lapses, l)
}

// lasts has what fails for a while do so from now on.
func (p *program) lasts(step int) {
	for i := range p.lapses {
		if p.lapses[i].until >= step {
			p.lapses[i].until = math.MaxInt
		}
	}
}

// answers is what the program answers to a call of an option.
func (s *sim) answers(of string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.program.lapses, func(l lapse) bool {
		return l.of == of && l.hour == s.calm && (l.hour || l.once || s.step <= l.until)
	})
	if at < 0 {
		return nil
	}
	l := s.program.lapses[at]
	switch gone := time.Since(s.program.since); {
	case l.once:
		s.program.lapses = slices.Delete(s.program.lapses, at, at+1)
	case l.hour && gone < refusedLate:
		s.program.asked[0]++
	case l.hour && gone >= refusedFor-refusedLate:
		s.program.asked[1]++
	}
	return simAnswers[l.answer%drawnAnswers].Err(fakecluster.Request{})
}

// access is Options.RelatedAccess of the konnectors.
func (s *sim) access(_ context.Context, _ string, wanted bool) (bool, error) {
	err := s.answers(asksAccess)
	return wanted && err == nil, err
}

// mostAsked are the calls of an option in the last 20 minutes of an hour in which each fails, for one object
// or namespace, by each konnector: one in ten minutes.
const mostAsked = 3

// programFails has the embedding program answer each call of an option with an error for an hour, in
// a world in which all else is well. I18: what waits for it is told within a minute. I19: it is asked ever
// more rarely.
func (s *sim) programFails(of string, o op) {
	doCreate(s, op{name: oldThing})
	s.pass(5 * time.Second)
	s.busy(op{name: oldThing})
	s.pass(time.Minute)
	answer := o.n % drawnAnswers
	s.note("%s: %v for an hour", of, simAnswers[answer].Err(fakecluster.Request{}))
	s.program.since, s.program.asked = time.Now(), [2]int{}
	s.lapses(lapse{of: of, answer: answer, hour: true})
	all := sorted(s.model.now[sideSource])
	switch of {
	case asksOffer:
		for _, name := range sorted(s.model.now[sideTarget]) {
			_ = s.things(sideTarget, name.Namespace).Delete(s.ctx, name.Name, metav1.DeleteOptions{})
		}
	case asksLog:
		for _, name := range all {
			_ = s.things(sideSource, name.Namespace).Delete(s.ctx, name.Name, metav1.DeleteOptions{})
		}
	default:
		for _, k := range s.konnectors {
			s.crash(k)
			s.start(k)
		}
		s.edits()
		for _, name := range all {
			s.busy(op{name: name})
		}
	}
	s.pass(toldWithin)
	s.toldOfProgram(of)
	s.pass(refusedFor - toldWithin)
	first, last := s.program.asked[0], s.program.asked[1]
	most := mostAsked * (len(all) + 2) * len(s.konnectors)
	if s.plan.has("no bookmarks") { // after each list all is asked again
		most *= 2 * int(refusedLate/(3*time.Minute)) // of two namespaces
		first = most
	}
	if last > min(most, first) {
		s.model.breaks("I19", "%d calls of %s in the last %v of an hour of errors, %d in the first", last, of, refusedLate, first)
	}
	s.mu.Lock()
	s.program.lapses = nil
	s.mu.Unlock()
}

// toldOfProgram checks that what waits for the program is told: I18.
func (s *sim) toldOfProgram(of string) {
	for _, name := range sorted(s.model.now[sideSource]) {
		source := s.model.now[sideSource][name]
		problem := s.model.finalSource(name, source)
		why := s.why(name)
		if problem != "" && why == "" && (source.GetDeletionTimestamp() == nil || holds(source)) {
			s.model.breaks("I18", "%s %s, and is not told after %v of errors of %s", name, problem, toldWithin, of)
		}
	}
	_ = s.toldOfCopies() // it is in the model
}

// unreadable reports whether a konnector tells that it has no access to a namespace of the source.
func (s *sim) unreadable(namespace string) bool {
	return slices.ContainsFunc(s.konnectors, func(k *konnector) bool {
		return k.alive() && k.sync.Status().Unreadable[namespace] != ""
	})
}

// A key is a Secret that a user has, and to which spec.key of the source of its name refers.
const keyPrefix = "key-"

// doKey makes a user write a Secret, with a content that tells whose it is.
func doKey(s *sim, o op) {
	s.writeSecret(sideSource, o.name.Namespace, keyPrefix+o.name.Name, "user", o.n)
}

func (s *sim) forgetKey(source cache.ObjectName) {
	_ = s.users[sideSource].Resource(simSecrets).Namespace(source.Namespace).Delete(s.ctx, keyPrefix+source.Name, metav1.DeleteOptions{})
}

// related reports whether Secrets that a side owns travel.
func (p simPlan) related(from klutchsync.Side) bool {
	return slices.ContainsFunc(p.Related, func(r klutchsync.Related) bool { return r.From == from })
}

// allKeys reports whether all of the users' Secrets travel, be there references to them or not.
func (p simPlan) allKeys() bool {
	return slices.ContainsFunc(p.Related, func(r klutchsync.Related) bool { return r.From == klutchsync.SourceSide && len(r.References) == 0 })
}

// refersTo reports whether a source names a key.
func refersTo(source *unstructured.Unstructured, key string) bool {
	named, _, _ := unstructured.NestedString(source.Object, "spec", "key")
	return named == key
}

// referrers are the sources that name a key.
func (m *model) referrers(key cache.ObjectName) (out []cache.ObjectName) {
	for _, name := range sorted(m.now[sideSource]) {
		if name.Namespace == key.Namespace && refersTo(m.now[sideSource][name], key.Name) {
			out = append(out, name)
		}
	}
	return out
}

// keyTravels reports whether a key has to have a copy.
func (m *model) keyTravels(key cache.ObjectName) bool {
	if m.sim.plan.allKeys() {
		return m.hasSource(key.Namespace)
	}
	return len(m.referrers(key)) > 0
}

// copyOfKey is the copy of a key, or what has its name.
func (m *model) copyOfKey(key cache.ObjectName) *unstructured.Unstructured {
	return m.secrets(sideTarget, keyPrefix)[cache.NewObjectName(m.sim.at(sideTarget, key.Namespace), key.Name)]
}

// elsewhere reports whether the copy of a key is of another cluster's: it is left as it is.
func (m *model) elsewhere(copied *unstructured.Unstructured) bool {
	return copied != nil && origin(copied).Cluster != m.sim.identity(sideSource)
}

// keyTaken reports whether what has the name of the copy of a source's key is another cluster's.
func (m *model) keyTaken(source *unstructured.Unstructured) bool {
	named, _, _ := unstructured.NestedString(source.Object, "spec", "key")
	key := cache.NewObjectName(source.GetNamespace(), named)
	return m.sim.plan.related(klutchsync.SourceSide) && m.secrets(sideSource, keyPrefix)[key] != nil && !m.sim.plan.allKeys() && m.elsewhere(m.copyOfKey(key))
}

// finalKeys names the first fault of the copies of keys.
func (m *model) finalKeys() string {
	if !m.sim.plan.related(klutchsync.SourceSide) {
		return ""
	}
	originals, copies := m.secrets(sideSource, keyPrefix), m.secrets(sideTarget, keyPrefix)
	for _, name := range sorted(originals) {
		if problem := m.finalKey(name, originals[name]); problem != "" {
			return fmt.Sprintf("secret %s %s", name, problem)
		}
	}
	for _, name := range sorted(copies) {
		key := cache.NewObjectName(strings.TrimPrefix(name.Namespace, "svc-"), name.Name)
		if !m.sim.spaces.closed(key.Namespace) && !m.elsewhere(copies[name]) && !m.leftBehind(copies[name]) && (originals[key] == nil || !m.keyTravels(key)) {
			return fmt.Sprintf("secret %s is a copy that nothing asks for", name)
		}
	}
	return ""
}

// finalKey returns the fault of the copy of a key, if it has one.
func (m *model) finalKey(name cache.ObjectName, original *unstructured.Unstructured) string {
	copied := m.copyOfKey(name)
	switch {
	case !m.keyTravels(name) || m.elsewhere(copied):
		return ""
	case copied == nil:
		return "has no copy"
	case !gocmp.Equal(copied.Object["data"], original.Object["data"]):
		return "has an old copy"
	}
	return ""
}

// toldOfKeys checks that a source is told as such whose key has not come: I18.
func (s *sim) toldOfKeys() {
	originals := s.model.secrets(sideSource, keyPrefix)
	for _, name := range sorted(originals) {
		problem := s.model.finalKey(name, originals[name])
		if problem == "" || !s.plan.related(klutchsync.SourceSide) || s.unread() || s.unreadable(name.Namespace) {
			continue
		}
		told := slices.ContainsFunc(s.model.referrers(name), func(source cache.ObjectName) bool { return s.why(source) != "" })
		if !told && !s.untold(cache.NewObjectName(s.at(sideTarget, name.Namespace), name.Name)) {
			s.model.breaks("I18", "secret %s %s, and is not told after %v", name, problem, toldWithin)
		}
	}
}
