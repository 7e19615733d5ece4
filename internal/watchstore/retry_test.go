// SPDX-License-Identifier: Apache-2.0

package watchstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// What an API server cannot answer is asked again within seconds; what it refuses costs less and
// less, down to twice a minute, and is asked at once when a pause is ended. Either is found out
// within a minute of its end.
func TestRetryGoesByTheTable(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		err := answer.Err(fakecluster.Request{Verb: "list"})
		most := 150
		switch answer.Kind { //nolint:exhaustive // all others are refused
		case fates.Unreachable, fates.Failing:
			most = 2_000
		case fates.Expired, fates.Ahead, fates.Invalid, fates.Replaced, fates.Malformed, fates.NotAllowed, fates.NotAcceptable:
			continue // a reflector has to see these
		}
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playRetry(t, err, most) })
		})
	}
}

func playRetry(t *testing.T, err error, most int) {
	t.Helper()
	const outage = 3*time.Hour + time.Second
	var p watchstore.Pauses
	var asked atomic.Int64
	began, woken := time.Now(), make(chan struct{}, 1)
	answered := make(chan time.Duration)
	go func() {
		_, _ = watchstore.Retry(t.Context(), &p, func(error) {}, func() (int, error) {
			asked.Add(1)
			select {
			case woken <- struct{}{}:
			default:
			}
			if time.Since(began) >= outage {
				return 0, nil
			}
			return 0, err
		})
		answered <- time.Since(began)
	}()
	time.Sleep(time.Minute)
	early := asked.Load()
	time.Sleep(2*time.Hour - time.Minute)
	before := asked.Load()
	time.Sleep(time.Hour - time.Minute)
	if n := asked.Load() - before; n > int64(most) || early < 5 {
		t.Errorf("asked %d times in the first minute, and %d times in an hour later", early, n)
	}
	synctest.Wait()
	<-woken
	p.Wake()
	synctest.Wait()
	select {
	case <-woken:
	default:
		t.Error("not asked when it is woken")
	}
	if took := <-answered; took > outage+time.Minute {
		t.Errorf("answered %v after the end", took-outage)
	}
}

// A retry ends with its context.
func TestRetryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := watchstore.Retry(ctx, &watchstore.Pauses{}, func(error) {}, func() (int, error) { return 0, errors.New("no answer") })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
	})
}

// I19: what an API server refuses is asked less than once a second in all, however many stores there
// are, and the stores that are left have short pauses again. The end of a refusal, and of an outage,
// however long, is found out soon in all of them.
func TestI19RefusedStoresShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		widgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
		cluster := fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
		var asked atomic.Int64
		var refusal atomic.Pointer[fakecluster.Answer]
		cluster.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			asked.Add(1)
			if a := refusal.Load(); a != nil {
				return a.Err(r)
			}
			return do()
		})
		answer := func(kind fates.Kind) {
			all := fakecluster.Answers()
			refusal.Store(&all[slices.IndexFunc(all, func(a fakecluster.Answer) bool { return a.Kind == kind })])
		}
		answer(fates.Forbidden)
		objects := cluster.Client().Resource(widgets)
		source := watchstore.Source{
			Resource: widgets, Form: "whole", Transform: func(o any) any { return o }, Client: cluster.Client(), Example: &unstructured.Unstructured{},
			List: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
				return objects.Namespace(namespace).List(ctx, o)
			},
			Watch: func(ctx context.Context, namespace string, o metav1.ListOptions) (watch.Interface, error) {
				return objects.Namespace(namespace).Watch(ctx, o)
			},
		}
		var all watchstore.Stores
		var stores []*watchstore.Store
		for n := range most {
			stores = append(stores, all.Acquire(t.Context(), source, fmt.Sprint("team-", n)))
		}
		known := func(within time.Duration) {
			t.Helper()
			refusal.Store(nil)
			left := slices.Clone(stores)
			for began := time.Now(); len(left) > 0 && time.Since(began) < within; time.Sleep(time.Second) {
				left = slices.DeleteFunc(left, (*watchstore.Store).Known)
			}
			if len(left) > 0 {
				t.Errorf("%d stores are not known within %v", len(left), within)
			}
		}
		inAnHour := func() int64 {
			time.Sleep(time.Hour)
			before := asked.Load()
			time.Sleep(time.Hour)
			return asked.Load() - before
		}
		time.Sleep(time.Second)
		known(8 * time.Second)
		for _, kind := range []fates.Kind{fates.Forbidden, fates.Unserved} {
			answer(kind)
			cluster.Reshape(widgets, nil, 0) // which ends the watches
			if n := inAnHour(); n > 3600 || n < 1000 {
				t.Errorf("%v: %d requests in an hour", kind, n)
			}
			known(30 * time.Second)
		}
		answer(fates.Unreachable)
		cluster.Reshape(widgets, nil, 0) // which ends the watches
		time.Sleep(time.Hour)
		known(8 * time.Second)
		answer(fates.Forbidden)
		cluster.Reshape(widgets, nil, 0) // which ends the watches
		time.Sleep(time.Hour)
		for _, s := range stores[5:] {
			all.Release(s)
		}
		stores = stores[:5]
		if n := inAnHour(); n < 5*60 {
			t.Errorf("%d requests of 5 stores in an hour", n)
		}
		for _, s := range stores {
			all.Release(s)
		}
	})
}
