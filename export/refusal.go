// SPDX-License-Identifier: Apache-2.0

package export

import (
	"errors"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A refusal says why a request cannot be granted.
type refusal struct {
	reason, message string
	temporary       bool // what is missing may still come
}

func refuse(reason, message string) *refusal {
	return &refusal{reason: reason, message: message}
}

// refuseForNow is refuse where what is missing may still come.
func refuseForNow(reason, message string) *refusal {
	return &refusal{reason: reason, message: message, temporary: true}
}

func (r *refusal) Error() string { return r.message }

// asRefusal returns what the tenant should know of err, or nil.
func asRefusal(err error) *refusal {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused
	}
	if missing, ok := errors.AsType[*rightError](err); ok {
		return refuseForNow(v1alpha1.ReasonMissingRights, missing.Error())
	}
	return nil
}
