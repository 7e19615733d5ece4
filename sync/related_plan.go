// SPDX-License-Identifier: Apache-2.0

package sync

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// A relatedState is all that planRelated may look at.
type relatedState struct {
	seen     bool // both sides are known, and so are the bound objects
	selected bool // the original, if it exists
	original bool // exists, and may travel
	copy     bool // exists
	ours     bool // the copy is one
	theirs   bool // only other Syncs want the copy
	kept     bool // it is of a cluster that has been exchanged, and the claim that it was for is there
	verified bool // that the original, or what refers to it, has gone was confirmed live
	shared   bool // and that another Sync wants the copy too
	settled  bool // both have the versions that were found to be the same
}

// Steps of related objects.
const (
	stepVerify   step = "verify"   // confirm live that a copy has lost its reason
	stepConflict step = "conflict" // tell that the name of a copy is taken
	stepCopy     step = "copy"     // read both, and write the copy if it differs
	stepLeave    step = "leave"    // leave a copy to the other Syncs that want it
)

// planRelated is plan for related objects.
func planRelated(s relatedState) step {
	reason := s.selected && s.original
	switch {
	case !s.seen:
		return stepWait
	case reason && s.copy && !s.ours:
		return stepConflict
	case reason && !s.settled:
		return stepCopy
	case reason:
		return stepRest
	case !s.copy || !s.ours || s.theirs:
		return stepRest
	case s.kept:
		return stepWait
	case !s.verified:
		return stepVerify
	case s.shared:
		return stepLeave
	default:
		return stepDelete
	}
}

// A transfer is one original, its copy, and the state that they are in.
type transfer struct {
	relatedState
	from      origin
	name      cache.ObjectName // of the copy
	referrers []cache.ObjectName
	original  metav1.Object
	copy      metav1.Object
}

func (r *relation) observe(key cache.ObjectName, c *copied) (*transfer, bool) {
	name, ok := r.copyName(key)
	if !ok {
		return nil, false
	}
	t := &transfer{name: name}
	original, _, seenOriginal := r.original.get(key)
	copied, version, seenCopy := r.copy.get(name)
	known, _ := r.referrers.state()
	knownSources, _ := r.engine.source.state()
	t.seen = seenOriginal && seenCopy && known && knownSources
	owner, _ := r.uids()
	t.from = origin{cluster: owner, name: key}
	if o, ok := original.(metav1.Object); ok && r.mayTravel(o, name) {
		t.original, t.relatedState.original = o, true
		t.from.uid = o.GetUID()
		t.referrers, t.selected = r.selects(o, name)
	}
	if o, ok := copied.(metav1.Object); ok {
		t.copy, t.relatedState.copy = o, true
		from, _ := OriginOf(o)
		t.ours = t.from.sameSlot(from) || r.former(t, o)
		t.kept = r.former(t, o) && r.claimed(t)
		mine, _ := r.holders(o)
		t.theirs = !mine
		version = o.GetResourceVersion()
	}
	current := t.relatedState.copy || newer(c.copy, version)
	t.settled = t.original != nil && c.original == t.original.GetResourceVersion() && current && !newer(version, c.copy)
	t.verified, t.shared = c.verified, c.shared
	c.verified, c.shared = false, false
	return t, true
}
