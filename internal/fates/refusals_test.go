// SPDX-License-Identifier: Apache-2.0

package fates

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is about one request is kept, as the first one and a number; what the next one would meet is
// returned. A refusal stands for the others, since people are to be told of it.
func TestRefusals(t *testing.T) {
	var none Refusals
	if err := none.Keep(nil); err != nil || none.Err() != nil {
		t.Errorf("%v, %v", err, none.Err())
	}
	forbidden, conflict := status(403, metav1.StatusReasonForbidden), status(409, metav1.StatusReasonConflict)
	denial := apierrors.NewTooManyRequests(`admission webhook "slow.example.org" denied the request: not now`, 60)
	for _, kept := range [][]error{{forbidden}, {conflict, forbidden, nil, denial}, {denial, forbidden}, {Silent(denial), Silent(forbidden)}} {
		var r Refusals
		for _, err := range kept {
			if other := r.Keep(err); other != nil {
				t.Errorf("%v is returned", other)
			}
		}
		if err := r.Err(); !IsRefused(err) || len(kept) == 4 && !strings.HasSuffix(err.Error(), " (and so it is with 2 more)") {
			t.Errorf("of %v: %v", kept, err)
		}
	}
	for _, other := range []error{errors.New("connection refused"), status(503, metav1.StatusReasonServiceUnavailable), status(401, metav1.StatusReasonUnauthorized), t.Context().Err()} {
		var r Refusals
		if err := r.Keep(other); !errors.Is(err, other) || r.Err() != nil {
			t.Errorf("%v: %v, kept %v", other, err, r.Err())
		}
	}
}
