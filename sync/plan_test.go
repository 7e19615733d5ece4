// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// settledState is a pair in step, of which each test changes what it is about.
func settledState(change ...func(*state)) state {
	s := state{
		policy: policy{ConflictFail, DriftCorrect, LostRecreate, DeletionDelete, OrphanReport},
		mapped: true,
		source: sourceState{seen: cached, exists: true, finalizer: true, proven: true},
		target: targetState{seen: cached, exists: true, ours: true, adoptable: true, uid: "u1", name: "widgets svc/a", settled: true, owned: true, held: true},
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

func fresh(s *state) {
	s.source.finalizer = false
	s.target = targetState{seen: cached, name: "widgets svc/a"}
}
func deleting(s *state) { s.source.deleting, s.confirmed = true, true }
func absentTarget(s *state) {
	s.target = targetState{seen: cached, name: "widgets svc/a"}
}
func liveTarget(s *state) { s.target.seen = live }
func liveSource(s *state) { s.source.seen = live }
func foreign(s *state) {
	s.target.ours, s.target.held, s.target.owned, s.target.settled = false, false, false, false
}
func adopt(s *state)  { s.policy.conflict = ConflictAdopt }
func orphan(s *state) { s.policy.deletion = DeletionOrphan }
func orphaned(s *state) {
	s.source, s.target.orphan, s.confirmed = sourceState{seen: cached}, true, true
}
func ripe(s *state)        { s.target.ripe = true }
func proven(s *state)      { s.target.proven = true }
func bury(s *state)        { s.policy.orphans = OrphanDelete }
func lostReport(s *state)  { s.policy.lost = LostReport }
func driftReport(s *state) { s.policy.drift = DriftReport }
func said(s *state)        { s.source.message = explain(*s, obstacle(*s)) }
func contend(s *state)     { s.target.contended = true }
func changed(s *state)     { s.target.settled = false }
func drifted(s *state)     { s.target.owned = false }
func contested(s *state)   { s.contested = " by them (.spec.size)" }
func refused(s *state)     { s.refused, s.answer = ReasonRefused, "spec.size: Unsupported value" }
func misnamed(s *state) {
	s.misnamed, s.target = "the mapper gives this object's target no name", targetState{}
}
func due(s *state)           { s.due = true }
func unconfirmed(s *state)   { s.confirmed = false }
func suspect(s *state)       { s.suspect = true }
func held(s *state)          { s.held = "more than 10 objects were deleted" }
func unfit(s *state)         { s.unfit = "status.phase: Unsupported value" }
func folded(s *state)        { s.folded = true }
func statusDiffers(s *state) { s.status = true }

func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		state state
		want  step
	}{
		"in step":                          {settledState(), stepRest},
		"source unknown":                   {settledState(func(s *state) { s.source.seen = unknown }), stepWait},
		"source gone":                      {settledState(func(s *state) { s.source = sourceState{seen: cached} }), stepRest},
		"target unknown":                   {settledState(func(s *state) { s.target.seen = unknown }), stepWait},
		"target unknown while deleting":    {settledState(deleting, func(s *state) { s.target = targetState{seen: unknown} }), stepWait},
		"target orphaned":                  {settledState(orphaned), stepWait},
		"target orphaned for long":         {settledState(orphaned, ripe), stepProve},
		"target orphaned, proven":          {settledState(orphaned, ripe, proven), stepRest},
		"target orphaned, to delete":       {settledState(orphaned, ripe, proven, bury), stepProve},
		"target orphaned, to delete, live": {settledState(orphaned, ripe, proven, bury, liveSource, liveTarget), stepBury},
		"target orphaned, deletions held":  {settledState(orphaned, ripe, proven, bury, liveSource, liveTarget, held), stepWait},
		"target orphaned, name taken":      {settledState(foreign, orphaned, ripe, bury, liveTarget, func(s *state) { s.source = settledState().source }, said), stepProve},
		"no name yet":                      {settledState(fresh, func(s *state) { s.mapped = false }), stepRest},
		"no name any more, deleting":       {settledState(deleting, func(s *state) { s.mapped = false }), stepRest},

		"new source":               {settledState(fresh), stepHold},
		"held, no target":          {settledState(absentTarget), stepCreate},
		"held before our time":     {settledState(absentTarget, func(s *state) { s.source.proven = false }), stepLookSource},
		"spec or metadata changed": {settledState(changed), stepApply},
		"status changed":           {settledState(statusDiffers), stepStatus},
		"last part taken away":     {settledState(changed, func(s *state) { s.target.hollow = true }), stepEmpty},
		"both changed":             {settledState(changed, statusDiffers), stepApply},
		"finalizer taken off":      {settledState(func(s *state) { s.source.finalizer = false }), stepHold},
		"target being deleted":     {settledState(func(s *state) { s.target.deleting = true }, changed), stepWait},
		"target being deleted, status changed": {
			settledState(func(s *state) { s.target.deleting = true }, statusDiffers), stepStatus,
		},

		"drift":                            {settledState(drifted), stepForce},
		"drift, status changed":            {settledState(drifted, statusDiffers), stepStatus},
		"drift, corrected a moment ago":    {settledState(drifted, func(s *state) { s.paused = true }), stepWait},
		"drift, perhaps, after a start":    {settledState(drifted, func(s *state) { s.target.unproven = true }), stepApply},
		"drift, by policy reported":        {settledState(drifted, driftReport, liveTarget), stepSay},
		"drift, reported":                  {settledState(drifted, driftReport, said), stepRest},
		"drift, reported, status changed":  {settledState(drifted, driftReport, said, statusDiffers), stepStatus},
		"drift, reported, target changed":  {settledState(drifted, driftReport, said, func(s *state) { s.target.touched = true }), stepLookTarget},
		"drift undone by others":           {settledState(drifted, driftReport, said, liveTarget, func(s *state) { s.target.same = true }), stepApply},
		"drift gone":                       {settledState(driftReport, func(s *state) { s.source.message = "TargetDrifted: x" }), stepSay},
		"change contested":                 {settledState(changed, contested), stepForce},
		"change contested, by policy left": {settledState(changed, contested, driftReport, liveTarget), stepSay},

		"target lost":                            {settledState(absentTarget), stepCreate},
		"target not recorded":                    {settledState(lostReport), stepMark},
		"target recorded":                        {settledState(lostReport, func(s *state) { s.source.mark = "u1" }), stepRest},
		"target lost, by policy reported":        {settledState(absentTarget, lostReport, liveTarget, func(s *state) { s.source.mark = "u1" }), stepSay},
		"target seems lost, by policy reported":  {settledState(absentTarget, lostReport, func(s *state) { s.source.mark = "u1" }), stepLookTarget},
		"drift, as it seems, by policy reported": {settledState(drifted, driftReport), stepLookTarget},
		"target lost, reported":                  {settledState(absentTarget, lostReport, func(s *state) { s.source.mark = "u1" }, said), stepRest},
		"target never was, by policy no say":     {settledState(absentTarget, lostReport), stepCreate},

		"rewritten by our like":   {settledState(changed, func(s *state) { s.target.rewritten = true }), stepLookSource},
		"rewritten, source live":  {settledState(changed, func(s *state) { s.target.rewritten, s.source.seen = true, live }), stepApply},
		"contended by a peer":     {settledState(contend), stepProve},
		"contended, seen live":    {settledState(contend, liveTarget), stepMigrate},
		"contended, reported":     {settledState(contend, liveTarget, func(s *state) { s.policy.drift = DriftReport }), stepRest},
		"contended again":         {settledState(contend, func(s *state) { s.paused = true }), stepWait},
		"made by a peer":          {settledState(changed, liveTarget, func(s *state) { s.target.inherited, s.target.held = true, false }), stepMigrate},
		"made by a peer, deleted": {settledState(changed, deleting, liveTarget, func(s *state) { s.target.inherited, s.target.held = true, false }), stepDelete},
		"made from an earlier source, by policy taken over": {settledState(changed, liveTarget, func(s *state) {
			s.target.ours, s.target.former, s.target.adoptable, s.policy.conflict = false, true, true, ConflictAdopt
		}), stepMigrate},
		"name taken, says the cache":       {settledState(foreign), stepLookTarget},
		"name taken":                       {settledState(foreign, liveTarget), stepSay},
		"name taken, said":                 {settledState(foreign, liveTarget, said), stepRest},
		"name taken, new source":           {settledState(fresh, func(s *state) { s.target.exists = true }, liveTarget, said), stepRest},
		"name taken, to adopt, cached":     {settledState(foreign, adopt), stepLookTarget},
		"name taken, to adopt":             {settledState(foreign, adopt, liveTarget), stepForce},
		"name taken, to adopt, new source": {settledState(foreign, adopt, liveTarget, func(s *state) { s.source.finalizer = false }), stepHold},
		"name taken by another cluster's":  {settledState(foreign, adopt, liveTarget, func(s *state) { s.target.adoptable = false }), stepSay},
		"name taken by what is going":      {settledState(foreign, adopt, liveTarget, func(s *state) { s.target.deleting = true }), stepSay},

		"refused":                {settledState(absentTarget, refused), stepSay},
		"refused, said":          {settledState(absentTarget, refused, said), stepWait},
		"refused, changed":       {settledState(absentTarget, refused, said, due), stepCreate},
		"change refused, said":   {settledState(changed, refused, said), stepWait},
		"change refused, due":    {settledState(changed, refused, said, due), stepApply},
		"change refused, status": {settledState(changed, refused, said, statusDiffers), stepStatus},
		"deletion refused":       {settledState(deleting, refused), stepSay},
		"deletion refused, said": {settledState(deleting, refused, said), stepWait},
		"deletion refused, due":  {settledState(deleting, refused, said, due), stepDelete},
		"misnamed":               {settledState(misnamed), stepSay},
		"misnamed, said":         {settledState(misnamed, said), stepRest},
		"misnamed, deleting":     {settledState(misnamed, said, deleting), stepRest},

		"target is ahead, says the cache": {settledState(func(s *state) { s.target.later = true }, changed), stepLookSource},
		"target is ahead":                 {settledState(func(s *state) { s.target.later = true }, changed, liveSource), stepSay},
		"target is ahead, said":           {settledState(func(s *state) { s.target.later = true }, changed, liveSource, said), stepRest},

		"status folded":                  {settledState(folded), stepWait},
		"status folded, spec changed":    {settledState(folded, changed), stepApply},
		"status refused":                 {settledState(unfit), stepSay},
		"status refused, said":           {settledState(unfit, said), stepWait},
		"status refused, spec changed":   {settledState(unfit, said, changed), stepApply},
		"status refused, status changed": {settledState(unfit, said, statusDiffers), stepStatus},
		"related object stuck":           {settledState(func(s *state) { s.related = "secrets svc/a is taken" }), stepSay},
		"related object stuck, said":     {settledState(func(s *state) { s.related = "secrets svc/a is taken" }, said, changed), stepApply},

		"deleted, never ours":              {settledState(fresh, deleting), stepRest},
		"deleted":                          {settledState(deleting), stepDelete},
		"deleted, by a live read":          {settledState(deleting, liveTarget), stepDelete},
		"deleted, target is going":         {settledState(deleting, func(s *state) { s.target.deleting = true }), stepWait},
		"deleted, target is going slowly":  {settledState(deleting, func(s *state) { s.target.deleting, s.target.slow = true, true }), stepSay},
		"deleted, slowly, said":            {settledState(deleting, func(s *state) { s.target.deleting, s.target.slow = true, true }, said), stepWait},
		"deleted, target gone from cache":  {settledState(deleting, absentTarget), stepLookTarget},
		"deleted, target gone":             {settledState(deleting, absentTarget, liveTarget), stepRelease},
		"deleted, name is taken by cache":  {settledState(deleting, foreign), stepLookTarget},
		"deleted, name is taken":           {settledState(deleting, foreign, liveTarget), stepRelease},
		"deleted, to orphan, cached":       {settledState(deleting, orphan), stepLookTarget},
		"deleted, to orphan":               {settledState(deleting, orphan, liveTarget), stepDisown},
		"deleted, orphaned, not held":      {settledState(deleting, orphan, liveTarget, func(s *state) { s.target.held = false }), stepRelease},
		"deleted, orphaned, nobody's":      {settledState(deleting, orphan, liveTarget, foreign), stepRelease},
		"deleted, to orphan, but going":    {settledState(deleting, orphan, func(s *state) { s.target.deleting = true }), stepWait},
		"deleted, clusters not confirmed":  {settledState(deleting, unconfirmed), stepConfirm},
		"deleted, gone, not confirmed":     {settledState(deleting, absentTarget, liveTarget, unconfirmed), stepLookTarget},
		"deleted, after a restore, cached": {settledState(deleting, suspect), stepLookSource},
		"deleted, after a restore, live":   {settledState(deleting, suspect, liveSource), stepDelete},
		"deleted, held":                    {settledState(deleting, held), stepSay},
		"deleted, held, said":              {settledState(deleting, held, said), stepWait},
		"deleted, held, target gone":       {settledState(deleting, held, absentTarget, liveTarget, said), stepWait},
		"deleted, held before":             {settledState(deleting, func(s *state) { s.source.message = "DeletionsHeld: x" }), stepSay},
		"deleted, held, never ours":        {settledState(fresh, deleting, held), stepRest},
		"target lost, not confirmed":       {settledState(absentTarget, func(s *state) { s.target.lost = true }), stepLookTarget},
		"target lost, confirmed":           {settledState(absentTarget, func(s *state) { s.target.lost, s.confirmed = true, true }), stepCreate},
		"deleted, with a message to clear": {settledState(deleting, func(s *state) { s.source.message = "x" }), stepSay},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan(test.state); got != test.want {
				t.Errorf("plan = %q, want %q", got, test.want)
			}
		})
	}
}

