// SPDX-License-Identifier: Apache-2.0

package sync

import "github.com/klutch-go/sdk/sync/internal/names"

// A state is all that plan may look at: what is known of one source object and
// its target.
type state struct {
	policy policy
	names  *names.Names // for messages; nil for Klutch's
	source sourceState
	target targetState

	mapped        bool   // the source has a name on the target
	misnamed      string // how the mapper contradicts itself about that name, if it does
	refused       Reason // why nothing is written to the target now: its API server's answer, that the target cannot be read, or a loss whose pause is not over; empty if it may be written
	answer        string // in the words of that API server, or of the loss
	due           bool   // a refused intent has changed, or has waited for long enough
	returnTime    string // when a target that has vanished is made anew, for its message
	passing       bool   // the refusal may pass by itself yet
	heldByOthers  string // who owns fields of the intent, as an apply without force was told
	paused        bool   // what the target should be was written so often, and changed by others, that it waits
	contested     bool   // for so long already that users should know
	rivals        string // who owned what the last write put right, as far as that is known
	status        bool   // the status of the source is not what it should be
	statusDelayed bool   // it will be, but the latest statuses came so fast that the next one waits
	statusRefused string // why the source's API server does not take the status, if it does not
	related       string // why a related object cannot travel
	unknownFields string // fields of the source that the target's cluster does not know, and which therefore stay behind
	unsure        bool   // there are some, but a schema that knows them may be just published
	muted         bool   // users were told so much lately that new messages wait
	unreported    bool   // something else was reported last than what stands in the way
	confirmed     bool   // the clusters were confirmed live to be the known ones, after all that the step builds on
	suspect       bool   // a cluster may have been restored from a backup
	held          string // why the breaker holds the deletion, or the target that would come back, if it does
	word          string // by which people release it
	offered       bool   // the target's cluster was seen just now to take new objects of the resource
}

// known reports whether both sides could be read.
func (s state) known() bool {
	return s.source.freshness != unknown && (!blind(s) || !s.mapped)
}

// blind reports whether the target cannot be looked at: it has no name yet, or its cluster
// cannot be read.
func blind(s state) bool {
	return !s.mapped || s.target.freshness == unknown && s.misnamed == ""
}

type policy struct {
	conflict ConflictPolicy
	drift    DriftPolicy
	lost     LostPolicy
	deletion DeletionPolicy
	orphans  OrphanPolicy
}

// deletesOrphans reports whether orphans are deleted.
func (p policy) deletesOrphans() bool {
	return p.orphans == OrphanDelete && p.deletion == DeletionDelete
}

// collectable reports whether the target goes that its source has left behind: by policy, or
// because its source was deleted in the moment in which the finalizer was put on.
func (s state) collectable() bool {
	return s.target.relation == relationOrphan && s.target.managed && (s.target.grace == graceWaived || s.target.grace == graceProven && s.policy.deletesOrphans())
}

// returns reports whether a target that has vanished should be made anew.
func (s state) returns() bool {
	return s.target.relation == relationVanished && s.source.exists && !s.source.deleting
}

type sourceState struct {
	freshness    freshness
	exists       bool
	deleting     bool
	finalizer    bool   // ours is on it
	proven       bool   // this incarnation was read live, or got our finalizer, since we run
	targetRecord string // UID of its target, as recorded under LostReport
	message      string // as it stands on it
	older        string // its generation, if the target was made from a later one
	shared       string // the finalizer of another Sync that came first: it writes the status and the messages
	paused       bool   // our finalizer and its record were put on it so often, and taken off by others, that they wait
	contested    bool   // for so long already that users should know
}

type targetState struct {
	freshness   freshness
	relation    targetRelation
	content     content // of a target that is ours
	termination termination
	grace       grace  // of an orphan
	managed     bool   // the field manager of the source owns fields of it; of an orphan, that of the source that it was made from
	finalizers  string // the finalizers that hold its deletion, for messages
	uid         string
	name        string
}

// Freshness says how an object has been read.
type freshness int

const (
	unknown freshness = iota // it could not be; nothing follows from that
	cached                   // from a watch: right a moment ago
	live                     // from the API server, just now
)

