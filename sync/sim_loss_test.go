// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// losses are what takes one side of a pair away without its konnector. One history in eight
// has some: they are drawn apart, so that the others stay what they were.
func losses() []generator {
	return []generator{
		{"deleted as its finalizer comes", 3, func(s *sim, o op) {
			if source := s.get(sideSource, o.name); holds(source) && s.clusters[sideSource].Collide(simThings, o.name) {
				s.model.life(source).collided = true
			}
		}},
		{"kind taken away", 2, func(s *sim, o op) { s.leave(o.n%2 == 0) }},
		{"kind offered again", 1, func(s *sim, _ op) { s.offerAgain() }},
	}
}

// leave has the target's API server say that it takes no new things, or else the platform that it
// has withdrawn its offer, and all things go.
func (s *sim) leave(served bool) {
	s.forgetOrders()
	s.clusters[sideTarget].Leave(simThings, served)
	s.withdrawn.Store(!served)
	objects, _ := s.clusters[sideTarget].Objects(simThings)
	for _, t := range objects {
		_ = s.things(sideTarget, t.GetNamespace()).Delete(s.ctx, t.GetName(), metav1.DeleteOptions{})
	}
}

func (s *sim) offerAgain() {
	s.clusters[sideTarget].Leave(simThings, false)
	s.withdrawn.Store(false)
}

// offered is Options.Offered of the konnectors.
func (s *sim) offered(context.Context) (why string, err error) {
	if s.withdrawn.Load() {
		why = "it is not on offer"
	}
	return why, s.answers(asksOffer)
}

// goes has the target's kind be taken away for an hour, in which users edit what they have, perhaps
// while no konnector runs. What was in step is not made anew, and says so.
func (s *sim) goes(o op) {
	s.edits() // of which the sources know that there were targets
	s.pass(time.Minute)
	var before []cache.ObjectName
	for _, name := range sorted(s.model.now[sideSource]) {
		source := s.model.now[sideSource][name]
		if _, _, served := tokenOf(source.Object["status"]); served && s.model.finalSource(name, source) == "" {
			before = append(before, name)
		}
	}
	restart := func(start bool) {
		for _, k := range s.konnectors {
			if o.n%2 == 0 && start {
				s.start(k)
			} else if o.n%2 == 0 {
				s.crash(k)
			}
		}
	}
	restart(false)
	s.leave(o.n/2%2 == 0 && !s.plan.has("schemas unreadable"))
	restart(true)
	for range 6 {
		s.pass(10 * time.Minute)
		s.edits()
	}
	for _, name := range before {
		why := s.why(name)
		if t := s.get(sideTarget, op{name: name}.target()); t != nil {
			s.model.breaks("I4", "%s was made anew while its kind was taken away", name)
		} else if why != klutchsync.ReasonVanished && why != klutchsync.ReasonLost {
			s.model.breaks("I18", "%s has no target any more, and %q is told", name, why)
		}
	}
	s.offerAgain()
	s.pass(time.Hour)
}

// lose puts losses into a plan.
func (p *simPlan) lose(r *rand.Rand) {
	if r.IntN(8) > 0 {
		return
	}
	for range 1 + r.IntN(3) {
		at := 1 + r.IntN(len(p.ops))
		p.ops = slices.Insert(p.ops, at, generate(r, losses()))
	}
}

// restores are what people do with copies of objects. They are drawn apart, as losses are.
func restores() []generator {
	return []generator{
		{"target made anew from its manifest", 1, func(s *sim, o op) {
			t := s.get(sideTarget, o.target())
			if t == nil || t.GetDeletionTimestamp() != nil || len(t.GetFinalizers()) > 0 || sourceUID(t) == "" {
				return
			}
			things := s.things(sideTarget, t.GetNamespace())
			_ = things.Delete(s.ctx, t.GetName(), metav1.DeleteOptions{})
			t.SetUID("")
			t.SetResourceVersion("")
			t.SetManagedFields(nil)
			_, _ = things.Create(s.ctx, t, metav1.CreateOptions{FieldManager: restorer})
		}},
	}
}

const restorer = "velero-server"

// restoreBy puts restores into a plan.
func (p *simPlan) restoreBy(r *rand.Rand) {
	if r.IntN(8) > 0 {
		return
	}
	for range 1 + r.IntN(2) {
		at := 1 + r.IntN(len(p.ops))
		p.ops = slices.Insert(p.ops, at, generate(r, restores()))
	}
}

