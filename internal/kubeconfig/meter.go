// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Pass hands on an event of a watch, or an error in place of what is too much: its
// consumer is to end the watch then.
func (s *Share) Pass(e watch.Event) watch.Event {
	if s == nil {
		return e
	}
	size := 0
	switch e.Type {
	case watch.Added, watch.Modified:
		size, _ = s.sizeOf(e.Object)
	case watch.Deleted:
	case watch.Bookmark:
		if o, err := meta.Accessor(e.Object); err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			s.settle()
		}
		return e
	default:
		return e
	}
	if err := s.count(e.Object, size); err != nil {
		return watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
	}
	return e
}

// Watch is a watch whose events pass the share.
func (s *Share) Watch(ctx context.Context, o metav1.ListOptions, begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	if s == nil {
		return begin(ctx, o)
	}
	if err := s.Begin(o); err != nil {
		return nil, err
	}
	w, err := begin(ctx, o)
	if err != nil {
		return nil, err
	}
	m := &metered{Interface: w, out: make(chan watch.Event), quit: make(chan struct{})}
	go m.run(s)
	return m, nil
}

// A metered watch passes a share.
type metered struct {
	watch.Interface
	out  chan watch.Event
	quit chan struct{}
	once sync.Once
}

func (m *metered) run(s *Share) {
	defer close(m.out)
	defer m.Interface.Stop()
	for {
		select {
		case e, ok := <-m.Interface.ResultChan():
			if !ok {
				return
			}
			select {
			case m.out <- s.Pass(e):
			case <-m.quit:
				return
			}
		case <-m.quit:
			return
		}
	}
}

// Stop implements [watch.Interface].
func (m *metered) Stop() { m.once.Do(func() { close(m.quit) }) }

// ResultChan implements [watch.Interface].
func (m *metered) ResultChan() <-chan watch.Event { return m.out }
