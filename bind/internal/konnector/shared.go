// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"time"

	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// Options are those of a konnector, complete; see the Options of package bind.
type Options struct {
	Version           string
	HeartbeatInterval time.Duration
	NamespaceGrace    time.Duration
	SchemaInterval    time.Duration
	Sync              func(binding string, opts *klutchsync.Options)
}

// touch asks for a look at all bindings of a Secret.
func (a *Konnector) touch(secret cache.ObjectName) {
	for _, b := range a.app.lookup(indexSecret, secret.String()) {
		a.bindings.Add(b)
	}
}
