// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// A pace bounds how often something is done because a platform changes its mind.
type pace interface{ TryAccept() bool }

func newPace() pace { return flowcontrol.NewTokenBucketPassiveRateLimiter(2, 20) }

const (
	pacePause = 500 * time.Millisecond
	// passWorkers is more than many silent control planes hold: see mostPasses.
	passWorkers = 64
	// mostPasses bounds how many workers the bindings of one connection hold at a time:
	// its control plane may answer slowly, and others wait for a worker too.
	mostPasses = 2
)

// retryEvery is the pace of looks at what no watch shows and others have to change.
const retryEvery = 10 * time.Second

// rightsEvery is the pace of looks at missing rights: a person waits while API servers
// aggregate roles.
const rightsEvery = 2 * time.Second
