// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/doctor"
)

// A Finding is what one check of [Doctor] has found.
type Finding struct {
	Check   string `json:"check"`           // app-cluster, rights, konnector, secret, token, control-plane, heartbeat, binding, claims, deletions or objects
	About   string `json:"about,omitempty"` // an address, a Secret, a binding
	OK      bool   `json:"ok"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do about it
}

// Doctor checks what bindings need, and changes nothing: the App Cluster, the right to
// bind more, the konnector, each kubeconfig Secret and where it leads, each binding and
// its objects. What makes no sense because of what was found before is left out. Now is
// the time that ages are measured by.
func Doctor(ctx context.Context, config *rest.Config, now time.Time) []Finding {
	var found []Finding
	for _, f := range doctor.Check(ctx, config, now) {
		found = append(found, Finding(f))
	}
	return found
}
