// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"context"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// A watcher delivers events in order, however slow its reader is.
type watcher struct {
	namespace string
	match     labels.Selector
	show      func(*unstructured.Unstructured) runtime.Object
	known     map[string]bool // objects that matched when last sent

	out     chan watch.Event
	stopped chan struct{}
	once    sync.Once

	mu      sync.Mutex
	pending []watch.Event
	more    chan struct{}
}

func (r resource) watch(ctx context.Context, options metav1.ListOptions, show func(*unstructured.Unstructured) runtime.Object) (watch.Interface, error) {
	match, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	since, err := strconv.ParseInt("0"+options.ResourceVersion, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w := &watcher{
		namespace: r.namespace, match: match, show: show, known: map[string]bool{},
		out: make(chan watch.Event), stopped: make(chan struct{}), more: make(chan struct{}, 1),
	}
	err = r.view.handle(ctx, Request{Verb: "watch", Resource: r.gvr, Object: cache.NewObjectName(r.namespace, "")}, func(s *served) error {
		s.watchers[w] = struct{}{}
		for _, e := range s.history {
			if e.version > since {
				w.send(e)
			} else {
				w.note(e)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	go w.deliver(ctx)
	return w, nil
}

// note keeps track of which objects match, and returns what an event looks like
// to this watcher.
func (w *watcher) note(e event) (watch.EventType, bool) {
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

func (w *watcher) send(e event) {
	kind, ok := w.note(e)
	select {
	case <-w.stopped:
		ok = false
	default:
	}
	if !ok {
		return
	}
	w.mu.Lock()
	w.pending = append(w.pending, watch.Event{Type: kind, Object: w.show(e.object)})
	w.mu.Unlock()
}

// wake lets events be delivered, unless they are to be held back.
func (w *watcher) wake(lag bool) {
	if lag {
		return
	}
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *watcher) deliver(ctx context.Context) {
	defer close(w.out)
	for {
		w.mu.Lock()
		batch := w.pending
		w.pending = nil
		w.mu.Unlock()
		for _, e := range batch {
			select {
			case w.out <- e:
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
func (w *watcher) Stop() { w.once.Do(func() { close(w.stopped) }) }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }
