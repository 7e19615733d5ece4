// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"
)

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
