// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/contest"
	"github.com/klutch-go/sdk/sync/internal/fence"
	"github.com/klutch-go/sdk/sync/internal/loss"
	"github.com/klutch-go/sdk/sync/internal/pace"
	"github.com/klutch-go/sdk/sync/internal/refusal"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// Records are the records of all objects of a Sync.
type records struct {
	mu    sync.Mutex
	byKey map[cache.ObjectName]*record
}

// of returns the record of an object, a new one if there is none.
func (r *records) of(key cache.ObjectName) *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil {
		r.byKey = map[cache.ObjectName]*record{}
	}
	if r.byKey[key] == nil {
		r.byKey[key] = &record{}
	}
	return r.byKey[key]
}

func (r *records) forget(key cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byKey, key)
}

// A record is what a Sync remembers of one object between passes: nothing that
// it could not do without, as it has to after a restart.
type record struct {
	answers      answers
	proofs       proofs
	othersFields *heldFields // nil if all fields are ours to apply
	losses       loss.History
	drift        drift
	status       sourceStatus
	marks        contest.Contest // that we put on the source
	blind        time.Time       // since when the target cannot be looked at; zero if it can
	ending       ending
}

// An ending is the target of a UID that was seen to be deleted, since when, and when it was last read live because of that.
type ending struct {
	uid           types.UID
	since, looked time.Time
}

// answers are what API servers said to our writes, as long as the caches have not seen it.
type answers struct {
	source, target         *unstructured.Unstructured
	lookSource, lookTarget bool      // an outcome is uncertain: read live
	listed                 int       // as of which list of sources source is an answer
	gone                   types.UID // of the target that was seen to end in this pass
}

// An orphan is a target that seems to have lost its source.
type orphan struct {
	uid    types.UID // of the target
	since  time.Time
	proven bool // nothing was seen of its source, live, after the grace
	trace  trace
}

// A trace is the search for what a watch shows of the end of an orphan's source.
type trace struct {
	over   bool // the API server has answered
	failed int  // times that it has not
	next   time.Time
}

// longestTrace is the longest pause of a search, which goes on through the grace: API servers show what
// happened in the last minute at least.
const longestTrace = time.Minute

// ask looks once more, if it is time to.
func (t *trace) ask(find func() error) {
	if t.over || time.Now().Before(t.next) {
		return
	}
	if t.over = find() == nil; !t.over {
		t.failed++
		t.next = time.Now().Add(fates.Pause(t.failed, longestTrace))
	}
}

// wait is how long an orphan whose grace goes on waits for the next look.
func (o *orphan) wait() time.Duration {
	next := o.since.Add(orphanGrace)
	if !o.trace.over && o.trace.next.Before(next) {
		next = o.trace.next
	}
	return max(time.Until(next), time.Millisecond)
}

// orphanGrace is for how long a target has to be seen without its source.
const orphanGrace = 10 * time.Minute

// proofs are what was read live.
type proofs struct {
	since     uint64    // a reading of the fence's counter: a look at the clusters counts if it began later
	confirmed bool      // they have been since
	source    types.UID // of the source, once read live or given our finalizer
	orphan    *orphan   // nil unless the target seems to have lost its source
}

// confirm makes sure of the clusters by a look that began after p.since. For a step that builds
// only on the source as the watch showed it in version, a look that began after the watch had
// shown that version counts too; an empty version leaves only p.since.
func (p *proofs) confirm(ctx context.Context, g *fence.Guard, version string) error {
	if p.confirmed {
		return nil
	}
	if err := g.Confirm(ctx, p.since, version); err != nil {
		p.since = g.Now() // what failed is no answer for the next time
		return err
	}
	p.confirmed = true
	return nil
}

// heldFields are an API server's answer that other managers own fields of an intent.
type heldFields struct {
	hash    string
	version string // of the target
	detail  string
}

