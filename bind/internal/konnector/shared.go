// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/controller"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// Options are the options of a konnector, complete; see the Options of package bind.
type Options struct {
	Version            string
	HeartbeatInterval  time.Duration
	NamespaceGrace     time.Duration
	SchemaInterval     time.Duration
	CRDOwnerReferences bool
	Sync               func(binding string, opts *klutchsync.Options)
}

// shared is what the connections of a konnector have in common.
type shared struct {
	app      *appCluster
	opts     Options
	bindings *controller.Controller // looks at bindings
	log      logr.Logger
}

// touch asks for a look at all bindings of a Secret.
func (s *shared) touch(secret cache.ObjectName) {
	for _, b := range s.app.lookup(indexSecret, secret.String()) {
		s.bindings.Add(b)
	}
}
