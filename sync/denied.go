// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/internal/fates"
)

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

// permitted follows a pass. What an API server does not permit is told and tried
// again soon, since rights come back without an event. A source that must not be
// written cannot carry the message: Status has it.
func (e *engine) permitted(ctx context.Context, r *record, result *Result, again time.Duration, err error) (time.Duration, error) {
	switch {
	case fates.Is(err, fates.Forbidden, fates.Terminating):
		e.deny(ctx, r, result, clip(err.Error()))
		result.Err = &ObjectError{ReasonDenied, err.Error()}
		return waitPause, nil
	case err == nil && r.refusals.access != "":
		e.deny(ctx, r, result, "")
	}
	return again, err
}

// deny notes what is not permitted of an object, or that all is.
func (e *engine) deny(ctx context.Context, r *record, result *Result, text string) {
	if r.refusals.access == text {
		return
	}
	r.refusals.access, r.status.reported = text, ""
	log := logr.FromContextOrDiscard(ctx).WithValues("target", result.Target.String())
	e.recordsMu.Lock()
	if delete(e.denials, result.Source); text != "" {
		e.denials[result.Source] = text
		r.status.reported = ReasonDenied
	}
	e.recordsMu.Unlock()
	e.opts.Hooks.reported(ctx, Report{Source: result.Source, Target: result.Target, Reason: r.status.reported, Message: text})
	log.Info("permission for an object has changed", "reason", string(r.status.reported), "message", text)
	e.notify()
}

// denial is one of what API servers do not permit; nil if there is nothing.
func (e *engine) denial() error {
	e.recordsMu.Lock()
	defer e.recordsMu.Unlock()
	if text := least(e.denials); text != "" {
		return &ObjectError{ReasonDenied, text}
	}
	return nil
}

// least is the first of some texts in their order, so that it is always the same;
// empty if there is none.
func least[K comparable](texts map[K]string) (first string) {
	for _, text := range texts {
		if first == "" || text < first {
			first = text
		}
	}
	return first
}
