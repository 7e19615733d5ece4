// SPDX-License-Identifier: Apache-2.0

package testplatform

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// A store is the least of an API server: it keeps what it is given, answers any patch as
// a merge, and ends watches that see something change.
type store struct {
	mu      sync.Mutex
	objects map[address]*unstructured.Unstructured
	version int
	changed chan struct{} // closed and made anew with each change
}

func newStore() *store {
	return &store{objects: map[address]*unstructured.Unstructured{}, changed: make(chan struct{})}
}

func (s *store) put(a address, u *unstructured.Unstructured) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	if u != nil {
		if before := s.objects[a]; before != nil {
			u.SetUID(before.GetUID())
		} else if u.GetUID() == "" {
			u.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
		}
		u.SetName(a.name)
		u.SetNamespace(a.namespace)
		u.SetResourceVersion(strconv.Itoa(s.version))
		s.objects[a] = u
	} else {
		delete(s.objects, a)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return u
}

// list returns the objects at an address without a name, in any order, and what is
// closed when they change.
func (s *store) list(a address) (items []unstructured.Unstructured, version string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, u := range s.objects {
		if at.groupVersion == a.groupVersion && at.resource == a.resource && (a.namespace == "" || at.namespace == a.namespace) {
			items = append(items, *u.DeepCopy())
		}
	}
	return items, strconv.Itoa(s.version), s.changed
}

func (s *store) get(a address) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.subresource = ""
	return s.objects[a].DeepCopy()
}

// ServeHTTP implements [http.Handler].
func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := addressOf(r.URL.Path)
	switch verbOf(r, a) {
	case "list":
		items, version, _ := s.list(a)
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": a.groupVersion, "kind": "List", "metadata": map[string]any{"resourceVersion": version}}, Items: items}
		send(w, http.StatusOK, list.UnstructuredContent())
	case "watch":
		s.watch(w, r, a)
	case "get":
		s.answer(w, a, s.get(a))
	default:
		s.write(w, r, a)
	}
}

func (s *store) answer(w http.ResponseWriter, a address, u *unstructured.Unstructured) {
	if u == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, a.resource+" \""+a.name+"\" not found")
		return
	}
	send(w, http.StatusOK, u.Object)
}

// watch knows no history: watches from a version are expired once anything changed.
func (s *store) watch(w http.ResponseWriter, r *http.Request, a address) {
	items, version, changed := s.list(a)
	asked := r.URL.Query()
	if v := asked.Get("resourceVersion"); asked.Get("sendInitialEvents") != "true" && v != "" && v != version {
		refuse(w, http.StatusGone, metav1.StatusReasonExpired, "changed since")
		return
	}
	w.Header().Set("Content-Type", jsonType)
	bookmark := unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Bookmark"}}
	bookmark.SetResourceVersion(version)
	if asked.Get("sendInitialEvents") == "true" {
		for _, u := range items {
			event(w, "ADDED", u)
			bookmark.SetGroupVersionKind(u.GroupVersionKind())
		}
		bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	event(w, "BOOKMARK", bookmark)
	select {
	case <-changed:
	case <-r.Context().Done():
	}
}

func event(w http.ResponseWriter, eventType string, u unstructured.Unstructured) {
	text, err := json.Marshal(map[string]any{"type": eventType, "object": u.Object})
	if err == nil {
		_ = write(w, append(text, '\n'))
	}
}

func (s *store) write(w http.ResponseWriter, r *http.Request, a address) {
	body := map[string]any{}
	err := json.NewDecoder(r.Body).Decode(&body)
	before := s.get(a)
	switch {
	case r.Method == http.MethodDelete:
		if before != nil {
			s.put(address{a.groupVersion, a.namespace, a.resource, a.name, ""}, nil)
		}
	case err != nil:
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	case r.Method == http.MethodPost:
		before = &unstructured.Unstructured{Object: body}
		if a.name = before.GetName(); s.get(a) != nil {
			refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, a.name+" already exists")
			return
		}
		before = s.put(a, before)
	case before == nil && !strings.Contains(r.Header.Get("Content-Type"), "apply"):
	default:
		if before == nil || r.Method == http.MethodPut {
			before = &unstructured.Unstructured{Object: map[string]any{}}
		}
		merge(before.Object, body)
		a.subresource = ""
		before = s.put(a, before)
	}
	s.answer(w, a, before)
}

// merge is a JSON merge patch (RFC 7396).
func merge(into, patch map[string]any) {
	for key, value := range patch {
		below, isMap := value.(map[string]any)
		there, wasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && wasMap:
			merge(there, below)
		case isMap:
			into[key] = maps.Clone(below)
		default:
			into[key] = value
		}
	}
}
