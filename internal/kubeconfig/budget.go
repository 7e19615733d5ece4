// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	// longestName is that of an object, in bytes. Names end in logs, conditions and paths of requests.
	longestName = 253
)

// LongestUID is how many bytes of a UID are let in, with room.
const LongestUID = 63

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
	now            *sizes
	next           *sizes // while all is listed anew
	objects, bytes int    // of the budget
	quarantine     quarantined
}

// A sizes is the sizes of objects.
type sizes struct {
	byName map[cache.ObjectName]int
	bytes  int
}

func newSizes() *sizes { return &sizes{byName: map[cache.ObjectName]int{}} }

// set returns the size before; 0 is that of no object.
func (h *sizes) set(name cache.ObjectName, size int) (before int) {
	before = h.byName[name]
	h.bytes += size - before
	if size > 0 {
		h.byName[name] = size
	} else {
		delete(h.byName, name)
	}
	return before
}

// Share returns one for the store of a resource, to be closed with the store.
func (b *Budget) Share(resource string) *Share {
	if b == nil {
		return nil
	}
	return &Share{budget: b, what: resource, now: newSizes()}
}

// Close gives back what the store has held.
func (s *Share) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.next = newSizes(), nil
	s.draw()
}

// draw has the budget know what is held. It returns false, and changes nothing, if that
// is too much and more than before. It needs mu.
func (s *Share) draw() bool {
	objects, bytes := len(s.now.byName), s.now.bytes
	if s.next != nil {
		objects, bytes = max(objects, len(s.next.byName)), max(bytes, s.next.bytes)
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

// count counts an object, or none in place of one.
func (s *Share) count(obj runtime.Object, size int) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if max(len(o.GetName()), len(o.GetNamespace())) > longestName || len(o.GetUID()) > LongestUID {
		return s.exceed("it has an object whose name, namespace or UID is longer than one can be")
	}
	h, name := s.now, cache.MetaObjectToName(o)
	if s.next != nil {
		h = s.next
	}
	before := h.set(name, size)
	if s.draw() {
		return nil
	}
	h.set(name, before)
	return s.exceed(tooMuch)
}

// Document has the share be what a JSON document takes that is kept decoded.
func (s *Share) Document(data []byte) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.now
	s.now = &sizes{bytes: weigh(data)}
	if s.draw() {
		return nil
	}
	s.now = before
	return s.exceed(tooMuch)
}

var tooMuch = fmt.Sprintf("it has more than the %d objects or the %d MB that are kept of it", mostObjects, mostBytes>>20)

// exceed needs mu.
func (s *Share) exceed(what string) error {
	s.next = nil
	s.draw()
	err := &ExcessError{what + " (found at " + s.what + ")"}
	s.quarantine = newQuarantined(err)
	return err
}

// Begin precedes a watch; the error says that it is too early for one.
func (s *Share) Begin(o metav1.ListOptions) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err, is := s.quarantine.inForce(); is {
		return err
	}
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		s.next = newSizes()
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

// sizeOf is what an object takes where it is kept, and decoded.
func (s *Share) sizeOf(obj runtime.Object) (size, decoded int) {
	size, decoded = sizeOf(obj)
	if s.budget.Decoded {
		size = decoded
	}
	return size, decoded
}
