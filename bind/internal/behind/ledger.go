// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

const (
	// grace is for how long an object is out of step before that is told.
	grace = 3 * time.Second
	// patience is for how long nothing is told of an object because its reason changes.
	patience = 10 * time.Second
	// countEvery is the pace at which the numbers of the condition change.
	countEvery = 5 * time.Second
	// longestMessage is that of an Event.
	longestMessage = 1024
)

// Reasons of Events beside those of package sync.
const (
	ReasonInStep    = "InStep"          // nothing keeps the object from being in step any more
	ReasonRecreated = "TargetRecreated" // what vanished was made anew, empty
)

// News is an Event to be made of an object.
type News struct {
	Object  cache.ObjectName
	UID     types.UID
	Type    string // Normal or Warning
	Reason  string // empty: there is no Event of the object itself
	Message string
	// Lost is why what refers to the object is told that what stood for it was lost: ReasonRecreated
	// or the reason that it is not made anew; empty if it was not.
	Lost string
}

// A Ledger records which objects of one Sync are not in step, and which Events are due. Create
// it with NewLedger.
type Ledger struct {
	wake func() // asks for a look at the news; must not block
	pace flowcontrol.PassiveRateLimiter

	mu      sync.Mutex
	objects map[cache.ObjectName]*object
	pending map[cache.ObjectName]struct{} // those with news
	more    []News                        // that are no matter of the Sync
	counted time.Time                     // when the numbers were last given out
	numbers string
}

type object struct {
	uid      types.UID
	reason   klutchsync.Reason
	message  string
	since    time.Time // the first of these reasons in a row
	changed  time.Time // this one
	told     klutchsync.Reason
	said     string // the message of that
	vanished bool   // at some time since it was last in step
	stopped  bool   // for want of a Sync
}

// NewLedger returns an empty Ledger.
func NewLedger(wake func()) *Ledger {
	return &Ledger{
		wake: wake, pace: flowcontrol.NewTokenBucketPassiveRateLimiter(10, 100),
		objects: map[cache.ObjectName]*object{}, pending: map[cache.ObjectName]struct{}{},
	}
}

// Report is the hook of a Sync.
func (l *Ledger) Report(_ context.Context, r klutchsync.Report) {
	if l.note(r, time.Now()) {
		l.wake()
	}
}

// Tell has Events be made that are no matter of the Sync, at the pace of all.
func (l *Ledger) Tell(all []News) {
	l.mu.Lock()
	l.more = append(l.more, all...)
	l.mu.Unlock()
	l.wake()
}

// note reports whether there are news where there were none.
func (l *Ledger) note(r klutchsync.Report, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.change(r, now)
}

// change is note for callers that hold the lock.
func (l *Ledger) change(r klutchsync.Report, now time.Time) bool {
	o := l.objects[r.Source]
	switch {
	case r.UID == "" && r.Reason == "", r.Reason == klutchsync.ReasonOrphaned: // it is not there
		delete(l.objects, r.Source)
		delete(l.pending, r.Source)
		return o != nil
	case o == nil && r.Reason == "":
		return false
	case o == nil || o.uid != r.UID:
		o = &object{}
		l.objects[r.Source] = o
	}
	if o.reason == "" {
		o.since = now
	}
	o.stopped = false
	o.uid, o.reason, o.message, o.changed = r.UID, r.Reason, text.Clip(r.Message, longestMessage), now
	o.vanished = o.vanished || r.Reason == klutchsync.ReasonVanished
	if r.Told {
		o.told, o.said = r.Reason, o.message
	}
	l.pending[r.Source] = struct{}{}
	return len(l.pending) == 1
}

// Stopped takes note of a look at all objects while no Sync runs: objects with a reason wait for a Sync. If the look was
// cut short, the objects that it has not reached stay as they were noted.
func (l *Ledger) Stopped(all []klutchsync.Report, cut bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[cache.ObjectName]bool{}
	for _, r := range all {
		seen[r.Source] = true
		if o := l.objects[r.Source]; r.Reason != "" && (o == nil || o.uid != r.UID || o.reason != r.Reason) {
			l.change(r, now)
			l.objects[r.Source].stopped = true
		}
	}
	for name := range l.objects {
		if !cut && !seen[name] {
			delete(l.objects, name)
			delete(l.pending, name)
		}
	}
}

