// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		{"kind taken away", 2, func(s *sim, _ op) {
			s.clusters[sideTarget].Leave(simThings, true)
			objects, _ := s.clusters[sideTarget].Objects(simThings)
			for _, t := range objects {
				_ = s.things(sideTarget, t.GetNamespace()).Delete(s.ctx, t.GetName(), metav1.DeleteOptions{})
			}
		}},
		{"kind offered again", 1, func(s *sim, _ op) { s.clusters[sideTarget].Leave(simThings, false) }},
	}
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

// left says which target of a source that was deleted as its finalizer came is there, and
// not told as an orphan.
func (m *model) left() string {
	if m.disasters > 0 {
		return ""
	}
	for _, name := range sorted(m.now[sideTarget]) {
		t := m.now[sideTarget][name]
		l := m.lives[sourceUID(t)]
		if l != nil && l.collided && !m.exists(sourceUID(t)) && m.now[sideSource][l.name] == nil && t.GetDeletionTimestamp() == nil && m.sim.told[l.name] != klutchsync.ReasonOrphaned {
			return fmt.Sprintf("I20: %s is left of %s, and not told", name, l.name)
		}
	}
	return ""
}

// reported notes what the konnectors tell of objects.
func (s *sim) reported(name cache.ObjectName, why klutchsync.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[name] = why
}
