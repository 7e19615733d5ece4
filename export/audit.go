// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"

	"github.com/go-logr/logr"
)

// audit leaves one record of something that was granted, refused or taken away.
// Values never hold secrets.
func audit(ctx context.Context, event string, keysAndValues ...any) {
	logr.FromContextOrDiscard(ctx).WithName("audit").Info(event, keysAndValues...)
}
