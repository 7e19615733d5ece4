// SPDX-License-Identifier: Apache-2.0

// Package leader lets one of several replicas work, by a Lease.
package leader

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// A Lease names the Lease object, and the replica that wants to hold it.
type Lease struct {
	Namespace, Name string
	// Identity is different for each replica.
	Identity string
}

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Run calls fn while the lease is held, and again each time that it was lost and
// won back. The context of fn ends when ctx does or the lease is lost. The lease is
// given up only after fn has returned, so that two replicas never work at once.
// Run returns when ctx is done, with nil, or when fn returns although it could go
// on, with its result.
func Run(ctx context.Context, client kubernetes.Interface, lease Lease, fn func(context.Context) error) error {
	for ctx.Err() == nil {
		ended, err := term(ctx, newLock(client, lease), fn)
		if ended {
			return err
		}
	}
	return nil
}

func newLock(client kubernetes.Interface, lease Lease) resourcelock.Interface {
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: lease.Identity},
	}
}

// term waits for the lease and calls fn once. It reports whether fn ended of its
// own accord.
func term(ctx context.Context, lock resourcelock.Interface, fn func(context.Context) error) (ended bool, err error) {
	// The lease outlives ctx: it is held until fn has returned.
	held, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	won := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: lock.Describe(),
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { won <- leading },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return true, fmt.Errorf("lease %s: %w", lock.Describe(), err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { elector.Run(held) })
	select {
	case <-ctx.Done():
	case leading := <-won:
		ended, err = lead(ctx, leading, fn)
	}
	stop()
	wg.Wait()
	release(ctx, lock)
	return ended, err
}

// lead calls fn with a context that ends with ctx and with leading.
func lead(ctx, leading context.Context, fn func(context.Context) error) (ended bool, err error) {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(leading, cancel)()
	err = fn(work)
	if work.Err() != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info("lease lost")
		return false, nil
	}
	return true, err
}

// release empties the lease if it is still ours, so that another replica need not
// wait for it to run out.
func release(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewDeadline)
	defer cancel()
	record, _, err := lock.Get(ctx)
	if err != nil || record.HolderIdentity != lock.Identity() {
		return
	}
	record.HolderIdentity = ""
	record.LeaseDurationSeconds = 1
	if err := lock.Update(ctx, *record); err != nil {
		logr.FromContextOrDiscard(ctx).V(4).Info("lease not released, it will run out", "reason", err.Error())
	}
}