// Follow takes over from the Ledger before, which may be nil, what waited for a Sync: nothing is in
// its way now, unless the new Sync says what.
func (l *Ledger) Follow(before *Ledger, now time.Time) {
	if before == nil {
		return
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	for name, o := range before.objects {
		if o.stopped && o.told != "" {
			l.objects[name] = &object{uid: o.uid, told: o.told, said: o.said, changed: now}
			l.pending[name] = struct{}{}
		}
	}
}

// News are the Events to be made now, and when to ask again; 0 for when there are more.
func (l *Ledger) News(now time.Time) (all []News, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.pending {
		o := l.objects[name]
		left := grace - now.Sub(o.changed)
		if o.reason != "" && o.told == "" {
			left = min(left, patience-now.Sub(o.since))
		}
		switch {
		case o.reason == "" && o.vanished, left <= 0:
		default:
			again = shortest(again, left)
			continue
		}
		n := o.news(name)
		if n.Reason != "" && !l.pace.TryAccept() {
			again = shortest(again, time.Second)
			continue
		}
		if n.Reason != "" {
			all = append(all, n)
		}
		delete(l.pending, name)
		if o.told, o.said = o.reason, o.message; o.reason == "" {
			delete(l.objects, name)
		}
	}
	for len(l.more) > 0 {
		if !l.pace.TryAccept() {
			return all, shortest(again, time.Second)
		}
		all, l.more = append(all, l.more[0]), l.more[1:]
	}
	return all, again
}

// news is what is to be told; its reason is empty if that is nothing.
func (o *object) news(name cache.ObjectName) News {
	n := News{Object: name, UID: o.uid, Type: corev1.EventTypeNormal}
	switch {
	case o.reason == "" && o.vanished:
		n.Type, n.Reason, n.Lost = corev1.EventTypeWarning, ReasonRecreated, ReasonRecreated
		n.Message = "What stood for this object in the Control Plane Cluster had vanished, with what it held, and was made anew, empty."
	case o.reason == "" && o.told != "":
		n.Reason, n.Message = ReasonInStep, "Nothing keeps this object from being in step any more."
	case o.reason != "" && (o.reason != o.told || o.message != o.said):
		n.Type, n.Reason = corev1.EventTypeWarning, string(o.reason)
		n.Message = strings.TrimPrefix(o.message, string(o.reason)+": ")
		if o.reason == klutchsync.ReasonLost {
			n.Lost = n.Reason
		}
	}
	return n
}

// shortest is the shortest time to wait so far, 0 for none yet, and one more, which may be over.
func shortest(soFar, more time.Duration) time.Duration {
	more = max(more, time.Millisecond)
	if soFar == 0 {
		return more
	}
	return min(soFar, more)
}

// Condition is ObjectsSynced, and when to ask again; 0 for when there is news.
func (l *Ledger) Condition(binding string, now time.Time) (v1alpha1.Condition, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var again time.Duration
	if left := countEvery - now.Sub(l.counted); left > 0 && l.numbers != "" {
		again = left
	} else {
		again = l.count(binding, now)
	}
	if l.numbers == "" {
		return v1alpha1.True(v1alpha1.ConditionObjectsSynced), again
	}
	return v1alpha1.False(v1alpha1.ConditionObjectsSynced, v1alpha1.SeverityInfo, v1alpha1.ReasonObjectsNotSynced, l.numbers), again
}

// count says how many are not in step, and why, and when more may count.
func (l *Ledger) count(binding string, now time.Time) (again time.Duration) {
	counts, n := map[klutchsync.Reason]int{}, 0
	for _, o := range l.objects {
		left := grace - now.Sub(o.since)
		switch {
		case o.reason == "":
		case left > 0:
			again = shortest(again, left)
		default:
			counts[o.reason]++
			n++
		}
	}
	l.counted, l.numbers = now, ""
	if n == 0 {
		return again
	}
	parts := make([]string, 0, len(counts))
	for _, reason := range slices.SortedFunc(maps.Keys(counts), func(a, b klutchsync.Reason) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	l.numbers = fmt.Sprintf("%d not in step: %s. kubectl bind status %s lists them.", n, strings.Join(parts, ", "), binding)
	return again
}

// Count is the number in the message of a condition of Ledger; 0 if there is none.
func Count(c *v1alpha1.Condition) (n int) {
	if c != nil && c.Reason == v1alpha1.ReasonObjectsNotSynced {
		_, _ = fmt.Sscanf(c.Message, "%d ", &n)
	}
	return n
}
