// SPDX-License-Identifier: Apache-2.0

package related

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// A state is all that plan may look at.
type state struct {
	seen     bool // both sides are known, and so are the bound objects
	selected bool // the original, if it exists
	excepted bool // bound objects refer to the original, but nothing travels in its namespace
	travels  bool // the original exists, and may travel
	taken    bool // something has the name of the copy
	ours     bool // and is a copy of the original
	theirs   bool // only other Syncs want the copy
	claimed  bool // it is of a cluster that has been replaced, and the claim that it was for is there
	held     bool // too many copies have lost their originals, so that this one waits
	verified bool // that the original, or what refers to it, has gone was confirmed live
	shared   bool // and that another Sync wants the copy too
	settled  bool // both have the versions that were found to be the same
	stays    bool // the original, in this version, is of a type that does not travel, and has no copy
}

// A Step is what to do next.
type Step string

// The steps.
const (
	StepRest     Step = ""         // nothing: the next event brings us back
	StepWait     Step = "wait"     // nothing, but look again soon without an event
	StepVerify   Step = "verify"   // confirm live that a copy has lost its reason
	StepConflict Step = "conflict" // tell that the name of a copy is taken
	StepExcepted Step = "excepted" // tell that nothing travels in the namespace
	StepCopy     Step = "copy"     // read both, and write the copy if it differs
	StepStay     Step = "stay"     // tell that the original is of a type that does not travel
	StepHold     Step = "hold"     // leave a copy until people say that so many shall go
	StepLeave    Step = "leave"    // leave a copy to the other Syncs that want it
	StepDelete   Step = "delete"   // delete a copy
)

// tells reports whether a step keeps, or decides, what users are told.
func (s Step) tells() bool {
	return s == StepConflict || s == StepExcepted || s == StepWait || s == StepCopy || s == StepStay || s == StepHold
}

// plan is the one step that follows from a state.
func plan(s state) Step {
	reason := s.selected && s.travels
	switch {
	// What cannot be read justifies nothing.
	case !s.seen:
		return StepWait
	case reason && s.taken && !s.ours:
		return StepConflict
	case reason && s.stays:
		return StepStay
	case reason && !s.settled:
		return StepCopy
	case reason:
		return StepRest
	// Without a reason there should be no copy of ours.
	case (!s.taken || !s.ours || s.theirs) && s.excepted:
		return StepExcepted
	case !s.taken || !s.ours || s.theirs:
		return StepRest
	// What a replaced cluster handed out stays for as long as it is asked for.
	case s.claimed:
		return StepWait
	// Many that lose their originals at once may be those of a cluster that was restored.
	case s.held:
		return StepHold
	case !s.verified:
		return StepVerify
	case s.shared:
		return StepLeave
	default:
		return StepDelete
	}
}

// A pair is one original, its copy, and the state that they are in.
type pair struct {
	state
	from      Origin
	name      cache.ObjectName // of the copy
	referrers []cache.ObjectName
	original  metav1.Object
	copy      metav1.Object
}

// observe looks at both; false if the original has no name on the other side.
func (c *Copier) observe(key cache.ObjectName, r *record) (*pair, bool) {
	name, ok := c.Names.Copy(key)
	if !ok {
		return nil, false
	}
	owner, _ := c.Names.Clusters()
	p := &pair{name: name, from: Origin{Cluster: owner, Name: key}}
	original, _, seenOriginal := c.Originals.Get(key)
	copied, version, seenCopy := c.Copies.Get(name)
	p.seen = seenOriginal && seenCopy && c.Bound.Known()
	if original != nil && c.mayTravel(original, name) {
		c.observeOriginal(p, original)
	}
	if copied != nil {
		c.observeCopy(p, copied)
		version = copied.GetResourceVersion()
	}
	unchanged := p.original != nil && r.original == p.original.GetResourceVersion()
	current := (p.taken || newer(r.copy, version)) && !newer(version, r.copy)
	p.settled = !r.stays && unchanged && current
	p.stays = r.stays && unchanged && !p.taken
	p.verified, p.shared = r.verified, r.shared
	r.verified, r.shared = false, false
	p.held = c.stillHeld(p, r)
	return p, true
}

// stillHeld reports whether the copy waits for a release.
func (c *Copier) stillHeld(p *pair, r *record) bool {
	switch {
	case !r.held:
		return false
	case p.selected && p.travels || !p.taken && p.seen:
		c.Engine.Forget(p.from.Name)
		r.held = false
	default:
		r.held = c.Engine.Blocks(p.from.Name) != ""
	}
	return r.held
}

func (c *Copier) observeOriginal(p *pair, original metav1.Object) {
	p.original, p.travels = original, true
	p.from.UID = original.GetUID()
	found := c.selects(original, p.name)
	p.referrers, p.selected, p.excepted = found.referrers, found.selected, !found.selected && len(found.excepted) > 0
	if p.excepted {
		p.referrers = found.excepted // who is told
	}
}

func (c *Copier) observeCopy(p *pair, copied metav1.Object) {
	p.copy, p.taken = copied, true
	p.ours = c.isOurs(p, copied)
	p.claimed = c.ofPredecessor(p, copied) && c.isClaimed(p)
	mine, _ := c.Holders(copied)
	p.theirs = !mine
}

// newer reports whether resourceVersion a is later than b; false if that cannot be told.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
