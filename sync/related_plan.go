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
	barred   bool // bound objects refer to the original, but nothing travels in its namespace
	travels  bool // the original exists, and may travel
	taken    bool // something has the name of the copy
	ours     bool // and is a copy of the original
	theirs   bool // only other Syncs want the copy
	kept     bool // it is of a cluster that has been exchanged, and the claim that it was for is there
	verified bool // that the original, or what refers to it, has gone was confirmed live
	shared   bool // and that another Sync wants the copy too
	settled  bool // both have the versions that were found to be the same
	stays    bool // the original, in this version, is of a type that does not travel, and has no copy
}

// Steps of related objects.
const (
	stepVerify   step = "verify"   // confirm live that a copy has lost its reason
	stepConflict step = "conflict" // tell that the name of a copy is taken
	stepBarred   step = "barred"   // tell that nothing travels in the namespace
	stepCopy     step = "copy"     // read both, and write the copy if it differs
	stepStay     step = "stay"     // tell that the original is of a type that does not travel
	stepLeave    step = "leave"    // leave a copy to the other Syncs that want it
)

// planRelated is plan for related objects.
func planRelated(s relatedState) step {
	reason := s.selected && s.travels
	switch {
	case !s.seen:
		return stepWait
	case reason && s.taken && !s.ours:
		return stepConflict
	case reason && s.stays:
		return stepStay
	case reason && !s.settled:
		return stepCopy
	case reason:
		return stepRest
	case (!s.taken || !s.ours || s.theirs) && s.barred:
		return stepBarred
	case !s.taken || !s.ours || s.theirs:
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
	if original != nil && r.mayTravel(original, name) {
		t.original, t.travels = original, true
		t.from.uid = original.GetUID()
		found := r.selects(original, name)
		t.referrers, t.selected, t.barred = found.referrers, found.selected, !found.selected && len(found.barred) > 0
		if t.barred {
			t.referrers = found.barred // who is told
		}
	}
	if copied != nil {
		t.copy, t.taken = copied, true
		t.ours = r.isOurs(t, copied)
		t.kept = r.former(t, copied) && r.claimed(t)
		mine, _ := r.holders(copied)
		t.theirs = !mine
		version = copied.GetResourceVersion()
	}
	current := t.taken || newer(c.copy, version)
	t.settled = !c.stays && t.original != nil && c.original == t.original.GetResourceVersion() && current && !newer(version, c.copy)
	t.stays = c.stays && t.original != nil && c.original == t.original.GetResourceVersion() && !t.taken
	t.verified, t.shared = c.verified, c.shared
	c.verified, c.shared = false, false
	return t, true
}
