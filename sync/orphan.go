// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/sync/internal/fields"
)

// An OrphanPolicy says what happens to a target whose source vanished without
// letting it go: its finalizer was taken off by force, or its cluster was restored
// from a backup.
type OrphanPolicy string

// Orphan policies.
const (
	OrphanReport OrphanPolicy = "Report" // leave it and report: see ReasonOrphaned and Status
	OrphanDelete OrphanPolicy = "Delete" // delete it, as DeletionLimit allows
)

// orphanGrace is for how long a target has to be seen without its source.
const orphanGrace = 10 * time.Minute

// A stray is a target that seems to have lost its source.
type stray struct {
	uid    types.UID // of the target
	since  time.Time
	proven bool // nothing was seen of its source, live, after the grace
}

// observeOrphan finds out whether this binding made the target from a source of
// this name that is not there, and for how long already. What cannot be seen says
// nothing: the time goes on.
func (e *engine) observeOrphan(p *pair, r *record) {
	t := &p.state.target
	if t.seen == unknown {
		return
	}
	if !e.isOrphan(p) {
		r.stray = nil
		return
	}
	if r.stray == nil || r.stray.uid != p.target.GetUID() {
		r.stray = &stray{uid: p.target.GetUID(), since: time.Now()}
	}
	t.orphan, t.ripe, t.proven = true, time.Since(r.stray.since) >= orphanGrace, r.stray.proven
}

// prove notes that an orphan is one, once both sides and the clusters have been
// read live for it.
func (p *pair) prove(r *record) {
	if t := &p.state.target; t.ripe && t.seen == live && p.state.source.seen == live && r.confirmed {
		t.proven, r.stray.proven = true, true
	}
}

func (e *engine) isOrphan(p *pair) bool {
	if p.target == nil || p.target.GetDeletionTimestamp() != nil || e.sourceUID == "" {
		return false
	}
	from, _ := OriginOf(p.target)
	return p.from.sameSlot(from) && from.Cluster == e.sourceUID && from.UID != p.from.uid &&
		fields.Of(p.target, e.manager(from.UID)) != nil
}

// planOrphan is the step for a target whose source is not there.
func planOrphan(s state) step {
	src, dst := s.source, s.target
	switch {
	case dst.seen == unknown:
		return stepWait
	case !dst.orphan:
		return stepRest
	// What is seen once may be the shadow of something else.
	case !dst.ripe:
		return stepWait
	// Too many deletions at once wait for somebody to release them.
	case dst.proven && s.held != "":
		return stepWait
	// By policy it stays.
	case !s.policy.buries() && dst.proven:
		return stepRest
	// A cache is no evidence.
	case src.seen != live || dst.seen != live || !s.confirmed:
		return stepProve
	case s.buries():
		return stepBury
	default:
		return stepRest
	}
}

// buries reports whether an orphan that has just been proven goes.
func (s state) buries() bool {
	return s.policy.buries() && s.target.proven && s.target.seen == live && s.source.seen == live && s.confirmed
}

// countOrphans follows a change of what is reported of one object.
func (e *engine) countOrphans(before, now Reason) {
	switch ReasonOrphaned {
	case now:
		e.orphans.Add(1)
	case before:
		e.orphans.Add(-1)
	default:
		return
	}
	e.notify()
}

func (p policy) buries() bool { return p.orphans == OrphanDelete && p.deletion == DeletionDelete }
