// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"context"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// A View is a Cluster as one of its clients sees it.
type View struct {
	cluster   *Cluster
	name      string
	held      bool
	intercept func(context.Context, Request, func() error) error

	mu      sync.Mutex
	watches []*Watch
	past    *Past
}

// Watches are the open watches, in the order in which they were opened.
func (v *View) Watches() []*Watch {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.watches)
}

func (v *View) opened(w *Watch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watches = append(v.watches, w)
}

func (v *View) forget(w *Watch) {
	v.mu.Lock()
	v.watches = slices.DeleteFunc(v.watches, func(o *Watch) bool { return o == w })
	v.mu.Unlock()
	v.cluster.mu.Lock()
	defer v.cluster.mu.Unlock()
	if s := v.cluster.served[w.resource]; s != nil {
		s.watchers = slices.DeleteFunc(s.watchers, func(o *Watch) bool { return o == w })
	}
}

// A Past is what a list shows instead of the present.
type Past struct {
	Version int64 // the state after this one; but never older than what the client has seen
	Empty   bool  // no objects at all, as from an API server that has lost them
}

// Next makes the next list show the past.
func (v *View) Next(p Past) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.past = &p
}

// list returns objects and the version of the list.
func (v *View) list(s *served, namespace string, options metav1.ListOptions) ([]*unstructured.Unstructured, int64, error) {
	v.mu.Lock()
	past := v.past
	v.past = nil
	v.mu.Unlock()
	match, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	now := v.cluster.version
	switch {
	case past == nil:
		return choose(s.objects, namespace, match), now, nil
	case past.Empty:
		return nil, now, nil
	}
	seen, _ := strconv.ParseInt("0"+options.ResourceVersion, 10, 64)
	version := min(max(past.Version, seen, v.cluster.compacted), now)
	objects := choose(s.at(version), namespace, match)
	for _, o := range objects {
		s.Schema.prune(o)
	}
	return objects, version, nil
}

// at is the state after a version.
func (s *served) at(version int64) map[cache.ObjectName]*unstructured.Unstructured {
	out := map[cache.ObjectName]*unstructured.Unstructured{}
	for _, e := range s.history {
		switch {
		case e.version > version:
			return out
		case e.kind == watch.Deleted:
			delete(out, key(e.object))
		default:
			out[key(e.object)] = e.object
		}
	}
	return out
}

// handle carries a request out.
func (v *View) handle(ctx context.Context, r Request, do func(*served) error) error {
	return v.ask(ctx, r, func(ctx context.Context, r Request) error { return v.cluster.handle(ctx, r, do) })
}

// ask lets a request be carried out when the function that answers those of v says so.
func (v *View) ask(ctx context.Context, r Request, serve func(context.Context, Request) error) error {
	r.View = v.name
	serving := ctx
	if v.held {
		serving = context.WithoutCancel(ctx) // what has been sent may arrive although its sender has died
	}
	carry := func() error { return serve(serving, r) }
	if v.intercept == nil {
		return carry()
	}
	return v.intercept(ctx, r, carry)
}
