// SPDX-License-Identifier: Apache-2.0

// Package hourly reminds the reader of a log of what is wrong for long: what changes has a line of
// its own, what stays as it is has one line an hour for all that it concerns.
//
//	go hourly.Log(ctx, "objects are not in step", func() map[string]int { return counts })
package hourly

import (
	"context"
	"time"

	"github.com/go-logr/logr"
)

// Log writes a line with the counts every hour, unless there are none, until ctx is done.
func Log[K comparable](ctx context.Context, message string, counts func() map[K]int) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := counts(); len(now) > 0 {
			logr.FromContextOrDiscard(ctx).Info(message, "objects", now)
		}
	}
}
