// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"maps"
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
	recalled map[string]bool   // source namespaces that are not open
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
		recalled: map[string]bool{},
		watchers: map[*func(string)]struct{}{},
	}
}

// Set maps the namespace source to target. A target that another source
// namespace has already stays with it, and Set reports false.
func (n *Namespaces) Set(source, target string) bool { return n.put(source, target, false) }

// Recall has a Sync look at targets that an earlier time left in the namespace target: their sources have
// gone since. It opens source to nothing. The first source that is met there asks for a target
// namespace, as if there were none, and no target becomes a source ([Hooks].Unclaimed). A source
// that is mapped by Set stays so. As Set it reports whether source has the target.
func (n *Namespaces) Recall(source, target string) bool { return n.put(source, target, true) }

func (n *Namespaces) put(source, target string, recalled bool) bool {
	n.mu.Lock()
	before, known := n.targets[source]
	if owner, taken := n.sources[target]; taken && owner != source {
		n.mu.Unlock()
		return false
	}
	if open := known && !n.recalled[source]; known && before == target && open == !recalled || open && recalled {
		n.mu.Unlock()
		return before == target
	}
	if known {
		delete(n.sources, before)
	}
	n.targets[source], n.sources[target] = target, source
	if delete(n.recalled, source); recalled {
		n.recalled[source] = true
	}
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
	delete(n.recalled, source)
	n.mu.Unlock()
	if known {
		n.notify(source)
	}
}

// Of returns the target namespace of the namespace source, if that is mapped by Set. Unlike Target it
// does not ask for one if there is none.
func (n *Namespaces) Of(source string) (target string, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	target, ok = n.targets[source]
	return target, ok && !n.recalled[source]
}

// Target implements Mapper.
func (n *Namespaces) Target(source cache.ObjectName) (cache.ObjectName, bool) {
	target, ok := n.Of(source.Namespace)
	if !ok {
		n.want(source.Namespace)
		return cache.ObjectName{}, false
	}
	return cache.NewObjectName(target, source.Name), true
}

// known is Target for callers that do not ask for a namespace, and that have no source.
func (n *Namespaces) known(source cache.ObjectName) (cache.ObjectName, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	target, ok := n.targets[source.Namespace]
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

// isRecalled reports whether a namespace is mapped by Recall.
func (n *Namespaces) isRecalled(source string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.recalled[source]
}

// mapped returns the target namespaces by source namespace, with those that are only recalled or
// without them.
func (n *Namespaces) mapped(recalled bool) map[string]string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := maps.Clone(n.targets)
	maps.DeleteFunc(all, func(source, _ string) bool { return !recalled && n.recalled[source] })
	return all
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

// opened is m without the namespaces that are only recalled. It wants none.
func opened(m Mapper) Mapper {
	if table, ok := m.(*Namespaces); ok {
		return openNamespaces{table}
	}
	return m
}

type openNamespaces struct{ *Namespaces }

func (n openNamespaces) Target(source cache.ObjectName) (cache.ObjectName, bool) {
	target, ok := n.Of(source.Namespace)
	return cache.NewObjectName(target, source.Name), ok
}

func (n openNamespaces) Source(target cache.ObjectName) (cache.ObjectName, bool) {
	source, ok := n.Namespaces.Source(target)
	return source, ok && !n.isRecalled(source.Namespace)
}

// targetName is where an object is on the target. Only a source is a reason to want a
// namespace for it.
func targetName(m Mapper, name cache.ObjectName, isSource bool) (cache.ObjectName, bool) {
	if table, ok := m.(*Namespaces); ok && !isSource {
		return table.known(name)
	}
	return m.Target(name)
}

// watch watches in v just the namespaces of the target that n knows, with those that are only
// recalled or without them.
func (n *Namespaces) watch(ctx context.Context, v *view.View, recalled bool) {
	changed := make(chan struct{}, 1)
	defer n.subscribe(func(string) { signal(changed) })()
	for {
		gone := v.Namespaces()
		for _, namespace := range n.mapped(recalled) {
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
