// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/view"
)

// A Mapper names the target of each source object and back. It must be
// injective: two sources never share a target. A source of which it says otherwise
// is left alone, with ReasonMapper. It must not block.
type Mapper interface {
	// Target names the target of source, or says that it has none (yet).
	Target(source cache.ObjectName) (target cache.ObjectName, ok bool)
	// Source is the inverse of Target.
	Source(target cache.ObjectName) (source cache.ObjectName, ok bool)
}

// Identity maps each object to its own name.
func Identity() Mapper { return identity{} }

type identity struct{}

func (identity) Target(source cache.ObjectName) (cache.ObjectName, bool) { return source, true }
func (identity) Source(target cache.ObjectName) (cache.ObjectName, bool) { return target, true }

// Prefix maps a cluster-scoped object to its name with p in front. Choose p so
// that no prefix in use is the beginning of another one.
func Prefix(p string) Mapper { return prefix(p) }

type prefix string

func (p prefix) Target(source cache.ObjectName) (cache.ObjectName, bool) {
	return cache.NewObjectName(source.Namespace, string(p)+source.Name), true
}

func (p prefix) Source(target cache.ObjectName) (cache.ObjectName, bool) {
	name, ok := strings.CutPrefix(target.Name, string(p))
	return cache.NewObjectName(target.Namespace, name), ok && name != ""
}

// renamesNothing reports whether m gives each object its own name.
func renamesNothing(m Mapper) bool { return m == identity{} || m == prefix("") }

// contradiction says how m contradicts itself about the target of source; empty if
// it does not. Ours never do, but a table may change between two questions.
func contradiction(m Mapper, source, target cache.ObjectName) string {
	switch m.(type) {
	case identity, prefix, *Namespaces:
		return ""
	}
	switch back, ok := m.Source(target); {
	case target.Name == "":
		return "the mapper gives this object's target no name"
	case !ok:
		return fmt.Sprintf("the mapper names %s as this object's target, but knows no source of that", target)
	case back != source:
		return fmt.Sprintf("the mapper names %s as this object's target, but says that it is %s's", target, back)
	}
	return ""
}

// Namespaces maps each source namespace to a target namespace by a table that
// may change at any time, and keeps the objects' names. Any number of Syncs can
// share one. Create it with NewNamespaces.
type Namespaces struct {
	want func(sourceNamespace string)

	mu       sync.RWMutex
	targets  map[string]string // by source namespace
	sources  map[string]string // by target namespace
	watchers map[*func(source string)]struct{}
}

// NewNamespaces returns an empty table. Want, if not nil, is called whenever an
// object is met whose namespace has no target yet; it must not block.
func NewNamespaces(want func(sourceNamespace string)) *Namespaces {
	if want == nil {
		want = func(string) {}
	}
	return &Namespaces{
		want:     want,
		targets:  map[string]string{},
		sources:  map[string]string{},
		watchers: map[*func(string)]struct{}{},
	}
}

// Set maps the namespace source to target. A target that another source
// namespace has already stays with it, and Set reports false.
func (n *Namespaces) Set(source, target string) bool {
	n.mu.Lock()
	owner, taken := n.sources[target]
	if taken {
		n.mu.Unlock()
		return owner == source
	}
	if before, ok := n.targets[source]; ok {
		delete(n.sources, before)
	}
	n.targets[source], n.sources[target] = target, source
	n.mu.Unlock()
	n.notify(source)
	return true
}

// Delete removes the namespace source from the table. Objects in it are left as
// they are.
func (n *Namespaces) Delete(source string) {
	n.mu.Lock()
	target, known := n.targets[source]
	delete(n.targets, source)
	delete(n.sources, target)
	n.mu.Unlock()
	if known {
		n.notify(source)
	}
}

// Of returns the target namespace of the namespace source. Unlike Target it does not ask
// for one if there is none.
func (n *Namespaces) Of(source string) (target string, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	target, ok = n.targets[source]
	return target, ok
}

// Target implements Mapper.
func (n *Namespaces) Target(source cache.ObjectName) (cache.ObjectName, bool) {
	target, ok := n.known(source)
	if !ok {
		n.want(source.Namespace)
	}
	return target, ok
}

// known is Target for callers that do not ask for a namespace.
func (n *Namespaces) known(source cache.ObjectName) (cache.ObjectName, bool) {
	target, ok := n.Of(source.Namespace)
	if !ok {
		return cache.ObjectName{}, false
	}
	return cache.NewObjectName(target, source.Name), true
}

// Source implements Mapper.
func (n *Namespaces) Source(target cache.ObjectName) (cache.ObjectName, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	source, ok := n.sources[target.Namespace]
	return cache.NewObjectName(source, target.Name), ok
}

// list returns the mapped namespaces of one side.
func (n *Namespaces) list(side Side) []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if side == SourceSide {
		return slices.Collect(maps.Keys(n.targets))
	}
	return slices.Collect(maps.Keys(n.sources))
}

// subscribe calls changed with each source namespace whose entry changes.
func (n *Namespaces) subscribe(changed func(source string)) (cancel func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := &changed
	n.watchers[key] = struct{}{}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.watchers, key)
	}
}

func (n *Namespaces) notify(source string) {
	n.mu.RLock()
	var call []func(string)
	for w := range n.watchers {
		call = append(call, *w)
	}
	n.mu.RUnlock()
	for _, changed := range call {
		changed(source)
	}
}

// targetName is where an object is on the target. Only a source is a reason to want a
// namespace for it.
func targetName(m Mapper, name cache.ObjectName, isSource bool) (cache.ObjectName, bool) {
	if table, ok := m.(*Namespaces); ok && !isSource {
		return table.known(name)
	}
	return m.Target(name)
}

// watch watches in v just the namespaces of the target that n knows.
func (n *Namespaces) watch(ctx context.Context, v *view.View) {
	changed := make(chan struct{}, 1)
	defer n.subscribe(func(string) { signal(changed) })()
	for {
		gone := v.Namespaces()
		for _, namespace := range n.list(TargetSide) {
			delete(gone, namespace)
			v.Add(ctx, namespace)
		}
		for namespace := range gone {
			v.Remove(namespace)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
