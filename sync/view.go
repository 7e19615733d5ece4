// SPDX-License-Identifier: Apache-2.0

package sync

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

// A view is what is known of one resource of one cluster: one watch of all
// namespaces, or one for each that has been added.
type view struct {
	name    string
	list    watchstore.Source
	stores  *watchstore.Stores
	live    func(context.Context, cache.ObjectName) (*unstructured.Unstructured, error)
	indexes map[string]*index
	changed func(change)
	moved   func(namespace string) // called when a namespace, or all, became known
	lost    func()                 // called when a namespace, or all, became unknown
	watched func()                 // called when a watch begins; may be nil
	doubt   func()                 // called when the cluster may have been restored from a backup

	mu    sync.RWMutex
	parts map[string]*part // by namespace; "" is all
}

// A change is what happened to an object, as it rests in a view.
type change struct {
	name          cache.ObjectName
	before, after metav1.ObjectMetaAccessor // nil for none
	initial       bool                      // it is part of a first list
}

// class is that of a change which is of class later, once a first list is complete.
func (c change) class(later queue.Priority) queue.Priority {
	if c.initial {
		return queue.Initial
	}
	return later
}

// ofTarget is the class of a change of a target.
func (c change) ofTarget() queue.Priority {
	before, _ := c.before.(*watchstore.Record)
	after, _ := c.after.(*watchstore.Record)
	switch {
	case c.after == nil:
		return c.class(queue.User)
	case before == nil || after == nil || before.Digest == after.Digest:
		return c.class(queue.Status)
	default:
		return c.class(queue.Digest)
	}
}

// A part of a view is one watch.
type part struct {
	*watchstore.Store
	view      *view
	log       logr.Logger
	confirmed atomic.Int64 // as of which list the clusters were
}

// get returns the object called name, and the version of the view if there is
// none; false if that is not known.
func (v *view) get(name cache.ObjectName) (obj metav1.Object, version string, ok bool) {
	p := v.part(name.Namespace)
	if p == nil {
		return nil, "", false
	}
	a, version, ok := p.Get(name)
	if a == nil || !ok {
		return nil, version, ok
	}
	return watchstore.Unpacked(a), version, true
}

// slimmed is obj, not nil, as v would have it.
func (v *view) slimmed(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return v.list.Transform(obj).(*unstructured.Unstructured)
}

// listed counts how often the objects of a namespace were listed. Each time their
// schema may be another one.
func (v *view) listed(namespace string) int {
	if p := v.part(namespace); p != nil {
		return p.Lists()
	}
	return 0
}

func (v *view) part(namespace string) *part {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if p := v.parts[""]; p != nil {
		return p
	}
	return v.parts[namespace]
}

// all returns the parts of the view.
func (v *view) all() []*part {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]*part, 0, len(v.parts))
	for _, p := range v.parts {
		out = append(out, p)
	}
	return out
}

// keys are the names of all objects.
func (v *view) keys() []cache.ObjectName {
	var out []cache.ObjectName
	for _, p := range v.all() {
		out = append(out, p.Names()...)
	}
	slices.SortFunc(out, watchstore.ByName)
	return out
}

// within are the names of the objects of which belongs is true.
func (v *view) within(belongs func(cache.ObjectName) bool) []cache.ObjectName {
	var out []cache.ObjectName
	for _, p := range v.all() {
		out = append(out, p.Within(belongs)...)
	}
	slices.SortFunc(out, watchstore.ByName)
	return out
}

// count is the number of objects.
func (v *view) count() int {
	n := 0
	for _, p := range v.all() {
		n += p.Len()
	}
	return n
}

// by returns the objects with an indexed value.
func (v *view) by(index, value string) []metav1.Object {
	i := v.indexes[index]
	if i == nil {
		return nil
	}
	var out []metav1.Object
	for _, name := range i.find(value) {
		if p := v.part(name.Namespace); p != nil {
			if a, _, _ := p.Get(name); a != nil {
				out = append(out, watchstore.Unpacked(a))
			}
		}
	}
	return out
}

// state reports whether every part is known, and why not.
func (v *view) state() (bool, error) {
	known := true
	for _, p := range v.all() {
		if err := p.Err(); err != nil {
			return false, err
		}
		known = known && p.Known()
	}
	return known, nil
}

// add begins to watch namespace, if it is not watched yet.
func (v *view) add(ctx context.Context, namespace string) {
	if v.namespaces()[namespace] {
		return
	}
	p := &part{Store: v.stores.Acquire(ctx, v.list, namespace), view: v, log: logr.FromContextOrDiscard(ctx)}
	v.mu.Lock()
	v.parts[namespace] = p
	v.mu.Unlock()
	p.Follow(p)
}

// Changed implements watchstore.Follower.
func (p *part) Changed(name cache.ObjectName, before, after metav1.ObjectMetaAccessor, initial bool) {
	for _, i := range p.view.indexes {
		i.update(name, after)
	}
	p.view.changed(change{name, before, after, initial})
}

// Turned implements watchstore.Follower.
func (p *part) Turned(known bool) {
	if known {
		p.view.moved(p.Namespace())
		return
	}
	p.view.lost()
}

// Shrank implements watchstore.Follower.
func (p *part) Shrank() {
	p.log.Info("a list lacks more than a tenth of what was there, as after a restore from a backup", "view", p.view.name)
	p.view.doubt()
}

// Renewed implements watchstore.Follower.
func (p *part) Renewed() {
	if p.view.watched != nil {
		p.view.watched()
	}
}

// relist lists all objects anew, once for each schema.
func (v *view) relist(schema string) {
	for _, p := range v.all() {
		p.Relist(schema)
	}
}

// remove ends the watch of namespace.
func (v *view) remove(namespace string) {
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
	v.stores.Release(p.Store)
}

// close ends all watches.
func (v *view) close() {
	for namespace := range v.namespaces() {
		v.remove(namespace)
	}
}

// namespaces are those that are watched.
func (v *view) namespaces() map[string]bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := map[string]bool{}
	for namespace := range v.parts {
		out[namespace] = true
	}
	return out
}

// An index finds objects by what they refer to.
type index struct {
	of     func(metav1.Object) []string
	stirs  func(value string) // called for the values of an object that came, changed or went
	mu     sync.RWMutex
	names  map[string]map[cache.ObjectName]struct{}
	values map[cache.ObjectName][]string
}

func newIndex(of func(metav1.Object) []string, stirs func(string)) *index {
	return &index{
		of: of, stirs: stirs,
		names: map[string]map[cache.ObjectName]struct{}{}, values: map[cache.ObjectName][]string{},
	}
}

func (i *index) find(value string) []cache.ObjectName {
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
func (i *index) update(name cache.ObjectName, after metav1.ObjectMetaAccessor) {
	var values []string
	if after != nil {
		values = i.of(watchstore.Unpacked(after))
	}
	for _, value := range append(i.swap(name, values), values...) {
		i.stirs(value)
	}
}

// swap returns the values before.
func (i *index) swap(name cache.ObjectName, values []string) []string {
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

// gone turns the answer that there is no object called name into no object. That
// the resource itself is not served says nothing about its objects.
func gone[T any](obj *T, err error) (*T, error) {
	if err == nil {
		return obj, nil
	}
	if absent(err) {
		return nil, nil //nolint:nilnil // no object is an answer
	}
	return nil, err
}

// absent reports whether err says that an object is not there, rather than that
// its resource is not served.
func absent(err error) bool {
	return fates.Is(err, fates.Absent)
}
