// SPDX-License-Identifier: Apache-2.0

// Package view has what is known of one resource of one cluster, over all of its watches.
//
// A [View] is one watch of all namespaces, or one for each that is mapped: credentials may
// allow no more. What it has not listed yet, or cannot read any more, is unknown and not
// absent. The watches themselves are shared by all Syncs of a cluster (watchstore); a View
// adds to them the indexes of one Sync and whom it tells of changes.
package view

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// A Config says what a View reads, and who is told of what.
type Config struct {
	Name    string // for people
	List    watchstore.Source
	Stores  *watchstore.Stores
	Live    func(context.Context, cache.ObjectName) (*unstructured.Unstructured, error)
	Changed func(Change)
	Ended   func(last metav1.Object) // called before Changed where the watch has shown a deletion, and not a list; may be nil
	Back    func()                   // called before Moved where it was unknown before
	Moved   func(namespace string)   // called when a namespace, or all, was listed, or is watched again
	Lost    func()                   // called when a namespace, or all, became unknown, or so for another kind of reason
	Watched func()                   // called when a watch begins; may be nil
	Doubt   func()                   // called when the cluster may have been restored from a backup
}

// A View is what is known of one resource of one cluster. Create it with New.
type View struct {
	Config
	indexes map[string]*Index

	mu    sync.RWMutex
	parts map[string]*Part // by namespace; "" is all
}

// New returns a View that watches nothing yet.
func New(c Config) *View {
	return &View{Config: c, indexes: map[string]*Index{}, parts: map[string]*Part{}}
}

// Index keeps an index under a name, for By. It is for Views that watch nothing yet.
func (v *View) Index(name string, i *Index) { v.indexes[name] = i }

// A Change is what happened to an object, as it rests in a view.
type Change struct {
	Name          cache.ObjectName
	Before, After metav1.ObjectMetaAccessor // nil for none
	Initial       bool                      // it is part of a first list
}

// Class is that of a change which is of class later, once a first list is complete.
func (c Change) Class(later queue.Priority) queue.Priority {
	if c.Initial {
		return queue.Initial
	}
	return later
}

// OfTarget is the class of a change of a target.
func (c Change) OfTarget() queue.Priority {
	before, _ := c.Before.(*watchstore.Record)
	after, _ := c.After.(*watchstore.Record)
	switch {
	case c.After == nil:
		return c.Class(queue.User)
	case before == nil || after == nil || before.Digest == after.Digest:
		return c.Class(queue.Status)
	default:
		return c.Class(queue.Digest)
	}
}

// A Part of a View is one watch.
type Part struct {
	*watchstore.Store
	view      *View
	log       logr.Logger
	Confirmed atomic.Int64 // the list as of which the clusters were confirmed
	known     atomic.Bool
}

// Get returns the object called name, and the version of the view if there is
// none; false if that is not known.
func (v *View) Get(name cache.ObjectName) (obj metav1.Object, version string, ok bool) {
	p := v.Part(name.Namespace)
	if p == nil {
		return nil, "", false
	}
	a, version, ok := p.Get(name)
	if a == nil || !ok {
		return nil, version, ok
	}
	return watchstore.Unpacked(a), version, true
}

// Slimmed is obj, not nil, as v would have it.
func (v *View) Slimmed(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return v.List.Transform(obj).(*unstructured.Unstructured)
}

// Listed counts how often the objects of a namespace were listed. Each time their
// schema may be another one.
func (v *View) Listed(namespace string) int {
	if p := v.Part(namespace); p != nil {
		return p.Lists()
	}
	return 0
}

// Part is the watch that has a namespace; nil if there is none.
func (v *View) Part(namespace string) *Part {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if p := v.parts[""]; p != nil {
		return p
	}
	return v.parts[namespace]
}

// Parts are all watches.
func (v *View) Parts() []*Part {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]*Part, 0, len(v.parts))
	for _, p := range v.parts {
		out = append(out, p)
	}
	return out
}

// Keys are the names of all objects.
func (v *View) Keys() []cache.ObjectName {
	var out []cache.ObjectName
	for _, p := range v.Parts() {
		out = append(out, p.Names()...)
	}
	slices.SortFunc(out, watchstore.ByName)
	return out
}

// Within are the names of the objects of which belongs is true.
func (v *View) Within(belongs func(cache.ObjectName) bool) []cache.ObjectName {
	var out []cache.ObjectName
	for _, p := range v.Parts() {
		out = append(out, p.Within(belongs)...)
	}
	slices.SortFunc(out, watchstore.ByName)
	return out
}

// Count is the number of objects.
func (v *View) Count() int {
	n := 0
	for _, p := range v.Parts() {
		n += p.Len()
	}
	return n
}

// By returns the objects with an indexed value.
func (v *View) By(index, value string) []metav1.Object {
	i := v.indexes[index]
	if i == nil {
		return nil
	}
	var out []metav1.Object
	for _, name := range i.find(value) {
		if p := v.Part(name.Namespace); p != nil {
			if a, _, _ := p.Get(name); a != nil {
				out = append(out, watchstore.Unpacked(a))
			}
		}
	}
	return out
}

// Has reports whether there is an object with an indexed value.
func (v *View) Has(index, value string) bool {
	i := v.indexes[index]
	return i != nil && len(i.find(value)) > 0
}

