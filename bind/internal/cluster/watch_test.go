// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// An outage is what requests end with, while there is something.
type outage struct {
	mu  sync.Mutex
	err error
}

func (o *outage) set(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *outage) answer(_ context.Context, _ fakecluster.Request, do func() error) error {
	o.mu.Lock()
	err := o.err
	o.mu.Unlock()
	if err != nil {
		return err
	}
	return do()
}

// TestInformerAfterOutage: however long an outage was, what changed meanwhile is
// known a few seconds after its end, and both ends of it are told once.
func TestInformerAfterOutage(t *testing.T) {
	for _, lasted := range []time.Duration{10 * time.Second, time.Minute, time.Hour} {
		t.Run(lasted.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := fakecluster.New()
				secret := func(name string) *unstructured.Unstructured {
					u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
					u.SetName(name)
					return u
				}
				var told []string
				away := &outage{}
				view := c.View(away.answer)
				r := Objects(view.Client(), Secrets, "default")
				r.Told = func(_ context.Context, err error) { told = append(told, fmt.Sprint(err)) }
				inf := r.Informer(cache.Indexers{})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); inf.RunWithContext(ctx) }()
				cache.WaitFor(ctx, "", inf.HasSyncedChecker())

				synctest.Wait() // it watches
				away.set(syscall.ECONNREFUSED)
				for _, w := range view.Watches() {
					w.Stop()
				}
				time.Sleep(lasted)
				away.set(nil)
				if _, err := c.Client().Resource(Secrets).Namespace("default").Create(ctx, secret("new"), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * watchstore.Last)
				if _, ok, _ := inf.GetStore().GetByKey("default/new"); !ok {
					t.Errorf("%s after an outage of %s the informer does not know what is new", 2*watchstore.Last, lasted)
				}
				cancel()
				<-done
				if diff := cmp.Diff([]string{"connection refused", "<nil>"}, told); diff != "" {
					t.Errorf("told (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// An answer that tells an informer to ask otherwise is told, once, and paced, if no other way to ask is taken either.
func TestInformerHasNoWayToAsk(t *testing.T) {
	for name, err := range map[string]error{
		"400": apierrors.NewBadRequest("no"), "405": apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "secrets"}, "list"),
		"406": apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "get", schema.GroupResource{Resource: "secrets"}, "", "no", 0, false),
		"410": apierrors.NewResourceExpired("too old"), "422": apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				away := &outage{err: err}
				asked := 0
				r := Objects(fakecluster.New().View(func(ctx context.Context, q fakecluster.Request, do func() error) error {
					asked++
					return away.answer(ctx, q, do)
				}).Client(), Secrets, "default")
				r.Told = func(_ context.Context, err error) { told = append(told, fmt.Sprint(err)) }
				inf := r.Informer(cache.Indexers{})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); inf.RunWithContext(ctx) }()
				time.Sleep(time.Minute)
				if len(told) != 1 || told[0] != err.Error() {
					t.Errorf("told %q", told)
				}
				time.Sleep(time.Hour)
				if asked > 200 {
					t.Errorf("%d requests in an hour", asked)
				}
				away.set(nil)
				time.Sleep(2 * watchstore.Longest)
				if !inf.HasSynced() || len(told) != 2 || told[1] != "<nil>" {
					t.Errorf("afterwards it is read: %t; told %q", inf.HasSynced(), told)
				}
				cancel()
				<-done
			})
		})
	}
}

func TestPersist(t *testing.T) {
	one, two, answer := errors.New("one"), errors.New("two"), apierrors.NewResourceExpired("too old")
	for name, tc := range map[string]struct {
		answers []error
		want    error
		told    []error
	}{
		"at once":             {[]error{nil}, nil, nil},
		"in the end":          {[]error{one, one, one, nil}, nil, []error{one, nil}},
		"for another reason":  {[]error{one, two, two, nil}, nil, []error{one, two, nil}},
		"what has to be seen": {[]error{answer}, answer, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			left := slices.Clone(tc.answers)
			var told []error
			_, err := persist(t.Context(), func(_ context.Context, err error) { told = append(told, err) }, &progress{}, func() (int, error) {
				next := left[0]
				left = left[1:]
				return 0, next
			})
			if !errors.Is(err, tc.want) || !slices.Equal(told, tc.told) || len(left) > 0 {
				t.Errorf("%s: %v, told %v, left %v", name, err, told, left)
			}
		})
	}
}