// heldByMaker reports whether one who makes targets that are to be ours holds a field.
func heldByMaker(t *unstructured.Unstructured, field ...string) bool {
	return heldBy(t, restorer, field...) || heldBy(t, twin, field...)
}

// shares notes which fields of a target that another one made are ours too: those go with what the
// source says.
func (m *model) shares(t *unstructured.Unstructured) {
	for _, field := range simFields {
		if heldByMaker(t, field...) && heldBy(t, "klutch.anynines.com/", field...) {
			m.shared[string(t.GetUID())+strings.Join(field, "/")] = true
		}
	}
}

// theirs reports whether a field is held by the target's maker alone, and always was: no one can
// tell that the source was without it before.
func (m *model) theirs(t *unstructured.Unstructured, field []string) bool {
	return heldByMaker(t, field...) && !m.shared[string(t.GetUID())+strings.Join(field, "/")]
}

// left says which target that a konnector made, and that names a source which has gone without letting
// it go, is there and not told as an orphan.
func (m *model) left() string {
	for _, name := range sorted(m.now[sideTarget]) {
		t := m.now[sideTarget][name]
		l := m.lives[sourceUID(t)]
		if l != nil && m.proven(l, t) {
			return fmt.Sprintf("I20: %s is left of %s, and a watch has shown that this was deleted as its finalizer came", name, l.name)
		}
		if l == nil || m.exists(sourceUID(t)) || m.now[sideSource][l.name] != nil || t.GetDeletionTimestamp() != nil {
			continue // what stands in the way of another source is told on that
		}
		if of := origin(t).Cluster; of != m.sim.identity(sideSource) && (of != m.sim.former || of == "") {
			continue // another cluster's sources are not known to have gone
		}
		if m.formerly(t) {
			continue // nor those of another binding
		}
		if m.sim.why(l.name) != klutchsync.ReasonOrphaned {
			return fmt.Sprintf("I20: %s is left of %s, and not told", name, l.name)
		}
	}
	return ""
}

// shown notes that a konnector is about to see the end of a source that was deleted as its finalizer
// came.
func (m *model) shown(e watch.Event) {
	if last, ok := e.Object.(metav1.Object); ok && e.Type == watch.Deleted && m.sim.strict() {
		if l := m.lives[string(last.GetUID())]; l != nil && l.collided {
			l.shown, l.to = m.sim.konnectors[0], m.sim.konnectors[0].born
		}
	}
}

// proven reports whether a target has to go, since the konnector that runs has seen that its source
// was deleted as its finalizer came: not if others have made the target, nor while its deletion is held.
func (m *model) proven(l *life, t *unstructured.Unstructured) bool {
	k := l.shown
	return k != nil && k.alive() && k.born == l.to && m.sim.strict() && m.disasters == 0 && m.sim.plan.Deletion == klutchsync.DeletionDelete &&
		t.GetDeletionTimestamp() == nil && m.keeps(t, sourceUID(t)) && !m.formerly(t) && k.sync.Status().Held == 0
}

// reports are what a run of a konnector tells of objects.
type reports map[cache.ObjectName]klutchsync.Report

// hears has a run's reports be noted. That a target is an orphan the next run tells after a grace only.
func (s *sim) hears(k *konnector) func(context.Context, klutchsync.Report) {
	told := maps.Clone(k.told)
	if told == nil {
		told = reports{}
	}
	maps.DeleteFunc(told, func(_ cache.ObjectName, r klutchsync.Report) bool { return r.Reason != klutchsync.ReasonOrphaned })
	k.told = told
	return func(_ context.Context, r klutchsync.Report) {
		s.mu.Lock()
		defer s.mu.Unlock()
		told[r.Source] = r
	}
}

// why is what a konnector that runs tells of an object, and not of an earlier one of its name, or else
// what the object itself says, as after a start; empty if nothing is told.
func (s *sim) why(name cache.ObjectName) klutchsync.Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	source := s.model.now[sideSource][name]
	for _, k := range s.konnectors {
		r := k.told[name]
		if k.alive() && r.Reason != "" && (source == nil || r.UID == "" || r.UID == source.GetUID()) {
			return r.Reason
		}
	}
	if source == nil {
		return ""
	}
	said, _, _ := strings.Cut(annotation(source, klutchsync.MessageAnnotation), ":")
	return klutchsync.Reason(said)
}
