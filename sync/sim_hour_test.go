// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// hours are how histories end once all is well, with one: an API server refuses all of a scope,
// a rival undoes each write, or a rare event has to go well. Each checks its own promise; then all
// has to be well again.
func hours() (all []generator) {
	for _, scope := range scopes {
		all = append(all, scope.refused(3))
	}
	for _, r := range rivals {
		all = append(all, generator{r.name + " for an hour", 2, func(s *sim, _ op) { s.contend(r) }})
	}
	all = append(all,
		generator{"a second Sync", 3, func(s *sim, _ op) { s.joined(false) }},
		generator{"another's condition", 1, func(s *sim, _ op) { s.conditioned() }},
		generator{"a deletion that is held", 3, func(s *sim, o op) { s.heldDeletion(o) }},
		generator{"source cluster set up again", 2, func(s *sim, _ op) { s.setUpAgain() }},
	)
	return slices.Concat(all, rareHours(), programHours(), shapeHours(), []generator{copyWrites.refused(0), offers.refused(0), lossesOverRestarts})
}

const withinSource = "a second Sync within the source's cluster"

// rareHours are drawn by recount.
func rareHours() (all []generator) {
	all = []generator{
		{"deletions over restarts", 0, func(s *sim, _ op) { s.goneOverRestarts(sideSource) }},
		{withinSource, 0, func(s *sim, _ op) { s.joined(true) }},
		{"a kind that is taken away for an hour", 0, func(s *sim, o op) { s.goes(o) }},
	}
	for _, r := range besides {
		all = append(all, generator{r.name + " for an hour", 0, func(s *sim, _ op) { s.contend(r) }})
	}
	return all
}

// recount has one history in sixteen end with deletions over restarts, and one in twenty with
// another rare hour. They are drawn apart, so that the others stay what they were.
func (p *simPlan) recount(r *rand.Rand) {
	if p.seed%4 > 0 {
		return
	}
	all, n := rareHours(), 0
	if r.IntN(4) > 0 {
		if r.IntN(4) > 0 {
			return
		}
		n = 1 + r.IntN(len(all)-1)
	}
	p.hour = op{kind: all[n].kind, name: p.hour.name, n: r.IntN(1000), act: all[n].act}
	if n > 0 {
		p.enable()
	}
}

// lossesOverRestarts is drawn by loseOverRestarts.
var lossesOverRestarts = generator{"losses over restarts", 0, func(s *sim, _ op) {
	doCreate(s, op{name: oldThing})
	doCreate(s, op{name: newThing})
	s.pass(time.Minute)
	s.edits() // of which the sources know that there were targets
	s.pass(time.Minute)
	s.goneOverRestarts(sideTarget)
}}

// loseOverRestarts has one history in 32 end with losses over restarts. They are drawn apart, so that the
// others stay what they were.
func (p *simPlan) loseOverRestarts(r *rand.Rand) {
	if p.seed%4 > 0 || r.IntN(8) > 0 {
		return
	}
	p.hour = op{kind: lossesOverRestarts.kind, name: p.hour.name, act: lossesOverRestarts.act}
}

// goneOverRestarts has konnectors that let one deletion pass, and keep their number, begin anew after each
// that users ask for, or after the loss of each target. I15 counts over that.
func (s *sim) goneOverRestarts(side int) {
	if !s.plan.has("deletion log") {
		for _, k := range s.konnectors {
			k.asked, k.copies = nil, nil // the first that keeps a log finds none
		}
		s.plan.traits = append(slices.Clone(s.plan.traits), "deletion log")
	}
	s.plan.DeletionLimit = 1
	again := func() {
		for _, k := range s.konnectors {
			s.crash(k)
			s.start(k)
		}
		s.pass(20 * time.Second)
	}
	again()
	for _, name := range sorted(s.model.now[side]) {
		_ = s.things(side, name.Namespace).Delete(s.ctx, name.Name, metav1.DeleteOptions{})
		s.pass(20 * time.Second)
		again()
	}
}

// A second Sync has its targets in namespaces of these names, and a finalizer of its own.
const (
	secondSpaces    = "two-"
	secondFinalizer = "klutch.anynines.com/second"
)

