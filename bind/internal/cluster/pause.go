// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"
)

// Pause waits for a while; the error is the cause of the end of ctx, if that comes first.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
