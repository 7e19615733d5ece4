// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// An intake takes in the objects that a reflector lists and watches: it is the
// cache.ReflectorStore of a Store.
type intake struct{ store *Store }

// Transformer implements cache.TransformingStore, so that a list never is in
// memory as a whole.
func (i intake) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return i.keep(obj), nil }
}

// keep turns an object into what is kept of it.
func (i intake) keep(obj any) any {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if _, ok := obj.(*Record); ok {
		return obj
	}
	obj = i.store.source.Transform(obj)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if c, ok := i.store.dictionary.record(u); ok {
			return c
		}
	}
	return obj
}

// Add implements cache.ReflectorStore.
func (i intake) Add(obj any) error { return i.Update(obj) }

// Update implements cache.ReflectorStore.
func (i intake) Update(obj any) error {
	after, err := i.take(obj)
	if err != nil {
		return err
	}
	i.store.delivery.Lock()
	defer i.store.delivery.Unlock()
	i.put(after)
	return nil
}

func (i intake) take(obj any) (metav1.ObjectMetaAccessor, error) {
	kept := i.keep(obj)
	c, isRecord := kept.(*Record)
	if u, ok := obj.(*unstructured.Unstructured); ok && isRecord {
		i.store.dictionary.heat(c, u) // it is about to be looked at
	}
	return accessor(kept)
}

func accessor(obj any) (metav1.ObjectMetaAccessor, error) {
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		return a, nil
	}
	o, err := meta.Accessor(obj)
	return whole{o}, err
}

// whole is an object that has no compact form.
type whole struct{ metav1.Object }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (w whole) GetObjectMeta() metav1.Object { return w.Object }

// put stores an object and tells the followers. It needs delivery.
func (i intake) put(after metav1.ObjectMetaAccessor) {
	o := after.GetObjectMeta()
	name := cache.MetaObjectToName(o)
	i.store.mu.Lock()
	before := i.store.objects[name]
	i.store.objects[name] = after
	i.store.version = o.GetResourceVersion()
	initial := !i.store.synced
	i.store.mu.Unlock()
	for w := range i.store.follower {
		w.Changed(name, before, after, initial)
	}
}

// Delete implements cache.ReflectorStore.
func (i intake) Delete(obj any) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	name := cache.MetaObjectToName(o)
	i.store.delivery.Lock()
	defer i.store.delivery.Unlock()
	for w := range i.store.follower {
		w.Ended(o)
	}
	i.store.mu.Lock()
	before, ok := i.store.objects[name]
	delete(i.store.objects, name)
	i.store.version = o.GetResourceVersion()
	i.store.mu.Unlock()
	if !ok {
		return nil
	}
	for w := range i.store.follower {
		w.Changed(name, before, nil, false)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (i intake) Replace(list []any, version string) error {
	kept := make(map[cache.ObjectName]metav1.ObjectMetaAccessor, len(list))
	for _, obj := range list {
		a, err := accessor(i.keep(obj))
		if err != nil {
			return err
		}
		kept[cache.MetaObjectToName(a.GetObjectMeta())] = a
	}
	i.exchange(kept, version)
	i.store.tell(i.store.Known())
	return nil
}

// exchange makes the store hold what has been listed, all at once. An object of the
// same version may be another one: API servers list anew when a schema changes,
// which fills in and drops fields.
func (i intake) exchange(listed map[cache.ObjectName]metav1.ObjectMetaAccessor, version string) {
	i.store.delivery.Lock()
	defer i.store.delivery.Unlock()
	i.store.mu.Lock()
	past, initial := i.store.objects, !i.store.synced
	i.store.objects, i.store.version, i.store.synced, i.store.away = listed, version, true, false
	if !i.store.pauses.Lost() { // else no watch follows the list
		i.store.err = nil
	}
	i.store.lists++
	i.store.mu.Unlock()
	shrank := lacks(past, listed)*shrinkShare > len(past)
	for w := range i.store.follower {
		if shrank {
			w.Shrank()
		}
		for _, name := range inOrder(past) {
			if listed[name] == nil {
				w.Changed(name, past[name], nil, false)
			}
		}
		for _, name := range inOrder(listed) {
			before, after := past[name], listed[name]
			w.Changed(name, before, after, initial || before != nil && before.GetObjectMeta().GetResourceVersion() == after.GetObjectMeta().GetResourceVersion())
		}
	}
}

// shrinkShare is the share of objects that a list may lack: one in so many.
const shrinkShare = 10

// lacks is how many objects of past are not listed.
func lacks(past, listed map[cache.ObjectName]metav1.ObjectMetaAccessor) (n int) {
	for name := range past {
		if listed[name] == nil {
			n++
		}
	}
	return n
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater.
func (i intake) UpdateResourceVersion(version string) {
	i.store.mu.Lock()
	defer i.store.mu.Unlock()
	i.store.version = version
}

// Resync implements cache.ReflectorStore.
func (i intake) Resync() error { return nil }
