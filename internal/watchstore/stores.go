// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// Stores are the watches of one API server, each shared by all who want the same. The zero
// value is ready to use; its fields must not be changed once a store has been acquired.
type Stores struct {
	Budget *kubeconfig.Budget // of what may be kept; nil without bounds
	Jitter Jitter             // of the pauses between retries; nil means a random one

	dictionary dictionary
	refused    atomic.Int64 // how many stores are, by the API server

	mu    sync.Mutex
	all   map[key]*Store
	crowd bool // more than a few were refused, and some are still
}

// Acquire returns the Store of a source and a namespace, empty for all, which runs until
// everyone has released it.
func (s *Stores) Acquire(ctx context.Context, from Source, namespace string) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{from.Resource, namespace, from.Form}
	f := s.all[k]
	if f == nil {
		f = &Store{
			key: k, source: from, answered: s.answered, dictionary: &s.dictionary, share: s.Budget.Share(k.resource.Resource), pauses: Pauses{Jitter: s.Jitter, What: k, Crowd: &s.refused}, done: make(chan struct{}),
			follower: map[Follower]struct{}{}, objects: map[cache.ObjectName]metav1.ObjectMetaAccessor{},
		}
		if s.all == nil {
			s.all = map[key]*Store{}
		}
		s.all[k] = f
		ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
		go f.run(ctx)
	}
	f.users++
	return f
}

// answered follows a store that was refused and is answered: where so many were that each asks rarely,
// two others are due now, each of which has two more.
func (s *Stores) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, due := s.refused.Load(), 2
	s.crowd = n > fates.Few || s.crowd && n > 0
	for _, f := range s.all {
		if s.crowd && due > 0 && f.pauses.refused.Load() {
			f.Wake()
			due--
		}
	}
}

// All are the stores that are acquired.
func (s *Stores) All() []*Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}

// Release ends a Store if it has no other user, and waits until it has ended.
func (s *Stores) Release(f *Store) {
	s.mu.Lock()
	f.users--
	last := f.users == 0
	if last {
		delete(s.all, f.key)
	}
	s.mu.Unlock()
	if last {
		f.stop()
		<-f.done
	}
}
