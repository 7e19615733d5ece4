// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// spaces counts the sources of each namespace. That one is there is what related
// objects of its namespace have to do with a Sync at all.
type spaces struct {
	// turned is called when the first source of a namespace came, or the last one went;
	// initial says that a first list showed it.
	turned func(namespace string, initial bool)

	mu     sync.RWMutex
	counts map[string]int
}

// has reports whether there is a source in namespace; one that is being deleted
// counts until it has gone.
func (s *spaces) has(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.counts[namespace] > 0
}

// follow counts a change of a source.
func (s *spaces) follow(c change) {
	if (c.before == nil) == (c.after == nil) {
		return
	}
	if s.count(c.name.Namespace, c.after != nil) {
		s.turned(c.name.Namespace, c.initial)
	}
}

// count reports whether the source is the first one of its namespace, or was the last.
func (s *spaces) count(namespace string, came bool) bool {
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

// deserted asks the API server whether there is no source in namespace.
func (e *engine) deserted(ctx context.Context, namespace string) (bool, error) {
	list, err := e.sources(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("look for sources in namespace %s: %w", namespace, err)
	}
	return len(list.Items) == 0, nil
}
