// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// New returns a running Cluster with the namespaces kube-system and default.
func New(resources ...Resource) *Cluster { return start(uuid.NewUUID, resources) }

// Named is New with UIDs that are the same in each run: name and a number.
func Named(name string, resources ...Resource) *Cluster {
	n := 0
	return start(func() types.UID {
		n++
		return types.UID(fmt.Sprintf("%s-%012d", name, n))
	}, resources)
}

func start(uid func() types.UID, resources []Resource) *Cluster {
	c := &Cluster{served: map[schema.GroupVersionResource]*served{}, version: 1, uid: uid, now: metav1.Now}
	core := func(resource, kind string, cluster bool) Resource {
		return Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Kind: kind, Cluster: cluster}
	}
	for _, r := range append(resources, core("namespaces", "Namespace", true), core("secrets", "Secret", false), core("configmaps", "ConfigMap", false)) {
		c.Serve(r)
	}
	for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		ns.SetName(name)
		c.mu.Lock()
		write{c, c.served[core("namespaces", "", true).GroupVersionResource], cache.NewObjectName("", name)}.insert(ns)
		c.mu.Unlock()
	}
	return c
}

// Serve begins to serve r, without objects.
func (c *Cluster) Serve(r Resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served[r.GroupVersionResource] = &served{
		Resource: r,
		objects:  map[cache.ObjectName]*unstructured.Unstructured{},
		hidden:   map[cache.ObjectName]*unstructured.Unstructured{},
		managers: map[string]*managedfields.FieldManager{},
		since:    c.version,
	}
}

// Lag holds back the events of a resource, on all watches, until it is called
// with false, and reports whether they were before. A client that watches sees the past
// meanwhile.
func (c *Cluster) Lag(gvr schema.GroupVersionResource, lag bool) (before bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.served[gvr]
	before, s.lagging = s.lagging, lag
	for _, w := range s.watchers {
		w.wake(lag)
	}
	return before
}

// Withdraw stops serving a resource, as the deletion of its CRD does: its objects
// are deleted, whatever their finalizers, and its watches end.
func (c *Cluster) Withdraw(gvr schema.GroupVersionResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.served[gvr]
	for _, o := range ordered(s.objects) {
		write{c, s, key(o)}.drop()
	}
	delete(c.served, gvr)
	for _, w := range s.watchers {
		w.Stop()
	}
}

// Hide ends serving gvr, without a word on its objects, until show is called.
func (c *Cluster) Hide(gvr schema.GroupVersionResource) (show func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.served[gvr]
	delete(c.served, gvr)
	for _, w := range s.watchers {
		w.Stop()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.served[gvr] = s
	}
}

// Collide ends an object as a DELETE does that was decided before the finalizers came: with
// them, and without deletionTimestamp. It reports whether there is an object to end so.
func (c *Cluster) Collide(gvr schema.GroupVersionResource, name cache.ObjectName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.served[gvr]
	if s == nil || s.objects[name] == nil || s.objects[name].GetDeletionTimestamp() != nil {
		return false
	}
	write{c, s, name}.drop()
	return true
}

// Intercept makes f answer every request, with do as the way to have it carried
// out. Nil lets requests pass.
func (c *Cluster) Intercept(f func(ctx context.Context, r Request, do func() error) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.intercept = f
}

// Writes are the requests, in order, that changed an object.
func (c *Cluster) Writes() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

// Client returns a dynamic client.
func (c *Cluster) Client() dynamic.Interface { return c.View(nil).Client() }

// Metadata returns a metadata client.
func (c *Cluster) Metadata() metadata.Interface { return c.View(nil).Metadata() }

// Created is the number of objects of a resource that were ever created.
func (c *Cluster) Created(gvr schema.GroupVersionResource) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, e := range c.served[gvr].history {
		if e.kind == watch.Added {
			n++
		}
	}
	return n
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
	for _, s := range inOrder(c) {
		c.compacted = c.version
		s.reset(c.version, s.at(version))
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
	for _, s := range inOrder(c) {
		before := ordered(s.objects)
		c.compacted = c.version
		s.reset(c.version, map[cache.ObjectName]*unstructured.Unstructured{})
		for _, o := range before {
			if s.Kind == "Namespace" {
				write{c, s, key(o)}.insert(o.DeepCopy())
			}
		}
	}
}

// reset makes objects all that s has. What was before is not known any more.
func (s *served) reset(version int64, objects map[cache.ObjectName]*unstructured.Unstructured) {
	s.since = version
	s.objects, s.hidden, s.history = objects, map[cache.ObjectName]*unstructured.Unstructured{}, nil
	for _, o := range ordered(s.objects) {
		s.history = append(s.history, event{version: version, kind: watch.Added, object: o})
		s.show(key(o), o)
	}
	for _, w := range s.watchers {
		w.Stop()
	}
}
