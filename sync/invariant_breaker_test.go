// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// I15: more deletions than are plausible, and those of a cluster that has turned
// out to be another one, wait until a person releases them.

// A ledger is what one incarnation of a konnector has asked to have deleted, and made anew.
type ledger struct {
	asked  map[string]time.Time       // first, by UID of the source, and of a target that was made anew too
	copies map[string]time.Time       // that claims which stay had, by UID
	orders map[cache.ObjectName]order // targets that it knows of, by name
	freed  map[string]bool            // UIDs of sources whose deletion an operator has let pass, and of copies
	knows  [2]int                     // when it was last told who a cluster is, by the clock of the sight; 0 for never
	moved  [2]int                     // when one that it knew became another one; 0 for never
}

// A deletionLog is what a konnector keeps over restarts. The last save may be lost with the
// machine that it was on.
type deletionLog struct {
	text, before string
	at           time.Time // of the last save
}

// keepsLog has an incarnation of k begin with what the one before has kept.
func (s *sim) keepsLog(k *konnector) klutchsync.DeletionLog {
	return klutchsync.DeletionLog{Text: k.log.text, Save: func(_ context.Context, text string) error {
		if err := s.answers(asksLog); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		k.log = deletionLog{text, k.log.text, time.Now()}
		return nil
	}}
}

// losesSave takes the last save from k, perhaps, and what was asked after it from its ledger.
func (s *sim) losesSave(k *konnector) {
	if !s.plan.has("deletion log") || s.rng.IntN(4) > 0 {
		return
	}
	s.note("k%d loses its last save", k.id)
	k.log.text = k.log.before
	since := func(_ string, when time.Time) bool { return !when.Before(k.log.at) }
	maps.DeleteFunc(k.asked, since)
	maps.DeleteFunc(k.copies, since)
}

// breakerWindow and plausible are those of klutchsync.Options.DeletionLimit.
const breakerWindow = 5 * time.Minute

func (s *sim) plausible() int {
	if s.plan.DeletionLimit != 0 {
		return s.plan.DeletionLimit
	}
	return 10
}

// asks checks a request to delete the target of a source, as it is sent.
func (m *model) asks(c *call, target *unstructured.Unstructured) {
	uid, book := sourceUID(target), &c.konnector.ledger
	if uid == "" || book.freed[uid] || !book.asked[uid].IsZero() {
		return
	}
	if book.asked == nil {
		book.asked = map[string]time.Time{}
	}
	recent := m.sim.recent(book.asked)
	book.asked[uid] = time.Now()
	if recent >= m.sim.plausible() {
		m.breaks("I15", "%s is to be deleted, the %dth within %v", target.GetName(), recent+1, breakerWindow)
	}
	if l := m.lives[uid]; l != nil && m.sim.strict() && m.isHeld(m.now[sideSource][l.name]) {
		m.breaks("I15", "%s is to be deleted although its source says that it is held", target.GetName())
	}
}

// recent is how many of these there were within the window, which a log keeps by spans of ten
// seconds.
func (s *sim) recent(all map[string]time.Time) (n int) {
	window := breakerWindow
	if s.plan.has("deletion log") {
		window -= 10 * time.Second
	}
	for _, when := range all {
		if time.Since(when) < window {
			n++
		}
	}
	return n
}

// copyDeleted checks the deletion of a copy: those of claims that stay are counted as targets are.
func (m *model) copyDeleted(copied *unstructured.Unstructured) {
	claim := m.now[sideSource][m.sim.source(cache.NewObjectName(copied.GetNamespace(), annotation(copied, klutchsync.ReferrerAnnotation)))]
	if claim == nil || claim.GetDeletionTimestamp() != nil || m.call == nil {
		return
	}
	if m.sim.calm && time.Since(m.sim.calmSince) > time.Second && m.refers(claim, copied.GetName()) { // and not since it was confirmed live
		m.breaks("I2", "copy %s was deleted although the target of %s refers to its original", copied.GetName(), claim.GetName())
	}
	book := &m.call.konnector.ledger
	if book.freed[string(copied.GetUID())] {
		return
	}
	if book.copies == nil {
		book.copies = map[string]time.Time{}
	}
	if n := m.sim.recent(book.copies); n >= m.sim.plausible() {
		m.breaks("I15", "copy %s of %s, which stays, was deleted, the %dth within %v", copied.GetName(), claim.GetName(), n+1, breakerWindow)
	}
	book.copies[string(copied.GetUID())] = time.Now()
}

