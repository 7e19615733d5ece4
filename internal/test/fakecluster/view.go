// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
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

// View returns c with f answering the requests of this view, as Intercept does
// for those of all.
func (c *Cluster) View(f func(ctx context.Context, r Request, do func() error) error) *View {
	return &View{cluster: c, intercept: f}
}

// Held is View for a client whose watches deliver nothing by themselves.
// Requests carry its name.
func (c *Cluster) Held(name string, f func(ctx context.Context, r Request, do func() error) error) *View {
	return &View{cluster: c, name: name, intercept: f, held: true}
}

// Client returns a dynamic client.
func (v *View) Client() dynamic.Interface { return client{v} }

// Metadata returns a metadata client.
func (v *View) Metadata() metadata.Interface { return metadataClient{v} }

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

// ask lets a request be carried out when whoever answers those of v says so.
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

// A Commit is one change of one object.
type Commit struct {
	Request       Request // that made it; zero for none
	Resource      schema.GroupVersionResource
	Kind          watch.EventType
	Before, After *unstructured.Unstructured // not to be changed; After of a deletion is what was deleted
}

// Observe calls f with each commit, in order. It must not call the Cluster.
func (c *Cluster) Observe(f func(Commit)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe = f
}

// Version is the latest resourceVersion.
func (c *Cluster) Version() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// Objects are those of a resource, in order of their names. They are not to be
// changed. False means that the resource is not served.
func (c *Cluster) Objects(gvr schema.GroupVersionResource) ([]*unstructured.Unstructured, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.served[gvr]
	if s == nil {
		return nil, false
	}
	return ordered(s.objects), true
}

// Skew makes the cluster's clock differ.
func (c *Cluster) Skew(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = func() metav1.Time { return metav1.NewTime(time.Now().Add(by)) }
}

// Restore brings back the state after a version, as from a backup: with the old
// versions of the objects, but no watch or version from after it goes on.
func (c *Cluster) Restore(version int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version += 1000
	for _, s := range c.all() {
		c.reset(s, s.at(version))
	}
}

// Replace puts another cluster in the place of this one: it has the same
// namespaces under other UIDs, serves the same resources, and has none of the
// objects. Its versions are higher than those before or, if it is younger, lower.
func (c *Cluster) Replace(younger bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version += 1000; younger {
		c.version = 1
	}
	for _, s := range c.all() {
		before := ordered(s.objects)
		c.reset(s, map[cache.ObjectName]*unstructured.Unstructured{})
		for _, o := range before {
			if s.Kind == "Namespace" {
				c.insert(s, key(o), o.DeepCopy())
			}
		}
	}
}

// reset makes objects all that s has. What was before is not known any more.
func (c *Cluster) reset(s *served, objects map[cache.ObjectName]*unstructured.Unstructured) {
	c.compacted, s.since = c.version, c.version
	s.objects, s.hidden, s.history = objects, map[cache.ObjectName]*unstructured.Unstructured{}, nil
	for _, o := range ordered(s.objects) {
		s.history = append(s.history, event{version: c.version, kind: watch.Added, object: o})
		s.show(key(o), o)
	}
	for _, w := range s.watchers {
		w.Stop()
	}
}

// all is what is served, in order of the names.
func (c *Cluster) all() []*served {
	return slices.SortedFunc(maps.Values(c.served), func(a, b *served) int { return strings.Compare(a.Resource.Resource, b.Resource.Resource) })
}

// ordered are objects in order of their names.
func ordered(objects map[cache.ObjectName]*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.SortedFunc(maps.Values(objects), func(a, b *unstructured.Unstructured) int { return strings.Compare(key(a).String(), key(b).String()) })
}
