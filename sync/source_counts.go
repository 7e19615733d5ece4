// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// sourceCounts counts the sources of each namespace: that there is one is what related
// objects of the namespace have to do with a Sync at all. It implements related.Sources.
type sourceCounts struct {
	engine *engine
	// firstOrLast is called when the first source of a namespace came, or the last one went;
	// initial says that a first list showed it.
	firstOrLast func(namespace string, initial bool)

	mu     sync.RWMutex
	counts map[string]int
}

// In reports whether there is a source in namespace; one that is being deleted counts
// until it has gone.
func (s *sourceCounts) In(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.counts[namespace] > 0
}

// follow counts a change of a source.
func (s *sourceCounts) follow(c change) {
	if (c.before == nil) != (c.after == nil) && s.count(c.name.Namespace, c.after != nil) {
		s.firstOrLast(c.name.Namespace, c.initial)
	}
}

// count reports whether the source is the first one of its namespace, or was the last.
func (s *sourceCounts) count(namespace string, came bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.counts[namespace]
	after := before - 1
	if came {
		after = before + 1
	}
	s.counts[namespace] = after
	if after <= 0 {
		delete(s.counts, namespace)
	}
	return before <= 0 || after <= 0
}

func (s *sourceCounts) Deserted(ctx context.Context, namespace string) (bool, error) {
	list, err := s.engine.sources(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("look for sources in namespace %s: %w", namespace, err)
	}
	return len(list.Items) == 0, nil
}

func (s *sourceCounts) Get(name cache.ObjectName) (metav1.Object, bool) {
	obj, _, known := s.engine.source.get(name)
	return obj, known
}

func (s *sourceCounts) Live(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error) {
	return s.engine.source.live(ctx, name)
}
