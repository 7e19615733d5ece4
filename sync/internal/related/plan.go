// SPDX-License-Identifier: Apache-2.0

package related

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
	read     bool // a target reads it still, though its source is being deleted
	held     bool // too many copies go, so that this one waits
	verified bool // a live read has confirmed that the original, or what refers to it, has gone, or that the copy goes
	shared   bool // a live read has shown that another Sync wants the copy too
	settled  bool // both have the versions that were found to be the same
	stays    bool // the original, in this version, is of a type that does not travel, and has no copy of ours
	goes     bool // the copy has to go although the original, in this version, is there
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

// asks reports whether a step asks API servers for something.
func (s Step) asks() bool {
	return s == StepCopy || s == StepLeave || s == StepDelete || s == StepVerify
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
	// The copy of an original that is of another type by now is lost, or gives way to one of that type.
	case reason && s.goes && s.held:
		return StepHold
	case reason && s.goes && s.verified && s.shared:
		return StepLeave
	case reason && s.goes && s.verified:
		return StepDelete
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
	// What the users' namespace has lost, the targets need until they have gone.
	case s.read:
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
