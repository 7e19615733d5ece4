// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"
)

// A Result is the outcome of one pass over a source object.
type Result struct {
	Source cache.ObjectName
	Target cache.ObjectName // zero while the mapper knows none
	Steps  []string         // what was done, in order; empty if nothing had to be
	Err    error            // an *ObjectError, or what an API server said
	Took   time.Duration
}

// A Reason names what keeps an object from being in step.
type Reason string

// Reasons.
const (
	ReasonConflict    Reason = "TargetConflict"    // the target's name is someone else's
	ReasonRefused     Reason = "TargetRefused"     // the target's API server calls the object invalid
	ReasonForbidden   Reason = "TargetForbidden"   // the target's API server does not permit the object
	ReasonDrifted     Reason = "TargetDrifted"     // someone else changed the target, by policy left so
	ReasonContested   Reason = "TargetContested"   // others keep changing the target, which is put right ever more slowly
	ReasonShared      Reason = "SourceShared"      // another Sync writes the status and the messages of the source
	ReasonLost        Reason = "TargetLost"        // the target vanished, by policy not created anew
	ReasonTerminating Reason = "TargetTerminating" // the target is being deleted, and has not gone yet
	ReasonStatus      Reason = "StatusRefused"     // the source's API server does not take the target's status
	ReasonHeld        Reason = "DeletionsHeld"     // too many deletions at once, or of a whole resource: see Sync.Release
	ReasonStale       Reason = "SourceStale"       // the target was made from a later generation of the source
	ReasonDenied      Reason = "AccessDenied"      // an API server does not permit what has to be read, or written to the source
	ReasonMapper      Reason = "MapperConflict"    // the mapper contradicts itself about the target's name
	ReasonRelated     Reason = "RelatedConflict"   // a related object's name is someone else's
	ReasonOrphaned    Reason = "TargetOrphaned"    // the source vanished and left the target behind: see Options.Orphans
)

// An ObjectError says why an object is not in step. Its message is
// deterministic and meant for the object's user.
type ObjectError struct {
	Reason  Reason
	Message string
}

// Error implements error.
func (e *ObjectError) Error() string { return fmt.Sprintf("%s: %s", e.Reason, e.Message) }

// Status is the state of a Sync.
type Status struct {
	// Synced says that both sides have been read completely at least once, and
	// are readable now.
	Synced bool

	// Err is what keeps a side from being read, a *ReadError; what an API server
	// does not permit of some object, an *ObjectError; or what ended Run. Nil if
	// nothing.
	Err error

	// Unreadable are the namespaces of the source whose related objects wait for
	// access, and why: see Options.RelatedAccess. All else goes on.
	Unreadable map[string]string

	// Objects is the number of source objects known.
	Objects int

	// Held is the number of source objects whose deletion waits for Release.
	Held int

	// Orphans is the number of targets that were found to have lost their source:
	// see Options.Orphans.
	Orphans int
}
