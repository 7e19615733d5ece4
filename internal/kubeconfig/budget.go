// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// What all stores of one connection may hold together. A konnector has 512 MB.
const (
	mostObjects = 100_000
	mostBytes   = 128 << 20 // of JSON, or of decoded objects
	mostListed  = 128 << 20 // of decoded objects of a list that is not streamed
	// page is how many objects are listed at once, so that a page of large ones is let
	// in; API servers that stream their lists are asked for none.
	page = 100
	// objectBytes is what an object takes besides its content.
	objectBytes = 512
)

// A Budget is what may be cached of one API server of the other side. Nil is without
// bounds.
type Budget struct {
	// Decoded says that objects are kept as they are decoded, some five times their
	// length in JSON.
	Decoded bool

	mu             sync.Mutex
	objects, bytes int
}

// A Share is what one store holds of a budget. It bounds the lists and watches that fill
// the store. Nil lets them be as they are.
type Share struct {
	budget *Budget
	what   string

	mu             sync.Mutex
	now            *holding
	next           *holding // while all is listed anew
	objects, bytes int      // of the budget
	err            *ExcessError
	until          time.Time // of its quarantine
}

// A holding is the sizes of objects.
type holding struct {
	sizes map[cache.ObjectName]int
	bytes int
}

func newHolding() *holding { return &holding{sizes: map[cache.ObjectName]int{}} }

// set returns the size before; 0 is that of no object.
func (h *holding) set(name cache.ObjectName, size int) (before int) {
	before = h.sizes[name]
	h.bytes += size - before
	if size > 0 {
		h.sizes[name] = size
	} else {
		delete(h.sizes, name)
	}
	return before
}

// Share returns one for the store of a resource, to be closed with the store.
func (b *Budget) Share(resource string) *Share {
	if b == nil {
		return nil
	}
	return &Share{budget: b, what: resource, now: newHolding()}
}

// Close gives back what the store has held.
func (s *Share) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.next = newHolding(), nil
	s.draw()
}

// draw has the budget know what is held. It returns false, and changes nothing, if that
// is too much and more than before. It needs mu.
func (s *Share) draw() bool {
	objects, bytes := len(s.now.sizes), s.now.bytes
	if s.next != nil {
		objects, bytes = max(objects, len(s.next.sizes)), max(bytes, s.next.bytes)
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	moreObjects, moreBytes := objects-s.objects, bytes-s.bytes
	if moreObjects > 0 && b.objects+moreObjects > mostObjects || moreBytes > 0 && b.bytes+moreBytes > mostBytes {
		return false
	}
	b.objects, b.bytes = b.objects+moreObjects, b.bytes+moreBytes
	s.objects, s.bytes = objects, bytes
	return true
}

// hold counts an object, or none in place of one.
func (s *Share) hold(obj runtime.Object, size int) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, name := s.now, cache.MetaObjectToName(o)
	if s.next != nil {
		h = s.next
	}
	before := h.set(name, size)
	if s.draw() {
		return nil
	}
	h.set(name, before)
	return s.exceed()
}

// Document has the share be what a JSON document takes that is kept decoded.
func (s *Share) Document(data []byte) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.now
	s.now = &holding{bytes: weigh(data)}
	if s.draw() {
		return nil
	}
	s.now = before
	return s.exceed()
}

// exceed needs mu.
func (s *Share) exceed() error {
	s.next = nil
	s.draw()
	s.err = &ExcessError{fmt.Sprintf("it has more than the %d objects or the %d MB that are kept of it (found at %s)", mostObjects, mostBytes>>20, s.what)}
	s.until = time.Now().Add(Quarantine)
	return s.err
}

// Begin precedes a watch; the error says that it is too early for one.
func (s *Share) Begin(o metav1.ListOptions) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && time.Now().Before(s.until) {
		return s.err
	}
	s.err = nil
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		s.next = newHolding()
	}
	return nil
}

// settle follows a list that is complete.
func (s *Share) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		s.now, s.next = s.next, nil
		s.draw()
	}
}