// invariants hold of every state, reasonable or not.
var invariants = map[string]func(s state, do step) bool{
	"I2: only the target of a deleted source is deleted": func(s state, do step) bool {
		return do != stepDelete || s.source.deleting && s.source.finalizer && s.target.exists && s.target.ours && s.policy.deletion == DeletionDelete
	},
	"I3: the finalizer stays until a live read shows no target of ours, or policy releases it": func(s state, do step) bool {
		return do != stepRelease || s.source.deleting && s.target.seen == live &&
			(!s.target.exists || !s.target.ours || s.policy.deletion == DeletionOrphan)
	},
	"I3: nothing is made without the finalizer": func(s state, do step) bool {
		return do != stepCreate && do != stepForce && do != stepApply && do != stepEmpty || s.source.finalizer && !s.source.deleting
	},
	"I4: nothing is made where something is": func(s state, do step) bool {
		return do != stepCreate || !s.target.exists
	},
	"I5: a status comes from the source's own target": func(s state, do step) bool {
		return do != stepStatus || s.target.exists && s.target.ours
	},
	"I6: the source's generation never decreases": func(s state, do step) bool {
		return do != stepApply && do != stepForce && do != stepEmpty || !s.target.later || !s.target.ours
	},
	"I9: what is someone else's stays": func(s state, do step) bool {
		foreign := s.target.exists && !s.target.ours
		may := s.policy.conflict == ConflictAdopt && s.target.adoptable && s.target.seen == live && do == stepForce
		return !foreign || may || do != stepApply && do != stepEmpty && do != stepForce && do != stepDelete && do != stepDisown && (do != stepBury || s.target.orphan)
	},
	"I11: what is unknown justifies nothing": func(s state, do step) bool {
		return s.source.seen != unknown && (s.target.seen != unknown || !s.mapped) || do == stepWait || do == stepRest
	},
	"I2: nothing is taken away in clusters that are not confirmed": func(s state, do step) bool {
		return do != stepDelete && do != stepDisown && do != stepRelease || s.confirmed
	},
	"I2: what has lost its source is deleted by policy, and seen live": func(s state, do step) bool {
		seen := s.confirmed && s.source.seen == live && s.target.seen == live
		return do != stepBury || s.target.orphan && s.target.ripe && seen && s.policy.orphans == OrphanDelete && s.policy.deletion == DeletionDelete
	},
	"I15: what the breaker holds stays": func(s state, do step) bool {
		return s.held == "" || do != stepBury && do != stepDelete && do != stepDisown && do != stepRelease
	},
	"I2: after a restore only what is seen live is deleted": func(s state, do step) bool {
		return do != stepDelete || !s.suspect || s.source.seen == live
	},
	"a confirmation is asked for once": func(s state, do step) bool { return do != stepConfirm || !s.confirmed },
	"a look finds out something": func(s state, do step) bool {
		return (do != stepLookTarget || s.target.seen != live || !s.confirmed) && (do != stepLookSource || s.source.seen != live)
	},
	"a message says something new": func(s state, do step) bool {
		return do != stepSay || explain(s, obstacle(s)) != s.source.message
	},
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		for range 50 {
			s := anyState(r)
			do := plan(s)
			for name, holds := range invariants {
				if !holds(s, do) {
					t.Fatalf("%s: %q in %+v", name, do, s)
				}
			}
		}
	})
}

