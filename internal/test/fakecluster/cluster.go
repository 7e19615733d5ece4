// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// A Resource is what a Cluster serves.
type Resource struct {
	schema.GroupVersionResource
	Kind    string
	Cluster bool                                   // cluster-scoped
	Plain   bool                                   // without the status subresource
	Check   func(*unstructured.Unstructured) error // refuses invalid objects; nil accepts all
	Mutate  func(*unstructured.Unstructured)       // changes what is stored, as admission webhooks do; nil changes nothing
	Schema  Schema                                 // what fields there are; nil for any
}

// A Request is what a client asked for.
type Request struct {
	View        string // name of the client's view
	Verb        string // get, list, watch, create, update, patch, apply, delete
	Subresource string
	Resource    schema.GroupVersionResource
	Object      cache.ObjectName
}

// A Cluster is an API server in memory. It serves namespaces, secrets and config
// maps beside what it is told to.
type Cluster struct {
	mu        sync.Mutex
	version   int64
	compacted int64 // watches from before it have expired
	uid       func() types.UID
	now       func() metav1.Time
	current   Request // the one being carried out
	observe   func(Commit)
	served    map[schema.GroupVersionResource]*served
	intercept func(context.Context, Request, func() error) error
	log       []Request
}

// served is a resource with its objects and all that ever happened to them.
type served struct {
	Resource
	objects   map[cache.ObjectName]*unstructured.Unstructured // as they are read
	hidden    map[cache.ObjectName]*unstructured.Unstructured // as they are stored, where the schema hides fields of that
	history   []event                                         // as they were stored
	watchers  []*Watch                                        // in the order in which they were opened
	lagging   bool
	leaving   bool                                   // discovery says so
	former    Schema                                 // that of the document
	published time.Time                              // until then
	since     int64                                  // what came before is not known
	managers  map[string]*managedfields.FieldManager // by subresource, made when needed
}

type event struct {
	version int64
	kind    watch.EventType
	object  *unstructured.Unstructured
}

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
		c.insert(c.served[core("namespaces", "", true).GroupVersionResource], cache.NewObjectName("", name), ns)
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
// with false, and reports whether they were before. Whoever watches sees the past
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
		c.drop(s, key(o))
	}
	delete(c.served, gvr)
	for _, w := range s.watchers {
		w.Stop()
	}
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

// handle carries a request out under the lock.
func (c *Cluster) handle(ctx context.Context, r Request, do func(*served) error) error {
	return c.ask(ctx, r, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		s := c.served[r.Resource]
		if s == nil {
			return notServed(r)
		}
		before := c.version
		c.current = r
		err := do(s)
		c.current = Request{}
		if c.version != before {
			c.log = append(c.log, r)
		}
		return err
	})
}

// ask lets a request be carried out, by whoever answers requests.
func (c *Cluster) ask(ctx context.Context, r Request, carry func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	intercept := c.intercept
	c.mu.Unlock()
	if intercept != nil {
		return intercept(ctx, r, carry)
	}
	return carry()
}

func notServed(r Request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, r.Verb, r.Resource.GroupResource(), r.Object.Name, "404 page not found", 0, true)
}

