// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/view"
)

// Counts counts the sources of each namespace: that there is one is what related objects
// of the namespace have to do with a Sync at all. It implements related.Sources. Create it
// with NewCounts.
type Counts struct {
	objects     dynamic.NamespaceableResourceInterface
	source      *view.View
	firstOrLast func(namespace string, initial bool)

	// Everywhere, if not nil, is for cluster-scoped sources, and tells the namespaces in which
	// each of them counts. Set it before Follow.
	Everywhere func(namespace string) bool

	// Space reads a namespace of the sources live; nil if there is none.
	Space func(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error)
	// Leaves reports whether a source is being deleted and its target has not gone.
	Leaves func(source metav1.Object) bool

	mu     sync.RWMutex
	counts map[string]int
}

// NewCounts returns Counts of what Follow is told. FirstOrLast is called when the first
// source of a namespace came, or the last one went; initial says that a first list showed
// it. Objects are the sources live.
func NewCounts(objects dynamic.NamespaceableResourceInterface, firstOrLast func(namespace string, initial bool)) *Counts {
	return &Counts{objects: objects, firstOrLast: firstOrLast, counts: map[string]int{}}
}

// Of gives c the view of the sources that it counts, which tells Follow of changes.
func (c *Counts) Of(source *view.View) { c.source = source }

// In reports whether there is a source in namespace; one that is being deleted counts
// until it has gone.
func (c *Counts) In(namespace string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.Everywhere != nil {
		return c.counts[metav1.NamespaceAll] > 0 && c.Everywhere(namespace)
	}
	return c.counts[namespace] > 0
}

// Follow counts a change of a source.
func (c *Counts) Follow(ch view.Change) {
	if (ch.Before == nil) != (ch.After == nil) && c.count(ch.Name.Namespace, ch.After != nil) {
		c.firstOrLast(ch.Name.Namespace, ch.Initial)
	}
}

// count reports whether the source is the first one of its namespace, or was the last.
func (c *Counts) count(namespace string, came bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.counts[namespace]
	after := before - 1
	if came {
		after = before + 1
	}
	c.counts[namespace] = after
	if after <= 0 {
		delete(c.counts, namespace)
	}
	return before <= 0 || after <= 0
}

// Deserted confirms live that there is no source in namespace.
func (c *Counts) Deserted(ctx context.Context, namespace string) (bool, error) {
	list, err := c.list(ctx, namespace, 1)
	return len(list) == 0 && err == nil, err
}

// Leaving looks live for a source of a namespace, the one of a name if that is given, that is being
// deleted and whose target has not gone.
func (c *Counts) Leaving(ctx context.Context, name cache.ObjectName) (bool, error) {
	if name.Name != "" {
		obj, err := c.Live(ctx, name)
		return obj != nil && c.Leaves(obj), err
	}
	list, err := c.list(ctx, name.Namespace, 0)
	return slices.ContainsFunc(list, func(o unstructured.Unstructured) bool { return c.Leaves(&o) }), err
}

// list lists the sources that count in a namespace, so many at most if not 0.
func (c *Counts) list(ctx context.Context, namespace string, most int64) ([]unstructured.Unstructured, error) {
	in := namespace
	if c.Everywhere != nil {
		in = metav1.NamespaceAll
	}
	list, err := c.objects.Namespace(in).List(ctx, metav1.ListOptions{Limit: most})
	if err != nil {
		return nil, fmt.Errorf("look for sources in namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// Ending confirms live that namespace is being deleted, and the sources in it. Where namespaces
// may not be read it is not known to be, and sources that have none stay.
func (c *Counts) Ending(ctx context.Context, namespace string) (bool, error) {
	if c.Everywhere != nil || namespace == "" {
		return false, nil
	}
	obj, err := c.Space(ctx, cache.NewObjectName("", namespace))
	switch {
	case fates.Is(err, fates.Forbidden, fates.Unserved):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	return obj != nil && obj.GetDeletionTimestamp() != nil, nil
}

// Get is the source called name, as the view has it.
func (c *Counts) Get(name cache.ObjectName) (metav1.Object, bool) {
	obj, _, known := c.source.Get(name)
	return obj, known
}

// Live reads a source; nil if there is none.
func (c *Counts) Live(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error) {
	return c.source.Live(ctx, name)
}
