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
	Lasts           error // what an API server has answered for some time and is no refusal; may be nil
}

// Refuse returns a RefusalError for good.
func Refuse(reason, message string) *RefusalError {
	return &RefusalError{Reason: reason, Message: message}
}

// RefuseForNow is refuse where what is missing may still come.
func RefuseForNow(reason, message string) *RefusalError {
	return &RefusalError{Reason: reason, Message: message, Temporary: true}
}

// longestReason keeps what API servers say from filling conditions, in bytes.
const longestReason = 1024

// Against says to a tenant what the platform's API server has against something.
func Against(what string, err error) string {
	return fmt.Sprintf("the platform's API server %s %s: %s", fates.Of(err).Word(), what, text.Clip(fates.Stable(err), longestReason))
}

func (r *RefusalError) Error() string { return r.Message }

// A waiting is what a removal waits for, as its condition says it.
type waiting struct{ Reason, Message string }