func (s *served) find(name cache.ObjectName) (*unstructured.Unstructured, error) {
	if o := s.objects[name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(s.GroupResource(), name.Name)
}

// insert stores a new object.
func (c *Cluster) insert(s *served, name cache.ObjectName, o *unstructured.Unstructured) {
	o.SetName(name.Name)
	o.SetNamespace(name.Namespace)
	o.SetUID(c.uid())
	o.SetGeneration(1)
	o.SetCreationTimestamp(c.now())
	o.SetDeletionTimestamp(nil)
	c.store(s, watch.Added, name, o)
}

// store gives o a new version and tells the watchers.
func (c *Cluster) store(s *served, kind watch.EventType, name cache.ObjectName, o *unstructured.Unstructured) {
	c.version++
	o.SetResourceVersion(strconv.FormatInt(c.version, 10))
	if c.observe != nil {
		c.observe(Commit{Request: c.current, Resource: s.GroupVersionResource, Kind: kind, Before: s.objects[name], After: o})
	}
	delete(s.hidden, name)
	if kind == watch.Deleted {
		delete(s.objects, name)
	} else {
		s.objects[name] = o
	}
	e := event{version: c.version, kind: kind, object: o}
	s.history = append(s.history, e)
	for _, w := range s.watchers {
		w.send(e)
		w.wake(s.lagging)
	}
}

func (c *Cluster) drop(s *served, name cache.ObjectName) {
	c.store(s, watch.Deleted, name, s.objects[name].DeepCopy())
}

// check refuses what real API servers refuse of any object.
func (c *Cluster) check(s *served, name cache.ObjectName, o *unstructured.Unstructured) error {
	if name.Namespace != "" && o.GetUID() == "" {
		if err := c.admits(s, name); err != nil {
			return err
		}
	}
	if s.Mutate != nil {
		s.Mutate(o)
	}
	if s.Check == nil {
		return nil
	}
	if err := s.Check(o); err != nil {
		invalid := apierrors.NewInvalid(schema.GroupKind{Group: s.Group, Kind: s.Kind}, name.Name, nil)
		invalid.ErrStatus.Message = fmt.Sprintf("%s %q is invalid: %v", s.Kind, name.Name, err)
		return invalid
	}
	return nil
}

// admits refuses new objects in namespaces that do not exist, or not for long.
func (c *Cluster) admits(s *served, name cache.ObjectName) error {
	namespaces := c.served[schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}]
	namespace := namespaces.objects[cache.NewObjectName("", name.Namespace)]
	if namespace == nil {
		return apierrors.NewNotFound(namespaces.GroupResource(), name.Namespace)
	}
	if namespace.GetDeletionTimestamp() == nil {
		return nil
	}
	err := apierrors.NewForbidden(s.GroupResource(), name.Name, fmt.Errorf("namespace %s is being terminated", name.Namespace))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	return err
}

// choose returns copies of the objects of a namespace, or of all, that match, in order.
func choose(objects map[cache.ObjectName]*unstructured.Unstructured, namespace string, match labels.Selector) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range ordered(objects) {
		if (namespace == "" || o.GetNamespace() == namespace) && match.Matches(labels.Set(o.GetLabels())) {
			out = append(out, o.DeepCopy())
		}
	}
	return out
}

func key(o metav1.Object) cache.ObjectName { return cache.MetaObjectToName(o) }

// remove deletes an object, or marks it as being deleted while it has finalizers, and
// answers as API servers do.
func (c *Cluster) remove(s *served, name cache.ObjectName, options metav1.DeleteOptions) (*unstructured.Unstructured, error) {
	live, err := s.find(name)
	if err != nil {
		return nil, err
	}
	if p := options.Preconditions; p != nil {
		if err := precondition("UID", p.UID, live.GetUID(), s, name); err != nil {
			return nil, err
		}
		if err := precondition("ResourceVersion", p.ResourceVersion, live.GetResourceVersion(), s, name); err != nil {
			return nil, err
		}
	}
	switch {
	case len(live.GetFinalizers()) == 0:
		c.drop(s, name)
		return s.deleted(live), nil
	case live.GetDeletionTimestamp() == nil:
		live = live.DeepCopy()
		now := c.now()
		live.SetDeletionTimestamp(&now)
		live.SetGeneration(live.GetGeneration() + 1)
		c.store(s, watch.Modified, name, live)
	}
	return live.DeepCopy(), nil
}

// deleted says that there is no such object any more.
func (s *served) deleted(o *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Status", "metadata": map[string]any{}, "status": metav1.StatusSuccess,
		"details": map[string]any{"name": o.GetName(), "group": s.Group, "kind": s.GroupVersionResource.Resource, "uid": string(o.GetUID())},
	}}
}

func precondition[T ~string](what string, want *T, have T, s *served, name cache.ObjectName) error {
	if want == nil || *want == have {
		return nil
	}
	return apierrors.NewConflict(s.GroupResource(), name.Name,
		fmt.Errorf("the %s in the precondition (%s) does not match the %s in record (%s)", what, *want, what, have))
}

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
