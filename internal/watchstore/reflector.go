// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"context"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// run lists and watches until ctx ends.
func (s *Store) run(ctx context.Context) {
	defer close(s.done)
	// The reflector logs each attempt; Status tells the same once.
	quiet := logr.Discard()
	r := cache.NewReflectorWithOptions(s.listWatch(), s.source.Example, intake{s}, cache.ReflectorOptions{
		Name: s.key.resource.String(), Logger: &quiet,
		Backoff: &wait.Backoff{Duration: s.pauses.Jitter.of(First, s.key, 0), Cap: Last, Factor: 2, Steps: 6},
	})
	r.RunWithContext(logr.NewContext(ctx, quiet))
	s.mu.Lock()
	s.ended = true
	s.pauses.count(false)
	s.mu.Unlock()
	s.calls.Wait() // a reflector does not wait for its lists
	s.share.Close()
}

// listWatch notes whether the API server lets f read: after an error what has
// been seen is not known to be true any more. It retries by itself what a
// reflector would give ever more time.
func (s *Store) listWatch() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			s.stale() // not any more
			return persist(ctx, s, func() (runtime.Object, error) {
				return s.share.List(ctx, o, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return s.source.List(ctx, s.key.namespace, o)
				})
			})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if s.stale() && o.SendInitialEvents == nil {
				return nil, errEnded
			}
			w, err := persist(ctx, s, func() (watch.Interface, error) {
				if err := s.share.Begin(o); err != nil {
					return nil, err
				}
				if err := s.abreast(ctx, o.ResourceVersion); err != nil {
					return nil, err
				}
				return s.source.Watch(ctx, s.key.namespace, o)
			})
			if err != nil {
				return nil, err
			}
			s.found(o.SendInitialEvents == nil)
			return s.guard(ctx, w, dueAt(o))
		},
	}, s.source.Client)
}

// persist tries until it gets an answer that a reflector has to see.
func persist[T any](ctx context.Context, s *Store, try func() (T, error)) (out T, err error) {
	if !s.begin() {
		return out, errEnded
	}
	defer s.calls.Done()
	out, err = Retry(ctx, &s.pauses, s.note, try)
	if err != nil && ctx.Err() != nil {
		err = errEnded
	}
	return out, err
}

// found follows the begin of a watch; on says that it goes on from what is stored.
func (s *Store) found(on bool) {
	s.pauses.Found()
	if on {
		s.note(nil)
	}
}

// abreast makes sure that an API server that was away has come as far as version.
// One that was restored from a backup would feed no watch from there for long.
func (s *Store) abreast(ctx context.Context, version string) error {
	s.mu.RLock()
	away := s.away
	s.mu.RUnlock()
	if !away {
		return nil
	}
	list, err := s.source.List(ctx, s.key.namespace, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if l, err := meta.ListAccessor(list); err == nil && Newer(version, l.GetResourceVersion()) {
		s.note(errBehind)
		return errBehind
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = false
	return nil
}

// errBehind makes a reflector list anew.
var errBehind = apierrors.NewResourceExpired("the API server is behind what was seen of it")
