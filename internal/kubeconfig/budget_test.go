// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func named(name string, size int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"a": strings.Repeat("x", size)}}
	u.SetName(name)
	return u
}

func added(name string, size int) watch.Event {
	return watch.Event{Type: watch.Added, Object: named(name, size)}
}

// TestP8Budget: stores of one connection share a budget, which counts what they hold,
// not what has gone through them.
func TestP8Budget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Budget{}
		one, other := b.Share("ones"), b.Share("others")
		for n := range 3 * mostBytes / (1 << 20) { // one object that changes
			if e := one.Pass(watch.Event{Type: watch.Modified, Object: named("same", 1<<20)}); e.Type != watch.Modified {
				t.Fatalf("change %d: %v", n, e)
			}
		}
		n := 0
		for one.Pass(added(strconv.Itoa(n), 1<<20)).Type == watch.Added {
			n++
		}
		if n < 100 || n > 128 {
			t.Errorf("%d objects of a megabyte are held", n)
		}
		var excess *ExcessError
		if err := one.Begin(metav1.ListOptions{}); !errors.As(err, &excess) || !strings.Contains(err.Error(), "ones") {
			t.Errorf("begun again at once: %v", err)
		}
		if e := other.Pass(added("large", 2<<20)); e.Type != watch.Error {
			t.Errorf("the other store still holds: %v", e.Type)
		}
		one.Pass(watch.Event{Type: watch.Deleted, Object: named("0", 1)})
		one.Pass(watch.Event{Type: watch.Deleted, Object: named("1", 1)})
		if e := other.Pass(added("small", 1<<20)); e.Type != watch.Added {
			t.Errorf("nothing is given back by a deletion: %v", e.Type)
		}
		time.Sleep(Quarantine + time.Second)
		all := true
		if err := one.Begin(metav1.ListOptions{SendInitialEvents: &all}); err != nil {
			t.Errorf("not begun after the quarantine: %v", err)
		}
		end := &unstructured.Unstructured{}
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		one.Pass(added("just one", 1))
		one.Pass(watch.Event{Type: watch.Bookmark, Object: end})
		one.Close()
		other.Close()
		if b.objects != 0 || b.bytes != 0 {
			t.Errorf("left in the budget: %d objects, %d bytes", b.objects, b.bytes)
		}
	})
}

// TestP8Pages: a list is read in pages, whatever is asked for, and is whole.
func TestP8Pages(t *testing.T) {
	s := (&Budget{}).Share("things")
	var asked []metav1.ListOptions
	list, err := s.List(t.Context(), metav1.ListOptions{ResourceVersion: "7"}, func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
		asked = append(asked, o)
		l := &unstructured.UnstructuredList{Object: map[string]any{}, Items: []unstructured.Unstructured{*named(strconv.Itoa(len(asked)), 1)}}
		l.SetResourceVersion("9")
		if len(asked) < 3 {
			l.SetContinue("more")
		}
		return l, nil
	})
	l, _ := list.(*unstructured.UnstructuredList)
	if err != nil || len(l.Items) != 3 || l.GetContinue() != "" || l.GetResourceVersion() != "9" {
		t.Errorf("listed %v, %v", list, err)
	}
	if first, second := asked[0], asked[1]; first.Limit != page || first.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan || second.Continue != "more" || second.ResourceVersion != "" {
		t.Errorf("asked %+v", asked)
	}
}

// TestP8Quarantine: what was too large is asked for again after a while, and until then
// nothing else is kept from being asked for.
func TestP8Quarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoundary("https://api.example.com")
		request := func(path string) *http.Request {
			return &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "api.example.com", Path: path}}
		}
		_ = b.exceeded(request("/large"), "is too large")
		if b.check(request("/large")) == nil || b.check(request("/small")) != nil {
			t.Error("not just what was too large is in quarantine")
		}
		for n := range 2 * maxQuarantined {
			_ = b.exceeded(request("/"+strconv.Itoa(n)), "is too large")
		}
		if len(b.quarantine) > maxQuarantined+1 || b.check(request("/small")) == nil {
			t.Errorf("%d paths in quarantine, and another one is not", len(b.quarantine))
		}
		time.Sleep(Quarantine + time.Second)
		if err := b.check(request("/large")); err != nil {
			t.Errorf("after the quarantine: %v", err)
		}
	})
}

// TestP8Pace: what all answers of a connection weigh is bounded with time, and an
// ordinary load does not wait.
func TestP8Pace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoundary("https://api.example.com")
		begun := time.Now()
		for range 1 << 10 { // a gigabyte
			b.allowance.draw(1<<20, t.Context().Done())
		}
		if took := time.Since(begun).Seconds(); took < 13 || took > 15 {
			t.Errorf("a gigabyte took %.1f s", took)
		}
		time.Sleep(time.Minute)
		begun = time.Now()
		for range 30 {
			b.allowance.draw(32<<20, t.Context().Done())
			time.Sleep(time.Second)
		}
		if took := time.Since(begun).Seconds(); took > 30.1 {
			t.Errorf("half of what is allowed took %.1f s", took)
		}
	})
}

// TestLongNames: an object whose name is longer than one can be is let into no store, in a list or a watch: names
// end in logs, conditions and paths of requests.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("n", longestName+1)
	for name, change := range map[string]func(*unstructured.Unstructured){
		"name":      func(u *unstructured.Unstructured) { u.SetName(long) },
		"namespace": func(u *unstructured.Unstructured) { u.SetNamespace(long) },
		"UID":       func(u *unstructured.Unstructured) { u.SetUID(types.UID(long)) },
	} {
		t.Run(name, func(t *testing.T) {
			u := named("thing", 1)
			s := (&Budget{}).Share("things")
			if e := s.Pass(watch.Event{Type: watch.Added, Object: u}); e.Type != watch.Added {
				t.Errorf("an ordinary object is %v", e)
			}
			change(u)
			if e := s.Pass(watch.Event{Type: watch.Added, Object: u}); e.Type != watch.Error {
				t.Errorf("a watch lets it in")
			}
			_, err := (&Budget{}).Share("things").List(t.Context(), metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &unstructured.UnstructuredList{Object: map[string]any{}, Items: []unstructured.Unstructured{*u}}, nil
			})
			if _, is := errors.AsType[*ExcessError](err); !is || !strings.Contains(err.Error(), "longer than one can be (found at things)") {
				t.Errorf("a list lets it in: %v", err)
			}
		})
	}
}
