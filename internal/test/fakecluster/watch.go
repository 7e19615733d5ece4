// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// A Watch delivers events in order, however slow its reader is. One of a held
// View delivers only what Deliver and the like make it.
type Watch struct {
	namespace string
	match     labels.Selector
	show      func(*unstructured.Unstructured) runtime.Object
	known     map[string]bool // objects that matched when last sent
	after     int64           // version from which on there are events: a watch that is ahead sees none until then
	resource  schema.GroupVersionResource
	held      bool
	forget    func() // called at the end

	out     chan watch.Event
	stopped chan struct{}
	once    sync.Once

	mu      sync.Mutex
	back    []watch.Event // of a held Watch, not yet to be delivered
	pending []watch.Event
	more    chan struct{}
}

func expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired("too old resource version")
}

// note keeps track of which objects match, and returns what an event looks like
// to this watcher.
func (w *Watch) note(e event) (watch.EventType, bool) {
	if w.namespace != "" && e.object.GetNamespace() != w.namespace {
		return "", false
	}
	k := key(e.object).String()
	was := w.known[k]
	is := e.kind != watch.Deleted && w.match.Matches(labels.Set(e.object.GetLabels()))
	w.known[k] = is
	switch {
	case was && is:
		return watch.Modified, true
	case is:
		return watch.Added, true
	case was:
		return watch.Deleted, true
	default:
		return "", false
	}
}

func (w *Watch) send(e event) {
	kind, ok := w.note(e)
	select {
	case <-w.stopped:
		ok = false
	default:
	}
	if !ok || e.version <= w.after {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if sent := (watch.Event{Type: kind, Object: w.show(e.object)}); w.held {
		w.back = append(w.back, sent)
	} else {
		w.pending = append(w.pending, sent)
	}
}

// wake lets events be delivered, unless they are to be held back.
func (w *Watch) wake(lag bool) {
	if lag {
		return
	}
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *Watch) deliver(ctx context.Context) {
	defer w.forget()
	defer close(w.out)
	for {
		w.mu.Lock()
		batch := w.pending
		w.pending = nil
		w.mu.Unlock()
		for _, e := range batch {
			select {
			case w.out <- e:
				if e.Type == watch.Error {
					return
				}
			case <-w.stopped:
				return
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-w.more:
		case <-w.stopped:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Stop implements watch.Interface.
func (w *Watch) Stop() { w.once.Do(func() { close(w.stopped) }) }

// ResultChan implements watch.Interface.
func (w *Watch) ResultChan() <-chan watch.Event { return w.out }

// Resource is what w watches.
func (w *Watch) Resource() schema.GroupVersionResource { return w.resource }

// Namespace is the one that w watches, empty for all.
func (w *Watch) Namespace() string { return w.namespace }

// Waiting is the number of events that w holds back.
func (w *Watch) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.back)
}

// Next is the event that Deliver lets out next. There has to be one.
func (w *Watch) Next() watch.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.back[0]
}

// Deliver lets the next event out.
func (w *Watch) Deliver() {
	w.mu.Lock()
	if len(w.back) > 0 {
		w.pending = append(w.pending, w.back[0])
		w.back = w.back[1:]
	}
	w.mu.Unlock()
	w.wake(false)
}

// Skip drops the next event, as if it had never been.
func (w *Watch) Skip() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.back) > 0 {
		w.back = w.back[1:]
	}
}

// Repeat lets the next event out, and keeps it to let it out again.
func (w *Watch) Repeat() {
	w.mu.Lock()
	if len(w.back) > 0 {
		again := w.back[0]
		again.Object = again.Object.DeepCopyObject()
		w.pending = append(w.pending, again)
	}
	w.mu.Unlock()
	w.wake(false)
}

// Bookmark tells the reader that it has seen all until now. It has to have.
func (w *Watch) Bookmark(version string) {
	w.mu.Lock()
	o := w.show(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"resourceVersion": version}}})
	w.pending = append(w.pending, watch.Event{Type: watch.Bookmark, Object: o})
	w.mu.Unlock()
	w.wake(false)
}

// Expire ends w with the message that its reader has to list again. What w holds
// back is never seen.
func (w *Watch) Expire() {
	status := expired().Status()
	w.mu.Lock()
	w.back = nil
	w.pending = append(w.pending, watch.Event{Type: watch.Error, Object: &status})
	w.mu.Unlock()
	w.wake(false)
}

type event struct {
	version int64
	kind    watch.EventType
	object  *unstructured.Unstructured
}

func key(o metav1.Object) cache.ObjectName { return cache.MetaObjectToName(o) }
