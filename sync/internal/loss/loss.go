// SPDX-License-Identifier: Apache-2.0

// Package loss paces the return of a target that has vanished. The new one is empty, so that
// each return in a row comes later: after a second at first, after an hour at most. The message on the
// source tells of the pause, and a start goes on with what that says.
package loss

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Longest is the pause after many losses in a row.
const Longest = time.Hour

// What stands in a message of a target that has vanished.
const (
	Returns  = "it is made anew, empty, after a pause that doubles each time" // before History.Until
	Held     = "it is not made anew, since "                                  // before why the breaker holds its return
	Withheld = "it cannot be made anew, since "                               // before why it is not asked for after the pause
	Refused  = "it cannot be made anew: "                                     // before what was answered when it was
)

// A History remembers the losses of one source. The zero History knows of none.
type History struct {
	known  bool      // that there was one
	lost   bool      // now
	again  bool      // asked for, counted and refused before a start
	count  int       // in a row
	paced  time.Time // the end of the pause that this loss began
	next   time.Time // when to ask for the return: then, or later where it was withheld
	listed int       // as of which list of targets the target had vanished
	why    string    // it does not return after the pause either; empty if it does
}

// Lost reports whether the target has vanished and is not seen again yet.
func (h *History) Lost() bool { return h.lost }

// Hear notes that a message tells of a loss, which another one may take the place of.
func (h *History) Hear() { h.known = true }

// Known reports whether there was a loss at all.
func (h *History) Known() bool { return h.known }

// Counted reports whether the return was asked for before a start, so that it is counted already.
func (h *History) Counted() bool { return h.lost && h.again }

// Begin begins the pause of a target that had vanished as of a list of targets, or goes on with what a
// message said of it before a start: it is over if the return was asked for and refused.
func (h *History) Begin(source metav1.Object, said string, listed int) {
	first, begins := h.count == 0, !h.lost
	why, refused := strings.CutPrefix(said, Refused)
	h.known, h.lost, h.again, h.listed, h.why = true, true, first && refused, listed, ""
	switch {
	case h.again:
		h.count, h.next, h.why = 1, time.Now(), Refused+why
	case first && h.recall(source, said):
	default:
		h.begin()
	}
	if begins {
		h.paced = h.next
	}
}

// begin counts one more, and each time the pause is longer.
func (h *History) begin() {
	if time.Since(h.next) > 2*Longest {
		h.count = 0
	}
	h.count = min(h.count+1, most)
	h.next = time.Now().Add(pause(h.count))
}

// most losses are counted: the pause is the longest by then.
const most = 13

// pause is that after so many losses in a row, at least one.
func pause(losses int) time.Duration { return min(time.Second<<(losses-1), Longest) }

// recall goes on with what a message says. It says nothing if the pause began before the source was
// created: it was copied with the source's manifest then.
func (h *History) recall(source metav1.Object, said string) bool {
	count, next := read(said)
	if count = min(count, most); count <= 0 || next.Add(-pause(count)).Before(source.GetCreationTimestamp().Time) {
		return false
	}
	h.count, h.next = count, next
	if latest := time.Now().Add(Longest); next.After(latest) {
		h.next = latest
	}
	return true
}

// Withhold notes why the return is not asked for, as of a list of targets.
func (h *History) Withhold(why string, listed int) { h.why, h.listed = Withheld+why, listed }

// Why says why the target could not return after the pause, as a message does; empty if nothing says so.
func (h *History) Why() string { return h.why }

// End notes that the target is there again.
func (h *History) End() { h.lost, h.why = false, "" }

// Over reports whether the pause is. A change of the source does not end it.
func (h *History) Over() bool { return !time.Now().Before(h.next) }

// Due reports whether the target may return.
func (h *History) Due(listed int) bool { return h.Wait(listed) <= 0 }

// Wait is how long the target may not return yet. A new list ends the wait of one that could not, but
// not the pause: a platform that takes its kind away and offers it again would get one after the other.
func (h *History) Wait(listed int) time.Duration {
	if h.why != "" && h.listed != listed {
		return time.Until(h.paced)
	}
	return time.Until(h.next)
}

// Until says which loss in a row the pause is for, and the full second by which it has ended.
func (h *History) Until() string {
	return fmt.Sprintf(": loss %d, until %s", h.count, h.next.Add(time.Second-1).UTC().Format(time.RFC3339))
}

// read reads what a message said with Until; 0 losses if it is none.
func read(said string) (losses int, next time.Time) {
	said, _ = strings.CutPrefix(said, Returns+": loss ")
	number, until, _ := strings.Cut(said, ", until ")
	n, err := strconv.Atoi(number)
	at, err2 := time.Parse(time.RFC3339, until)
	if err != nil || err2 != nil {
		return 0, time.Time{}
	}
	return n, at
}
