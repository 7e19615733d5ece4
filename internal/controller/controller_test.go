// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// A failing key is retried with growing delays; virtual time makes the delays exact.
func TestRunBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var calls []time.Duration
		c := New("test", func(context.Context, cache.ObjectName) (time.Duration, error) {
			calls = append(calls, time.Since(start))
			if len(calls) < 4 {
				return 0, errors.New("boom")
			}
			return 0, nil
		}, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		c.Add(cache.NewObjectName("ns", "a"))
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, 350 * time.Millisecond}
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Errorf("call times (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute) // let queue goroutines exit
	})
}

var widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "ns", "name": "a"}}}
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{widgets: "WidgetList"}, u)
		inf := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(widgets).Informer()
		var seen []string
		c := New("test", func(_ context.Context, k cache.ObjectName) (time.Duration, error) {
			seen = append(seen, k.String())
			return 0, nil
		}, Options{})
		stop, err := c.Watch(inf, Self)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go inf.RunWithContext(ctx)
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		if err := client.Resource(widgets).Namespace("ns").Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"ns/a", "ns/a"}, seen); diff != "" {
			t.Errorf("keys (-want +got):\n%s", diff)
		}
		time.Sleep(time.Hour)
	})
}

// What the log says of each fate.
func TestFates(t *testing.T) {
	conflict := apierrors.NewConflict(widgets.GroupResource(), "a", errors.New("newer"))
	missing := apierrors.NewNotFound(widgets.GroupResource(), "a")
	for name, test := range map[string]struct {
		errs []error
		want []string
	}{
		"nothing":              {[]error{nil}, nil},
		"conflict is quiet":    {[]error{conflict, conflict, nil}, nil},
		"many conflicts speak": {[]error{conflict, conflict, conflict, conflict, conflict, conflict, nil}, []string{"reconcile failed, retrying", "reconciled again"}},
		"failure is retried":   {[]error{errors.New("boom"), nil}, []string{"reconcile failed, retrying", "reconciled again"}},
		"one line a kind":      {[]error{errors.New("boom"), missing, errors.New("bang"), missing, nil}, []string{"reconcile failed, retrying", "reconcile failed, retrying", "reconciled again"}},
		"terminal is not":      {[]error{fmt.Errorf("bad: %w", fates.ErrTerminal), nil}, []string{"reconcile failed, not retrying"}},
		"panic is a failure":   {[]error{errPanic, nil}, []string{"reconcile failed, retrying", "reconciled again"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said []string
				log := funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})
				calls := 0
				c := New("test", func(context.Context, cache.ObjectName) (time.Duration, error) {
					err := test.errs[calls]
					calls++
					if errors.Is(err, errPanic) {
						panic("oops")
					}
					return 0, err
				}, Options{})
				ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), log))
				done := make(chan error, 1)
				go func() { done <- c.Run(ctx) }()
				c.Add(cache.NewObjectName("ns", "a"))
				time.Sleep(time.Minute)
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				for i, s := range said {
					_, s, _ = strings.Cut(s, `"msg"="`)
					said[i], _, _ = strings.Cut(s, `"`)
				}
				if diff := cmp.Diff(test.want, said); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// Whatever an API server answers, it costs few requests and a few lines an hour; and as soon as one
// object is reconciled, all are.
func TestEachFateIsPaced(t *testing.T) {
	const objects = 20
	for _, answer := range fakecluster.Answers() {
		request := fakecluster.Request{Verb: "create", Resource: widgets, Object: cache.NewObjectName("ns", "x")}
		t.Run(strings.ReplaceAll(answer.Err(request).Error(), "/", " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFailing(t, objects, answer.Err(request))
				for hour := range 2 {
					calls, lines := w.hour()
					most, told := 3000, objects // what may pass by itself soon is asked for often
					if f := answer.Kind.Fate(); f == fates.Refused || f == fates.Waits {
						most = 12
					}
					if hour == 0 {
						most += 20
					} else {
						told = 0
					}
					if calls > most*objects || lines != told+1 {
						t.Errorf("hour %d: %d requests of %d objects and %d lines, want at most %d and %d", hour, calls, objects, lines, most*objects, told+1)
					}
				}
				w.err.Store(nil)
				w.Add(cache.NewObjectName("ns", "0")) // an event
				time.Sleep(time.Second)
				if f := answer.Kind.Fate(); f != fates.Refused && f != fates.Waits {
					time.Sleep(max(answer.Kind.Pause(100), fates.Asked(answer.Err(request)))) // without
				}
				if n := w.done.Load(); n != objects {
					t.Errorf("%d of %d objects are reconciled once the answer is another", n, objects)
				}
				w.calls.Store(0)
				if calls, lines := w.hour(); calls > 0 || lines != objects {
					t.Errorf("afterwards: %d calls and %d lines", calls, lines)
				}
			})
		})
	}
}

// A failing is a controller of objects that all meet the same error.
type failing struct {
	*Controller

	err         atomic.Pointer[error]
	calls, done atomic.Int64
	lines       atomic.Int64
}

func newFailing(t *testing.T, objects int, err error) *failing {
	t.Helper()
	w := &failing{}
	w.err.Store(&err)
	w.Controller = New("test", func(context.Context, cache.ObjectName) (time.Duration, error) {
		w.calls.Add(1)
		if err := w.err.Load(); err != nil {
			return 0, *err
		}
		w.done.Add(1)
		return 0, nil
	}, Options{Workers: 4})
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), funcr.New(func(string, string) { w.lines.Add(1) }, funcr.Options{})))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for i := range objects {
		w.Add(cache.NewObjectName("ns", strconv.Itoa(i)))
	}
	return w
}

// hour returns how many calls and lines the next hour has.
func (w *failing) hour() (calls, lines int) {
	time.Sleep(time.Hour)
	synctest.Wait()
	return int(w.calls.Swap(0)), int(w.lines.Swap(0))
}

// What is asked for anew begins with short pauses. That a status has changed, which controllers
// write, ends a pause and does not shorten the next ones.
func TestChangeBeginsAnew(t *testing.T) {
	refusal := apierrors.NewForbidden(widgets.GroupResource(), "a", errors.New("no"))
	for name, test := range map[string]struct {
		change func(*unstructured.Unstructured)
		least  int
		most   int
	}{
		"spec":       {func(u *unstructured.Unstructured) { u.SetGeneration(2) }, 10, 16},
		"annotation": {func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"again": "yes"}) }, 10, 16},
		"status":     {func(u *unstructured.Unstructured) { u.Object["status"] = map[string]any{"phase": "x"} }, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "ns", "name": "0", "generation": int64(1)}}}
				client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{widgets: "WidgetList"}, u)
				inf := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(widgets).Informer()
				w := newFailing(t, 1, refusal)
				stop, err := w.Watch(inf, Self)
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go inf.RunWithContext(ctx)
				w.hour()
				changed := u.DeepCopy()
				test.change(changed)
				if _, err := client.Resource(widgets).Namespace("ns").Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Minute)
				if n := int(w.calls.Load()); n < test.least || n > test.most {
					t.Errorf("%d calls within 3 minutes, want %d to %d", n, test.least, test.most)
				}
			})
		})
	}
}

var errPanic = errors.New("panic")

func ExampleController() {
	ctx, cancel := context.WithCancel(context.Background())
	c := New("greeter", func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
		fmt.Println("hello", key)
		cancel()
		return 0, nil
	}, Options{})
	c.Add(cache.NewObjectName("default", "a"))
	if err := c.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: hello default/a
}