// refers reports whether the target of a source refers to a secret that is there.
func (m *model) refers(source *unstructured.Unstructured, secret string) bool {
	name := op{name: cache.MetaObjectToName(source)}.target()
	target := m.now[sideTarget][name]
	if target == nil || m.madeFrom(target) != string(source.GetUID()) {
		return false
	}
	referred, _, _ := unstructured.NestedString(target.Object, "status", "secret")
	return referred == secret && m.secrets(sideTarget, credsPrefix)[cache.NewObjectName(name.Namespace, secret)] != nil
}

func (m *model) isHeld(source *unstructured.Unstructured) bool {
	return strings.HasPrefix(annotation(source, klutchsync.MessageAnnotation), string(klutchsync.ReasonHeld)) &&
		m.heldAt[string(source.GetUID())] > m.releasedAt
}

// lets checks that a source is not let go by a konnector under which a cluster has
// become another one, unless that was after it had made sure of the clusters, or
// after it had seen the target's end.
func (m *model) lets(c *call, source *unstructured.Unstructured) {
	target := op{name: cache.MetaObjectToName(source)}.target()
	looked, freed := m.sight.got[c.konnector.at(sideTarget, target)], m.life(source).freed
	for side, moved := range c.konnector.moved {
		if known := c.konnector.knows[side]; moved > 0 && !m.sim.late && (known > moved || known < looked) && (freed == 0 || freed > moved) {
			m.breaks("I15", "%s was let go although the %s is another one", source.GetName(), sideName(side))
		}
	}
}

// noteHeld notes when a source was told that its deletion is held.
func (m *model) noteHeld(source *unstructured.Unstructured) {
	if uid := string(source.GetUID()); !m.isHeld(source) {
		m.heldAt[uid] = m.sim.step + 1
	}
}

// dying are the UIDs of the sources that are being deleted, have no target, or have gone and left one, and of
// the copies that no target refers to.
func (m *model) dying() map[string]bool {
	out := map[string]bool{}
	for _, copied := range m.secrets(sideTarget, keyPrefix) {
		out[string(copied.GetUID())] = true
	}
	for name, copied := range m.secrets(sideSource, credsPrefix) {
		claim := m.now[sideSource][cache.NewObjectName(name.Namespace, annotation(copied, klutchsync.ReferrerAnnotation))]
		if claim != nil && !m.refers(claim, name.Name) {
			out[string(copied.GetUID())] = true
		}
	}
	for name, o := range m.now[sideSource] {
		if o.GetDeletionTimestamp() != nil || m.now[sideTarget][op{name: name}.target()] == nil {
			out[string(o.GetUID())] = true
		}
	}
	for _, t := range m.now[sideTarget] {
		if uid := sourceUID(t); uid != "" && !m.exists(uid) {
			out[uid] = true
		}
	}
	return out
}

// operatorReleases is what an operator does who has looked at what is held.
func (s *sim) operatorReleases() {
	if !s.plan.has("few deletions", "another cluster", "orphans deleted", "an owner deletes", "deletion log") && s.plan.hour.kind != "an owner deletes for an hour" {
		s.operatorReleasesCopies() // no deletion is to be held
		return
	}
	s.note("the operator releases what is held")
	s.model.releasedAt = s.step + 1
	for _, k := range slices.Clone(s.konnectors) {
		if k.alive() {
			k.asked, k.copies, k.moved, k.freed = nil, nil, [2]int{}, s.model.dying()
			k.sync.Release()
		}
	}
}

// operatorReleasesCopies is what an operator does about copies that a list which lacks
// originals has kept, as one does after a silence in these histories.
func (s *sim) operatorReleasesCopies() {
	for _, k := range s.konnectors {
		if k.alive() && k.sync.Status().HeldCopies > 0 {
			s.note("the operator releases copies")
			k.copies, k.freed = nil, s.model.dying() // with all that is held
			k.sync.Release()
		}
	}
}
