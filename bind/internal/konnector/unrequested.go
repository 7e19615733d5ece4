// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// unrequested are the namespaces that only the provider names. They stay unmapped; the
// provider wants something that was not agreed to here, and after a grace period in which
// Syncs can still meet an object, the bindings and an audit record say so.
type unrequested struct {
	grace   time.Duration
	records *refusalRecords
	changed func() // has the bindings say it

	mu   sync.Mutex
	seen map[string]sighting
}

// A sighting is the first time that a provider named a namespace.
type sighting struct {
	since time.Time
	told  bool
}

func newUnrequested(grace time.Duration, records *refusalRecords, changed func()) *unrequested {
	return &unrequested{grace: grace, records: records, changed: changed, seen: map[string]sighting{}}
}

// note remembers a namespace, and returns when to look at it again.
func (u *unrequested) note(ctx context.Context, namespace string) time.Duration {
	u.mu.Lock()
	s, known := u.seen[namespace]
	if !known {
		s.since = time.Now()
	}
	left := u.grace - time.Since(s.since)
	fresh := !s.told && left <= 0
	s.told = s.told || fresh
	u.seen[namespace] = s
	u.mu.Unlock()
	if fresh {
		u.changed()
		if u.records.next(ctx) {
			audit.Record(ctx, "namespace not asked for, left alone", "namespace", namespace)
		}
	}
	return max(left, 0)
}

// requested forgets a namespace.
func (u *unrequested) requested(namespace string) {
	u.mu.Lock()
	told := u.seen[namespace].told
	delete(u.seen, namespace)
	u.mu.Unlock()
	if told {
		u.changed()
	}
}

// names are the namespaces that conditions of bindings name.
func (u *unrequested) names() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	told := maps.Clone(u.seen)
	maps.DeleteFunc(told, func(_ string, s sighting) bool { return !s.told })
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
