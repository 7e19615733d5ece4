// SPDX-License-Identifier: Apache-2.0

package servicenamespace

import (
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// unrequested are the namespaces that only the provider names. They stay unmapped; the
// provider wants something that was not agreed to here, and after a grace period in which
// Syncs can still meet an object, the bindings and an audit record say so.
type unrequested struct {
	mu   sync.Mutex
	seen map[string]sighting
}

// A sighting is the first time that a provider named a namespace.
type sighting struct {
	since time.Time
	told  bool
}

// note remembers a namespace. It returns how long the grace period goes on, and whether it
// ended at this look.
func (u *unrequested) note(namespace string, grace time.Duration) (left time.Duration, fresh bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s, known := u.seen[namespace]
	if !known {
		s.since = time.Now()
	}
	left = grace - time.Since(s.since)
	fresh = !s.told && left <= 0
	s.told = s.told || fresh
	if u.seen == nil {
		u.seen = map[string]sighting{}
	}
	u.seen[namespace] = s
	return max(left, 0), fresh
}

// forget forgets a namespace, and reports whether its grace period had ended.
func (u *unrequested) forget(namespace string) (told bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	told = u.seen[namespace].told
	delete(u.seen, namespace)
	return told
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