// Err is why a namespace cannot be read; nil if it can, or was not read yet.
func (v *View) Err(namespace string) error {
	if p := v.Part(namespace); p != nil {
		return p.Err()
	}
	return nil
}

// State reports whether every part is known, and why not.
func (v *View) State() (bool, error) {
	known := true
	for _, p := range v.Parts() {
		if err := p.Err(); err != nil {
			return false, err
		}
		known = known && p.Known()
	}
	return known, nil
}

// Add begins to watch namespace, if it is not watched yet.
func (v *View) Add(ctx context.Context, namespace string) {
	if v.Namespaces()[namespace] {
		return
	}
	p := &Part{Store: v.Stores.Acquire(ctx, v.List, namespace), view: v, log: logr.FromContextOrDiscard(ctx)}
	v.mu.Lock()
	v.parts[namespace] = p
	v.mu.Unlock()
	p.Follow(p)
}

// Changed implements watchstore.Follower.
func (p *Part) Changed(name cache.ObjectName, before, after metav1.ObjectMetaAccessor, initial bool) {
	for _, i := range p.view.indexes {
		i.update(name, after)
	}
	p.view.Changed(Change{name, before, after, initial})
}

// Ended implements watchstore.Follower.
func (p *Part) Ended(last metav1.Object) {
	if p.view.Ended != nil {
		p.view.Ended(last)
	}
}

// Turned implements watchstore.Follower.
func (p *Part) Turned(known bool) {
	before := p.known.Swap(known)
	if !known {
		p.view.Lost()
		return
	}
	if !before {
		p.view.Back()
	}
	p.view.Moved(p.Namespace())
}

// Shrank implements watchstore.Follower.
func (p *Part) Shrank() {
	p.log.Info("a list lacks more than a tenth of what was there, as after a restore from a backup", "view", p.view.Name)
	p.view.Doubt()
}

// Renewed implements watchstore.Follower.
func (p *Part) Renewed() {
	if p.view.Watched != nil {
		p.view.Watched()
	}
}

// Wake has what may not be read be asked for again at once.
func (v *View) Wake() {
	for _, p := range v.Parts() {
		p.Wake()
	}
}

// Relist lists all objects anew, once for each schema.
func (v *View) Relist(schema string) {
	for _, p := range v.Parts() {
		p.Relist(schema)
	}
}

// Remove ends the watch of namespace.
func (v *View) Remove(namespace string) {
	v.mu.Lock()
	p := v.parts[namespace]
	delete(v.parts, namespace)
	v.mu.Unlock()
	if p == nil {
		return
	}
	p.Unfollow(p)
	for _, i := range v.indexes {
		for _, name := range p.Names() {
			i.update(name, nil)
		}
	}
	v.Stores.Release(p.Store)
}

// Close ends all watches.
func (v *View) Close() {
	for namespace := range v.Namespaces() {
		v.Remove(namespace)
	}
}

// Namespaces are the watched namespaces.
func (v *View) Namespaces() map[string]bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := map[string]bool{}
	for namespace := range v.parts {
		out[namespace] = true
	}
	return out
}

// An Index finds objects by what they refer to.
type Index struct {
	of     func(metav1.Object) []string
	stirs  func(value string) // called for the values of an object that came, changed or went
	mu     sync.RWMutex
	names  map[string]map[cache.ObjectName]struct{}
	values map[cache.ObjectName][]string
}

// NewIndex returns an index by the values that of finds in an object. Stirs is called for
// those of an object that came, changed or went.
func NewIndex(of func(metav1.Object) []string, stirs func(string)) *Index {
	return &Index{
		of: of, stirs: stirs,
		names: map[string]map[cache.ObjectName]struct{}{}, values: map[cache.ObjectName][]string{},
	}
}

func (i *Index) find(value string) []cache.ObjectName {
	i.mu.RLock()
	defer i.mu.RUnlock()
	out := make([]cache.ObjectName, 0, len(i.names[value]))
	for name := range i.names[value] {
		out = append(out, name)
	}
	return out
}

// update follows a change of the object called name. A reference may have moved,
// so that both ends need a look.
func (i *Index) update(name cache.ObjectName, after metav1.ObjectMetaAccessor) {
	var values []string
	if after != nil {
		values = i.of(watchstore.Unpacked(after))
	}
	for _, value := range append(i.swap(name, values), values...) {
		i.stirs(value)
	}
}

// swap returns the values before.
func (i *Index) swap(name cache.ObjectName, values []string) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.values[name]
	for _, value := range before {
		delete(i.names[value], name)
		if len(i.names[value]) == 0 {
			delete(i.names, value)
		}
	}
	delete(i.values, name)
	if len(values) > 0 {
		i.values[name] = values
	}
	for _, value := range values {
		if i.names[value] == nil {
			i.names[value] = map[cache.ObjectName]struct{}{}
		}
		i.names[value][name] = struct{}{}
	}
	return before
}

// Found turns the answer that there is no such object into no object. That the resource
// itself is not served says nothing about its objects.
func Found[T any](obj *T, err error) (*T, error) {
	if err == nil {
		return obj, nil
	}
	if fates.Is(err, fates.Absent) {
		return nil, nil //nolint:nilnil // no object is an answer
	}
	return nil, err
}
