// SPDX-License-Identifier: Apache-2.0

package fates

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// People are told of a refusal at once, of what is to wait for long too, of what a caller has ended never, and of all else once it
// has lasted.
func TestIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			err           error
			first, lasted bool
		}{
			{nil, false, false},
			{context.Canceled, false, false},
			{status(403, metav1.StatusReasonForbidden), true, true},
			{status(503, metav1.StatusReasonServiceUnavailable), false, true},
			{status(409, metav1.StatusReasonConflict), false, true},
			{status(404, metav1.StatusReasonNotFound), false, true},
			{errors.New("connection refused"), false, true},
			{apierrors.NewTooManyRequests("not now", 30), false, true},
			{apierrors.NewTooManyRequests("not now", 60), true, true},
		} {
			began := time.Now()
			for look := range 3 {
				ctx, want := t.Context(), c.first
				if look > 0 {
					ctx = FailingSince(t.Context(), began)
				}
				if look == 2 {
					time.Sleep(lasting)
					want = c.lasted
				}
				if got := IsTold(ctx, c.err); got != want {
					t.Errorf("%v, look %d: told is %t", c.err, look, got)
				}
			}
		}
	})
}