// List is list in pages, as one.
func (s *Share) List(ctx context.Context, o metav1.ListOptions, list func(context.Context, metav1.ListOptions) (runtime.Object, error)) (runtime.Object, error) {
	if s == nil {
		return list(ctx, o)
	}
	all := true
	if err := s.Begin(metav1.ListOptions{SendInitialEvents: &all}); err != nil {
		return nil, err
	}
	listed, err := s.pages(ctx, paged(o), list)
	if err == nil {
		s.settle()
	}
	return listed, err
}

// paged is o as API servers answer it in pages: they ignore a limit where any state of
// theirs will do.
func paged(o metav1.ListOptions) metav1.ListOptions {
	switch {
	case o.ResourceVersion == "0":
		o.ResourceVersion = ""
	case o.ResourceVersion != "" && o.ResourceVersionMatch == "" && o.Continue == "":
		o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	o.Limit = page
	return o
}

func (s *Share) pages(ctx context.Context, o metav1.ListOptions, list func(context.Context, metav1.ListOptions) (runtime.Object, error)) (all runtime.Object, err error) {
	weight := 0
	for {
		next, err := list(ctx, o)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(next, func(item runtime.Object) error {
			size, decoded := s.sizeOf(item)
			if weight += decoded; weight > mostListed {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.exceed()
			}
			return s.hold(item, size)
		})
		if err != nil {
			return nil, err
		}
		if all, err = joined(all, next); err != nil {
			return nil, err
		}
		m, err := meta.ListAccessor(next)
		if err != nil {
			return nil, err
		}
		if o.Continue = m.GetContinue(); o.Continue == "" {
			return all, nil
		}
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
}

// joined is a list with the items of its next page.
func joined(all, next runtime.Object) (runtime.Object, error) {
	switch a := all.(type) {
	case nil:
		return next, nil
	case *unstructured.UnstructuredList:
		if n, ok := next.(*unstructured.UnstructuredList); ok {
			a.Items = append(a.Items, n.Items...)
			a.SetContinue("")
			return a, nil
		}
	case *metav1.PartialObjectMetadataList:
		if n, ok := next.(*metav1.PartialObjectMetadataList); ok {
			a.Items = append(a.Items, n.Items...)
			a.Continue = ""
			return a, nil
		}
	}
	return nil, fmt.Errorf("a list of %T goes on with %T", all, next)
}

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
	if err := s.hold(e.Object, size); err != nil {
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

// sizeOf is what an object takes where it is kept, and decoded.
func (s *Share) sizeOf(obj runtime.Object) (size, decoded int) {
	size, decoded = sizeOf(obj)
	if s.budget.Decoded {
		size = decoded
	}
	return size, decoded
}

// sizeOf is about the length of an object in JSON, and what it takes decoded.
func sizeOf(obj runtime.Object) (size, decoded int) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		size, values := measure(o.Object)
		return size + objectBytes, size + weightValue*values
	case *metav1.PartialObjectMetadata:
		n := 2*objectBytes + weightObject*(len(o.ManagedFields)+len(o.OwnerReferences)+len(o.Finalizers))
		for _, m := range []map[string]string{o.Labels, o.Annotations} {
			for k, v := range m {
				n += len(k) + len(v) + weightValue
			}
		}
		for i := range o.ManagedFields {
			if f := o.ManagedFields[i].FieldsV1; f != nil {
				n += f.Size()
			}
		}
		return n, n
	}
	return objectBytes, objectBytes
}

func measure(value any) (size, values int) {
	switch v := value.(type) {
	case string:
		return len(v) + 3, 1
	case map[string]any:
		size, values = 2, 4
		for k, item := range v {
			s, n := measure(item)
			size, values = size+len(k)+4+s, values+n
		}
		return size, values
	case []any:
		size, values = 2, 1
		for _, item := range v {
			s, n := measure(item)
			size, values = size+s, values+n
		}
		return size, values
	}
	return 8, 1
}