func anyState(r *rand.Rand) state {
	flip := func() bool { return r.IntN(2) == 0 }
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	s := state{
		policy: policy{
			ConflictPolicy(one("Fail", "Adopt")), DriftPolicy(one("Correct", "Report")),
			LostPolicy(one("Recreate", "Report")), DeletionPolicy(one("Delete", "Orphan")), OrphanPolicy(one("Report", "Delete")),
		},
		mapped: r.IntN(8) > 0, refused: Reason(one("", "", string(ReasonRefused), string(ReasonForbidden))), due: flip(),
		confirmed: flip(), suspect: flip(), held: one("", "", "too many"),
		contested: one("", "", " by them"), paused: flip(), status: flip(), folded: flip(), unfit: one("", "", "bad"), related: one("", "", "taken"),
		source: sourceState{sight(r.IntN(3)), r.IntN(8) > 0, flip(), flip(), flip(), one("", "u1", "u2"), one("", "x")},
		target: targetState{
			seen: sight(r.IntN(3)), exists: flip(), deleting: flip(), slow: flip(), ours: flip(), inherited: flip(), contended: flip(), former: flip(), adoptable: flip(),
			uid: "u1", name: "widgets svc/a", later: flip(), rewritten: flip(), settled: flip(), owned: flip(), same: flip(), touched: flip(), hollow: flip(), unproven: flip(), held: flip(), lost: flip(),
			orphan: flip(), ripe: flip(), proven: flip(),
		},
	}
	if flip() {
		s.source.message = explain(s, obstacle(s))
	}
	return s
}

