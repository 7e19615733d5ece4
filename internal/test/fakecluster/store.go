// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/watch"
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
	Types   managedfields.TypeConverter            // tells which lists are owned item by item; nil takes each but the finalizers as a whole
	Atomic  []string                               // the fields of the spec that Types take as a whole although they are maps, for the document
}

// A Request is what a client asked for.
type Request struct {
	View        string // name of the client's view
	Verb        string // get, list, watch, create, update, patch, apply, delete
	Subresource string
	Resource    schema.GroupVersionResource
	Object      cache.ObjectName
	Selector    string // by labels, of a list or watch
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
	former    Resource                               // that of the document
	published time.Time                              // until then
	since     int64                                  // what came before is not known
	managers  map[string]*managedfields.FieldManager // by subresource, made when needed
}

// handle carries a request out under the lock.
func (c *Cluster) handle(ctx context.Context, r Request, do func(*served) error) error {
	return c.ask(ctx, r, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		s := c.served[r.Resource]
		if s == nil || s.Cluster && r.Object.Namespace != "" {
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

// ask lets a request be carried out, by the function that answers requests.
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

// ordered are objects in order of their names.
func ordered(objects map[cache.ObjectName]*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.SortedFunc(maps.Values(objects), func(a, b *unstructured.Unstructured) int { return strings.Compare(key(a).String(), key(b).String()) })
}

// inOrder are the resources that a cluster serves, in order of their names.
func inOrder(c *Cluster) []*served {
	return slices.SortedFunc(maps.Values(c.served), func(a, b *served) int { return strings.Compare(a.Resource.Resource, b.Resource.Resource) })
}

// A Commit is one change of one object.
type Commit struct {
	Request       Request // that made it; zero for none
	Resource      schema.GroupVersionResource
	Kind          watch.EventType
	Before, After *unstructured.Unstructured // not to be changed; After of a deletion is what was deleted
}

// A Schema are the fields that a resource has beside metadata, by their top-level
// field. What is below them is left open. Nil knows all.
type Schema map[string][]string