// A targetRelation says whose the object is that has the target's name.
type targetRelation int

const (
	relationAbsent       targetRelation = iota // there is no object
	relationVanished                           // there is none, but there was while we run, or the source says so
	relationOurs                               // made from this very source
	relationLegacyWrote                        // ours, and a legacy konnector has written fields of it since
	relationLegacy                             // made from this source by a legacy konnector, which records no source
	relationPredecessor                        // an earlier source of the name owns fields of it: adopted by policy, never collected
	relationOrphan                             // this binding made it from an earlier source of this name, or from a source that has gone
	relationForeign                            // made by someone else
	relationOtherSource                        // made from a source of another name: never adopted
	relationOtherCluster                       // made from a source of this name in another cluster: adopted by Options.FormerSource alone
)

// exists reports whether the target's name is taken.
func (t targetState) exists() bool {
	return t.relation != relationAbsent && t.relation != relationVanished
}

// ours reports whether the target was made from this very source.
func (t targetState) ours() bool {
	return t.relation == relationOurs || t.relation == relationLegacyWrote || t.relation == relationLegacy
}

// adoptable reports whether someone else's object may become the target by policy.
func (t targetState) adoptable() bool {
	return !t.ours() && t.relation != relationOtherSource && t.relation != relationOtherCluster && t.termination == alive
}

// Content compares a target that is ours with what it should be.
type content int

const (
	contentStale            content = iota // the source has changed since it was applied
	contentRefused                         // it has, and the target's API server does not take it: the deletion goes on without it, at once if the answer is final, after ten seconds if it may pass by itself
	contentEmptyMap                        // an apply would leave null where an empty map should be: it is emptied first
	contentRewritten                       // something else was applied, or from a later generation: the source may be another by now
	contentSourceOlder                     // made from a later generation of the source than we see
	contentSourceOlderNoted                // the same, and the target records the generation of the source
	contentUnverified                      // it looks changed by others, and only an apply tells whether it is
	contentChanged                         // other writers have changed it since it was read live, perhaps back to what it should be
	contentDrifted                         // it was changed by others
	contentShared                          // others own some of what we applied, or our marks: what the source removes would stay
	contentInSync                          // last applied with what we want now, and unchanged since
)

// needsApply reports whether an apply without force is what brings the target in step.
func (c content) needsApply() bool {
	return c.edited() || c == contentUnverified
}

// edited reports whether the source has changed, rather than the target.
func (c content) edited() bool {
	return c == contentStale || c == contentEmptyMap || c == contentRewritten
}

// drifted reports whether others have changed the target.
func (c content) drifted() bool { return c == contentDrifted || c == contentChanged }

// Termination says whether a target is being deleted.
type termination int

const (
	alive       termination = iota
	terminating             // it is being deleted
	stuck                   // for so long that users should know
)

// Grace says how well an orphan has been seen to be one.
type grace int

const (
	graceRunning grace = iota // seen without its source
	graceElapsed              // for so long that it is no shadow of something else
	graceProven               // and then live, in clusters that were confirmed
	graceWaived               // the watch has shown that the source was deleted with our finalizer on it: there is nothing to wait for
)

// evidence is what a step builds on, beyond the state that calls for it.
type evidence uint8

const (
	sourceProven      evidence = 1 << iota // this incarnation of the source was read live, or got our finalizer, since we run
	sourceLive                             // the source was read live just now
	targetLive                             // the target was read live just now
	clustersConfirmed                      // the clusters are the known ones, and were so after all that was read
	kindOffered                            // the resource was seen just now to be served, not on its way out, and on offer
)

func (e evidence) has(all evidence) bool { return e&all == all }

// evidence is what there is.
func (s state) evidence() (e evidence) {
	if s.source.proven || s.source.freshness == live {
		e |= sourceProven
	}
	if s.source.freshness == live {
		e |= sourceLive
	}
	if s.target.freshness == live {
		e |= targetLive
	}
	if s.confirmed {
		e |= clustersConfirmed
	}
	if s.offered {
		e |= kindOffered
	}
	return e
}