// joined has a second Sync of the same sources begin, with a finalizer of its own, whose targets
// are elsewhere: it is the second on each source, so that the first one goes on to write statuses
// and messages. That both are at rest is checked as it is of one. Where its targets are in the one
// cluster with the sources, its mapper has a place for targets of targets, which are not made.
func (s *sim) joined(one bool) {
	s.second = klutchsync.NewNamespaces(nil)
	k := &konnector{id: len(s.konnectors), second: true, one: one}
	for _, ns := range []string{"a", "b", secondSpaces + "a", secondSpaces + "b"} {
		s.makeNamespace(k.target(), secondSpaces+ns)
		s.second.Set(ns, secondSpaces+ns)
	}
	s.konnectors = append(s.konnectors, k)
	s.start(k)
	s.pass(time.Minute)
	s.edits()
	s.pass(time.Minute)
	for _, name := range sorted(s.model.now[sideSource]) {
		_ = s.things(sideSource, name.Namespace).Delete(s.ctx, name.Name, metav1.DeleteOptions{})
		break
	}
}

// target is the side on which the targets of k are.
func (k *konnector) target() int {
	if k.one {
		return sideSource
	}
	return sideTarget
}

// secondOptions are those of a second Sync.
func (s *sim) secondOptions(o klutchsync.Options) klutchsync.Options {
	o.Binding, o.Finalizer, o.Mapper, o.Related = "sim-2", secondFinalizer, s.second, nil
	o.Hooks = klutchsync.Hooks{}
	return o
}

// secondWrites reports whether the second Sync is the first on a source.
func secondWrites(source *unstructured.Unstructured) bool {
	own := slices.DeleteFunc(slices.Clone(source.GetFinalizers()), func(f string) bool { return !strings.HasPrefix(f, "klutch.anynines.com/") })
	return len(own) > 0 && own[0] == secondFinalizer
}

// ofSecond reports whether an object is a target of a second Sync.
func ofSecond(o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetNamespace(), secondSpaces)
}

// finalSecond returns the faults of the targets of a second Sync.
func (m *model) finalSecond() string {
	if m.sim.second == nil {
		return ""
	}
	targets := map[cache.ObjectName]*unstructured.Unstructured{}
	objects, _ := m.sim.clusters[m.sim.konnectors[len(m.sim.konnectors)-1].target()].Objects(simThings)
	for _, t := range objects {
		if !ofSecond(t) {
			continue
		}
		if strings.HasPrefix(t.GetNamespace(), secondSpaces+secondSpaces) {
			return fmt.Sprintf("%s/%s is a target of a target", t.GetNamespace(), t.GetName())
		}
		targets[m.sim.source(cache.MetaObjectToName(t))] = t
		if !m.exists(sourceUID(t)) && m.sim.plan.Deletion == klutchsync.DeletionDelete {
			return fmt.Sprintf("I3: %s of the second Sync is an orphan", t.GetName())
		}
	}
	for _, name := range sorted(m.now[sideSource]) {
		want, _, _ := unstructured.NestedString(m.now[sideSource][name].Object, "spec", "size")
		t := targets[name]
		if why := m.reason(m.now[sideSource][name], t); want == "huge" || why == klutchsync.ReasonRefused || why == klutchsync.ReasonVanished {
			continue // the target's API server does not take it
		}
		if t == nil {
			return fmt.Sprintf("%s has no target of the second Sync", name)
		}
		if have, _, _ := unstructured.NestedString(t.Object, "spec", "size"); have != want {
			return fmt.Sprintf("%s: size is %q on the target of the second Sync, not %q", name, have, want)
		}
	}
	return ""
}

// edits has users and providers change all that they have.
func (s *sim) edits() {
	for _, name := range sorted(s.model.now[sideSource]) {
		s.merge(sideSource, name, "user", fmt.Sprintf(`{"spec":{"size":"%d"}}`, s.token%4+10))
		doStatus(s, op{name: name, n: len(s.plan.Related)})
	}
}

