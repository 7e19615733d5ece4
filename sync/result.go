// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
)

// A Side is one of the two clusters.
type Side string

// The two sides.
const (
	SourceSide Side = "Source"
	TargetSide Side = "Target"
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
	ReasonMissing     Reason = "TargetMissing"     // the target's namespace or kind is not there, or is going
	ReasonUnavailable Reason = "TargetUnavailable" // an API server, or a webhook of it, fails or does not answer
	ReasonDrifted     Reason = "TargetDrifted"     // someone else changed the target, by policy left so
	ReasonContested   Reason = "TargetContested"   // others keep changing the target, or taking our marks off the source: both are put right ever more slowly
	ReasonFields      Reason = "FieldsUnknown"     // the target's cluster does not know fields of the source, which stay behind
	ReasonShared      Reason = "SourceShared"      // another Sync writes the status and the messages of the source
	ReasonLost        Reason = "TargetLost"        // the target vanished, by policy not created anew
	ReasonVanished    Reason = "TargetVanished"    // the target vanished, and is not made anew yet
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

// A ReadError says what a Sync cannot read, and why: because of rights, of a
// resource or version that is not served, or of a whole cluster.
type ReadError struct {
	View     string // source, target, or a kind of related objects
	Resource schema.GroupVersionResource
	Err      error
}

// Error implements error.
func (e *ReadError) Error() string {
	if fates.Is(e.Err, fates.Absent, fates.Unserved) {
		return fmt.Sprintf("%s: %s is not served in version %s", e.View, e.Resource.GroupResource(), e.Resource.Version)
	}
	return fmt.Sprintf("%s: %v", e.View, e.Err)
}

// Unwrap returns what the API server said.
func (e *ReadError) Unwrap() error { return e.Err }

// Hooks are called by a Sync as things happen, like those of
// net/http/httptrace: the seam for metrics and Events. Nil hooks are skipped.
// They are called from many goroutines, and must not block.
type Hooks struct {
	// Wrote follows each request that may have changed an object.
	Wrote func(ctx context.Context, w Write)

	// Reported follows each change of what keeps a source object from being in
	// step; an empty Reason says that nothing does any more.
	Reported func(ctx context.Context, r Report)

	// Refused follows each version of a related object that is selected and does not
	// travel because of what it is.
	Refused func(ctx context.Context, r Refusal)

	// Unclaimed follows each look at a target without a source that no Sync has ever had:
	// the target's side made it.
	Unclaimed func(ctx context.Context, source, target cache.ObjectName)

	// Done follows each pass over an object.
	Done func(ctx context.Context, r Result)
}

// A Write is one request that may have changed an object.
type Write struct {
	Side   Side
	Step   string // the name of the step in Result
	Object cache.ObjectName
	Took   time.Duration
	Err    error // of a copy without the API server's words, which may quote a Secret
}

// A Report says what keeps a source object from being in step.
type Report struct {
	Source  cache.ObjectName
	Target  cache.ObjectName
	UID     types.UID // of the source; empty if it is not there
	Reason  Reason
	Message string
	Told    bool // the source says so already, as after a restart
}

// A Refusal says why a related object does not travel.
type Refusal struct {
	Resource schema.GroupVersionResource
	From     Side             // that owns the object
	Object   cache.ObjectName // on that side
	Why      string
}

func (h Hooks) refused(ctx context.Context, r Refusal) {
	if h.Refused != nil {
		h.Refused(ctx, r)
	}
}

func (h Hooks) wrote(ctx context.Context, w Write) {
	if h.Wrote != nil {
		h.Wrote(ctx, w)
	}
}

func (h Hooks) reported(ctx context.Context, r Report) {
	if h.Reported != nil {
		h.Reported(ctx, r)
	}
}

func (h Hooks) done(ctx context.Context, r Result) {
	if h.Done != nil {
		h.Done(ctx, r)
	}
}