// Each reason has words, which name what the user can look at.
func TestExplain(t *testing.T) {
	s := settledState(contested, refused, func(s *state) { s.related = "secrets team/x is taken" })
	for _, why := range []Reason{
		ReasonConflict, ReasonRefused, ReasonForbidden, ReasonDrifted, ReasonLost, ReasonTerminating, ReasonHeld, ReasonStatus, ReasonStale, ReasonRelated, ReasonOrphaned,
	} {
		text := explain(s, why)
		if !strings.HasPrefix(text, string(why)+": ") || len(text) < len(why)+10 {
			t.Errorf("explain(%s) = %q", why, text)
		}
	}
	if got := explain(s, ""); got != "" {
		t.Errorf("explain of nothing = %q", got)
	}
}

// The pause between looks depends on what is waited for.
func TestAgain(t *testing.T) {
	p := &pair{}
	if got := p.again(stepRest, &record{}); got != 0 {
		t.Errorf("rest: %v", got)
	}
	if got := p.again(stepWait, &record{}); got != waitPause {
		t.Errorf("wait: %v", got)
	}
	p.refused = ReasonRefused
	if got := p.again(stepWait, &record{refusal: &refusal{next: time.Now().Add(time.Hour)}}); got < 59*time.Minute {
		t.Errorf("refused: %v", got)
	}
}