// conditioned has a controller of the source's side add a condition of its own to each status.
func (s *sim) conditioned() {
	own := `{"type":"Audited","status":"True"}`
	s.edits() // of which konnectors know that they wrote the statuses
	s.pass(time.Minute)
	var before []cache.ObjectName
	for _, name := range sorted(s.model.now[sideSource]) {
		if conditions(s.get(sideSource, name)) == "Ready" && len(s.konnectors) == 1 {
			before = append(before, name)
			s.merge(sideSource, name, "auditor", `{"status":{"conditions":[{"type":"Ready","status":"True"},`+own+`]}}`, "status")
		}
	}
	s.pass(time.Minute)
	s.edits()
	s.pass(time.Minute)
	for _, k := range s.konnectors {
		s.crash(k)
		s.start(k) // which finds conditions that it does not know
	}
	s.pass(time.Minute)
	for _, name := range before {
		if has := conditions(s.get(sideSource, name)); has != "Audited Ready" {
			s.model.breaks("I9", "another controller's condition was on %s, which has %s", name, has)
		}
		s.merge(sideSource, name, "auditor", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status") // a restart while the status changes would forget whose it is
	}
}

// conditions are the types of conditions that an object has.
func conditions(o *unstructured.Unstructured) string {
	if o == nil {
		return ""
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var types []string
	for _, c := range all {
		m, _ := c.(map[string]any)
		types = append(types, fmt.Sprint(m["type"]))
	}
	slices.Sort(types)
	return strings.Join(types, " ")
}

// heldDeletion has a target that is being deleted wait for a finalizer, while its user and its
// provider change it: both must reach the other side.
func (s *sim) heldDeletion(o op) {
	all := sorted(s.model.now[sideSource])
	if len(all) == 0 || s.plan.Deletion != klutchsync.DeletionDelete || s.plan.Drift == klutchsync.DriftReport {
		return
	}
	name := all[o.n%len(all)]
	target := op{name: name}.target()
	if source, t := s.get(sideSource, name), s.get(sideTarget, target); t == nil || s.model.reason(source, t) != "" || sourceUID(t) != string(source.GetUID()) {
		return
	}
	s.hold(sideTarget, target)
	_ = s.things(sideSource, name.Namespace).Delete(s.ctx, name.Name, metav1.DeleteOptions{})
	s.pass(time.Minute)
	switch t := s.get(sideTarget, target); {
	case t != nil && t.GetDeletionTimestamp() != nil:
	case t != nil && s.model.isHeld(s.get(sideSource, name)):
		s.setFinalizers(sideTarget, t, nil)
		return
	default:
		s.model.breaks("I3", "%s is being deleted, and its target is not", name)
		return
	}
	s.merge(sideSource, name, "user", `{"spec":{"size":"77"}}`)
	doStatus(s, op{name: name})
	s.pass(time.Minute)
	source, t := s.get(sideSource, name), s.get(sideTarget, target)
	if source == nil || t == nil {
		s.model.breaks("I3", "%s was let go while its target was held", name)
		return
	}
	if size, _, _ := unstructured.NestedString(t.Object, "spec", "size"); size != "77" {
		s.model.breaks("I1", "size is %q on %s, which is held, not 77", size, target)
	}
	if diff := statusDiffers(source, t, s.narrow[sideSource]); diff != "" {
		s.model.breaks("I1", "%s, whose target is held: %s", name, diff)
	}
	s.setFinalizers(sideTarget, t, nil)
}

// setUpAgain loses the source cluster: it is set up again, with one source of a name that was
// there before, and the platform's word that the former one is gone. Its target is taken up, and
// the others are told as orphans. Not one is deleted.
func (s *sim) setUpAgain() {
	before := maps.Clone(s.model.now[sideTarget])
	if len(s.konnectors) > 1 || len(before) == 0 || s.plan.Deletion == klutchsync.DeletionOrphan {
		return
	}
	for _, t := range before {
		if sourceUID(t) == "" || t.GetDeletionTimestamp() != nil || origin(t).Cluster != s.identity(sideSource) || len(t.GetFinalizers()) > 0 {
			return
		}
	}
	names := sorted(before)
	s.former = s.identity(sideSource)
	s.crash(s.konnectors[0])
	doReplace(s, op{n: 2})
	doCreate(s, op{name: s.source(names[0])})
	s.start(s.konnectors[0])
	s.pass(time.Hour)
	for i, name := range names {
		t, source := s.model.now[sideTarget][name], s.get(sideSource, s.source(name))
		switch {
		case t == nil || t.GetUID() != before[name].GetUID():
			s.model.breaks("I2", "%s was deleted as the source cluster was set up again", name)
		case i == 0 && sourceUID(t) != string(source.GetUID()) && !s.model.undeclared(source):
			s.model.breaks("I1", "%s is not taken up by the source of its name", name)
		case i > 0 && s.why(s.source(name)) != klutchsync.ReasonOrphaned:
			s.model.breaks("I18", "%s has no source any more, and is not told", name)
		}
	}
}