// drift is what a Sync remembers of a target, to tell whether other writers have changed it since.
type drift struct {
	applied  string    // hash of what the target was last seen to be made from, when it was what we wanted
	accepted string    // what we owned of the target when an apply was last accepted or found to be in force
	listed   int       // as of which list of targets that was
	turn     int       // as of which list of targets it had its turn to be applied, be it changed or not
	settled  int64     // the generation of the source that was last seen in step, or by a start; notApplied if none was
	target   types.UID // of the target of this source that was last seen
	source   types.UID // of that target's source
	tried    string    // the wish of the last write to the target, if that was not answered as done
	judged   string    // what was known of a changed target when it was last read live
	contest  contest.Contest
}

// notApplied stands for the generation in step of a source of which none was applied yet.
const notApplied = -1

// A sourceStatus is what was written for the users of the source.
type sourceStatus struct {
	sent, got string // hashes of the last status sent, and of what became of it
	listed    int    // as of which list of sources that was
	pace      pace.Status
	messages  pace.Pace
	said      contest.Contest // about the message
	reported  Reason
	uid       types.UID // of the source that it was reported of
	words     string    // of that, as long as there is a reason
	reports   pace.Pace // of words for the same reason
	denied    string    // what was told of access to the object
	contest   contest.Contest
	types     unique.Handle[string] // of the conditions that came of the last status sent
	others    []string              // types of conditions that others have added since
	unclaimed bool                  // what we have given stands there, and we have no claim to it any more
}

// told reports whether why is what was reported last, of the source of this UID. That nothing stands in the
// way is told of any.
func (s *sourceStatus) told(why Reason, source types.UID) bool {
	return s.reported == why && (why == "" || s.speaksOf(source))
}

// speaksOf reports whether what was reported last is of the source of this UID, for all that is known: while
// all is listed anew a UID may not be.
func (s *sourceStatus) speaksOf(source types.UID) bool {
	return s.uid == source || s.uid == "" || source == ""
}

// mute is how long a message has to wait. One with another text than was refused does not wait for
// that: where the text changes at each look, it comes no more often than where all are taken. One that says what is
// held is in no line.
func (s *sourceStatus) mute(text string, held bool, refused *refusal.Refusal) time.Duration {
	wish := travel.Hash(text)
	wait := s.said.Pause(wish)
	if !held {
		wait = max(wait, s.messages.Wait(pace.Burst, messagePause))
	}
	if refused != nil && refused.Of(wish) {
		wait = max(wait, refused.Wait())
	}
	return wait
}

// maxTypes bounds what is remembered of the conditions of one status.
const maxTypes = 1 << 10

// withOthers adds to a status those conditions that others have put on the source since we
// wrote it, of types that the target does not have: where the API server keeps conditions as
// one value, ours would take them away. After a start they are those beside a status that is as
// it should be: beside another one they cannot be told from ours of before, which nothing would take
// off again, so that our write takes them, and their writers put them back.
func (s *sourceStatus) withOthers(give map[string]any, source *unstructured.Unstructured) map[string]any {
	is, _ := source.Object["status"].(map[string]any)
	none := unique.Handle[string]{}
	if s.types == none && len(give) > 0 && travel.Hash(travel.OfTypes(is, give)) == travel.Hash(give) {
		s.gave(give)
	}
	if s.types == none {
		return give
	}
	ours, theirs := strings.Split(s.types.Value(), "\n"), travel.ConditionTypes(is)
	s.others = slices.DeleteFunc(s.others, func(kind string) bool { return !slices.Contains(theirs, kind) })
	for _, kind := range theirs {
		if !slices.Contains(ours, kind) && !slices.Contains(s.others, kind) {
			s.others = append(s.others, kind)
		}
	}
	return travel.WithConditions(give, is, s.others)
}

// gave notes the types of the conditions of a status that we have given.
func (s *sourceStatus) gave(status map[string]any) {
	types := strings.Join(travel.ConditionTypes(status), "\n")
	if s.types = unique.Make(types); len(types) > maxTypes {
		s.types = unique.Handle[string]{}
	}
}

// hush finds out how long the message that follows from all else has to wait, and whether
// what it says was reported.
func (r *record) hush(p *pair, refused *refusal.Refusal) {
	why := obstacle(p.state)
	text := explain(p.state, why)
	p.mute = r.status.mute(text, holds(p.state, text), refused)
	p.muted, p.unreported = p.mute > 0, !r.status.told(why, p.from.uid)
}
