// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"time"

	"k8s.io/client-go/tools/cache"
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

// paced is reconcile, not as often as a platform thinks of something, and not while
// others of the same connection hold as many workers as they may.
func (a *Konnector) paced(ctx context.Context, binding cache.ObjectName) (time.Duration, error) {
	if c := a.connectionOf(binding); c != nil {
		if !c.enter() {
			return pacePause, nil
		}
		defer c.leave()
	}
	if !a.recordOf(binding).pace.TryAccept() {
		return pacePause, nil
	}
	return a.reconcile(ctx, binding)
}

// connectionOf returns the connection that a binding names, also before its first pass; nil
// if there is none.
func (a *Konnector) connectionOf(binding cache.ObjectName) *connection {
	b, err := a.app.binding(binding)
	if b == nil || err != nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.connections[cache.NewObjectName(b.Spec.KubeconfigSecretRef.Namespace, b.Spec.KubeconfigSecretRef.Name)]
}

// enter reports whether there is room for one more pass.
func (c *connection) enter() bool {
	select {
	case c.passes <- struct{}{}:
		return true
	default:
		return false
	}
}

func (c *connection) leave() { <-c.passes }
