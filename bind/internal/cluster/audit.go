// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"github.com/go-logr/logr"
)

// Audit leaves one record of something that was agreed to, taken back or replaced.
// Values never hold secrets.
func Audit(ctx context.Context, event string, keysAndValues ...any) {
	logr.FromContextOrDiscard(ctx).WithName("audit").Info(event, keysAndValues...)
}
