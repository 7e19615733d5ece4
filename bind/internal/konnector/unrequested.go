// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// uninvited is a namespace that only the provider names.
type uninvited struct {
	since time.Time
	told  bool
}

// mostRecorded bounds how many refusals of what a provider does have an audit record
// of their own.
const mostRecorded = 100

// leaveAlone leaves a namespace unmapped in which no object was met. If this App
// Cluster has never asked for it either, the provider wants something that was not
// agreed to here: after a grace period in which Syncs can still meet an
// object, the bindings and an audit record say so.
func (s *session) leaveAlone(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (time.Duration, error) {
	if askedFor(asked) {
		return s.giveUp(ctx, asked)
	}
	s.mu.Lock()
	n, known := s.uninvited[asked.Name]
	if !known {
		n.since = time.Now()
	}
	left := s.agent.opts.NamespaceGrace - time.Since(n.since)
	fresh := !n.told && left <= 0
	n.told = n.told || fresh
	s.uninvited[asked.Name] = n
	s.mu.Unlock()
	if fresh {
		s.spaces.Add(news)
		if s.records(ctx) {
			cluster.Audit(ctx, "namespace not asked for, left alone", "namespace", asked.Name)
		}
	}
	return max(left, 0), nil
}

// records reports whether one more refusal has an audit record of its own; a last
// record stands for all that do not.
func (s *session) records(ctx context.Context) bool {
	n := s.recorded.Add(1)
	if n == mostRecorded+1 {
		cluster.Audit(ctx, "more refusals, without a record for each")
	}
	return n <= mostRecorded
}

// refusedRelated leaves an audit record of a related object that does not travel.
func (s *session) refusedRelated(ctx context.Context, r klutchsync.Refusal) {
	if s.records(ctx) {
		cluster.Audit(ctx, "related object refused", "resource", r.Resource.GroupResource().String(), "object", r.Object.String(), "reason", r.Why)
	}
}

// invited forgets that a namespace is uninvited.
func (s *session) invited(namespace string) {
	s.mu.Lock()
	n := s.uninvited[namespace]
	delete(s.uninvited, namespace)
	s.mu.Unlock()
	if n.told {
		s.spaces.Add(news)
	}
}

// strangers are the uninvited namespaces that the bindings tell of.
func (s *session) strangers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := maps.Clone(s.uninvited)
	maps.DeleteFunc(told, func(_ string, n uninvited) bool { return !n.told })
	return slices.Sorted(maps.Keys(told))
}

// askedFor reports whether a konnector, ours or Klutch's, made an APIServiceNamespace.
// A provider could forge that, and would not be told on; nothing is mapped for it.
func askedFor(o metav1.Object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == v1alpha1.FieldManager || entry.Manager == "konnector"
	})
}
