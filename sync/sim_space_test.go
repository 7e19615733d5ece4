// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"sync"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// simSpaces are the source namespaces that the platform serves, each with its target namespace, and a
// table a konnector, kept as the konnector's Keeper keeps its own: a start recalls what is served, and a
// source that is met opens its namespace.
type simSpaces struct {
	mu     sync.Mutex
	open   bool // a start opens all that is served, as a program does that has its namespaces from elsewhere
	served map[string]string
	tables map[*konnector]*simTable // of those that run
}

type simTable struct {
	*klutchsync.Namespaces
	wanted map[string]bool
}

func newSimSpaces(open bool) *simSpaces {
	return &simSpaces{open: open, served: map[string]string{}, tables: map[*konnector]*simTable{}}
}

// start returns the table of a konnector that starts.
func (s *simSpaces) start(k *konnector) *klutchsync.Namespaces {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &simTable{wanted: map[string]bool{}}
	t.Namespaces = klutchsync.NewNamespaces(func(namespace string) { s.want(t, namespace) })
	s.tables[k] = t
	for namespace, target := range s.served {
		t.serve(namespace, target, s.open)
	}
	return t.Namespaces
}

// closed reports whether no konnector that runs has opened a namespace: what was copied there is left to the
// program, which knows where it has taken rights before.
func (s *simSpaces) closed(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, t := range s.tables {
		if _, open := t.Of(namespace); open && k.alive() {
			return false
		}
	}
	return true
}

func (s *simSpaces) want(t *simTable, namespace string) {
	s.mu.Lock()
	target, served := s.served[namespace]
	t.wanted[namespace] = true
	s.mu.Unlock()
	if served {
		t.Set(namespace, target)
	}
}

// serve has the platform serve a namespace.
func (s *simSpaces) serve(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served[namespace] = "svc-" + namespace
	for _, t := range s.tables {
		t.serve(namespace, s.served[namespace], s.open)
	}
}

func (t *simTable) serve(namespace, target string, open bool) {
	if open || t.wanted[namespace] {
		t.Set(namespace, target)
	} else {
		t.Recall(namespace, target)
	}
}

// end has the platform serve a namespace no more.
func (s *simSpaces) end(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.served, namespace)
	for _, t := range s.tables {
		t.Delete(namespace)
	}
}
