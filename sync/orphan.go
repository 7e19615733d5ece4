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

// An orphan is a target that seems to have lost its source.
type orphan struct {
	uid    types.UID // of the target
	since  time.Time
	proven bool // nothing was seen of its source, live, after the grace
}

// observeOrphan finds out whether this binding made the target from a source of
// this name that is not there, and for how long already. What cannot be seen says
// nothing: the time goes on.
func (e *engine) observeOrphan(p *pair, r *record) {
	if !e.isOrphan(p) {
		r.proofs.orphan = nil
		return
	}
	if r.proofs.orphan == nil || r.proofs.orphan.uid != p.target.GetUID() {
		r.proofs.orphan = &orphan{uid: p.target.GetUID(), since: time.Now()}
	}
	switch {
	case r.proofs.orphan.proven:
		p.state.target.grace = graceProven
	case time.Since(r.proofs.orphan.since) >= orphanGrace:
		p.state.target.grace = graceElapsed
	}
}

// prove notes that an orphan is one, once both sides and the clusters have been
// read live for it.
func (p *pair) prove(r *record) {
	if t := &p.state.target; t.grace != graceRunning && p.evidence().has(require(stepCollect, p.state)) {
		t.grace, r.proofs.orphan.proven = graceProven, true
	}
}

func (e *engine) isOrphan(p *pair) bool {
	if p.target == nil || p.target.GetDeletionTimestamp() != nil || e.sourceUID == "" {
		return false
	}
	left := p.made.Cluster == e.sourceUID || p.source == nil && e.recovers(p)
	return left && p.from.sameName(p.made) && p.made.UID != p.from.uid && fields.Of(p.target, e.manager(p.made.UID)) != nil
}

// recovers reports whether the target is of the cluster in whose place the source cluster
// is, and of a source of the same name there.
func (e *engine) recovers(p *pair) bool {
	former := e.opts.FormerSource
	return former != "" && former != e.sourceUID && p.isMade && p.made.Cluster == former && p.from.sameName(p.made)
}

// collects reports whether an orphan that has just been proven goes.
func (s state) collects() bool {
	return s.policy.collects() && s.target.grace == graceProven && s.evidence().has(require(stepCollect, s))
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
