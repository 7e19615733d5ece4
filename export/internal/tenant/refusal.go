// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A RefusalError says why something is not granted to a tenant, which may know it.
type RefusalError struct {
	Reason, Message string
	Temporary       bool // what is missing may still come
}

// Refuse returns a RefusalError for good.
func Refuse(reason, message string) *RefusalError {
	return &RefusalError{Reason: reason, Message: message}
}

// RefuseForNow is refuse where what is missing may still come.
func RefuseForNow(reason, message string) *RefusalError {
	return &RefusalError{Reason: reason, Message: message, Temporary: true}
}

func (r *RefusalError) Error() string { return r.Message }

// AsRefusal returns what the tenant should know of err, or nil.
func AsRefusal(err error) *RefusalError {
	if refused, ok := errors.AsType[*RefusalError](err); ok {
		return refused
	}
	if missing, ok := errors.AsType[*rightError](err); ok {
		return RefuseForNow(v1alpha1.ReasonMissingRights, missing.Error())
	}
	return nil
}
