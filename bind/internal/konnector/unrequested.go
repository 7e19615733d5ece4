// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// unrequested is a namespace that only the provider names.
type unrequested struct {
	since time.Time
	told  bool
}

// leaveAlone leaves a namespace unmapped in which no object was met. If this App
// Cluster has never asked for it either, the provider wants something that was not
// agreed to here: after a grace period in which Syncs can still meet an
// object, the bindings and an audit record say so.
func (n *serviceNamespaces) leaveAlone(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (time.Duration, error) {
	if requestedHere(asked) {
		return n.giveUp(ctx, asked)
	}
	n.mu.Lock()
	u, known := n.unrequested[asked.Name]
	if !known {
		u.since = time.Now()
	}
	left := n.grace - time.Since(u.since)
	fresh := !u.told && left <= 0
	u.told = u.told || fresh
	n.unrequested[asked.Name] = u
	n.mu.Unlock()
	if fresh {
		n.queue.Add(tellKey)
		if n.records.next(ctx) {
			audit.Record(ctx, "namespace not asked for, left alone", "namespace", asked.Name)
		}
	}
	return max(left, 0), nil
}

// requested forgets that only the provider named a namespace.
func (n *serviceNamespaces) requested(namespace string) {
	n.mu.Lock()
	u := n.unrequested[namespace]
	delete(n.unrequested, namespace)
	n.mu.Unlock()
	if u.told {
		n.queue.Add(tellKey)
	}
}

// unrequestedNames are the unrequested namespaces that conditions of bindings name.
func (n *serviceNamespaces) unrequestedNames() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	told := maps.Clone(n.unrequested)
	maps.DeleteFunc(told, func(_ string, u unrequested) bool { return !u.told })
	return slices.Sorted(maps.Keys(told))
}

// requestedHere reports whether a konnector, ours or Klutch's, made an APIServiceNamespace.
// A provider could forge that, and would not be told on; nothing is mapped for it.
func requestedHere(o metav1.Object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == v1alpha1.FieldManager || entry.Manager == "konnector"
	})
}

// mostRecorded bounds how many refusals of what a provider does have an audit record
// of their own.
const mostRecorded = 100

// refusalRecords are the audit records of what a platform asked for and is refused.
type refusalRecords struct{ count atomic.Int64 }

// next reports whether one more refusal has an audit record of its own; a last
// record stands for all that do not.
func (r *refusalRecords) next(ctx context.Context) bool {
	n := r.count.Add(1)
	if n == mostRecorded+1 {
		audit.Record(ctx, "more refusals, without a record for each")
	}
	return n <= mostRecorded
}

// related leaves an audit record of a related object that does not travel.
func (r *refusalRecords) related(ctx context.Context, refused klutchsync.Refusal) {
	if r.next(ctx) {
		audit.Record(ctx, "related object refused", "resource", refused.Resource.GroupResource().String(), "object", refused.Object.String(), "reason", refused.Why)
	}
}
