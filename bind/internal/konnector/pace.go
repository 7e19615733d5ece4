// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/klutch-go/sdk/internal/audit"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A pace bounds how often something is done because a platform changes its mind.
type pace interface{ TryAccept() bool }

func newPace() pace { return flowcontrol.NewTokenBucketPassiveRateLimiter(2, 20) }

// newRarePace is the pace of what costs the App Cluster much, and has to be done a few times at once at most.
func newRarePace() pace { return flowcontrol.NewTokenBucketPassiveRateLimiter(1.0/60, 10) }

const (
	pacePause = 500 * time.Millisecond
	// passWorkers is more than many silent control planes hold: see mostPasses.
	passWorkers = 64
	// mostPasses bounds how many workers the bindings of one connection hold at a time:
	// its control plane may answer slowly, and others wait for a worker too.
	mostPasses = 2
)

// Starts bound how often the Sync of a binding begins, which reads all objects of both clusters. A binding with
// another spec begins anew: that is a change by the App Cluster's owner, and any other may be one by the provider.
type starts struct {
	pace pace
	of   int64     // the generation of the binding
	next time.Time // there is none before
}

// errManyStarts is why a Sync does not begin yet.
var errManyStarts = errors.New("what the provider says of this API changes all the time; each time all objects are read anew, and that is done once a minute at most")

// begin reports whether a Sync may begin now.
func (s *starts) begin(generation int64) bool {
	if s.pace == nil || s.of != generation {
		*s = starts{pace: newRarePace(), of: generation}
	}
	may := s.pace.TryAccept()
	if !may {
		s.next = time.Now().Add(retryEvery)
	}
	return may
}

// wait is for how long there is no need to try.
func (s *starts) wait(generation int64) time.Duration {
	if s.of != generation {
		return 0
	}
	return time.Until(s.next)
}

// retryEvery is the pace of looks at what no watch shows and others have to change.
const retryEvery = 10 * time.Second

// rightsEvery is the pace of looks at missing rights, or at a side that cannot be read, for a minute:
// a person waits while API servers aggregate roles. Then the pauses grow, up to rightsRarely.
const (
	rightsEvery  = 2 * time.Second
	rightsRarely = 40 * time.Second
)

// judgedRarely is the longest pause between looks at whether objects let a change of a schema be made.
const judgedRarely = 10 * time.Minute

// stoppedRarely is the longest pause between looks at objects whose Sync does not run, so that they are told within
// a minute.
const stoppedRarely = 40 * time.Second

// carryOutRarely is the longest pause between attempts to take back what answers to claims take back.
const carryOutRarely = 10 * time.Minute

// A trouble is what keeps a binding from what it needs, and lasts since then. Zero: there is none.
type trouble struct{ since time.Time }

// again is when to look at it again.
func (t *trouble) again() time.Duration { return t.growing(rightsEvery, rightsRarely) }

// growing is a pause that doubles with each minute that it lasts, up to a longest one.
func (t *trouble) growing(first, longest time.Duration) time.Duration {
	if t.since.IsZero() {
		t.since = time.Now()
	}
	return min(first<<min(time.Since(t.since)/time.Minute, 8), max(first, longest))
}

// unknownGrace is how long conditions stay as they were that nothing is known of yet: a
// restart is no news, a provider that never ends its answer is.
const unknownGrace = time.Minute

// lasts reports whether people are to be told of it.
func (t *trouble) lasts() bool { return !t.since.IsZero() && time.Since(t.since) >= unknownGrace }

// mostRecorded bounds how many refusals of what a provider does have an audit record
// of their own.
const mostRecorded = 100

// refusalRecords are the audit records of what a platform asked for and is refused.
type refusalRecords struct{ count atomic.Int64 }

// next reports whether one more refusal has an audit record of its own. One last record
// stands for all refusals after these.
func (r *refusalRecords) next(ctx context.Context) bool {
	n := r.count.Add(1)
	if n == mostRecorded+1 {
		audit.Record(ctx, "more refusals, without a record for each")
	}
	return n <= mostRecorded
}

// related leaves an audit record of a related object that does not travel.
func (r *refusalRecords) related(ctx context.Context, refused klutchsync.Refusal) {
	if r.next(ctx) {
		audit.Record(ctx, "related object refused", "resource", refused.Resource.GroupResource().String(), "object", refused.Object.String(), "reason", refused.Why)
	}
}
