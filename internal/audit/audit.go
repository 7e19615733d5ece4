// SPDX-License-Identifier: Apache-2.0

// Package audit leaves the records that an operator keeps of who got or lost what.
// A record is a line of the logger of the context under the name "audit", with an
// event and named fields that never hold secrets. deploy/README.md lists all of them;
// a test of internal/arch holds that list against the calls in the code.
package audit

import (
	"context"

	"github.com/go-logr/logr"
)

// Record leaves one record of something that was granted, refused or taken away.
func Record(ctx context.Context, event string, keysAndValues ...any) {
	logr.FromContextOrDiscard(ctx).WithName("audit").Info(event, keysAndValues...)
}
