// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"fmt"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/text"
)

// Errors of a namespace or object that a tenant cannot have.
var (
	ErrForeign     = errors.New("belongs to another owner")
	ErrTerminating = errors.New("is being deleted")
)

// ReasonObjectsRemain is why a service namespace stays from which objects have not gone.
const ReasonObjectsRemain = "ObjectsRemain"

// A RefusalError says why something is not granted to a tenant, which may know it.
type RefusalError struct {
	Reason, Message string
	Temporary       bool  // what is missing may still come
	Lasts           bool  // Err may be over any time: it is asked about until then
	Err             error // the answer of an API server that led to it; may be nil
}

// Refuse returns a RefusalError for good.
func Refuse(reason, message string) *RefusalError {
	return &RefusalError{Reason: reason, Message: text.Clip(message, longestReason)}
}

// RefuseForNow returns a RefusalError for a lack that the platform may still end. The error is the answer of an
// API server that led to it; it may be nil.
func RefuseForNow(reason, message string, err error) *RefusalError {
	return &RefusalError{Reason: reason, Message: text.Clip(message, longestReason), Temporary: true, Err: err}
}

// longestReason keeps what API servers say from filling conditions, in bytes: with a sentence around
// it a message has a KiB.
const longestReason = 768

// Against says to a tenant what the platform's API server has against something.
func Against(what string, err error) string {
	return text.Clip(fmt.Sprintf("the platform's API server %s %s: %s", fates.Of(err).Word(), what, fates.Stable(err)), longestReason)
}

func (r *RefusalError) Error() string { return r.Message }

// Unwrap has package queue pace what an API server refuses as it says.
func (r *RefusalError) Unwrap() error { return r.Err }

// A waiting is what a removal waits for, as its condition says it.
type waiting struct{ Reason, Message string }
