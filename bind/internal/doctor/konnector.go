// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	usualLease = 15 * time.Second // of a Lease that does not say how long it is good
	renewals   = 3 * time.Second  // a holder that works renews its Lease more often
)

// Konnector tells who holds the Lease of the konnector, and what is wrong with that; empty
// if nothing. A holder gives up working when two thirds of its Lease are over. What a clock
// says counts only together with a Lease that does not change.
func Konnector(ctx context.Context, app *cluster.App, now time.Time) (holder, wrong string) {
	leases := app.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(v1alpha1.Namespace)
	lease, err := cluster.Get[coordinationv1.Lease](ctx, leases, v1alpha1.LeaseName)
	switch {
	case err != nil:
		return "", cluster.Explain(err)
	case lease == nil:
		return "", None
	case lease.Spec.RenewTime == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "":
		return "", Stopped
	}
	holder = *lease.Spec.HolderIdentity
	good := usualLease
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		good = time.Duration(*s) * time.Second
	}
	age := now.Sub(lease.Spec.RenewTime.Time)
	if age < good*2/3 || cluster.Pause(ctx, renewals) != nil {
		return holder, ""
	}
	again, err := cluster.Get[coordinationv1.Lease](ctx, leases, v1alpha1.LeaseName)
	if err != nil || again == nil || !again.Spec.RenewTime.Equal(lease.Spec.RenewTime) {
		return holder, ""
	}
	return holder, fmt.Sprintf("it does not work: it has not renewed its Lease for %s", age.Round(time.Second))
}

// Clock is how far the clock here is ahead of that of the konnector which holds the Lease, or behind
// it if negative; 0 where they agree by a minute, or nothing is known. It is meant for a konnector that renews its Lease.
func Clock(ctx context.Context, app *cluster.App, now time.Time) time.Duration {
	leases := app.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(v1alpha1.Namespace)
	lease, err := cluster.Get[coordinationv1.Lease](ctx, leases, v1alpha1.LeaseName)
	if err != nil || lease == nil || lease.Spec.RenewTime == nil {
		return 0
	}
	if ahead := now.Sub(lease.Spec.RenewTime.Time).Round(time.Second); ahead.Abs() >= time.Minute {
		return ahead
	}
	return 0
}

// Silent reports whether that means that a konnector which once worked does not any more. One that
// has no Lease may be part of another program.
func Silent(holder, wrong string) bool {
	return wrong == Stopped || holder != "" && wrong != ""
}

// What is wrong where no konnector works.
const (
	None    = "none works here"
	Stopped = "it was stopped: no replica holds its Lease"
)

// hearing is how long the platforms may take in all to say whether they hear the konnector: a person waits.
const hearing = 5 * time.Second

// Unheard returns what a platform says that has heard of no konnector since the bind, if the platform of one of the
// bindings says so. All platforms are asked at the same time, so that one that hangs does not delay the rest.
func Unheard(ctx context.Context, app *cluster.App, of []v1alpha1.APIServiceBinding) string {
	ctx, cancel := context.WithTimeout(ctx, hearing)
	defer cancel()
	said := make([]string, len(of))
	asked := map[v1alpha1.ClusterSecretKeyRef]bool{}
	var answers sync.WaitGroup
	for i, b := range of {
		ref := b.Spec.KubeconfigSecretRef
		if asked[ref] || !cluster.IsReady(&b) { // the second says so itself
			continue
		}
		asked[ref] = true
		answers.Go(func() {
			if words, err := cluster.Unheard(ctx, app, ref); err == nil && words != "" {
				said[i] = fmt.Sprintf("the platform of %s says: %s", b.Name, words)
			}
		})
	}
	answers.Wait()
	return cmp.Or(said...)
}
