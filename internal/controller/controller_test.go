// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	"k8s.io/client-go/util/workqueue"
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
		}, Options{Limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](time.Second, time.Minute)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		c.Add(cache.NewObjectName("ns", "a"))
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second}
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
	for name, test := range map[string]struct {
		errs []error
		want []string
	}{
		"nothing":              {[]error{nil}, nil},
		"conflict is quiet":    {[]error{conflict, conflict, nil}, nil},
		"many conflicts speak": {[]error{conflict, conflict, conflict, conflict, conflict, conflict, nil}, []string{"reconcile failed, retrying"}},
		"failure is retried":   {[]error{errors.New("boom"), nil}, []string{"reconcile failed, retrying"}},
		"terminal is not":      {[]error{fmt.Errorf("bad: %w", ErrTerminal), nil}, []string{"reconcile failed, not retrying"}},
		"panic is a failure":   {[]error{errPanic, nil}, []string{"reconcile failed, retrying"}},
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
