// SPDX-License-Identifier: Apache-2.0

// Package contest paces what is written again because others have changed it.
//
// Two writers that each put right what the other one wrote would go on for ever, as fast as
// the API server lets them. The engine does not have to win: it waits longer each time, and
// says who the other is. The pause belongs to what was written, not to the object: a wish that
// was not written before goes at once, so that what users change is never behind a fight over
// what they did not. Targets, statuses, messages and copies of related objects are paced alike.
package contest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/sync/internal/fields"
)

const (
	firstPause = time.Second
	lastPause  = 5 * time.Minute
	peace      = 10 * time.Minute // after the last pause, for all to be forgotten
	told       = 2                // times in a row that the same was written again
	doublings  = 10
)

// A Contest is what is remembered of the writes to one object; the zero value is of none.
type Contest struct {
	Rivals string // who was seen to hold what the last write put right; empty if that is not known

	wish  string    // that was written last
	ready bool      // the wish was not written yet: the ownership of other managers was ended first
	again int       // how often in a row something was written again
	next  time.Time // before which the wish is not
}

// Renewed notes that wish was written again for a reason of the Sync's own, which is no contest.
func (c *Contest) Renewed(wish string) {
	if c.wish != wish || c.ready {
		c.Wrote(wish)
	}
}

// Took notes that other managers' ownership of fields of wish was ended. It counts neither before wish was written for
// the first time, nor once in a while: the manager that made an adopted object owns fields all over it.
func (c *Contest) Took(wish string) {
	switch {
	case c.wish != wish:
		c.wish, c.ready = wish, true
	case c.again == 0 && c.over():
		c.next = time.Now() // and no more for a while
	default:
		c.Wrote(wish)
	}
}

// Wrote notes that wish was written. If the same wish was written before, other writers have undone it since.
func (c *Contest) Wrote(wish string) {
	if c.over() {
		*c = Contest{wish: c.wish, ready: c.ready}
	}
	if c.wish == wish && !c.ready {
		c.again = min(c.again+1, doublings)
	}
	if c.wish, c.ready = wish, false; c.again > 0 {
		c.next = time.Now().Add(min(firstPause<<(c.again-1), lastPause))
	}
}

// Await has wish wait for its turn, be it that others have changed nothing.
func (c *Contest) Await(wish string, turn time.Duration) {
	if c.over() {
		*c = Contest{}
	}
	if turn > c.Pause(wish) {
		c.wish, c.ready, c.next = wish, false, time.Now().Add(turn)
	}
}

// Made notes that wish was written where nothing was.
func (c *Contest) Made(wish string) { *c = Contest{wish: wish} }

// Pause is how long wish has to wait.
func (c *Contest) Pause(wish string) time.Duration {
	if c.wish != wish || c.ready {
		return 0
	}
	return max(0, time.Until(c.next))
}

// Next is when to look again at wish: once its turn comes, or once a contest that was told is forgotten; 0 if
// there is none.
func (c *Contest) Next(wish string) time.Duration {
	if wait := c.Pause(wish); wait > 0 || !c.Told() {
		return wait
	}
	return c.Peace()
}

// Told reports whether others have insisted for so long that users should know.
func (c *Contest) Told() bool { return c.again >= told && !c.over() }

// Peace is how long it takes until a contest is forgotten.
func (c *Contest) Peace() time.Duration { return max(time.Until(c.next.Add(peace)), time.Millisecond) }

func (c *Contest) over() bool { return time.Since(c.next) > peace }

// maxRivals, maxPaths and maxManager bound what messages say of others. A name has no more bytes than an API server of
// Kubernetes takes, and prints: else the message that quotes it would lack a part of it, and be written again without end.
const maxRivals, maxPaths, maxManager = 3, 3, 128

// Rivals names the managers of obj that hold what manager should hold of want, and does not,
// and what that is: " by composer (.spec.size)". Empty if there are none.
func Rivals(obj *unstructured.Unstructured, manager string, want map[string]any) string {
	return rivals(obj, manager, "", want, withPaths)
}

// StatusRivals is Rivals of what manager applies to a subresource, "" for none.
func StatusRivals(obj *unstructured.Unstructured, manager, subresource string, status map[string]any) string {
	return rivals(obj, manager, subresource, map[string]any{"status": status}, withPaths)
}

func withPaths(paths []string) string {
	slices.Sort(paths)
	return " (" + strings.Join(paths[:min(len(paths), maxPaths)], ", ") + ")"
}

// RivalNames is Rivals without the fields, which may quote contents of a Secret's copy: " by composer".
func RivalNames(obj *unstructured.Unstructured, manager string, want map[string]any) string {
	return rivals(obj, manager, "", want, func([]string) string { return "" })
}

func rivals(obj *unstructured.Unstructured, manager, subresource string, want map[string]any, hold func(paths []string) string) string {
	ours := fields.By(obj, func(e fields.Entry) bool { return e.Manager == manager && e.Applied && e.Subresource == subresource })
	var out []string
	for e := range fields.Entries(obj) {
		if e.Subresource != subresource || e.Manager == manager {
			continue
		}
		if paths := e.Fields.Instead(ours, want); len(paths) > 0 {
			out = append(out, cmp.Or(text.Clip(e.Manager, maxManager), "someone")+hold(paths))
		}
	}
	if len(out) == 0 {
		return ""
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return " by " + strings.Join(out[:min(len(out), maxRivals)], ", ")
}
