// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

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

	// Done follows each pass over an object.
	Done func(ctx context.Context, r Result)
}

// A Write is one request that may have changed an object.
type Write struct {
	Side   Side
	Step   string // the name of the step in Result
	Object cache.ObjectName
	Took   time.Duration
	Err    error
}

// A Report says what keeps a source object from being in step.
type Report struct {
	Source  cache.ObjectName
	Target  cache.ObjectName
	Reason  Reason
	Message string
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
