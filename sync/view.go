// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// A view is what is known of one resource of one cluster: one watch of all
// namespaces, or one for each that has been added.
type view struct {
	name    string
	list    lister
	live    func(context.Context, cache.ObjectName) (*unstructured.Unstructured, error)
	slim    cache.TransformFunc
	index   cache.Indexers
	changed func(metav1.Object) // called for each object that came, changed or went
	moved   func(string)        // called when a namespace, or all, became known or unknown

	mu    sync.RWMutex
	parts map[string]*part // by namespace; "" is all
}

// A lister lists and watches the objects of one namespace, or of all.
type lister struct {
	list    func(context.Context, string, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, string, metav1.ListOptions) (watch.Interface, error)
	example runtime.Object
	client  any
}

// A part of a view is one watch.
type part struct {
	namespace string
	informer  cache.SharedIndexInformer
	synced    cache.DoneChecker
	stop      context.CancelFunc
	done      chan struct{}

	mu  sync.Mutex
	err error
}

// get returns the object called name, and the version of the view if there is
// none; false if that is not known.
func (v *view) get(name cache.ObjectName) (obj any, version string, ok bool) {
	p := v.part(name.Namespace)
	if p == nil || !p.known() {
		return nil, "", false
	}
	store := p.informer.GetStore()
	version = store.LastStoreSyncResourceVersion() // before the read, so that it is not too new
	obj, exists, err := store.GetByKey(name.String())
	if err != nil || !exists {
		return nil, version, err == nil
	}
	return obj, version, true
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

// by returns the objects with an indexed value.
func (v *view) by(index, value string) []any {
	var out []any
	for _, p := range v.all() {
		found, err := p.informer.GetIndexer().ByIndex(index, value)
		if err == nil {
			out = append(out, found...)
		}
	}
	return out
}

// state reports whether every part is known, and why not.
func (v *view) state() (bool, error) {
	known := true
	for _, p := range v.all() {
		p.mu.Lock()
		err := p.err
		p.mu.Unlock()
		if err != nil {
			return false, err
		}
		known = known && p.known()
	}
	return known, nil
}

func (p *part) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err == nil && cache.IsDone(p.synced)
}

// add begins to watch namespace, if it is not watched yet.
func (v *view) add(ctx context.Context, namespace string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.parts[namespace] != nil {
		return nil
	}
	p := &part{namespace: namespace, done: make(chan struct{})}
	p.informer = cache.NewSharedIndexInformerWithOptions(v.listWatch(p, namespace), v.list.example, cache.SharedIndexInformerOptions{Indexers: v.index})
	if err := errors.Join(p.informer.SetTransform(v.slim), p.informer.SetWatchErrorHandlerWithContext(p.failed)); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	registration, err := p.informer.AddEventHandler(v.handler())
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	p.synced = registration.HasSyncedChecker()
	ctx, p.stop = context.WithCancel(ctx)
	v.parts[namespace] = p
	go func() {
		defer close(p.done)
		var wg sync.WaitGroup
		wg.Go(func() { v.announce(ctx, p) })
		p.informer.RunWithContext(ctx)
		wg.Wait()
	}()
	return nil
}

// announce tells that p has become known.
func (v *view) announce(ctx context.Context, p *part) {
	select {
	case <-ctx.Done():
	case <-p.synced.Done():
		v.moved(p.namespace)
	}
}

// remove ends the watch of namespace.
func (v *view) remove(namespace string) {
	v.mu.Lock()
	p := v.parts[namespace]
	delete(v.parts, namespace)
	v.mu.Unlock()
	if p != nil {
		p.stop()
		<-p.done
	}
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

// listWatch notes whether the API server lets p read: after an error what is in
// the store is not known to be true any more.
func (v *view) listWatch(p *part, namespace string) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := v.list.list(ctx, namespace, o)
			v.note(ctx, p, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := v.list.watch(ctx, namespace, o)
			v.note(ctx, p, err)
			return w, err
		},
	}, v.list.client)
}

// note records the outcome of a list or watch. An expired resourceVersion is no
// failure: a list follows.
func (v *view) note(ctx context.Context, p *part, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	p.mu.Lock()
	before := p.err
	p.err = err
	p.mu.Unlock()
	if (before == nil) != (err == nil) {
		v.moved(p.namespace)
	}
}

// failed replaces client-go's handler, which would log each attempt.
func (p *part) failed(context.Context, *cache.Reflector, error) {}

func (v *view) handler() cache.ResourceEventHandler {
	changed := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, err := meta.Accessor(obj); err == nil {
			v.changed(o)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(before, after any) {
			changed(before) // a reference may have moved, so both ends need a look
			changed(after)
		},
		DeleteFunc: changed,
	}
}

// gone turns the answer that there is no object called name into no object. That
// the resource itself is not served says nothing about its objects.
func gone(obj *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
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
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
